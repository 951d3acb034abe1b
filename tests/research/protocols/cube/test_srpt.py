"""The rivals of VCube-PS: one root per topic, over subscribers (SRPT-S) and over brokers (SRPT-B)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import pytest

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube import FullCube, PartialCube, full_or_partial
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment, ProtocolError, ProtocolMessage, UsageError
from antiphon.simulator.engine.actions import PublishAction, SubscribeAction, UnsubscribeAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.explore.explorer import Operation, explore
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from antiphon_lab.protocols.cube.published_messages import Sub, Uns
from antiphon_lab.protocols.cube.srpt import SingleRootPerTopic, SrptOptions, brokers
from tests.fabrics.cube.hand_driven import System, Table, bringing, over

SUBSCRIBE: Operation = ("subscribe", 0)
UNSUBSCRIBE: Operation = ("unsubscribe", 0)
PUBLISH: Operation = ("publish", 0)


def srpt(dimension: int, root: int = 0, broker_count: int | None = None) -> System:
    """SRPT-S, or SRPT-B if brokers are counted."""
    tree = FullCube(dimension) if broker_count is None else brokers(broker_count)
    options = SrptOptions(tree, 1 << dimension, [root])
    return lambda environment, _: SingleRootPerTopic(environment, options)


def begun(system: System, dimension: int, members: Iterable[int]) -> Table:
    """A table on which everybody knows from the start who is a member."""
    table = Table(system, dimension).begin(*members)
    view = View(dimension, members)
    for node, process in enumerate(table.processes):
        if node not in members:
            process.begin_as_relay(0, view)
    return table


# The trees.


def test_the_tree_of_figure_5_2_has_the_relays_2_and_4() -> None:
    members = [0, 1, 3, 5, 6]
    table = begun(srpt(3), 3, members)
    table.publish(5, "a")
    table.settle()
    assert table.tree("a") == {5: [0], 0: [1, 2, 4], 2: [3], 4: [5, 6]}
    assert [node for node in range(8) if table.delivered(node) == ["a"]] == members
    false_positives = [copy.receiver for copy in table.handed_over if copy.receiver not in members]
    assert false_positives == [2, 4]


def test_the_root_publishes_without_the_extra_hop() -> None:
    table = begun(srpt(3, root=6), 3, [1, 6])
    table.publish(6, "a")
    table.settle()
    assert table.tree("a") == {6: [2], 2: [0], 0: [1]}


@pytest.mark.parametrize("root", range(8))
def test_whoever_is_the_root_every_member_delivers_once(root: int) -> None:
    members = [0, 1, 3, 5, 6]
    table = begun(srpt(3, root), 3, members)
    for member in members:
        table.publish(member, f"from {member}")
    table.settle()
    for node in range(8):
        expected = {f"from {member}": 1 for member in members} if node in members else {}
        assert Counter(table.delivered(node)) == expected


def test_the_mean_size_of_a_tree_is_that_of_the_formula() -> None:
    """Exact, over all sets of members: each of the others is a member with probability p, independently.

    E = sum over h from 0 to d - 1 of N / 2**(h + 1) * (1 - (1 - p)**(2**h)), the root not counted.
    """
    dimension, p = 3, Fraction(1, 4)
    mean = Fraction(0)
    for chosen in product([False, True], repeat=7):
        members = [0, *(node for node, is_member in enumerate(chosen, 1) if is_member)]
        table = begun(srpt(dimension), dimension, members)
        table.publish(0, "a")
        table.settle()
        weight = p ** (len(members) - 1) * (1 - p) ** (8 - len(members))
        mean += weight * len(table.handed_over)
    formula = sum(Fraction(1 << dimension, 2 << height) * (1 - (1 - p) ** (1 << height)) for height in range(dimension))
    assert mean == formula


def test_absent_identifiers_are_skipped() -> None:
    options = SrptOptions(full_or_partial(6), 6, [1])
    assert isinstance(options.tree, PartialCube)
    table = Table(lambda environment, _: SingleRootPerTopic(environment, options), 3)
    view = View(3, [1, 3, 4])
    for node in range(6):
        process = table.processes[node]
        process.begin_as_member(0, view) if node in {1, 3, 4} else process.begin_as_relay(0, view)
    table.publish(4, "a")
    table.settle()
    assert table.tree("a") == {4: [1], 1: [3, 5], 5: [4]}
    assert table.receptions(5) == 1


# SRPT-B.


def test_brokers_serve_their_own_subscribers_one_by_one() -> None:
    """Nodes 0 to 3 are brokers; 4 to 15 hang on them, three each. Broker 2 has no subscriber and is not in the tree."""
    members = [1, 4, 5, 7, 9, 15]
    table = begun(srpt(4, root=1, broker_count=4), 4, members)
    table.publish(7, "a")
    table.settle()
    assert table.tree("a") == {7: [1], 1: [0, 3, 5, 9], 0: [4], 3: [7, 15]}
    assert [node for node in range(16) if table.delivered(node) == ["a"]] == members


@pytest.mark.parametrize(("broker_count", "each"), [(32, 127), (256, 15), (2048, 1)])
def test_subscribers_are_spread_evenly_over_the_brokers_of_figure_5_12(broker_count: int, each: int) -> None:
    options = SrptOptions(brokers(broker_count), 4096, [0])
    served = Counter(options.broker_of(node) for node in range(broker_count, 4096))
    assert served == dict.fromkeys(range(broker_count), each)
    assert all(options.broker_of(broker) == broker for broker in range(broker_count))


def test_a_subscriber_of_a_broker_hears_only_of_itself() -> None:
    table = begun(srpt(3, broker_count=2), 3, [0, 3, 6])
    table.subscribe(7)
    table.settle()
    assert [copy.link for copy in table.handed_over] == [(7, 0), (0, 1), (1, 7)]
    assert table.log[7] == ["(subscribed)"]
    assert table.processes[0].members_below(0) == [0, 3, 6, 7]
    assert table.processes[1].members_below(0) == [3, 7]
    assert table.processes[6].members_below(0) == []


# Joining and leaving.


def test_a_subscription_is_broadcast_over_the_tree_and_comes_back() -> None:
    """Node 7 subscribes; 6 becomes a relay. All members hear of it, and so does the root's queue."""
    table = begun(srpt(3), 3, [0, 1, 4])
    table.subscribe(7)
    table.settle()
    assert [copy.link for copy in table.handed_over] == [(7, 0), (0, 1), (0, 4), (4, 6), (6, 7)]
    assert all(isinstance(copy.message, Sub) for copy in table.handed_over)
    assert table.log[7] == ["(subscribed)"]
    assert [table.processes[node].members_below(0) for node in (0, 4, 6, 7)] == [[0, 1, 4, 7], [4, 7], [7], [7]]
    table.unsubscribe(7)
    table.settle()
    assert isinstance(table.handed_over[-1].message, Uns)
    assert table.log[7] == ["(subscribed)", "(unsubscribed)"]
    assert [table.processes[node].members_below(0) for node in (0, 4, 6, 7)] == [[0, 1, 4], [4], [], []]
    table.publish(0, "a")
    table.settle()
    assert table.tree("a") == {0: [1, 4]}


