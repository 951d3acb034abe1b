"""The record in the documentation: every published number and experiment, with verdicts that its own cells bear out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from antiphon_lab.report.ledger import NOT_MEASURED, claims
from antiphon_lab.report.record import EXPERIMENT_COLUMNS, NUMBER_COLUMNS, escaped, record_page
from antiphon_lab.reproduction.registry import EXPERIMENTS
from antiphon_lab.reproduction.verdicts import DIFFERS, REFUTED, VERDICTS
from tests.research.report.test_ledger import recorded_results

PAGE = Path(__file__).parents[3] / "docs" / "record.md"
SEPARATOR = " | "


def table_of(text: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of the table with these columns."""
    lines = text.split("\n")
    start = lines.index(f"| {SEPARATOR.join(columns)} |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("| "):
            break
        cells = line.removeprefix("| ").removesuffix(" |").split(SEPARATOR)
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def numbers(page: str) -> list[dict[str, str]]:
    return table_of(page, NUMBER_COLUMNS)


def test_the_record_has_every_published_number_as_the_data_have_it(numbers: list[dict[str, str]]) -> None:
    published = {f"`{number.key}`": f"{number.value:g} {number.unit}" for _, number in claims()}
    assert {row["number"] for row in numbers} == set(published)
    for row in numbers:
        assert row["published"] == published[row["number"]]


def test_a_number_without_a_row_has_the_reason_of_the_data(numbers: list[dict[str, str]]) -> None:
    reasons = {f"`{number.key}`": escaped(number.unmeasured or NOT_MEASURED) for _, number in claims()}
    without = [row for row in numbers if not row["measured"]]
    assert without
    for row in without:
        assert row["row"] == reasons[row["number"]]
        assert not row["verdict"] and not row["interval"] and not row["experiment"]


def inside(row: dict[str, str]) -> bool:
    """Whether the measured value lies in the interval, both as printed, with the rounding of four digits."""
    measured = float(row["measured"])
    words = row["interval"].split()
    if words[0] in ("above", "below"):
        border = float(words[1])
        return measured >= border if words[0] == "above" else measured <= border
    low, high = float(words[0]), float(words[-1])
    slack = 0.006 * max(abs(low), abs(high))
    return low - slack <= measured <= high + slack


def is_direction(row: dict[str, str]) -> bool:
    """Whether the interval says on which side of the published number the value lies: the number is its border."""
    words = row["interval"].split()
    return words[0] in ("above", "below") or row["published"].split()[0] in (words[0], words[-1])


def test_every_verdict_follows_from_its_cells(numbers: list[dict[str, str]]) -> None:
    for row in numbers:
        if row["verdict"] in (DIFFERS, REFUTED):
            # The border of a direction must be cleared by the whole confidence interval, which the page does not have.
            assert not inside(row) or is_direction(row), row
        elif row["verdict"]:
            assert row["verdict"] in VERDICTS
            assert inside(row), row


def test_rows_and_verdicts_add_up(page: str, numbers: list[dict[str, str]]) -> None:
    stated = {row["verdict"]: int(row["rows"]) for row in table_of(page, ("verdict", "rows"))}
    # A row of fewer than three repetitions is measured and has no verdict.
    counted = Counter(row["verdict"] if row["measured"] else "no row" for row in numbers)
    assert stated == {name: counted[name] for name in stated}
    differing = [line for line in page.split("\n") if line.startswith("- `")]
    assert len(differing) == counted[DIFFERS]


def finished_in(page: str) -> list[str]:
    """The experiments that the page has results of."""
    return [row["experiment"].strip("`") for row in table_of(page, EXPERIMENT_COLUMNS)]


def test_every_experiment_was_run_or_is_named(page: str) -> None:
    absent = [line for line in page.split("\n") if line.startswith("**Not finished**")]
    named = {experiment.name for experiment in EXPERIMENTS if absent and f"`{experiment.name}`" in absent[0]}
    assert finished_in(page) == [experiment.name for experiment in EXPERIMENTS if experiment.name not in named]
    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    for row in table_of(page, EXPERIMENT_COLUMNS):
        experiment = by_name[row["experiment"].strip("`")]
        assert int(row["measurements"]) == experiment.steps(experiment.default), row["experiment"]
        assert float(row["processor s"]) >= 0


def test_the_rows_are_those_that_the_code_compares(page: str, numbers: list[dict[str, str]]) -> None:
    """On recorded measurements the same experiments compare the same numbers."""
    finished = finished_in(page)
    keys = {number.key for _, number in claims()}
    compared = {
        (f"`{row.key}`", f"`{result.name}`")
        for result in recorded_results()
        for row in result.rows
        if row.key in keys and result.name in finished
    }
    assert {(row["number"], row["experiment"]) for row in numbers if row["verdict"]} == compared


def test_the_page_of_a_run_has_what_the_run_measured() -> None:
    """The generator itself, on recorded results without their measurements."""
    results = recorded_results()[:3]
    text = record_page(results, {result.name: [] for result in results})
    rows = [row for row in table_of(text, NUMBER_COLUMNS) if row["verdict"]]
    assert len(rows) == sum(bool(row.key) for result in results for row in result.rows)
    assert [row["experiment"] for row in table_of(text, EXPERIMENT_COLUMNS)] == [f"`{one.name}`" for one in results]
