"""What a live campaign does to a cluster at a time: no more than a fabric promises to survive."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from antiphon.torture.live.campaign import EVERYTHING
from antiphon.torture.live.faults import LOST_SECONDS, SECONDS, TAKES_LIVES, Draws
from antiphon.torture.live.load import Load, LoadWork, Orders


def test_two_faults_at_once_never_take_the_lives_of_half_of_the_nodes() -> None:
    """But one that lets all of them keep what they have on disk."""
    draws = Draws(random.Random(205), [kind for kind in EVERYTHING if kind != "half"], 8)
    lives: set[int] = set()
    for _ in range(20_000):
        faults = draws.next()
        assert len(faults) <= 2
        taken = [place for fault in faults if fault.kind in TAKES_LIVES for place in fault.victims]
        assert len(set(taken)) == len(taken)
        lives.add(len(taken))
    assert lives == {0, 1, 2, 3}


@pytest.mark.parametrize("count", [4, 5, 8])
def test_half_of_the_nodes_and_more_are_killed_at_once_and_nothing_else_happens_then(count: int) -> None:
    draws = Draws(random.Random(7), EVERYTHING, count)
    sizes: set[int] = set()
    for _ in range(5000):
        faults = draws.next()
        for fault in faults:
            if fault.kind == "half":
                assert faults == [fault]
                sizes.add(len(fault.victims))
    assert sizes == set(range((count + 1) // 2, count))


def test_every_fabric_survives_that_half_of_its_nodes_are_killed_and_bursts() -> None:
    """Nodes of cubes and trees come back with their votes."""
    assert {"half", "burst"} <= set(EVERYTHING)


def test_processes_stand_still_for_less_and_for_more_than_they_may() -> None:
    assert SECONDS["pause"][1] < LOST_SECONDS < SECONDS["stall"][0]


def test_who_publishes_much_is_cut_off_with_one_companion_at_most() -> None:
    draws = Draws(random.Random(3), ("burst",), 8)
    parts = {len(fault.victims) for _ in range(200) for fault in draws.next()}
    assert parts == {1, 2}


def test_last_words_are_in_every_order_and_probes_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders(["none", "fifo", "causal", "total"])
    work = LoadWork(["here:1"], [0], ["bank"], orders, 1.0, 1, str(tmp_path))
    asked: list[tuple[int, list[str]]] = []

    async def obeyed() -> list[list[int]]:
        load = Load(work)
        (application,) = load._applications

        async def note(number: int, orders: list[str]) -> None:
            asked.append((number, orders))

        monkeypatch.setattr(application, "probe", note)
        complete = []
        for number, command in ((1, "probe"), (2, "last")):
            await load.obey(command, number, [])
            await asyncio.sleep(0)
            application.probes[number] = {(0, 0, "total"), (0, 0, "causal")}
            complete.append((await load.obey("look", 0, []))["probes"])
        application.probes[2] |= {(0, 0, "none"), (0, 0, "fifo")}
        complete.append((await load.obey("look", 0, []))["probes"])
        application.journal.close()
        return complete

    assert asyncio.run(obeyed()) == [[1], [1], [1, 2]]
    assert asked == [(1, ["total", "causal"]), (2, ["none", "fifo", "causal", "total"])]


def test_a_node_with_a_bad_disk_is_killed_at_times_before_the_disk_is_well() -> None:
    draws = Draws(random.Random(8), ("disk", "slow", "power", "crowd"), 8)
    ends = [faults for faults in (draws.next() for _ in range(2000)) if len(faults) == 2 and faults[1].after_seconds]
    assert {first.kind for first, _ in ends} == {"disk", "slow"}
    assert all(first.victims == second.victims and second.kind == "power" for first, second in ends)
    assert not any(len(faults) == 2 for faults in [Draws(random.Random(8), ("disk",), 8).next() for _ in range(100)])


def test_a_crowd_comes_alone_or_with_anything_else() -> None:
    draws = Draws(random.Random(9), EVERYTHING, 8)
    besides = {other.kind for faults in (draws.next() for _ in range(20_000)) for other in faults[1:]
               if faults[0].kind == "crowd"}  # fmt: skip
    assert besides == set(EVERYTHING) - {"half", "crowd"}
