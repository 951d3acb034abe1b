"""``antiphon reproduce`` as people and programs call it."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from antiphon.lab import registry
from antiphon.lab.documents import Number, Tolerance
from antiphon.lab.experiment import Sample, compared
from antiphon.lab.several_publishers import FIG_5_8B
from tests.cli.conftest import Command

SMALL = ("--nodes", "16", "--repetitions", "2")


class ReportedRow(msgspec.Struct, forbid_unknown_fields=True):
    """What programs rely on."""

    label: str
    unit: str
    published: float | None
    measured: float
    deviation: float | None
    verdict: str | None


class Reported(msgspec.Struct, forbid_unknown_fields=True):
    """What programs rely on."""

    name: str
    document: str
    parameters: dict[str, object]
    seconds: float
    rows: list[ReportedRow]
    notes: list[str]


class Reports(msgspec.Struct, forbid_unknown_fields=True):
    """What programs rely on."""

    experiments: list[Reported]


def test_a_program_reads_json_and_nothing_else(command: Command) -> None:
    called = command("reproduce", "--json", *SMALL)
    assert called.code == 0
    reports = msgspec.json.decode(called.said, type=Reports).experiments
    assert [report.name for report in reports] == [experiment.name for experiment in registry.EXPERIMENTS]
    for report in reports:
        assert report.seconds > 0
        assert report.rows and report.notes and report.document
        assert {"seed", "repetitions_by_nodes", "tolerances"} <= set(report.parameters)
        assert all(row.verdict in (None, "reproduced", "explained", "differs") for row in report.rows)


def test_a_published_number_comes_with_its_deviation_and_verdict(command: Command) -> None:
    called = command("reproduce", "vcube-ps/fig-5.8b", "--json", "--nodes", "256", "--repetitions", "1")
    (report,) = msgspec.json.decode(called.said, type=Reports).experiments
    first = report.rows[0]
    assert (first.published, first.unit, first.verdict) == (37, "%", "reproduced")
    assert first.deviation == pytest.approx(first.measured / 37 - 1)
    assert report.parameters["tolerances"] == {first.label: "±1"}
    assert all((row.published, row.deviation, row.verdict) == (None, None, None) for row in report.rows[1:])


def test_the_seed_decides_the_numbers(command: Command) -> None:
    def rows(seed: int) -> list[ReportedRow]:
        called = command("reproduce", "vcube/fig-2.9", "--json", "--seed", seed, *SMALL)
        return msgspec.json.decode(called.said, type=Reports).experiments[0].rows

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_progress_goes_to_standard_error(command: Command) -> None:
    called = command("reproduce", "vcube/fig-2.9", "--json", *SMALL)
    assert called.complained.startswith("vcube/fig-2.9: 1/16 VCube-PS, 8 nodes")
    assert "vcube/fig-2.9: 16/16 " in called.complained


def test_a_person_reads_a_table_and_notes(command: Command) -> None:
    called = command("reproduce", "vcube-ps/fig-5.8b", "--nodes", "256", "--repetitions", "2")
    lines = [" ".join(line.split()) for line in called.said.splitlines()]
    assert any(line.startswith("vcube-ps/fig-5.8b thesis, Figure 5.8(b)") for line in lines)
    assert "published measured ± deviation unit verdict" in lines
    assert any(line.startswith("SRPT above VCube-PS, 256 nodes 37 ") and line.endswith("reproduced") for line in lines)


def test_the_list_of_experiments(command: Command) -> None:
    called = command("reproduce", "--list")
    assert (called.code, called.complained) == (0, "")
    for experiment in registry.EXPERIMENTS:
        (line,) = (line for line in called.said.splitlines() if line.startswith(f"{experiment.name} "))
        assert " ".join(experiment.document.split()[:3]) in line
        assert " ".join(experiment.description.split()[:4]) in line


def test_the_list_for_programs(command: Command) -> None:
    listed = json.loads(command("reproduce", "--list", "--json").said)["experiments"]
    assert [entry["name"] for entry in listed] == [experiment.name for experiment in registry.EXPERIMENTS]
    assert all(list(entry) == ["name", "document", "description"] for entry in listed)
    assert [entry["description"] for entry in listed] == [one.description for one in registry.EXPERIMENTS]
    assert [
        entry["name"] for entry in json.loads(command("reproduce", "vcube", "--list", "--json").said)["experiments"]
    ] == ["vcube/fig-2.9"]


def test_an_unknown_name_is_misuse_and_met_with_a_guess(command: Command) -> None:
    called = command("reproduce", "vcube-ps/table-5.2")
    assert (called.code, called.said) == (2, "")
    assert "there is no experiment 'vcube-ps/table-5.2'; did you mean 'vcube-ps/table-5.1'?" in called.complained


@pytest.mark.parametrize("arguments", [("--nodes", "1"), ("--repetitions", "0"), ("--nodes", "many")])
def test_numbers_without_a_meaning_are_misuse(command: Command, arguments: tuple[str, ...]) -> None:
    assert command("reproduce", "vcube/fig-2.9", *arguments).code == 2


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_a_number_that_differs_for_no_known_reason_fails(
    command: Command, monkeypatch: pytest.MonkeyPatch, json_too: tuple[str, ...]
) -> None:
    wrong = compared("wrong", Sample((1.0,)), Number(2.0, "ticks", "here", "two", Tolerance(relative=0.1)))
    experiment = replace(FIG_5_8B, compare=lambda *_: iter([wrong]))
    monkeypatch.setattr(registry, "EXPERIMENTS", (experiment,))
    called = command("reproduce", *SMALL, *json_too)
    assert called.code == 1
    assert "differs" in called.said
