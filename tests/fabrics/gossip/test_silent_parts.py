"""Overlays that fall apart: parts find each other again, whether they have the same or are never silent."""

from __future__ import annotations

import pytest

from antiphon.fabrics.gossip import BrisaOptions, HyParViewOptions
from antiphon.simulator.engine.actions import PartitionAction
from antiphon.simulator.network.network import NetworkPartition
from tests.fabrics.gossip.worlds import World, component

NODES = 24
START = 10_000
CUT, HEALED, LATER = 60_000, 120_000, 600_000
BUSY = 500


def overlay(world: World) -> dict[int, list[int]]:
    """The active views of topic 0."""
    return {node: [int(peer) for peer in world.brisa(node).group(0).sampling.neighbours()] for node in range(NODES)}


@pytest.mark.parametrize("contacts", [[0], [0, 1], [0, 23]], ids=["one", "two together", "one on each side"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_halves_that_were_apart_and_have_the_same_are_one_again(contacts: list[int], seed: int) -> None:
    """A partition comes and goes while the topic is quiet: both halves have all, and differ in nothing."""
    options = BrisaOptions(HyParViewOptions(active=3, passive=3), contacts=contacts)
    world = World(NODES, options, seed=seed, can_fail=True).publish(3, START, count=5)
    world.engine.at(CUT, PartitionAction(NetworkPartition(CUT, HEALED, [list(range(12))])))
    assert world.engine.run(until=LATER) == "finished", "the topic does not fall silent"
    assert component(overlay(world), 0) == set(range(NODES))
    world.publish(3, LATER).publish(20, LATER + 5000)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert world.engine.deliveries == 7 * NODES


def busy_world(contacts: list[int], seed: int, keep: int) -> World:
    """Both halves go on publishing while they are apart and long after they could be one again."""
    options = BrisaOptions(HyParViewOptions(active=3, passive=3), contacts=contacts, keep=keep, buffer=keep)
    world = World(NODES, options, seed=seed, can_fail=True)
    world.engine.at(CUT, PartitionAction(NetworkPartition(CUT, HEALED, [list(range(12))])))
    for publisher in (3, 20):
        world.publish(publisher, START, count=BUSY, gap=500)
    return world


@pytest.mark.parametrize("contacts", [[0], [0, 23]], ids=["one", "one on each side"])
@pytest.mark.parametrize("seed", [1, 2])
def test_halves_that_are_never_silent_are_one_again_while_they_publish(contacts: list[int], seed: int) -> None:
    world = busy_world(contacts, seed, keep=BUSY)
    world.engine.run(until=START + 500 * BUSY)
    assert component(overlay(world), 0) == set(range(NODES))
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert world.engine.deliveries == 2 * BUSY * NODES


def test_what_nobody_has_kept_is_passed_over_though_more_comes_all_the_time() -> None:
    """Each new publication shows the gap again: that is no reason to give up before all have said what is gone."""
    world = busy_world([0], 1, keep=64)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    assert [int(world.brisa(node).unfinished()) for node in range(NODES)] == [0] * NODES
    assert world.engine.deliveries < 2 * BUSY * NODES
