"""``antiphon torture --fabric clients``: all that a campaign finds is in its journal, and a failure is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.simulator.clients.world import ClientSchedule
from antiphon.torture import campaign as common
from antiphon.torture.clients import campaign
from antiphon.torture.clients.campaign import run_client_schedule
from antiphon.torture.clients.schedules import draw_client_schedule
from antiphon.torture.results import RESULTS, Began, Ended, Failed, records_in
from antiphon.torture.tally import Outcome
from tests.cli.conftest import Command


def fails(schedule: ClientSchedule) -> Outcome:
    """A schedule that breaks a promise."""
    found = run_client_schedule(schedule)
    return msgspec.structs.replace(found, violations={"lost": 1}, about="for the test")


def breaks(*_: Any) -> ClientSchedule:
    raise ValueError("for the test")


def test_a_failing_schedule_is_in_the_journal_and_written_also_if_it_cannot_be_shrunk(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "run_client_schedule", fails)
    monkeypatch.setattr(campaign, "shrink", breaks)
    new = tmp_path / "not" / "there"
    called = command("torture", "--fabric", "clients", "--seeds", 1, "--seed", 7, "--jobs", 1, "--out", new, "--json")
    assert called.code == 1
    found = json.loads(called.said)
    assert (found["violations"]["lost"], found["failing_seeds"]) == (1, [7])
    assert "cannot be shrunk" in called.complained
    (path,) = found["scenarios"]
    assert msgspec.json.decode(Path(path).read_bytes(), type=ClientSchedule) == draw_client_schedule(7)
    records = list(records_in(new / RESULTS))
    assert [record.seed for record in records if isinstance(record, Failed)] == [7]
    assert isinstance(records[-1], Ended) and records[-1].result["failing_seeds"] == [7]


def test_fresh_seeds_are_never_run_twice(command: Command, tmp_path: Path) -> None:
    for _ in range(2):
        called = command("torture", "--fabric", "clients", "--seeds", 2, "--fresh", "--jobs", 1, "--out", tmp_path)
        assert called.code == 0 and "clients" in called.said
    began = [record for record in records_in(tmp_path / RESULTS) if isinstance(record, Began)]
    assert len({record.plan.first_seed for record in began}) == 2 and all(record.plan.fresh for record in began)
