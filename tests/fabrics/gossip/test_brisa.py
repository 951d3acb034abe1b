"""BRISA (thesis of M. Matos, chapter 4): structures, strategies, repair, several trees, reuse, members."""

from __future__ import annotations

from itertools import pairwise

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip import Brisa, BrisaOptions, HyParViewOptions
from antiphon.fabrics.gossip.messages import FetchRequest, FetchResponse, NotKept, structure_key
from antiphon.kernel import UsageError
from antiphon.simulator.engine.actions import (
    CrashAction,
    PartitionAction,
    RestartAction,
    SubscribeAction,
    UnsubscribeAction,
)
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.delays import ConstantDelay, LinkDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from tests.fabrics.gossip.worlds import NODES, SOURCE, START, World, duplicates, flood_then_tree, links
from tests.simulator.engine.post import Do
from tests.support import Notebook

KEY = structure_key(SOURCE, 0)


def depth_of(parents: dict[int, list[int]], node: int) -> int:
    """The longest way up; it ends, because nobody is an ancestor of himself."""
    seen = 0
    frontier = {node}
    while frontier:
        frontier = {parent for each in frontier for parent in parents[each]}
        seen += 1
        assert seen <= len(parents), "there is a cycle"
    return seen - 1


# Structures.


def test_flooding_sends_each_publication_twice_over_each_link_but_those_of_a_tree() -> None:
    """Section 4.2.1 and figure 4.3: 2 E - (n - 1) copies, so each node has as many too many as its degree less 2."""
    world = World(NODES, BrisaOptions(order="none", floods=True)).publish(SOURCE, START, count=3)
    world.engine.run()
    assert world.engine.deliveries == 3 * NODES
    assert duplicates(world) == 3 * (2 * links(world) - 2 * (NODES - 1))


def test_a_tree_emerges_and_then_every_node_gets_each_publication_once() -> None:
    """Section 4.2.3: one parent each, n - 1 active links, no copy too many after the first flood."""
    world = flood_then_tree(BrisaOptions(order="fifo"))
    parents = world.structures(KEY)
    assert {node for node, mine in parents.items() if len(mine) != 1} == {SOURCE}
    assert parents[SOURCE] == []
    assert max(depth_of(parents, node) for node in parents) < 10


def test_the_path_that_travels_with_data_is_the_way_to_the_root() -> None:
    """Section 4.2.4."""
    world = World(NODES, BrisaOptions(order="fifo")).publish(SOURCE, START, count=3)
    world.engine.run()
    parents = world.structures(KEY)
    for node in range(NODES):
        path = [int(each) for each in world.brisa(node).group(0).trees.structure(KEY).position.path]
        assert path[0] == SOURCE and path[-1] == node
        assert all(parents[child] == [parent] for parent, child in pairwise(path))


def test_graphs_have_no_cycle_and_two_parents_wherever_there_can_be_two() -> None:
    """Section 4.2.7: only whoever has no second neighbour that is less deep, or as deep, has a single parent."""
    world = World(NODES, BrisaOptions(order="fifo", parents=2)).publish(SOURCE, START, count=30)
    world.engine.run()
    parents = world.structures(KEY)
    assert world.engine.deliveries == 30 * NODES
    trees = {node: world.brisa(node).group(0).trees.structure(KEY) for node in parents}
    assert all(
        trees[mother].position.depth < trees[node].position.depth for node in parents for mother in parents[node]
    )
    assert sum(len(mine) == 2 for mine in parents.values()) > NODES / 2
    for node in parents:
        if node != SOURCE and len(parents[node]) < 2:
            others = set(world.brisa(node).group(0).sampling.neighbours()) - set(parents[node])
            assert all(trees[int(other)].position.depth > trees[node].position.depth for other in others)


def test_a_publisher_with_several_trees_spreads_the_work() -> None:
    """Section 4.2.8: who is inner node in one tree is mostly leaf in another."""
    world = World(NODES, BrisaOptions(order="fifo", trees=4), NetworkModel(NormalDelay(50, 20))).publish(
        SOURCE, START, 40
    )
    world.engine.run()
    assert world.engine.deliveries == 40 * NODES
    leaves = []
    for tree in range(4):
        parents = world.structures(structure_key(SOURCE, tree))
        leaves.append(set(range(NODES)) - {mother for mine in parents.values() for mother in mine})
    assert len(set.intersection(*leaves)) < min(len(each) for each in leaves) / 2


