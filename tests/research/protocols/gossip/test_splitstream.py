"""SplitStream: the ring under it, places in stripes, the limit of children, and failures (Castro et al., 2003)."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.kernel.process import NO_NODE
from antiphon.simulator.engine.actions import CrashAction
from antiphon.simulator.network.delays import NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.protocols.gossip.pastry import SIDE, Pastry, identifier_of, ring_distance
from antiphon_lab.protocols.gossip.splitstream import SplitStreamOptions, StripeTrees
from tests.fabrics.gossip.worlds import NODES, SOURCE, START, World

STRIPES, MOST = 4, 6


def split_world(messages: int = 40, can_fail: bool = False) -> World:
    options = SplitStreamOptions(STRIPES, MOST, order="fifo", join_window=5000)
    network = NetworkModel(NormalDelay(50, 10), in_order=True)
    return World(NODES, options, network, can_fail=can_fail).publish(SOURCE, START, count=messages)


def parts(world: World, node: int) -> tuple[Pastry, StripeTrees]:
    """The ring and the stripes at a node."""
    group = world.brisa(node).group(0)
    assert isinstance(group.sampling, Pastry)
    assert isinstance(group.trees, StripeTrees)
    return group.sampling, group.trees


def alive(world: World) -> list[int]:
    return [node for node in range(NODES) if world.engine.nodes[node].process is not None]


def check_ring(world: World) -> None:
    """Every node knows those next to it, and every key has one root: the node that is nearest."""
    nodes = alive(world)
    ring = sorted(nodes, key=lambda node: int(identifier_of(node)))
    for place, node in enumerate(ring):
        near = {ring[(place + step) % len(ring)] for step in range(-SIDE, SIDE + 1)} - {node}
        assert {int(peer) for peer in parts(world, node)[0].neighbours()} == near
    for stripe in range(STRIPES):
        key = parts(world, nodes[0])[1].place_of(stripe)
        nearest = min(nodes, key=lambda node: int(ring_distance(identifier_of(node), key)))
        assert [node for node in nodes if parts(world, node)[0].next_hop(key) == NO_NODE] == [nearest]
        for node in nodes:
            # A message gets there, in no more hops than a few digits.
            hops, at = 0, node
            while at != nearest:
                at, hops = int(parts(world, at)[0].next_hop(key)), hops + 1
                assert hops <= 6


def check_stripes(world: World) -> None:
    """In each stripe every node hangs below the root, and parents and children agree."""
    for stripe in range(STRIPES):
        parent = {}
        for node in alive(world):
            structure = parts(world, node)[1].structure(stripe)
            for child in structure.targets:
                assert int(child) not in parent, "a node has one parent"
                parent[int(child)] = node
                assert [int(each) for each in parts(world, int(child))[1].structure(stripe).parents] == [node]
        roots = [node for node in alive(world) if node not in parent]
        assert len(roots) == 1
        for node in alive(world):
            depth, at = 0, node
            while at in parent:
                at, depth = parent[at], depth + 1
                assert depth < NODES, "a cycle"
            assert at == roots[0]
            assert int(parts(world, node)[1].structure(stripe).position.depth) == depth


def test_the_ring_and_the_stripes_are_whole_and_nobody_has_too_many_children() -> None:
    world = split_world()
    world.engine.run()
    assert world.engine.deliveries == 40 * NODES
    check_ring(world)
    check_stripes(world)
    loads = [int(parts(world, node)[1].stream_load()) for node in range(NODES)]
    assert max(loads) == MOST
    assert sum(loads) == STRIPES * (NODES - 1)
    assert sum(int(parts(world, node)[1].dropped) for node in range(NODES)) > 0


def test_most_are_interior_where_their_identifier_says() -> None:
    world = split_world()
    world.engine.run()
    at_home = elsewhere = 0
    for node in range(NODES):
        trees = parts(world, node)[1]
        for structure in trees.structures.values():
            count = len(structure.targets)
            at_home, elsewhere = (
                (at_home + count, elsewhere) if trees.belongs(node, structure.key) else (at_home, elsewhere + count)
            )
    # By chance it would be a quarter.
    assert at_home > 0.5 * (at_home + elsewhere)


def test_a_root_and_busy_nodes_fail_and_the_stripes_are_whole_again() -> None:
    world = split_world(messages=80, can_fail=True)
    world.engine.run(START + 2000)
    key = parts(world, 0)[1].place_of(0)
    root = min((node for node in range(NODES)), key=lambda node: int(ring_distance(identifier_of(node), key)))
    busy = sorted(range(NODES), key=lambda node: -int(parts(world, node)[1].stream_load()))
    gone = [node for node in dict.fromkeys([root, *busy]) if node not in (0, SOURCE)][:4]
    for number, node in enumerate(gone):
        world.engine.at(START + 2001 + 1500 * number, CrashAction(node))
    world.engine.run()
    for node in alive(world):
        assert int(world.brisa(node).group(0).stream(SOURCE).received.complete) == 80
    check_ring(world)
    check_stripes(world)


@pytest.mark.parametrize(
    ("trees", "most", "complaint"),
    [(3, 6, "1, 2, 4, 8 or 16 stripes, not 3"), (32, 64, "not 32"), (8, 7, "may have 7")],
)
def test_what_cannot_work_is_refused(trees: int, most: int, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        SplitStreamOptions(trees, most)