@pytest.mark.parametrize("broker_count", [None, 4], ids=["SRPT-S", "SRPT-B"])
@pytest.mark.parametrize("seed", range(5))
def test_views_are_right_when_everything_has_settled(broker_count: int | None, seed: int) -> None:
    """Random joins and leaves, arriving in random order: every node of the tree knows its part, and trees are right."""
    random = Random(seed)
    members = set(random.sample(range(16), 6))
    table = begun(srpt(4, root=2, broker_count=broker_count), 4, members)
    options = SrptOptions(FullCube(4) if broker_count is None else brokers(broker_count), 16, [2])
    for _ in range(40):
        node = random.randrange(16)
        if table.processes[node].is_subscribed(0):
            table.unsubscribe(node)
            members.discard(node)
        else:
            table.subscribe(node)
            members.add(node)
        for _ in range(random.randrange(8)):
            if table.on_the_way:
                table.arrive(random.choice(table.on_the_way))
    table.settle(newest_first=True)
    assert all(process.unfinished() == 0 for process in table.processes)
    for node, process in enumerate(table.processes):
        below = {each for each in members if is_below(options, node, options.broker_of(each))}
        assert process.members_below(0) == sorted(below)
    publisher = min(members)
    table.publish(publisher, "last")
    table.settle()
    assert {node for node in range(16) if "last" in table.delivered(node)} == members
    sent_to = [node for receivers in table.tree("last").values() for node in receivers]
    assert members >= {node for node in sent_to if options.broker_of(node) != node}, "only brokers may be relays"


def test_a_membership_that_comes_twice_is_counted_once() -> None:
    """Links do not duplicate; if one does all the same, trees are none the worse for it."""
    table = begun(srpt(2), 2, [0])
    table.subscribe(3)
    table.settle()
    again = table.handed_over[0]
    table.unsubscribe(3)
    table.settle()
    table.subscribe(3)
    table.settle()
    table.on_the_way.append(again)
    table.settle()
    table.unsubscribe(3)
    table.settle()
    assert table.processes[0].members_below(0) == [0]
    table.publish(0, "a")
    assert table.on_the_way == []


def is_below(options: SrptOptions, node: int, other: int) -> bool:
    """Whether ``other`` is ``node`` or one of its descendants in the tree of root 2."""
    at: Any = other
    while at != node:
        if at == 2:
            return False
        at = options.tree.parent_in_tree(at, 2)
    return options.broker_of(node) == node


