"""The rivals of BRISA (thesis of M. Matos, section 4.3.5), and Plumtree, about which it argues (section 4.4)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from antiphon.fabrics.gossip import BrisaOptions, HyParViewOptions
from antiphon.fabrics.gossip.sampling.cyclon import CyclonOptions
from antiphon.kernel import UsageError
from antiphon.simulator.engine.actions import CrashAction, RestartAction
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.protocols.gossip.plumtree import Announce, EagerTrees, PlumtreeOptions
from antiphon_lab.protocols.gossip.simple_gossip import SimpleGossipOptions, needed_view, usual_fanout
from antiphon_lab.protocols.gossip.simple_tree import RandomTree, SimpleTreeOptions
from antiphon_lab.protocols.gossip.splitstream import SplitStreamOptions
from antiphon_lab.protocols.gossip.tag import Tag, TagOptions, room_in_tree
from antiphon_lab.protocols.gossip.tag_list import ListOfNodes, TagList
from antiphon_lab.protocols.gossip.thicket import ThicketOptions, ThicketTrees
from tests.fabrics.gossip.worlds import NODES, SOURCE, START, World, duplicates, flood_then_tree, links


def gossip_options(fanout: int = 5, **changes: object) -> SimpleGossipOptions:
    return SimpleGossipOptions(CyclonOptions(30, 8, 10), fanout, **changes)  # type: ignore[arg-type]


def complete(world: World, source: int = SOURCE) -> list[int]:
    """Up to which number each node that is alive has everything of a source."""
    return [
        int(world.brisa(int(node.identifier)).group(0).stream(source).received.complete)
        for node in world.engine.nodes
        if node.process is not None
    ]


EVERYTHING = {
    "SimpleGossip": gossip_options(),
    "SimpleTree": SimpleTreeOptions(),
    "TAG": TagOptions(),
    "Plumtree": PlumtreeOptions(order="fifo"),
    "Plumtree, a tree per source": PlumtreeOptions(order="causal", per_source=True),
    "Thicket": ThicketOptions(HyParViewOptions(8), trees=3),
    "Thicket, a single tree": ThicketOptions(trees=1, fanout=2, max_load=2),
    "SplitStream": SplitStreamOptions(4, 6),
    "SplitStream, a single stripe": SplitStreamOptions(1, 3),
}


@pytest.mark.parametrize("options", EVERYTHING.values(), ids=EVERYTHING.keys())
def test_everybody_gets_everything_of_several_publishers(options: BrisaOptions) -> None:
    """Table 4.2: whatever the structure and whether it is pushed or pulled."""
    world = World(NODES, options).publish(SOURCE, START, count=10).publish(0, START + 50, count=10)
    assert world.engine.run(event_limit=2_000_000) == "finished"
    assert world.engine.deliveries == 20 * NODES
    assert all(world.brisa(node).unfinished() == 0 for node in range(NODES))


# Plumtree.


def test_plumtree_prunes_until_every_node_gets_each_publication_once() -> None:
    """Section 4.4: duplicates deactivate links, as in BRISA; the flood is the same, and what follows is a tree."""
    flood_then_tree(PlumtreeOptions(order="fifo"))


def test_in_plumtree_links_that_carry_nothing_carry_names() -> None:
    """Section 4.4: inactive links are used for announcements, at the price of a message per link and publication."""
    world = World(NODES, PlumtreeOptions(order="fifo")).publish(SOURCE, START, count=5)
    world.engine.run()
    trees = world.brisa(SOURCE).group(0).trees
    assert isinstance(trees, EagerTrees)
    structure = trees.structure(trees.key_of(SOURCE, 1))
    neighbours = world.brisa(SOURCE).group(0).sampling.neighbours()
    assert 0 < len(structure.targets) <= len(neighbours)
    eager = sum(len(world.brisa(node).group(0).trees.structure(0).targets) for node in range(NODES))
    # Both ends of an eager link know of it: those of a tree, twice.
    assert eager == 2 * (NODES - 1)
    assert links(world) > NODES - 1


def test_plumtree_grafts_what_was_announced_and_did_not_come() -> None:
    """Section 4.4: a timer runs from the announcement; without any other recovery the tree heals by it."""
    options = PlumtreeOptions(order="fifo", recovers=False, graft_after=300)
    world = World(NODES, options, can_fail=True).publish(SOURCE, START, count=40)
    trees = [world.brisa(node).group(0).trees for node in range(NODES)]
    world.engine.run(START + 2000)
    inner = Counter(int(parent) for each in trees for parent in each.structure(0).parents if parent not in (0, SOURCE))
    dead = inner.most_common(1)[0][0]
    world.engine.at(START + 2001, CrashAction(dead))
    world.engine.run()
    assert set(complete(world)) == {40}
    assert sum(int(each.grafts) for each in trees if isinstance(each, EagerTrees)) > 0


def test_plumtree_is_sensitive_to_delays_that_vary() -> None:
    """Section 4.4: a timer shorter than copies differ in delay asks for what would have come."""
    grafts = {}
    for graft_after in (20, 1000):
        options = PlumtreeOptions(order="fifo", graft_after=graft_after)
        world = World(NODES, options, NetworkModel(NormalDelay(50, 20))).publish(SOURCE, START, count=20)
        world.engine.run()
        trees = [world.brisa(node).group(0).trees for node in range(NODES)]
        grafts[graft_after] = sum(int(each.grafts) for each in trees if isinstance(each, EagerTrees))
        assert world.engine.deliveries == 20 * NODES
    assert grafts[20] > 10 * grafts[1000]


# Thicket.


def thicket_world(
    options: BrisaOptions, messages: int = 40, can_fail: bool = False
) -> tuple[World, list[ThicketTrees]]:
    network = NetworkModel(NormalDelay(50, 10))
    world = World(NODES, options, network, can_fail=can_fail).publish(SOURCE, START, count=messages)
    found = [world.brisa(node).group(0).trees for node in range(NODES)]
    return world, [each for each in found if isinstance(each, ThicketTrees)]


def children_by_tree(world: World, node: int) -> list[int]:
    """The number of children that a node has in each tree of the source."""
    structures = world.brisa(node).group(0).trees.structures.values()
    return [len({*one.targets} - {*one.parents}) for one in structures]


def test_in_thicket_every_node_works_and_most_in_a_single_tree() -> None:
    """Section 4.4: the number of trees where a node is interior is balanced; with BRISA that is left to chance."""
    view = HyParViewOptions(8)
    interior, most_children = {}, {}
    for name, options in (
        ("Thicket", ThicketOptions(view, 4, order="fifo")),
        ("BRISA", BrisaOptions(view, order="fifo", trees=4)),
    ):
        world, _ = thicket_world(options)
        world.engine.run()
        assert world.engine.deliveries == 40 * NODES
        loads = [children_by_tree(world, node) for node in range(NODES) if node != SOURCE]
        interior[name] = Counter(sum(load > 0 for load in each) for each in loads)
        most_children[name] = max(map(sum, loads))
    assert interior["Thicket"][0] < 0.05 * NODES
    assert interior["Thicket"][1] > 0.5 * NODES
    assert interior["BRISA"][0] > 0.5 * NODES
    assert most_children["Thicket"] < 0.7 * most_children["BRISA"]


def test_a_node_refuses_a_second_tree_and_more_children_than_it_may_have() -> None:
    """A refusal is no loss: the publication comes with it, and the next node is asked."""
    world, trees = thicket_world(ThicketOptions(HyParViewOptions(8), 3, 3, 4, order="fifo", recovers=False))
    world.engine.run()
    assert world.engine.deliveries == 40 * NODES
    assert sum(int(each.refused) for each in trees) > 0
    loads = [sum(children_by_tree(world, node)) for node in range(NODES) if node != SOURCE]
    # A node that all others have refused insists, so some have more.
    assert sum(load <= 4 for load in loads) > 0.75 * NODES


def test_thicket_grafts_what_was_announced_after_a_crash() -> None:
    """Section 4.4: trees are repaired by missing messages, without any other recovery."""
    options = ThicketOptions(HyParViewOptions(8), 2, order="fifo", recovers=False, graft_after=300)
    world, trees = thicket_world(options, can_fail=True)
    world.engine.run(START + 4000)
    before = sum(int(each.grafts) for each in trees)
    dead = max(
        (node for node in range(NODES) if node not in (0, SOURCE)), key=lambda node: trees[node].stream_load(SOURCE)
    )
    world.engine.at(START + 4001, CrashAction(dead))
    world.engine.run()
    assert set(complete(world)) == {40}
    assert sum(int(each.grafts) for each in trees) > before


def test_one_tree_for_all_is_longer_for_others_than_trees_of_their_own() -> None:
    """Section 4.4: a shared tree fits the source that built it, and costs others latency."""
    latency = {}
    for per_source in (False, True):
        options = PlumtreeOptions(order="none", per_source=per_source)
        world = World(NODES, options).publish(SOURCE, START, count=3)
        world.engine.run(START + 5000)
        before = int(world.engine.latency_sum)
        for node in range(20, 40):
            world.publish(node, START + 5000 + 300 * node, count=2)
        world.engine.run()
        assert world.engine.deliveries == 43 * NODES
        latency[per_source] = int(world.engine.latency_sum) - before
    assert latency[False] > 1.2 * latency[True]


# SimpleGossip.


def test_rumours_are_pushed_once_by_everybody_to_as_many_as_the_fanout() -> None:
    """Section 4.3.5, infect and die: the copies of a publication are the fanout times those who heard it."""
    fanout = 4
    world = World(NODES, gossip_options(fanout, join_window=0)).publish(SOURCE, START)
    world.engine.run()
    assert world.engine.deliveries == NODES
    # Each node but the source has one copy that is not too many. Who learnt of it by asking pushes nothing.
    copies = duplicates(world) + NODES - 1
    assert (NODES - 6) * fanout <= copies <= NODES * fanout + 6


def test_anti_entropy_brings_what_rumours_miss() -> None:
    """Section 4.3.5: a fanout of 1 reaches few; everybody else asks."""
    world = World(NODES, gossip_options(1)).publish(SOURCE, START, count=5)
    world.engine.run()
    assert world.engine.deliveries == 5 * NODES


def test_the_fanout_and_the_view_follow_from_the_number_of_nodes() -> None:
    """Sections 2.3.3 and 4.3.5: ln 512 is 6.24; a view of ln n + 4.6 is connected with probability 0.99."""
    assert usual_fanout(512) == 7
    assert [needed_view(nodes) for nodes in (2, 30, 100, 500, 1000, 10_000)] == [1, 9, 10, 11, 12, 14]


# SimpleTree.


def test_parents_of_a_simple_tree_joined_before_their_children() -> None:
    """Section 4.3.5: the coordinator draws any of those; so there is no cycle, and copies too many are none."""
    world = World(NODES, SimpleTreeOptions(join_window=20_000)).publish(SOURCE, 30_000, count=5)
    world.engine.run()
    parents = {}
    for node in range(NODES):
        place = world.brisa(node).group(0).sampling
        assert isinstance(place, RandomTree)
        parents[node] = int(place.parent)
    assert [node for node in parents if parents[node] < 0] == [0]
    for node in range(NODES):
        above, steps = node, 0
        while above != 0:
            above, steps = parents[above], steps + 1
            assert steps < NODES
    assert links(world) == NODES - 1
    assert duplicates(world) == 0
    assert world.engine.deliveries == 5 * NODES


def test_a_simple_tree_costs_one_question_per_node_and_nothing_while_nothing_happens() -> None:
    """Section 4.3.5: a single step with the coordinator."""
    world = World(NODES, SimpleTreeOptions())
    world.engine.run()
    # Asked, told, told the parent, and what a newcomer and a node that falls silent ask.
    assert world.engine.sent < 12 * NODES


# TAG.


def tag(world: World, node: int) -> TagList:
    process = world.brisa(node)
    assert isinstance(process, Tag)
    return process.place(0)


def test_the_list_of_tag_is_in_the_order_of_joining_and_parents_come_before_children() -> None:
    """Section 4.3.5: all know the two before them; a newcomer goes back until it meets a suitable parent."""
    world = World(NODES, TagOptions(capacity=3, deepest=4))
    world.engine.run()
    places = {node: tag(world, node) for node in range(NODES)}
    by_rank = sorted(places, key=lambda node: int(places[node].rank))
    assert by_rank[0] == 0
    for before, node in pairwise(by_rank):
        assert places[node].predecessor == before
        assert places[int(places[node].parent)].rank < places[node].rank
        assert places[node].depth == places[int(places[node].parent)].depth + 1 <= 4
    for first, _, third in zip(by_rank, by_rank[1:], by_rank[2:], strict=False):
        assert places[third].second == first
    assert all(len(place.children) <= 3 for place in places.values())


def test_one_message_for_each_question_makes_a_stream_of_tag_twice_as_long() -> None:
    """Table 4.3: five per second, a question every 0.4 s; all at once with larger batches."""
    ends = {}
    for batch in (1, 8):
        world = World(16, TagOptions(batch=batch)).publish(0, START, count=50)
        world.engine.run()
        assert world.engine.deliveries == 50 * 16
        ends[batch] = int(world.engine.latency_maximum)
    assert ends[1] > 50 * 200 * 0.9
    assert ends[8] < 4 * 3 * 400


def test_a_node_of_tag_that_loses_its_parent_finds_another_in_the_list() -> None:
    """Section 4.3.5: the list is mended with the second predecessor, and gone along again."""
    world = World(NODES, TagOptions(batch=4), can_fail=True).publish(0, START, count=60)
    world.engine.run(START + 2000)
    for number, node in enumerate((5, 23, 31, 48)):
        world.engine.at(START + 2001 + 2000 * number, CrashAction(node))
    world.engine.run()
    assert set(complete(world, 0)) == {60}
    alive = [node for node in range(1, NODES) if world.engine.nodes[node].process is not None]
    assert len(alive) == NODES - 5
    for node in alive:
        assert tag(world, node).rank > tag(world, int(tag(world, node).parent)).rank


def test_where_two_in_a_row_fail_the_list_is_broken_and_a_node_is_put_in_again() -> None:
    """Section 4.3.5: the hard repair of TAG. A single failure needs none."""
    late = 4 * START
    for failing in (1, 2):
        # So slowly that each has a parent before the next one comes.
        options = TagOptions(batch=4, join_window=3 * START)
        world = World(NODES, options, can_fail=True).publish(0, late, count=60)
        world.engine.run(late + 2000)
        by_rank = sorted(range(NODES), key=lambda node: int(tag(world, node).rank))
        # Somebody whose parent is the last before it.
        at = next(at for at in range(20, NODES) if tag(world, by_rank[at]).parent == by_rank[at - 1])
        for node in by_rank[at - failing : at]:
            world.engine.at(late + 2001, CrashAction(node))
        world.engine.run()
        assert set(complete(world, 0)) == {60}
        place = tag(world, by_rank[at])
        assert place.predecessor == by_rank[at - failing - 1]
        assert place.rank > tag(world, int(place.parent)).rank
        assert place.breaks == place.repairs.hard == place.repairs.recovered_hard == failing - 1
        assert place.repairs.soft == 2 - failing


def test_who_asks_twice_for_a_place_gets_one_and_who_comes_back_another() -> None:
    """Section 2.1: a process that recovers is a new one."""
    register = ListOfNodes(0)
    assert register.add(7, 100) == register.add(7, 100) == 1
    assert register.add(8, 100) == 2
    assert register.add(7, 200) == 3
    assert [register.before(3, 1), register.before(3, 2), register.before(2, 1)] == [8, 0, 0]


def test_a_node_of_tag_that_comes_back_joins_at_the_end() -> None:
    world = World(16, TagOptions(batch=4), NetworkModel(ConstantDelay(10), detection=3000), can_fail=True)
    world.publish(0, START, count=60)
    world.engine.at(START + 1000, CrashAction(5))
    world.engine.at(START + 1100, RestartAction(5))
    world.engine.run()
    assert set(complete(world, 0)) == {60}
    assert tag(world, 5).rank == 16


# Configurations that cannot work.


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: gossip_options(0), "fanout of 0 no rumour spreads"),
        (lambda: gossip_options(31), "from a view of 30 no 31 nodes can be drawn"),
        (lambda: gossip_options(5, batch=0), "answers with 0 publications mend nothing"),
        (lambda: gossip_options(5, patience=3), "a patience of at least 20"),
        (lambda: CyclonOptions(8, 4, 0), "an exchange every 0 periods"),
        (lambda: PlumtreeOptions(graft_after=0), "after 0 ticks nothing can have come"),
        (lambda: PlumtreeOptions(HyParViewOptions(active=2, expansion=1.0)), "chain or a ring"),
        (lambda: SimpleTreeOptions(contacts=[0, 1]), "one node has to know the order of joins, not 2"),
        (lambda: TagOptions(contacts=[]), "one node has to know"),
        (lambda: TagOptions(capacity=0), "cannot work with capacity = 0"),
        (lambda: TagOptions(handshakes=-1), "cannot be negative"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(make: object, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        make()  # type: ignore[operator]


def test_the_room_in_a_tree() -> None:
    assert [room_in_tree(8, 1), room_in_tree(8, 2), room_in_tree(1, 5)] == [9, 73, 6]


def test_announcements_are_control_messages() -> None:
    assert Announce(1, 2).is_control()
