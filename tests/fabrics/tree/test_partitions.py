"""The broker tree in parts: one side orders totally, all sides go on, and afterwards all have got everything.

The dissertation leaves partitions to future work (chapter 6).
"""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.kernel.message import BARRIER_KEY, CAUSAL, FIFO, NONE, TOTAL
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import Fault, JoinFault, PartitionFault, PublishTable, SubscribeTable
from tests.fabrics.tree.runs import EIGHT, UNSTEADY, crash, kept, publish, run, run_until, tree
from tests.fabrics.tree.test_repair import check_tree, living, shape, traffic

MINORITY = [3, 5, 7]
"""Three of the eight brokers: a child of the root with its own, and a leaf from elsewhere."""


def cut(at: int, until: int, *nodes: int) -> Fault:
    """Some brokers are cut off from all others."""
    return PartitionFault(at=at, until=until, groups=[list(nodes)])


def orders_at(simulation: Simulation, broker: int) -> dict[int, bool]:
    """Which orders a broker accepts."""
    process = simulation.engine.nodes[broker].process
    assert process is not None
    return {int(order): process.refusal(order) is None for order in (NONE, FIFO, CAUSAL, TOTAL)}


@pytest.mark.parametrize("parted", [(7,), (0,), (3, 5, 7), (0, 1, 2), (1, 4, 5, 2), (0, 7, 5, 6, 4)])
@pytest.mark.parametrize("council", [0, 1000])
def test_whatever_was_accepted_is_delivered_everywhere(parted: tuple[int, ...], council: int) -> None:
    parted_for_a_while = cut(2000, 9000, *parted)
    scenario = tree(traffic(end=7000), [parted_for_a_while], network=UNSTEADY, quorum=True, council=council)
    assert kept(scenario) == {}


def test_both_sides_are_one_tree_again() -> None:
    simulation = run(tree(traffic(end=7000), [cut(2000, 9000, *MINORITY)], quorum=True))
    check_tree(shape(simulation))
    assert len(shape(simulation)) == 8


def test_the_side_without_a_majority_refuses_total_publications_only() -> None:
    """It says who is missing and what to do; the other side does without."""
    simulation = run_until(tree(traffic(end=7000), [cut(2000, 40_000, *MINORITY)], quorum=True), 8000)
    for broker in range(8):
        expected = broker not in MINORITY
        assert orders_at(simulation, broker) == {
            int(NONE): True,
            int(FIFO): True,
            int(CAUSAL): True,
            int(TOTAL): expected,
        }
    process = simulation.engine.nodes[3].process
    assert process is not None
    reason = process.refusal(TOTAL)
    assert reason is not None
    assert "brokers 0, 1, 2, 4, 6 cannot be reached" in reason
    assert "publish in another order, or wait" in reason


def test_weaker_orders_go_on_on_both_sides() -> None:
    said = [publish(5000 + node, node, "causal") for node in range(8)]
    simulation = run_until(tree(said, [cut(1000, 40_000, *MINORITY)], quorum=True), 8000)
    # Five publications reach five brokers, three reach three.
    assert simulation.engine.deliveries == 5 * 5 + 3 * 3


@pytest.mark.parametrize("order", ["fifo", "causal"])
def test_a_barrier_without_a_majority_holds_up_no_later_publication(order: str) -> None:
    """A client that comes from a lost broker makes its new broker publish a barrier before that broker knows more."""
    before_detection = 1050
    barrier = publish(before_detection, 3, "total", int(BARRIER_KEY) + 1)
    simulation = run_until(tree([barrier, publish(5000, 3, order)], [cut(1000, 40_000, *MINORITY)], quorum=True), 8000)
    assert simulation.engine.deliveries == len(MINORITY)


def test_a_total_publication_without_a_majority_holds_up_later_ordered_ones() -> None:
    """This is the strict session of its publisher."""
    said = [publish(1050, 3, "total", 1), publish(5000, 3, "causal"), publish(5000, 3, "none")]
    simulation = run_until(tree(said, [cut(1000, 40_000, *MINORITY)], quorum=True), 8000)
    assert simulation.engine.deliveries == len(MINORITY)


