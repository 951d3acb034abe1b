"""Disks in trouble: what a crash loses then, what nodes do about it, and what is judged."""

from __future__ import annotations

import pytest

from antiphon.audit import verdict
from antiphon.kernel.errors import ScenarioError
from antiphon.kernel.process import Process
from antiphon.simulator.engine.disks import CubeDisks
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import Result, Simulation, run_scenario
from antiphon.trace.store import MemoryTrace

SYSTEM = """
protocol = "vcube-ps-lasting"
nodes = 4
protocol-options = { log = 1000 }
network = { in_order = true, detection = 50 }
topics = { members = ["0-3"] }
"""
WORDS = "".join(f"[[publish]]\nat = {at}\nnode = 0\n" for at in (100, 2000, 2500, 9000))
CRASH = """
[[fault]]
at = 3000
kind = "crash"
node = 1
[[fault]]
at = 5000
kind = "restart"
node = 1
"""


def disk(at: int, what: str, until: int | None = None) -> str:
    """The disk of node 1 is in trouble."""
    end = "" if until is None else f"until = {until}\n"
    return f'[[fault]]\nat = {at}\nkind = "disk"\nnode = 1\nwhat = "{what}"\n{end}'


def deliveries_at(node: int, text: str) -> list[int]:
    """The numbers of what a node delivers, in its order."""
    memory = MemoryTrace("deliveries")
    Simulation(parse_scenario(SYSTEM + text), memory.recorder).run()
    rows = memory.table().to_pylist()
    return [row["sequence"] for row in rows if row["event"] == "deliver" and row["node"] == node]


def result(text: str) -> Result:
    return run_scenario(parse_scenario(SYSTEM + text))


@pytest.mark.parametrize(
    ("trouble", "delivered"),
    [
        ("", [1, 2, 3, 4]),
        (disk(1000, "torn"), [1, 2, 3, 2, 3, 4]),
        (disk(1000, "full"), [1, 2, 3, 2, 3, 4]),
        (disk(2300, "torn"), [1, 2, 3, 3, 4]),
        (disk(1000, "torn", 2900), [1, 2, 3, 4]),
        (disk(1000, "full", 2900), [1, 2, 3, 4]),
    ],
)
def test_what_was_not_safe_comes_again_after_a_crash(trouble: str, delivered: list[int]) -> None:
    assert deliveries_at(1, WORDS + CRASH + trouble) == delivered


def test_what_nobody_was_shown_is_not_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = WORDS + CRASH + disk(1000, "torn")
    assert result(text).violations is not None
    assert sum((result(text).violations or {}).values()) == 0
    monkeypatch.setattr(verdict, "without_unshown", lambda table: table)
    assert (result(text).violations or {})["duplicates"] == 2


def test_who_counts_as_past_what_its_disk_lost_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a node would that notes how far it has come before the write is safe."""
    crashes = CubeDisks.crashes

    def note_too_much(disks: CubeDisks, engine: Engine, node: int, process: Process) -> None:
        crashes(disks, engine, node, process)
        disks._past[node, 0] = process.frontier_keys(0)

    monkeypatch.setattr(CubeDisks, "crashes", note_too_much)
    assert (result(WORDS + CRASH + disk(1000, "torn")).violations or {})["completeness"] == 2


def test_what_a_node_publishes_makes_all_before_it_safe() -> None:
    own = "[[publish]]\nat = 2700\nnode = 1\n"
    assert deliveries_at(1, WORDS + CRASH + disk(1000, "torn") + own) == [1, 2, 3, 1, 4]


def test_a_full_disk_takes_no_publications() -> None:
    own = "".join(f"[[publish]]\nat = {at}\nnode = 1\n" for at in (500, 1500, 2900))
    ran = result(WORDS + own + disk(1000, "full", 2800))
    assert (ran.planned, ran.published) == (7, 6)
    assert sum((ran.violations or {}).values()) == 0


@pytest.mark.parametrize("what", ["lost", "flip"])
def test_a_damaged_log_is_refused(what: str) -> None:
    with pytest.raises(ScenarioError, match="the log of node 1 is damaged and is refused; let another node join"):
        result(WORDS + CRASH + disk(2999, what))


def test_there_must_be_disks() -> None:
    text = 'nodes = 4\nworkload = { kind = "once" }\n[[fault]]\nat = 1\nkind = "disk"\nnode = 1\nwhat = "torn"\n'
    with pytest.raises(ScenarioError, match="nodes have no disks to restart with"):
        parse_scenario(text)
    with pytest.raises(ScenarioError, match="expected a time after the fault begins at 50, not 50"):
        parse_scenario(SYSTEM + WORDS + disk(50, "torn", 50))