def test_a_publisher_near_the_root_of_another_tree_uses_that_tree() -> None:
    """Section 4.2.8: no second structure emerges, and everybody gets everything."""
    world = World(NODES, BrisaOptions(order="causal", reuse_depth=3)).publish(SOURCE, START, count=5)
    world.engine.run(START + 5000)
    near = next(
        node
        for node in range(NODES)
        if node != SOURCE and world.brisa(node).group(0).trees.structure(KEY).position.depth == 2
    )
    world.publish(near, START + 6000, count=5)
    world.engine.run()
    assert world.engine.deliveries == 10 * NODES
    for node in range(NODES):
        assert list(world.brisa(node).group(0).trees.structures) == [KEY]


# Strategies.


def mean_round_trip_to_parents(strategy: str) -> float:
    network = NetworkModel(LinkDelay(NormalDelay(100, 40), 5))
    world = World(NODES, BrisaOptions(order="fifo", strategy=strategy), network).publish(SOURCE, START, count=20)
    world.engine.run()
    assert world.engine.deliveries == 20 * NODES
    trips = []
    for node, parents in world.structures(KEY).items():
        trips += [int(world.brisa(node).group(0).trees.links[parent].round_trip) for parent in parents]
    return sum(trips) / len(trips)


def test_delay_aware_parents_are_nearer() -> None:
    """Section 4.2.5, figure 4.10."""
    assert mean_round_trip_to_parents("delay") < 0.9 * mean_round_trip_to_parents("first-come")


def test_parents_chosen_by_bandwidth_have_more_of_it() -> None:
    """Section 4.5 suggests it; every fourth node has a hundred times as much."""
    shares = {}
    for strategy in ("first-come", "bandwidth"):
        options = BrisaOptions(order="fifo", strategy=strategy, bandwidths=[1, 1, 1, 100])
        world = World(NODES, options).publish(SOURCE, START, count=20)
        world.engine.run()
        assert world.engine.deliveries == 20 * NODES
        parents = [mother for mine in world.structures(KEY).values() for mother in mine]
        shares[strategy] = sum(mother % 4 == 3 for mother in parents) / len(parents)
    assert shares["bandwidth"] > shares["first-come"] + 0.2


@pytest.mark.parametrize("strategy", ["age", "load"])
def test_the_other_strategies_build_trees_too(strategy: str) -> None:
    """Section 4.5."""
    world = World(NODES, BrisaOptions(order="fifo", strategy=strategy, join_window=9000)).publish(SOURCE, START, 20)
    world.engine.run()
    assert world.engine.deliveries == 20 * NODES
    parents = world.structures(KEY)
    assert max(depth_of(parents, node) for node in parents) < NODES


# Repair.


def crash_a_parent(engine: Engine, world: World) -> None:
    mothers = [mother for mine in world.structures(KEY).values() for mother in mine if mother not in (SOURCE, 0)]
    engine.crash(max(set(mothers), key=mothers.count))


def action(world: World) -> Action:
    return Do(lambda engine: crash_a_parent(engine, world))


@pytest.mark.parametrize("parents", [1, 2])
def test_children_of_a_node_that_fails_find_other_parents_and_miss_nothing(parents: int) -> None:
    """Section 4.2.6: soft repair where a neighbour is known to be no descendant; missed publications are fetched."""
    world = World(NODES, BrisaOptions(order="fifo", parents=parents), can_fail=True).publish(SOURCE, START, count=60)
    for number in range(6):
        world.engine.at(START + 1000 + 1500 * number, action(world))
    world.engine.run()
    alive = [node for node in range(NODES) if world.engine.nodes[node].process is not None]
    assert len(alive) == NODES - 6
    repairs = [world.brisa(node).group(0).trees.repairs for node in alive]
    assert sum(one.parents_lost for one in repairs) >= 6
    assert sum(one.soft + one.topped_up for one in repairs) > 2 * sum(one.hard for one in repairs)
    for node in alive:
        assert world.brisa(node).group(0).stream(SOURCE).received.complete == 60
        assert world.brisa(node).unfinished() == 0


def test_what_links_lose_is_recovered() -> None:
    """A fifth of all messages is lost, of whatever kind."""
    network = NetworkModel(ConstantDelay(10), loss=0.2)
    # What newcomers say is lost too: some need a while to get in.
    world = World(NODES, BrisaOptions(order="causal"), network).publish(SOURCE, 3 * START, count=30)
    world.engine.run()
    assert [world.brisa(node).group(0).stream(SOURCE).received.complete for node in range(NODES)] == [30] * NODES
    assert world.engine.deliveries == 30 * NODES


