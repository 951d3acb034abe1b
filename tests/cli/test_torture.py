"""``antiphon torture`` as people and programs call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.cli import main as command
from antiphon.cli.torture import simulated as torture
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture import campaign, processes, progress, shrinking
from antiphon.torture.results import RESULTS, CampaignJournal, Ended, Failed, Progress, SeedPlan, records_in
from antiphon.torture.tally import KINDS, Outcome, Tally
from tests.torture.broken import LosesRefusals, break_vcube_ps

Antiphon = Callable[..., tuple[int | str | None, str, str]]


@pytest.fixture
def antiphon(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Antiphon:
    """Calls the command in a directory of its own; gives its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        said, complained = capfdbinary.readouterr()
        return stopped.value.code, said.decode(), complained.decode()

    return call


def test_a_program_reads_json_and_nothing_else(antiphon: Antiphon) -> None:
    code, said, complained = antiphon("torture", "--fabric", "cube", "--seeds", 12, "--seed", 40, "--jobs", 1, "--json")
    found = json.loads(said)
    assert code == 0
    assert "torture: 1/1 12 schedules, " in complained
    assert list(found) == [
        "first_seed",
        "fresh",
        "ended",
        "seeds",
        "simulated_seconds",
        "faults",
        "fabrics",
        "networks",
        "orders",
        "publications",
        "messages",
        "dropped",
        "deliveries",
        "moves",
        "gaps",
        "recovered",
        "recovery_ticks_mean",
        "recovery_ticks_longest",
        "holes",
        "agreement",
        "calm_agreement",
        "violations",
        "stuck",
        "failing_seeds",
        "scenarios",
        "results",
        "seconds",
        "seeds_before",
        "seeds_per_hour",
    ]
    assert found["seeds"] == sum(found["orders"].values()) == 12
    assert found["violations"] == dict.fromkeys([kind for kind in KINDS if kind != "stuck"], 0)
    assert (found["stuck"], found["failing_seeds"], found["scenarios"]) == (0, [], [])
    assert found["messages"] > found["deliveries"] > 0
    assert found["simulated_seconds"] > 0
    assert set(found["faults"]) == {"subscribe", "unsubscribe", "pause"}


def test_the_manual_names_every_key(antiphon: Antiphon) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "torture.md").read_text()
    for key in json.loads(antiphon("torture", "--seeds", 1, "--jobs", 1, "--json")[1]):
        assert f"`{key}`" in manual


def test_the_order_can_be_chosen(antiphon: Antiphon) -> None:
    found = json.loads(
        antiphon("torture", "--fabric", "cube", "--seeds", 8, "--order", "fifo", "--jobs", 1, "--json")[1]
    )
    assert found["orders"] == {"fifo": 8}


def test_a_person_reads_a_table(antiphon: Antiphon) -> None:
    code, said, _ = antiphon("torture", "--seeds", 5, "--jobs", 1)
    assert code == 0
    for words in ("5 in ", " per hour", "hours at 1 ms per tick", "none; checked: error, identity", "nothing"):
        assert words in said


def test_a_failure_becomes_a_file_that_simulate_replays(
    antiphon: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_vcube_ps(monkeypatch, LosesRefusals)
    monkeypatch.setattr(torture, "MAXIMUM_SHRUNK", 1)
    monkeypatch.setattr(shrinking, "PATIENCE", (3,))
    arguments = ("torture", "--fabric", "cube", "--seeds", 6, "--jobs", 1, "--out", tmp_path / "found")
    code, said, complained = antiphon(*arguments, "--json")
    found = json.loads(said)
    assert code == 1
    assert len(found["failing_seeds"]) > 1
    assert found["stuck"] > 0
    (path,) = found["scenarios"]
    story = Path(path).with_suffix(".txt")
    results = tmp_path / "found" / RESULTS
    assert {Path(path), story, results} == set((tmp_path / "found").iterdir())
    failed = [record.seed for record in records_in(results) if isinstance(record, Failed)]
    assert failed == found["failing_seeds"]
    assert f"torture: shrinking seed {Path(path).stem.split('-')[1]}, which failed by " in complained
    code, said, _ = antiphon("simulate", path, "--json")
    assert code == 1
    assert any(json.loads(said)["violations"].values())
    again = tmp_path / "again.txt"
    assert antiphon("simulate", path, "--level", "everything", "--trace", again)[0] == 1
    assert again.read_text() == story.read_text()
    assert "  publish " in story.read_text()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert antiphon("simulate", path)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--fabric", "ring"],
            "antiphon: there is no fabric 'ring'; choose from all, cube, cube-faults, tree, gossip, epto, spaces, "
            "clients, streams, membership, services\n",
        ),
        (
            ["--order", "best"],
            "antiphon: a campaign has no order 'best'; choose from none, fifo, causal, total, mixed, or leave it out "
            "to draw orders\n",
        ),
        (["--fresh", "--seed", "7"], "antiphon: --fresh draws the first seed; leave out --seed, or --fresh\n"),
    ],
)
def test_misuse_is_explained(antiphon: Antiphon, arguments: list[str], complaint: str) -> None:
    assert antiphon("torture", *arguments) == (2, "", complaint)