def test_a_publication_that_overtakes_a_subscription_is_kept_for_it() -> None:
    table = begun(srpt(2), 2, [0])
    table.subscribe(1)
    table.hand_over(over(1, 0))
    table.publish(0, "a")
    table.hand_over(bringing("a", 1))
    assert table.log[1] == []
    table.settle()
    assert table.log[1] == ["(subscribed)", "a"]


def test_operations_wait_for_the_one_before() -> None:
    table = begun(srpt(2), 2, [0])
    table.subscribe(3)
    assert table.publish(3, "a") == 1
    table.unsubscribe(3)
    table.subscribe(3)
    assert table.publish(3, "b") == 2
    assert [copy.link for copy in table.on_the_way] == [(3, 0)]
    table.settle()
    assert table.log[3] == ["(subscribed)", "a", "(unsubscribed)", "(subscribed)", "b"]
    assert table.delivered(0) == ["a", "b"]


def test_all_schedules_of_small_systems_keep_the_promises() -> None:
    """Order is not promised, so each node publishes once; what is owed is complete, single and to members."""
    options = SrptOptions(FullCube(2), 4, [1])
    view = View(2, [0, 2])

    def build(environment: Environment) -> SingleRootPerTopic:
        process = SingleRootPerTopic(environment, options)
        if environment.identifier in {0, 2}:
            process.begin_as_member(0, view)
        else:
            process.begin_as_relay(0, view)
        return process

    outcome = explore(build, [[PUBLISH], [], [UNSUBSCRIBE], [SUBSCRIBE, UNSUBSCRIBE]])
    assert outcome.exhausted, outcome
    assert outcome.violation is None
    assert outcome.states > 500


def test_in_the_simulator_with_churn_nothing_is_lost_to_members() -> None:
    options = SrptOptions(FullCube(5), 32, [9])
    stable = set(range(0, 32, 2))
    view = View(5, stable)
    trace = MemoryTrace("deliveries")

    def build(environment: Environment) -> SingleRootPerTopic:
        process = SingleRootPerTopic(environment, options)
        if environment.identifier in stable:
            process.begin_as_member(0, view)
        else:
            process.begin_as_relay(0, view)
        return process

    engine = Engine(32, NetworkModel(NormalDelay(100, 40)), build, recorder=trace.recorder)
    for round_number in range(20):
        engine.at(700 * round_number, PublishAction(2 * (round_number % 16)))
        engine.at(
            700 * round_number,
            (UnsubscribeAction if round_number % 2 else SubscribeAction)(2 * (round_number // 2) + 1),
        )
    engine.run()
    findings = judge(trace.table(), 32)
    assert {kind: count for kind, count in findings.counts.items() if count} == {}
    assert findings.publications == 20


def test_memberships_are_charged_to_the_output_server() -> None:
    """Section 5.6.6: the root suffers from contention by SUB and UNS messages, whether or not control is free."""
    options = SrptOptions(FullCube(3), 8, [0])
    view = View(3, range(7))

    def build(environment: Environment) -> SingleRootPerTopic:
        process = SingleRootPerTopic(environment, options)
        if environment.identifier < 7:
            process.begin_as_member(0, view)
        return process

    trace = MemoryTrace("everything")
    engine = Engine(8, NetworkModel(ConstantDelay(100), charge_control=False), build, recorder=trace.recorder)
    engine.at(0, SubscribeAction(7))
    engine.at(103, PublishAction(0))
    engine.run()
    sends = [row for row in trace.table().to_pylist() if row["event"] == "send" and row["node"] == 0]
    # The last copy of the subscription leaves at 105, and the publication has to wait for it.
    assert [(row["message"], row["time"], row["peer"], row["value"]) for row in sends] == [
        ("Sub", 102, 1, 1), ("Sub", 102, 2, 2), ("Sub", 102, 4, 3),
        ("Publication", 103, 1, 3), ("Publication", 103, 2, 4), ("Publication", 103, 4, 5),
    ]  # fmt: skip


# Misuse.


def test_misuse_is_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match="the root of at least one topic"):
        SrptOptions(FullCube(2), 4, [])
    with pytest.raises(UsageError, match="node 5 cannot be the root of a topic"):
        SrptOptions(FullCube(2), 4, [5])
    with pytest.raises(UsageError, match="power of two, not 24; 32 is the next one"):
        brokers(24)
    table = Table(srpt(1), 1)
    process = table.processes[1]
    with pytest.raises(UsageError, match="only subscribers publish"):
        process.publish(b"", 0)
    with pytest.raises(UsageError, match="subscribe before unsubscribing"):
        process.unsubscribe(0)
    process.subscribe(0)
    with pytest.raises(UsageError, match="already"):
        process.subscribe(0)
    with pytest.raises(ProtocolError, match="node 0 sent a ProtocolMessage, which SRPT does not know"):
        process.receive(0, ProtocolMessage(0, 1))