def test_a_barrier_has_its_place_when_a_majority_is_back() -> None:
    said = [publish(1050, 3, "total", int(BARRIER_KEY) + 1), publish(5000, 3, "causal"), publish(5000, 6, "causal")]
    simulation = run(tree(said, [cut(1000, 9000, *MINORITY)], quorum=True))
    assert simulation.engine.deliveries == 3 * 8


def test_total_publications_go_on_on_the_side_with_a_majority() -> None:
    said = [publish(5000, 6, "total", 1), publish(5000, 4, "total", 1)]
    simulation = run_until(tree(said, [cut(1000, 40_000, *MINORITY)], quorum=True), 8000)
    assert simulation.engine.deliveries == 2 * 5


def test_a_root_that_is_cut_off_makes_way() -> None:
    said = [publish(9000, 6, "total", 1)]
    simulation = run_until(tree(said, [cut(1000, 40_000, 0)], quorum=True), 20_000)
    assert simulation.engine.deliveries == 7
    assert not orders_at(simulation, 0)[int(TOTAL)]


def test_a_council_does_not_shrink_to_those_who_are_there() -> None:
    """Three of five of eight are no majority of the eight, however long the others have been away."""
    parts = [cut(1000, 90_000, 5, 6, 7), cut(20_000, 90_000, 3, 4)]
    said = [publish(50_000, 1, "total", 1)]
    for council in (0, 2000):
        simulation = run_until(tree(said, parts, quorum=True, council=council), 60_000)
        assert (simulation.engine.deliveries, simulation.engine.refused) == (0, 1)


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_partitions_and_then_one_crash_leave_a_majority(fails: int) -> None:
    """Five brokers, of which few were together for long: four that live are a majority, whichever has failed."""
    parts = [cut(1000, 90_000, 3, 4), cut(20_000, 90_000, 2)]
    said = [publish(150_000, 4, "total", 1)]
    five = tree(said, [*parts, crash(60_000, fails)], [-1, 0, 0, 1, 1], quorum=True, council=2000)
    assert run(five).engine.deliveries == 4


def test_a_short_partition_is_not_noticed() -> None:
    simulation = run(tree(traffic(end=4000), [cut(2000, 2150, *MINORITY)], quorum=True))
    assert all(overlay_epoch(simulation, broker) == 1 for broker in range(8))
    assert kept(tree(traffic(end=4000), [cut(2000, 2150, *MINORITY)], quorum=True)) == {}


def overlay_epoch(simulation: Simulation, broker: int) -> int:
    """The epoch that a broker is in."""
    process = simulation.engine.nodes[broker].process
    return int(process.view.epoch)  # type: ignore[union-attr]


def test_a_topic_that_begins_on_both_sides_is_one_afterwards() -> None:
    """Nobody on either side knows of the other's subscribers."""
    subscriptions = [SubscribeTable(at=4000, node=node) for node in (2, 3)]
    said = [publish(5000 + 10 * number, node, "causal") for number in range(5) for node in (2, 3)]
    said += [publish(60_000, 2, "total"), publish(60_000, 3, "total")]
    scenario = tree(said, [cut(1000, 20_000, *MINORITY)], members=[[]], subscriptions=subscriptions, quorum=True)
    assert kept(scenario) == {}
    assert run(scenario).engine.deliveries == 2 * len(said)


def test_what_nobody_keeps_any_more_is_said_to_be_lost() -> None:
    """Who is away for longer than others keep what it lacks is told how much that was; nothing is lost in silence."""
    said = [publish(5000 + 100 * number, 2, "causal") for number in range(7)]
    said.append(publish(150_000, 2, "causal"))
    away = tree(said, [cut(1000, 100_000, 7)], quorum=True, council=0, absence=20_000)
    simulation = run(away)
    assert simulation.engine.lost == 7
    assert simulation.engine.deliveries == 8 * 8 - 7
    patient = tree(said, [cut(1000, 100_000, 7)], quorum=True, council=0)
    simulation = run(patient)
    assert (simulation.engine.lost, simulation.engine.deliveries) == (0, 8 * 8)