class Clock(Notebook):
    """A notebook that lets timers be set; the test calls them."""

    def set_timer(self, delay: int, name: int) -> int:
        return 1


def test_where_a_publication_is_gone_this_is_said() -> None:
    """Buffers are bounded; who asks for something that is not kept any more is told so."""
    environment = Clock(0)
    process = Brisa(environment, BrisaOptions(order="fifo", keep=2, buffer=2))
    process.begin_as_contact(0, True)
    process.begin_as_member(0)
    process.start()
    process.expire(0)
    for _ in range(5):
        process.publish(b"")
    process.expire(0)
    process.receive(7, FetchRequest(0, 0, vec[i64]([1, 3, 5])))
    answers = [message for peer, message in environment.sent if peer == 7]
    assert [(type(one), int(one.sequence)) for one in answers] == [(FetchResponse, 5), (NotKept, 3)]


@pytest.mark.parametrize("order", ["fifo", "causal", "none"])
def test_what_nobody_has_kept_is_said_to_be_lost_and_the_rest_is_delivered(order: str) -> None:
    """Node 5 is cut off for longer than others keep what it lacks: it passes over that, and is not stuck."""
    options = BrisaOptions(HyParViewOptions(active=3), order=order, keep=2, buffer=2)
    world = World(6, options, can_fail=True).publish(1, START, count=12)
    world.engine.at(START + 500, PartitionAction(NetworkPartition(START + 500, START + 20_000, [[5]])))
    world.publish(1, START + 80_000)
    assert world.engine.run(event_limit=1_000_000) == "finished"
    group = world.brisa(5).group(0)
    assert world.engine.lost == group.delivery.lost > 0
    assert world.engine.deliveries == 13 * 6 - world.engine.lost
    assert group.unfinished() == 0


# Members.


def test_a_newcomer_starts_from_what_is_past_and_gets_all_that_follows() -> None:
    options = BrisaOptions(order="causal", contacts=[0, 1])
    world = World(16, options, members=range(8)).publish(3, START, count=40)
    world.engine.at(START + 2050, SubscribeAction(12))
    world.engine.at(START + 5050, UnsubscribeAction(12))
    world.engine.run()
    assert world.engine.deliveries > 8 * 40
    with pytest.raises(KeyError):
        world.brisa(12).group(0)


def test_a_node_that_comes_back_is_a_new_one() -> None:
    """Section 2.1: it joins again, knows nothing, and is a neighbour again before its failure was noticed."""
    network = NetworkModel(ConstantDelay(10), detection=3000)
    world = World(16, BrisaOptions(order="fifo"), network, can_fail=True).publish(3, START, count=40)
    world.engine.at(START + 1000, CrashAction(5))
    world.engine.at(START + 1100, RestartAction(5))
    world.engine.run()
    assert world.brisa(5).group(0).stream(3).received.complete == 40
    assert world.brisa(5).unfinished() == 0


def test_what_the_application_may_not_do_is_explained() -> None:
    world = World(4, BrisaOptions(order="fifo"), members=[1])
    world.engine.run(START)
    outsider, member = world.brisa(2), world.brisa(1)
    for call, complaint in (
        (lambda: outsider.publish(b""), "not subscribed to topic 0; subscribe before"),
        (lambda: outsider.unsubscribe(0), "cannot unsubscribe"),
        (lambda: member.subscribe(0), "subscribed to topic 0 already"),
        (lambda: member.publish(b"", 0, 2), "every publication has order fifo"),
    ):
        with pytest.raises(UsageError, match=complaint):
            call()
    assert isinstance(member, Brisa)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"parents": 5}, "a node can have from 1 to 4 parents, not 5"),
        ({"contacts": []}, "nobody can join without a contact"),
        ({"trees": 65}, "from 1 to 64 trees"),
        ({"trees": 2, "reuse_depth": 1}, "must stay apart"),
        ({"parents": 2, "reuse_depth": 1}, "not up a graph"),
        ({"strategy": "luck"}, "not by 'luck'"),
        ({"order": "total"}, "not 'total'"),
        ({"keep": 9, "buffer": 8}, "cannot keep 9"),
        ({"period": 0}, "period must be at least 1"),
        ({"join_window": -1}, "cannot be negative"),
        ({"reuse_depth": -1}, "cannot be negative"),
    ],
)
def test_structures_that_cannot_work_are_refused_with_the_reason(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        BrisaOptions(HyParViewOptions(active=4), **options)  # type: ignore[arg-type]
