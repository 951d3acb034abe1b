"""Publishers that are slowed by their neighbours go on, whatever was lost of what the neighbours said."""

from __future__ import annotations

import pytest

from antiphon.fabrics.gossip import BrisaOptions, Connections
from antiphon.simulator.engine.actions import PartitionAction
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from tests.fabrics.gossip.worlds import PERIOD, START, World
from tests.support import Notebook

WINDOW = 4
PATIENCE = 8
CUT_PERIODS = 3 * PATIENCE


def room(world: World, node: int) -> int:
    """How many publications may begin at a node."""
    return int(world.brisa(node).room(0))


@pytest.mark.parametrize("nodes", [3, 6])
def test_a_publisher_goes_on_though_all_was_lost_that_its_neighbours_said(nodes: int) -> None:
    """All get what it says and are ready for more; nothing that they say of it comes back, and nobody says it again.

    The cut is one way and shorter than it takes to notice, so that no link breaks. Another one publishes all the time,
    so nobody falls silent and compares.
    """
    slowed, busy, healed = 1, 2, START + CUT_PERIODS * PERIOD
    network = NetworkModel(ConstantDelay(10), detection=2 * CUT_PERIODS * PERIOD)
    world = World(nodes, BrisaOptions(contacts=[0], window=WINDOW), network, can_fail=True)
    world.publish(slowed, START, WINDOW, 1).publish(busy, START, 3 * CUT_PERIODS, PERIOD)
    others = [[node for node in range(nodes) if node != slowed], [slowed]]
    world.engine.at(START, PartitionAction(NetworkPartition(START, healed, others, one_way=True)))
    world.engine.run(until=healed)
    assert room(world, slowed) < WINDOW
    world.engine.run(until=healed + 2 * PATIENCE * PERIOD)
    assert room(world, slowed) == WINDOW
    assert world.engine.run(event_limit=100_000) == "finished"
    assert [room(world, node) for node in range(nodes)] == [WINDOW] * nodes
    assert [int(world.brisa(node).unfinished()) for node in range(nodes)] == [0] * nodes


class Watching(Notebook):
    """Writes down which links its process wants to hear of."""

    def __init__(self) -> None:
        super().__init__(0)
        self.watched: list[str] = []

    def watch(self, peer: int) -> None:
        self.watched.append(f"watch {peer}")

    def unwatch(self, peer: int) -> None:
        self.watched.append(f"unwatch {peer}")


def test_who_wants_a_link_that_is_broken_hears_of_it_too() -> None:
    """A late message of a dead node makes it a neighbour again; a seed is watched besides, and was lost before."""
    environment = Watching()
    connections = Connections(environment)
    connections.hold(3)
    connections.hold(3)
    connections.release(3)
    assert environment.watched == ["watch 3"]
    connections.lost(3)
    connections.hold(3)
    assert environment.watched == ["watch 3", "unwatch 3", "watch 3"]
    connections.lost(3)
    connections.found(3)
    connections.hold(3)
    assert environment.watched == ["watch 3", "unwatch 3", "watch 3"], "it is there again"
