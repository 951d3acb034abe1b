"""Races that the published rules of BRISA leave open: each is shown to be one, and to be closed.

Node 0 is the root. Paths and depths are what nodes believe at the moment; the messages that would tell them better are
still under way.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip import BrisaOptions, published_rules
from antiphon.fabrics.gossip.messages import Data, TreePosition, structure_key
from antiphon.kernel.message import FIFO
from antiphon.orders.order import Ordered
from tests.fabrics.gossip.worlds import Bench

KEY = structure_key(0, 0)


def data(sequence: int, path: list[int]) -> Data:
    publication = Ordered(0, sequence, 0, b"", vec[i64]([]), 0, FIFO)
    return Data(publication, KEY, TreePosition(vec[i64](path), len(path) - 1), False)


def deep(sequence: int, depth: int) -> Data:
    publication = Ordered(0, sequence, 0, b"", vec[i64]([]), 0, FIFO)
    return Data(publication, KEY, TreePosition(vec[i64]([]), depth), False)


RING = {1: [0, 2, 3], 2: [0, 3, 1], 3: [0, 1, 2], 4: [0]}


def three_orphans(options: BrisaOptions) -> Bench:
    """Nodes 1, 2 and 3 are children of the root and know it of each other; then all three lose it at once."""
    bench = Bench(RING, options)
    for node in (1, 2, 3):
        trees = bench.trees[node]
        trees.on_data(0, data(1, [0]), True)
        for other in (1, 2, 3):
            if other != node:
                trees.on_data(other, data(1, [0, other]), False)
    bench.run()
    for node in (1, 2, 3):
        bench.cut(node, 0)
    return bench


def cycle_of(bench: Bench) -> list[int]:
    """The nodes that one comes to from node 1 by going from parent to parent, until one repeats."""
    seen: list[int] = []
    node = 1
    while node not in seen:
        seen.append(node)
        parents = bench.trees[node].structure(KEY).parents
        if not parents:
            return []
        node = int(parents[0])
    return seen


def choose_in_a_ring(bench: Bench) -> None:
    """Each of the three adopts the next; what it knows of it says that it is a child of the root."""
    for node in (1, 2, 3):
        assert [int(parent) for parent in bench.trees[node].structure(KEY).parents] == [node % 3 + 1]


def test_published_three_orphans_adopt_each_other_and_nobody_ever_notices() -> None:
    """Section 4.2.6: soft repair relies on paths that are out of date; no data goes through the ring that closes."""
    bench = three_orphans(BrisaOptions(order="fifo", rules=published_rules()))
    choose_in_a_ring(bench)
    assert bench.run(), "everything that was sent has arrived"
    assert len(cycle_of(bench)) == 3


def test_a_new_parent_says_where_it_is_and_the_ring_opens() -> None:
    """Where the answers cross, the periodic messages say it again."""
    bench = three_orphans(BrisaOptions(order="fifo"))
    choose_in_a_ring(bench)
    for _ in range(4):
        assert bench.run()
        bench.tell_positions(KEY)
    assert bench.run()
    assert cycle_of(bench) == []


def two_of_equal_depth(options: BrisaOptions) -> Bench:
    """Nodes 1 and 2 are at depth 1, and each hears the other's copy at the same time."""
    bench = Bench({1: [0, 2], 2: [0, 1]}, options)
    for node in (1, 2):
        bench.trees[node].on_data(0, deep(1, 0), True)
    bench.on_the_way.clear()
    bench.trees[1].on_data(2, deep(1, 1), False)
    bench.trees[2].on_data(1, deep(1, 1), False)
    return bench


def test_published_two_nodes_of_equal_depth_adopt_each_other_and_go_down_for_ever() -> None:
    """Section 4.2.7: whoever adopts a node of its own depth goes one deeper and says so, and so does the other."""
    bench = two_of_equal_depth(BrisaOptions(order="fifo", parents=2, rules=published_rules(), deepest=10_000))
    assert not bench.run(most=1000), "it has not come to an end"
    assert bench.trees[1].structure(KEY).position.depth > 100


def test_of_two_nodes_of_equal_depth_one_adopts_the_other() -> None:
    bench = two_of_equal_depth(BrisaOptions(order="fifo", parents=2))
    assert bench.run(most=50)
    parents = {node: [int(each) for each in bench.trees[node].structure(KEY).parents] for node in (1, 2)}
    assert parents == {1: [0], 2: [0, 1]}
    assert [int(bench.trees[node].structure(KEY).position.depth) for node in (1, 2)] == [1, 2]


def test_who_is_deeper_than_anybody_can_be_gives_up_its_place() -> None:
    """If a cycle of depths does arise, it ends."""
    bench = two_of_equal_depth(BrisaOptions(order="fifo", parents=2, rules=published_rules(), deepest=20))
    assert bench.run(most=1000)


def test_silent_parents_are_given_up_when_neighbours_are_ahead() -> None:
    """A node whose parent has forgotten it would wait for ever; published rules let it."""
    for rules, expected in ((published_rules(), [0]), (None, [2])):
        bench = Bench({1: [0, 2]}, BrisaOptions(order="fifo", rules=rules))
        trees = bench.trees[1]
        trees.on_data(0, data(1, [0]), True)
        trees.on_data(2, data(1, [0, 2]), False)
        for _ in range(4):
            trees.seen_ahead(trees.structure(KEY))
            trees.tick()
        assert [int(parent) for parent in trees.structure(KEY).parents] == expected
