"""``antiphon reproduce`` as people and programs call it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from antiphon_lab.experiments.vcube.broadcasts import BroadcastCase
from antiphon_lab.experiments.vcube.one_tree import FIG_2_9
from antiphon_lab.experiments.vcube.several_publishers import FIG_5_8B
from antiphon_lab.reproduction import registry
from antiphon_lab.reproduction.documents import Interval, Number
from antiphon_lab.reproduction.experiment import Sample, compared
from antiphon_lab.reproduction.figures import Figure
from antiphon_lab.reproduction.machine import Machine
from antiphon_lab.reproduction.verdicts import VERDICTS
from tests.cli.conftest import Command
from tests.research.reproduced import NAMES, Reproduced

SMALL = ("--nodes", "16", "--repetitions", "2")


class ReportedRow(msgspec.Struct, forbid_unknown_fields=True):
    """What programs rely on."""

    label: str
    unit: str
    published: float | None
    measured: float
    spread: float | None
    confidence: float | None
    repetitions: int
    deviation: float | None
    interval: tuple[float | None, float | None] | None
    because: str | None
    verdict: str | None
    reason: str | None
    where: str | None
    says: str | None
    key: str | None


class Reported(msgspec.Struct, forbid_unknown_fields=True):
    """What programs rely on."""

    name: str
    document: str
    description: str
    meaning: str
    command: str
    parameters: dict[str, object]
    seconds: float
    antiphon: str
    machine: Machine
    rows: list[ReportedRow]
    figures: list[Figure]
    notes: list[str]


class Reports(msgspec.Struct, forbid_unknown_fields=True):
    """What programs rely on."""

    experiments: list[Reported]
    failed: dict[str, str]
    out: str


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measurements are written below the current directory."""
    monkeypatch.chdir(tmp_path)


def test_a_program_reads_json_and_nothing_else(reproduced: Reproduced) -> None:
    assert reproduced.code == 0
    decoded = msgspec.json.decode(reproduced.said, type=Reports)
    assert (decoded.failed, decoded.out) == ({}, "reproduced")
    reports = decoded.experiments
    assert [report.name for report in reports] == NAMES
    for report in reports:
        assert report.seconds > 0
        assert report.rows and report.notes and report.document
        assert {"seed", "repetitions_by_nodes"} <= set(report.parameters)
        assert all(row.verdict in (None, *VERDICTS) for row in report.rows)
        assert all(row.because and row.interval for row in report.rows if row.published is not None)


def test_a_published_number_comes_with_its_deviation_and_verdict(command: Command) -> None:
    called = command("reproduce", "vcube-ps/fig-5.8b", "--json", "--nodes", "256", "--repetitions", "3")
    (report,) = msgspec.json.decode(called.said, type=Reports).experiments
    first = report.rows[0]
    assert (first.published, first.unit, first.verdict) == (37, "%", "reproduced")
    assert first.deviation == pytest.approx(first.measured / 37 - 1)
    assert (first.repetitions, first.key) == (3, "sbac-pad:fig-5b/increase-256")
    assert first.interval is not None and first.interval[0] is not None and first.interval[0] <= 36
    assert first.because == "±1: both latencies are open by half a percent each: a point"
    second = report.rows[1]
    assert (second.published, second.verdict) == (1, "derived"), "VCube-PS takes as long as its trees"
    assert all((row.published, row.deviation, row.verdict) == (None, None, None) for row in report.rows[2:])


def test_the_seed_decides_the_numbers(command: Command) -> None:
    def rows(seed: int) -> list[ReportedRow]:
        called = command("reproduce", "vcube/fig-2.9", "--json", "--seed", seed, *SMALL)
        return msgspec.json.decode(called.said, type=Reports).experiments[0].rows

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_progress_goes_to_standard_error(command: Command) -> None:
    called = command("reproduce", "vcube/fig-2.9", "--json", *SMALL)
    assert called.complained.startswith("reproduce: 0/16 done, 0 running, 16 left")
    assert "reproduce: 16/16 done, 0 running, 0 left" in called.complained


