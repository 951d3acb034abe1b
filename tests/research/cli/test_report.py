"""``antiphon report`` and ``antiphon reproduce --report`` as people and programs call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon.pipeline.atomic_output import LOCK
from tests.cli.conftest import Command
from tests.research.report.markup import parsed

SMALL = ("vcube/fig-2.9", "vcube-ps/fig-5.8b", "--nodes", "16", "--repetitions", "2")
NAMES = ["vcube/fig-2.9", "vcube-ps/fig-5.8b"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Everything is written below the current directory."""
    monkeypatch.chdir(tmp_path)


def names_on(page: Path) -> list[str]:
    tree = parsed(page.read_text(encoding="utf-8"))
    return [section.attributes["data-name"] for section in tree.all("section")]


def figures_on(page: Path) -> list[str]:
    """The figures as they are written; nothing in them depends on when or how the page was made."""
    text = page.read_text(encoding="utf-8")
    return [part.partition("</figure>")[0].replace("a-tables", "b-tables") for part in text.split("<figure ")[1:]]


def test_a_report_is_written_with_the_results(command: Command, tmp_path: Path) -> None:
    called = command("reproduce", *SMALL, "--report", "a.html")
    assert called.code == 0
    assert names_on(tmp_path / "a.html") == NAMES
    assert (tmp_path / "a-tables" / "vcube_fig-2.9.csv").is_file()
    assert "by antiphon reproduce vcube/fig-2.9" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_report_of_stored_results_is_the_same(command: Command, tmp_path: Path) -> None:
    called = command("reproduce", *SMALL, "--report", "a.html", "--json")
    (tmp_path / "stored.json").write_text(called.said)
    for place in ("reproduced", "stored.json"):
        called = command("report", place, "-o", "b.html")
        assert (called.code, called.said) == (0, "2 experiments: b.html, tables in b-tables\n")
        assert names_on(tmp_path / "b.html") == NAMES
        assert figures_on(tmp_path / "b.html") == figures_on(tmp_path / "a.html")
        assert len(figures_on(tmp_path / "b.html")) == 3
    rows = [(tmp_path / f"{name}-tables" / "vcube-ps_fig-5.8b.csv").read_bytes() for name in "ab"]
    assert rows[0] == rows[1]


def test_what_was_written_for_programs(command: Command) -> None:
    command("reproduce", *SMALL)
    called = command("report", "reproduced", "--output", "c.html", "--json")
    assert json.loads(called.said) == {"page": "c.html", "tables": "c-tables", "experiments": NAMES}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "there is nothing to report on; name a place, for example: antiphon report reproduced"),
        (("absent",), "there is no file or directory absent"),
        (("broken.json",), "broken.json is not an output of antiphon reproduce --json"),
        (("empty",), "there are no results to report on"),
    ],
)
def test_misuse_is_one_sentence(command: Command, tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    (tmp_path / "broken.json").write_text('{"experiments": [{"name": 1')
    (tmp_path / "empty").mkdir()
    called = command("report", *arguments)
    assert called.code == 2
    assert complaint in called.complained
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_was_interrupted_has_nothing_to_report_yet(command: Command, tmp_path: Path) -> None:
    command("reproduce", *SMALL)
    for report in (tmp_path / "reproduced" / "reports").rglob("*.json"):
        report.unlink()
    called = command("report", "reproduced")
    assert called.code == 2
    said = " ".join(called.complained.split())
    assert "no experiment in reproduced is finished yet" in said and "antiphon reproduce again" in said
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_was_interrupted_before_its_first_measurement_has_finished_nothing(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "reproduced").mkdir()
    (tmp_path / "reproduced" / LOCK).touch()
    called = command("report", "reproduced")
    assert called.code == 2
    assert "no experiment in reproduced is finished yet" in " ".join(called.complained.split())