LONG_AWAY = [
    *(publish(100 + node, node, "causal") for node in range(8)),
    *(publish(5000 + 100 * number, 2, "causal") for number in range(7)),
    *(publish(6000 + 100 * number, 3, "fifo") for number in range(5)),
    *(publish(60_000 + 100 * node, node, "total", node % 3) for node in range(8)),
    *(publish(150_000 + node, node, "causal") for node in range(8)),
    *(publish(170_000 + node, node, "total", node % 3) for node in range(8)),
]
"""Both sides of a partition that lasts until 100,000 publish, and all go on afterwards."""


def after_long_absence(parted: tuple[int, ...], **options: Any) -> Simulation:
    """Both sides give each other up, forget what the other lacks, and meet again."""
    return run(tree(LONG_AWAY, [cut(1000, 100_000, *parted)], quorum=True, absence=20_000, **options))


@pytest.mark.parametrize("parted", [(7,), (0,), (3,), (3, 5, 7), (1, 4, 5)])
@pytest.mark.parametrize("council", [0, 1000])
def test_what_is_in_no_buffer_any_more_comes_from_logs(parted: tuple[int, ...], council: int) -> None:
    simulation = after_long_absence(parted, council=council, log=1000)
    engine = simulation.engine
    assert (engine.lost, engine.deliveries, simulation.stuck()) == (0, 8 * engine.published, 0)


@pytest.mark.parametrize("parted", [(7,), (0,), (3,), (3, 5, 7), (1, 4, 5)])
@pytest.mark.parametrize("log", [0, 3])
def test_every_broker_is_told_of_what_logs_do_not_reach(parted: tuple[int, ...], log: int) -> None:
    """Not only the two at the ends of the new link; locks that are skipped count as well."""
    simulation = after_long_absence(parted, council=1000, log=log)
    engine = simulation.engine
    missing = 8 * engine.published - engine.deliveries
    assert 0 < missing <= engine.lost
    assert simulation.stuck() == 0


def test_a_publisher_gets_its_own_total_publication_though_its_completion_was_skipped() -> None:
    """The root has got the proposal; the publisher is cut off before it hears that, and is given up."""
    said = [publish(700, 7, "total", 1), publish(150_000, 7, "total", 1), publish(150_000, 2, "causal")]
    simulation = run(tree(said, [cut(1000, 100_000, 7)], quorum=True, absence=20_000))
    assert (simulation.engine.deliveries, simulation.stuck()) == (3 * 8, 0)


def test_logs_keep_the_order() -> None:
    parted = cut(1000, 100_000, *MINORITY)
    assert kept(tree(LONG_AWAY, [parted], network=UNSTEADY, quorum=True, absence=20_000, log=1000)) == {}


def test_crashes_during_a_partition() -> None:
    said = traffic(end=7000)
    faults = [cut(2000, 9000, *MINORITY), crash(3000, 5), crash(4000, 0)]
    assert kept(tree(said, faults, network=UNSTEADY, quorum=True, council=0)) == {}


@pytest.mark.parametrize("parted", [(3, 5, 7), (1, 4, 5), (3, 7), (0, 1, 4)])
@pytest.mark.parametrize("crashed", [(0, 3), (1, 0), (0, 3, 5), (0, 1, 4), (2, 0, 1)])
def test_parts_that_gave_each_other_up_meet_again_though_those_who_did_so_failed(
    parted: tuple[int, ...], crashed: tuple[int, ...]
) -> None:
    """Roots fail one after the other while the parts are separated; those who follow know whom they gave up."""
    failures = [crash(50_000 + 3000 * number, broker) for number, broker in enumerate(crashed)]
    said = [publish(150_000, broker, "causal") for broker in range(8)]
    scenario = tree(said, [cut(1000, 100_000, *parted), *failures], quorum=True, council=0, absence=20_000)
    simulation = run(scenario)
    check_tree(shape(simulation))
    assert simulation.engine.deliveries == (8 - len(crashed)) ** 2


def test_parts_meet_again_though_newcomers_rule_both() -> None:
    """Broker 6 joins one part and 7 the other, and both become roots: they have never seen anybody of the other."""
    faults = [
        cut(1000, 100_000, 1, 2, 3, 6),
        JoinFault(at=40_000, node=6),
        JoinFault(at=40_000, node=7),
        crash(60_000, 0, 2),
    ]
    said = [publish(150_000, broker, "causal") for broker in (1, 3, 4, 5)]
    parents = [-1, 0, 0, 1, 0, 4, 2, 0]
    scenario = tree(said, faults, parents, [[1, 3, 4, 5]], quorum=True, council=0, absence=20_000)
    apart = run_until(scenario, 90_000)
    assert {broker for broker, process in living(apart).items() if process.view.is_root} == {6, 7}
    simulation = run(scenario)
    check_tree(shape(simulation))
    assert simulation.engine.deliveries == 4 * 4


