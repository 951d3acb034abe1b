"""``antiphon torture`` as people and programs call it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.cli import main as command
from antiphon.cli import torture
from antiphon.simulator import shrinking
from antiphon.simulator.campaign import KINDS
from tests.simulator.broken import LosesRefusals, break_vcube_ps

Antiphon = Callable[..., tuple[int | str | None, str, str]]


@pytest.fixture
def antiphon(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Antiphon:
    """Calls the command; gives its exit code, standard output and standard error."""

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
    for words in ("5 in ", " per hour", "hours at 1 ms per tick", "none; checked: error, duplicates", "nothing"):
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
    assert {Path(path), story} == set((tmp_path / "found").iterdir())
    assert f"torture: making seed {Path(path).stem.split('-')[1]} small, which failed by " in complained
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
            "antiphon: there is no fabric 'ring'; choose from all, cube, cube-faults, gossip, tree, epto\n",
        ),
        (
            ["--order", "best"],
            "antiphon: the order of a campaign is none, fifo, causal, total, mixed or, if none is named, drawn; not "
            "'best'\n",
        ),
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
    assert 1 <= torture.cores() <= (os.cpu_count() or 1)