@pytest.mark.slow
def test_processes_that_share_the_work_find_the_same(antiphon: Antiphon) -> None:
    """Two tasks in two processes that are started afresh."""

    def found(jobs: int) -> dict[str, object]:
        result = json.loads(antiphon("torture", "--seeds", 60, "--jobs", jobs, "--json")[1])
        return {key: value for key, value in result.items() if key not in ("seconds", "seeds_per_hour")}

    assert found(2) == found(1)


def test_all_cores_are_used_unless_told_otherwise() -> None:
    assert 1 <= processes.cores() <= (os.cpu_count() or 1)


# Nothing is lost.


def failing(scenario: Scenario) -> Outcome:
    """Seed 3 and seed 5 break promises, in different ways."""
    violations = {3: {"fifo": 2}, 5: {"stuck": 1}}.get(scenario.seed, {})
    return Outcome(seed=scenario.seed, fabric="cube", violations=violations, about="such as this")


def test_an_error_while_a_failure_is_made_small_costs_nothing_but_that(
    antiphon: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(self: shrinking.Shrinker) -> Scenario:
        raise TypeError("'int' object is not subscriptable")

    monkeypatch.setattr(campaign, "run_schedule", failing)
    monkeypatch.setattr(shrinking.Shrinker, "shrink", stumble)
    code, said, complained = antiphon("torture", "--fabric", "cube", "--seeds", 6, "--jobs", 1, "--json")
    found = json.loads(said)
    assert code == 1
    assert (found["ended"], found["seeds"], found["failing_seeds"]) == ("finished", 6, [3, 5])
    assert complained.count("cannot be shrunk (TypeError: 'int' object is not subscriptable)") == 2
    assert found["scenarios"] == ["torture-3.toml", "torture-5.toml"]
    text = (tmp_path / "torture-3.toml").read_text()
    assert text.startswith("# Seed 3 of antiphon torture, as it was drawn, which failed by: fifo.\n")
    assert antiphon("simulate", "torture-3.toml")[0] == 0


def test_a_scenario_that_cannot_be_written_costs_nothing_but_that(
    antiphon: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "run_schedule", failing)
    monkeypatch.setattr(shrinking.Shrinker, "shrink", lambda self: self.scenario)
    (tmp_path / "torture-3.toml").mkdir()
    code, said, complained = antiphon("torture", "--fabric", "cube", "--seeds", 4, "--jobs", 1, "--json")
    assert (code, json.loads(said)["failing_seeds"]) == (1, [3])
    assert "the schedule of seed 3 is not written as a scenario: PeerError: cannot write torture-3.toml" in complained


@pytest.mark.parametrize(("last", "code"), [(2, 130), (4, 1)])
def test_who_interrupts_gets_the_result_so_far(
    antiphon: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int, code: int
) -> None:
    """Portions of two seeds; the interruption comes after ``last``, in the middle of a portion if that is 3."""

    def run(scenario: Scenario) -> Outcome:
        if scenario.seed > last:
            raise KeyboardInterrupt
        return failing(scenario)

    monkeypatch.setattr(campaign, "run_schedule", run)
    monkeypatch.setattr(campaign, "SEEDS_PER_TASK", 2)
    ended, said, complained = antiphon("torture", "--fabric", "cube", "--seeds", 100, "--jobs", 1, "--json")
    found = json.loads(said)
    assert ended == code
    assert (found["ended"], found["seeds"]) == ("interrupted", last)
    assert found["failing_seeds"] == ([3] if last > 2 else [])
    assert found["scenarios"] == (["torture-3.toml"] if last > 2 else [])
    assert "Traceback" not in complained
    (end,) = [record for record in records_in(tmp_path / RESULTS) if isinstance(record, Ended)]
    assert (end.how, end.result["seeds"]) == ("interrupted", last)


def test_a_failure_in_a_portion_that_was_interrupted_counts(
    antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(scenario: Scenario) -> Outcome:
        if scenario.seed > 3:
            raise KeyboardInterrupt
        return failing(scenario)

    monkeypatch.setattr(campaign, "run_schedule", run)
    code, said, _ = antiphon("torture", "--fabric", "cube", "--seeds", 100, "--jobs", 1, "--json")
    found = json.loads(said)
    assert (code, found["seeds"], found["failing_seeds"]) == (1, 0, [3])


def test_what_ends_a_campaign_ends_in_a_result(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object, **__: object) -> Tally:
        raise MemoryError("no room")

    monkeypatch.setattr(campaign, "run_seeds", end)
    code, said, complained = antiphon("torture", "--fabric", "cube", "--seeds", 10, "--jobs", 1, "--json")
    assert (code, json.loads(said)["ended"]) == (1, "stopped")
    assert "the campaign could not continue: MemoryError: no room" in complained


@pytest.mark.slow
@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)])
def test_processes_that_are_interrupted_say_what_they_found(tmp_path: Path, number: int, jobs: int) -> None:
    """Also if the same request comes twice, and reaches all processes of the group."""
    command = [
        "torture",
        "--fabric",
        "cube",
        "--seeds",
        "100000",
        "--jobs",
        str(jobs),
        "--json",
        "--out",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "antiphon", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        give_up = time.monotonic() + 300
        while not any(isinstance(one, Progress) for one in records_in(tmp_path / RESULTS)):
            assert time.monotonic() < give_up
            time.sleep(0.1)
        # Twice, as timeout does: a process, and then its group.
        process.send_signal(number)
        os.killpg(process.pid, number)
        said, complained = process.communicate(timeout=300)
    assert process.returncode == 130
    found = json.loads(said)
    assert (found["ended"], found["failing_seeds"]) == ("interrupted", [])
    assert 0 < found["seeds"] < 100_000
    assert b"Traceback" not in complained


# Fresh seeds.


def test_fresh_seeds_are_drawn_far_away_and_said(antiphon: Antiphon, tmp_path: Path) -> None:
    arguments = ("torture", "--fabric", "cube", "--seeds", 2, "--jobs", 1, "--fresh")
    code, said, complained = antiphon(*arguments, "--json")
    found = json.loads(said)
    assert (code, found["fresh"]) == (0, True)
    assert progress.LEAST_FRESH <= found["first_seed"] < progress.MOST_FRESH
    assert f"torture: fresh seeds from {found['first_seed']} on\n" in complained
    again = json.loads(antiphon(*arguments, "--json")[1])
    assert again["first_seed"] != found["first_seed"]
    said = antiphon(*arguments)[1]
    assert "on; fresh, never run before" in said
    assert "failed      0 of 2 schedules, below 0.78 (one-sided 95 %)" in said
    rate = found["fabrics"]["cube"]["failure_rate"]
    assert (rate["rate"], rate["interval"]) == (0.0, "one-sided 95 %")
    named = json.loads(antiphon("torture", "--fabric", "cube", "--seeds", 1, "--jobs", 1, "--json")[1])
    assert (named["first_seed"], named["fresh"]) == (1, False)


def test_seeds_that_were_run_are_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SeedPlan(first_seed=progress.LEAST_FRESH + 100, seeds=50, fabric="tree")
    CampaignJournal(tmp_path, plan)
    drawn = iter([140, 95, 51, 200])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    assert progress.fresh_seed(tmp_path / RESULTS, 10) == progress.LEAST_FRESH + 51
