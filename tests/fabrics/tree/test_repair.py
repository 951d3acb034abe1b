"""The broker tree through crashes: repair, new roots, and total order kept (dissertation, chapter 4)."""

from __future__ import annotations

import pytest

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import MatrixLaw, NetworkTable, NormalLaw, PublishTable, SubscribeTable
from tests.fabrics.tree.runs import EIGHT, UNSTEADY, crash, kept, publish, run, tree

ORDERS = ("none", "fifo", "causal", "total")


def traffic(keys: int = 3, end: int = 6000) -> list[PublishTable]:
    """Every broker publishes every 200 ticks, in all orders."""
    times = range(0, end, 200)
    return [
        publish(at + 13 * node, node, ORDERS[(at // 200 + node) % 4], at % keys) for at in times for node in range(8)
    ]


def living(simulation: Simulation) -> dict[int, TreeBroker]:
    """The brokers that have not failed."""
    found = {}
    for number, node in enumerate(simulation.engine.nodes):
        if isinstance(node.process, TreeBroker):
            found[number] = node.process
    return found


def shape(simulation: Simulation) -> dict[int, int]:
    """Who is whose parent, as the brokers see it themselves; all see the same."""
    brokers = living(simulation)
    seen = {number: int(broker.view.parent) for number, broker in brokers.items()}
    assert all(dict(broker.view.overlay.parents) == seen for broker in brokers.values())
    return seen


def check_tree(parents: dict[int, int]) -> None:
    """One root, and everybody has a way to it."""
    assert list(parents.values()).count(-1) == 1
    for broker, parent in parents.items():
        steps, above = 0, parent
        while above != -1:
            above, steps = parents[above], steps + 1
            assert steps <= len(parents), f"a circle above {broker}"


@pytest.mark.parametrize("failed", [(7,), (3,), (1,), (0,), (1, 4), (0, 1), (1, 2, 3), (0, 1, 2, 3), (0, 2, 4, 6)])
@pytest.mark.parametrize("detection", [1, 2000])
def test_all_orders_are_kept_whoever_fails(failed: tuple[int, ...], detection: int) -> None:
    """Section 5.2, S1 to S5 and more: an inner broker, the root, both, all children of the root at the same time."""
    network = NetworkTable(delay=NormalLaw(mean=100, deviation=60), detection=detection, in_order=True)
    assert kept(tree(traffic(), [crash(3000, *failed)], network=network)) == {}


@pytest.mark.parametrize(("nearest_first", "parent"), [(False, 0), (True, 3)])
def test_an_orphan_asks_those_first_who_are_near(nearest_first: bool, parent: int) -> None:
    """By hops broker 4 would go to the root, its grandparent; by round trips, to the uncle beside it."""
    near = {(3, 4), (4, 3)}
    rows = [[10 if (one, other) in near else 200 for other in range(8)] for one in range(8)]
    network = NetworkTable(delay=MatrixLaw(rows=rows), detection=200, in_order=True)
    scenario = tree(traffic(end=1000), [crash(500, 1)], network=network, nearest_first=nearest_first)
    assert kept(scenario) == {}
    assert shape(run(scenario))[4] == parent


@pytest.mark.parametrize("failed", [(3,), (0,), (0, 1), (1, 2, 3), (0, 1, 2, 3, 4, 5, 6)])
def test_the_survivors_are_one_tree(failed: tuple[int, ...]) -> None:
    simulation = run(tree(traffic(end=1000), [crash(500, *failed)]))
    parents = shape(simulation)
    assert sorted(parents) == [broker for broker in range(8) if broker not in failed]
    check_tree(parents)


def test_the_child_with_most_room_replaces_the_root() -> None:
    """Annex VI: 2 wins over 1 (less room) and 3 (higher number), and the other two come to it."""
    parents = shape(run(tree([publish(0, 4, "none")], [crash(500, 0)], total_degree=3)))
    assert (parents[2], parents[1], parents[3]) == (-1, 2, 2)


def test_an_orphan_is_taken_by_its_grandparent_if_there_is_room() -> None:
    """Annex IV: broker 7 comes to the root when 3 has failed."""
    assert shape(run(tree([publish(0, 4, "none")], [crash(500, 3)], total_degree=3)))[7] == 0


def test_who_has_no_room_refuses_and_the_next_is_asked() -> None:
    """Annex VIII: of the two orphans of 1 the root takes the first; the other finds a place elsewhere."""
    parents = shape(run(tree([publish(0, 4, "none")], [crash(500, 1)], total_degree=3)))
    assert sorted((parents[4] == 0, parents[5] == 0)) == [False, True]
    check_tree(parents)


def test_when_nobody_has_room_the_limit_gives_way() -> None:
    """Section 4.2.3: breakDegree. Five children of a star's only inner broker, where everybody takes two neighbours."""
    parents = shape(run(tree([publish(0, 2, "none")], [crash(500, 1)], parents=[-1, 0, 1, 1, 1, 1, 1], total_degree=2)))
    check_tree(parents)


def test_two_orphans_never_adopt_each_other() -> None:
    """Section 4.2.3 argues that no cycle can arise; by the printed rules it can (their only view is each other)."""
    for seed_delay in range(1, 40, 3):
        network = NetworkTable(delay=NormalLaw(mean=20 + seed_delay, deviation=15), detection=50, in_order=True)
        scenario = tree(
            traffic(end=800), [crash(400, 0, 1)], parents=[-1, 0, 1, 1, 2, 3, 4, 5], network=network, max_hops=2
        )
        check_tree(shape(run(scenario)))


def test_a_second_failure_during_the_repair_is_repaired_too() -> None:
    """T25: whoever an orphan asks, or has just found, may fail as well."""
    for later in range(0, 1500, 125):
        faults = [crash(3000, 1), crash(3000 + later, 0), crash(3200 + later, 2)]
        assert kept(tree(traffic(), faults, network=UNSTEADY)) == {}


def test_the_last_broker_goes_on_alone() -> None:
    """T24."""
    assert kept(tree(traffic(), [crash(2000 + 100 * node, node) for node in range(7)])) == {}


def test_who_subscribes_while_the_tree_is_repaired_gets_what_comes_later() -> None:
    joins = [SubscribeTable(at=at, node=node) for node, at in ((4, 2900), (5, 3100), (6, 3400))]
    publications = [one for one in traffic() if one.node in (1, 2, 7)]
    scenario = tree(publications, [crash(3000, 0, 3)], members=[[0, 1, 2, 3, 7]], subscriptions=joins, network=UNSTEADY)
    assert kept(scenario) == {}


def test_every_failure_begins_an_epoch_and_all_know_it() -> None:
    simulation = run(tree(traffic(), [crash(1000, 3), crash(4000, 0)]))
    assert {int(broker.view.epoch) for broker in living(simulation).values()} == {3}


def test_degrees_are_kept_where_there_is_room() -> None:
    parents = shape(run(tree([publish(0, 4, "none")], [crash(500, 2), crash(3000, 3)], parents=EIGHT, total_degree=4)))
    for broker, parent in parents.items():
        neighbours = list(parents.values()).count(broker) + (parent != -1)
        assert neighbours <= 4


def test_proposals_do_not_overtake_those_that_were_lost_on_a_way_that_broke() -> None:
    """Found by the campaign: a broker far down a chain finds a parent near the root, which has noticed nothing yet."""
    chain = [place - 1 for place in range(29)]
    said = [publish(1, 17, "total", 1), publish(3, 17, "total", 1), publish(419, 17, "total", 0)]
    network = NetworkTable(detection=1, in_order=True)
    simulation = run(tree(said, [crash(2, 16)], chain, [[17]], network, patience=100))
    assert (simulation.engine.deliveries, simulation.stuck()) == (3, 0)


def test_the_root_learns_where_those_are_of_whom_it_heard_two_things() -> None:
    """Found by the campaign: an orphan comes with a list of brokers below it that have found another way before.

    What was said last counted, at the root too; when it turned out to be wrong nobody said where they were in truth.
    """
    parents = [-1, 0, 0, 2, 3, 3, 5, 5, *range(7, 17), 17, 17]
    said = [publish(2, 5, "none")]
    network = NetworkTable(detection=500, in_order=True)
    failures = [crash(1, 17), crash(3, 7)]
    simulation = run(tree(said, failures, parents, [[5]], network, total_degree=3, patience=100))
    check_tree(shape(simulation))
    assert simulation.stuck() == 0
