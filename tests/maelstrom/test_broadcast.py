"""The goals: 25 nodes and links of 100 ms, with few messages and little delay, and nothing lost in partitions.

In virtual time: what is asserted here depends on no machine. ``docs/maelstrom.md`` has the figures of real processes.
"""

from __future__ import annotations

from random import Random

import pytest

from antiphon.maelstrom.history import History
from antiphon.maelstrom.host import HostOptions
from antiphon.maelstrom.links import LinkOptions
from antiphon.maelstrom.nemesis import PARTITIONS
from antiphon.maelstrom.services import options_for
from antiphon.maelstrom.set_checker import SetVerdict, check_set
from tests.maelstrom.world import World, play

SECOND = 1_000_000
MESSAGES_PER_OPERATION = 20
MEDIAN_MS = 400
LONGEST_MS = 600


def verdict(history: History) -> SetVerdict:
    return check_set(history.events, "broadcast", history.cuts)


def test_25_nodes_with_100_ms_links_meet_the_goals() -> None:
    world = World("broadcast", 25, options_for("broadcast", 24, 50, None))
    events = play(world, rate=100, seconds=5)
    found = verdict(world.history)
    operations = sum(event.outcome == "invoke" for event in events)
    assert found.is_valid
    assert found.stable == found.acknowledged > 200
    assert world.messages / operations <= MESSAGES_PER_OPERATION
    assert found.stable_latencies_ms["0.5"] < MEDIAN_MS
    assert found.stable_latencies_ms["1"] < LONGEST_MS


@pytest.mark.parametrize("kind", PARTITIONS)
def test_the_same_through_partitions_counted_from_when_they_are_over(kind: str) -> None:
    world = World("broadcast", 25, options_for("broadcast", 24, 50, None))
    random = Random(kind)
    world.run_until(SECOND)
    world.cut(PARTITIONS[kind](world.names, random), kind)
    events = play(world, rate=100, seconds=5, heals_after_seconds=3)
    found = verdict(world.history)
    operations = sum(event.outcome == "invoke" for event in events)
    assert found.is_valid
    assert found.stable == found.acknowledged > 200
    assert world.messages / operations <= MESSAGES_PER_OPERATION
    assert found.calm_latencies_ms["0.5"] < MEDIAN_MS
    assert found.calm_latencies_ms["1"] < LONGEST_MS
    assert found.caught_latencies_ms["1"] < LONGEST_MS


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_when_the_tree_is_repaired_in_partitions(seed: int) -> None:
    """Nodes give each other up after a second and go on in parts; loss, doubling and reordering on top."""
    options = HostOptions(
        fan_out=3, patience_us=SECOND // 2, links=LinkOptions(patience_us=SECOND, beat_us=SECOND // 3)
    )
    world = World("broadcast", 9, options, 20_000, seed, spread=True, loss=0.05, doubling=0.05)
    random = Random(seed)
    for value in range(200):
        world.run_until(world.now_us + random.randrange(200_000))
        if random.random() < 1 / 20:
            world.cut({} if world.cuts else PARTITIONS[random.choice(list(PARTITIONS))](world.names, random))
        place = random.randrange(len(world.names))
        world.add(place, world.names[place], value)
    world.cut({})
    world.run_until(world.now_us + 60 * SECOND)
    for name in world.names:
        assert sorted(world.read(0, name)) == list(range(200))


def test_parts_of_a_repaired_tree_go_on_by_themselves() -> None:
    world = World("g-set", 7, HostOptions(links=LinkOptions(patience_us=SECOND)))
    apart = frozenset({"n0", "n1"})
    others = frozenset(world.names) - apart
    world.cut({name: (others if name in apart else apart) for name in world.names})
    world.run_until(20 * SECOND)
    assert world.answer(world.ask("n5", type="add", element=1)) == {"type": "add_ok"}
    world.run_until(22 * SECOND)
    shown = {name: world.answer(world.ask(name, type="read"))["value"] for name in world.names}
    assert shown == {name: ([] if name in apart else [1]) for name in world.names}
    world.cut({})
    world.run_until(40 * SECOND)
    assert all(world.answer(world.ask(name, type="read"))["value"] == [1] for name in world.names)
