"""Every normative statement has a test that exists, or a reason why there is none."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TABLES = {"mqtt_5.toml": 251, "mqtt_3_1_1.toml": 142}
"""So many statements each version has, at least: so that none is lost from the tables."""


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / "normative" / name).read_text(encoding="utf-8"))


def functions_of(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize("name", TABLES)
def test_each_statement_names_a_test_that_exists_or_why_there_is_none(name: str) -> None:
    rows = table(name)
    assert len(rows) >= TABLES[name]
    for number, row in rows.items():
        assert re.fullmatch(r"\d+(\.\d+){2}-\d+", number)
        assert row.keys() in ({"says", "test"}, {"says", "not_here"}), number
        assert len(row["says"]) > 10, number
        if "test" in row:
            file, _, test = row["test"].partition("::")
            assert test in functions_of(file), f"{number}: there is no {test} in {file}"


@pytest.mark.parametrize("name", TABLES)
def test_the_numbers_of_a_section_have_no_gap(name: str) -> None:
    sections: dict[str, list[int]] = {}
    for number in table(name):
        section, _, last = number.partition("-")
        sections.setdefault(section, []).append(int(last))
    for section, numbers in sections.items():
        # The first statement of section 2.2.1 of MQTT 5 has no number of its own any more.
        first = 2 if section == "2.2.1" and name == "mqtt_5.toml" else 1
        assert numbers == list(range(first, first + len(numbers))), section


def test_most_statements_are_shown() -> None:
    for name in TABLES:
        rows = table(name).values()
        assert sum("test" in row for row in rows) > 0.8 * len(rows)
