"""The ledger: every published number has a line, and none is without a row or a reason."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from antiphon_lab.report.ledger import NOT_MEASURED, claims, counts_of, ledger
from antiphon_lab.report.page import ends, ledger_page
from antiphon_lab.report.stored import Result, results_of
from antiphon_lab.report.write import ledger_of, write_results
from tests.cli.conftest import Command
from tests.research.report.markup import parsed
from tests.research.reproduction.recording import HELD, repeated, values_of


@cache
def recorded_results() -> list[Result]:
    """The results of all default plans on recorded measurements."""
    reports = [held.report(held.default, 1, repeated(held, values_of(held)), 2.5) for held in HELD]
    return results_of(reports)


def test_every_published_number_has_a_row_or_a_reason() -> None:
    entries = ledger(recorded_results())
    assert {entry.key for entry in entries} == {number.key for _, number in claims()}
    assert [entry.key for entry in entries if entry.reason == NOT_MEASURED] == []
    for entry in entries:
        assert entry.claim and entry.where and entry.unit
        assert (entry.label is None) == (entry.measured is None)
        if entry.label is not None:
            assert entry.verdict and entry.because and entry.experiment and entry.seconds == 2.5
            assert entry.interval is not None


def test_no_reason_is_given_for_a_number_that_default_plans_measure() -> None:
    measured = {entry.key for entry in ledger(recorded_results()) if entry.label is not None}
    excused = {number.key for _, number in claims() if number.unmeasured}
    # The reason of a table is for the cells without a row.
    assert {key for key in measured & excused if key.count("/") < 3} == set()


def test_without_reports_every_line_says_what_to_do() -> None:
    entries = ledger([])
    assert len(entries) == len(list(claims())) > 300
    assert counts_of(entries)["no row"] == len(entries)
    assert {entry.reason for entry in entries} >= {NOT_MEASURED}


def test_the_page_has_every_line_and_the_report_leads_to_it(tmp_path: Path) -> None:
    results = recorded_results()[:3]
    path = tmp_path / "report.html"
    write_results(results, path)
    page = ledger_of(path).read_text(encoding="utf-8")
    assert page == ledger_page(results, "report.html")
    lines = list(parsed(page).all("tr"))
    assert len(lines) == 1 + len(ledger(results))
    assert 'href="report-ledger.html"' in path.read_text(encoding="utf-8")


def test_intervals_in_words() -> None:
    assert ends(None) == ""
    assert ends((1.0, None)) == "above 1"
    assert ends((None, 2.5)) == "below 2.5"
    assert ends((2.0, 2.0)) == "2"
    assert ends((1.5, 2.5)) == "1.5 to 2.5"


def test_the_command_prints_the_ledger_of_a_directory(command: Command, tmp_path: Path) -> None:
    called = command("reproduce", "--ledger", "--json", "--out", str(tmp_path / "nothing"))
    assert called.code == 0
    printed = json.loads(called.said)
    assert len(printed["claims"]) == printed["counts"]["no row"] > 300
    (tmp_path / "reports").mkdir()
    for result in recorded_results()[:2]:
        place = tmp_path / "reports" / f"{result.slug}.json"
        place.write_bytes(msgspec.json.encode(result))
    called = command("reproduce", "--ledger", "--out", str(tmp_path))
    said = " ".join(called.said.split())
    assert "reproduced" in said and "no row" in said
    assert called.code == int("0 differs" not in said)