def test_a_person_reads_a_table_and_notes(command: Command) -> None:
    called = command("reproduce", "vcube-ps/fig-5.8b", "--nodes", "256", "--repetitions", "3")
    lines = [" ".join(line.split()) for line in called.said.splitlines()]
    assert any(line.startswith("vcube-ps/fig-5.8b thesis, Figure 5.8(b)") for line in lines)
    assert "published measured ± interval unit verdict" in lines
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
    ] == ["vcube/fig-2.9", "vcube/diagnosis"]


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
    wrong = compared("wrong", Sample((1.0,) * 3), Number(2.0, "ticks", "here", "two", Interval("a test", relative=0.1)))
    experiment = replace(FIG_5_8B, compare=lambda *_: iter([wrong]))
    monkeypatch.setattr(registry, "EXPERIMENTS", (experiment,))
    called = command("reproduce", *SMALL, *json_too)
    assert called.code == 1
    assert "differs" in called.said


def test_no_name_means_all_and_all_means_no_name(command: Command) -> None:
    called = command("reproduce", "--all", "vcube/fig-2.9")
    assert (called.code, called.said) == (2, "")
    assert "--all is all experiments; leave it out, or leave out vcube/fig-2.9" in called.complained
    listed = [command("reproduce", "--list", *every).said for every in ((), ("--all",))]
    assert listed[0] == listed[1]


def test_the_end_says_where_things_lie(command: Command, tmp_path: Path) -> None:
    called = command("reproduce", "vcube/fig-2.9", *SMALL)
    assert "16 measurements run, 0 finished before, 0 failed" in called.said
    assert "reports: reproduced/reports; measurements: reproduced/measurements" in called.said
    report = json.loads((tmp_path / "reproduced" / "reports" / "vcube" / "fig-2.9.json").read_bytes())
    assert report["name"] == "vcube/fig-2.9"
    assert len(list((tmp_path / "reproduced" / "measurements").rglob("*.json"))) == 16


def test_a_finished_experiment_is_shown_again_and_not_run_again(command: Command, tmp_path: Path) -> None:
    first = command("reproduce", "vcube/fig-2.9", *SMALL, "--out", tmp_path / "kept")
    records = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept" / "measurements").rglob("*.json")}
    # A master that nobody answers at would be complained about.
    again = command("reproduce", "vcube/fig-2.9", *SMALL, "--out", tmp_path / "kept", "--master", "spark://127.0.0.1:1")
    assert again.code == 0
    assert "0 measurements run, 16 finished before" in again.said
    assert first.said.partition("measurements run")[0][:-3] == again.said.partition("measurements run")[0][:-2]
    assert {path: path.stat().st_mtime_ns for path in records} == records


def test_a_master_that_does_not_answer_is_one_sentence_and_what_is_finished_stays(
    command: Command, tmp_path: Path
) -> None:
    command("reproduce", "vcube/fig-2.9", *SMALL)
    called = command("reproduce", "vcube/fig-2.9", "--nodes", "32", "--master", "spark://127.0.0.1:1")
    assert called.code == 1
    assert "no Spark master answers at 127.0.0.1:1" in called.complained
    assert len(list((tmp_path / "reproduced" / "measurements").rglob("*.json"))) == 16


def test_in_process_means_without_spark(command: Command) -> None:
    called = command("reproduce", "vcube/fig-2.9", "--in-process", "--cores", "2")
    assert called.code == 2
    assert "--in-process uses no Spark; leave it out, or leave out --master and --cores" in called.complained


def test_a_place_that_is_a_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "reproduced").write_text("in the way")
    called = command("reproduce", "vcube/fig-2.9", *SMALL)
    assert called.code == 1
    assert "cannot write to reproduced" in called.complained


def fails(case: BroadcastCase, seed: int) -> float:
    raise ZeroDivisionError("planted")


def test_an_experiment_that_fails_is_reported_and_the_others_go_on(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(FIG_2_9, name="vcube/broken", measure=fails)
    monkeypatch.setattr(registry, "EXPERIMENTS", (broken, FIG_2_9))
    called = command("reproduce", *SMALL, "--json")
    assert called.code == 1
    decoded = msgspec.json.decode(called.said, type=Reports)
    assert [report.name for report in decoded.experiments] == ["vcube/fig-2.9"]
    assert "ZeroDivisionError: planted (and 15 more)" in decoded.failed["vcube/broken"]
    assert "vcube/broken failed: " in called.complained