# Newcomers.


def newcomer(parent: int, at: int, faults: tuple[Fault, ...] = (), said: tuple[PublishTable, ...] = ()) -> Simulation:
    """The eight brokers and one that joins, is a member from then on, and publishes."""
    scenario = tree(
        [*traffic(end=5000), *said],
        [JoinFault(at=at, node=8), *faults],
        parents=[*EIGHT, parent],
        network=UNSTEADY,
        quorum=True,
        council=1000,
    )
    assert kept(scenario) == {}
    return run(scenario)


@pytest.mark.parametrize("parent", [0, 5])
def test_a_broker_joins_while_others_publish(parent: int) -> None:
    said = tuple(publish(9000 + number, 8, order, 1) for number, order in enumerate(("none", "total", "causal")))
    simulation = newcomer(parent, 2000, said=said)
    parents = shape(simulation)
    check_tree(parents)
    assert 8 in parents


def test_a_newcomer_has_a_vote_when_the_council_has_agreed() -> None:
    simulation = newcomer(0, 2000)
    process = simulation.engine.nodes[8].process
    assert process.view.council.bodies == [list(range(9))]  # type: ignore[union-attr]


def test_a_newcomer_takes_the_place_of_one_that_crashed() -> None:
    """A broker that returns is a new broker."""
    simulation = newcomer(1, 4000, faults=(crash(2500, 0),))
    assert set(shape(simulation)) == set(range(1, 9))


FORMER_PARENT_BELOW = """
name = "a former parent that sleeps comes below its former child"
seed = 2
fabric = "tree"
protocol = "broker-tree"
nodes = 13
protocol-options = { parents = [-1, 0, 0, 1, 2, 4, 5, 6, 7, 8, 8, 10, 9], patience = 100, quorum = true }
network = { detection = 1, in_order = true }
topics = { members = [[10]] }
publish = [{ at = 1, node = 10, keys = [12] }]
fault = [
    { kind = "pause", at = 2, node = 4 },
    { kind = "resume", at = 1126, node = 4 },
    { kind = "pause", at = 3, node = 6 },
    { kind = "resume", at = 1127, node = 6 },
    { kind = "partition", at = 4, until = 126, groups = [[0, 1, 2, 3, 4, 7, 8, 9, 10, 11]] },
    { kind = "crash", at = 5, node = 0 },
]
"""


def test_who_has_not_noticed_that_its_child_is_the_root_makes_no_cycle() -> None:
    """Found by the campaign: broker 4 sleeps while 5, its child, becomes the root, and takes in those above 4."""
    simulation = run(parse_scenario(FORMER_PARENT_BELOW, "a.toml"))
    check_tree(shape(simulation))
    assert simulation.stuck() == 0


LATE_NEWS_OF_A_BREAK = """
name = "a broker grants a place and then learns that the link was broken before"
fabric = "tree"
protocol = "broker-tree"
nodes = 3
protocol-options = { parents = [-1, 0, 1], quorum = true }
network = { detection = 1, in_order = true }
topics = { members = [[0]] }
publish = [{ at = 0, node = 0, keys = [2] }]
limits = { events = 10000 }
fault = [
    { kind = "pause", at = 1, node = 1 },
    { kind = "resume", at = 1839, node = 1 },
    { kind = "partition", at = 2, until = 3, groups = [[2]] },
    { kind = "partition", at = 1003, until = 1004, groups = [[1, 2]] },
    { kind = "partition", at = 1837, until = 1838, groups = [[1]] },
]
"""


def test_a_broker_whose_parent_does_not_know_it_looks_for_a_place_again() -> None:
    """Found by the campaign: broker 1 sleeps, takes 2 in, and then drops it for a break that is long over."""
    simulation = run(parse_scenario(LATE_NEWS_OF_A_BREAK, "a.toml"))
    check_tree(shape(simulation))
    assert simulation.stuck() == 0
