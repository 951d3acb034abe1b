"""VCube-PS as published: the worked examples of chapter 5 of the thesis, and what the algorithms promise."""

from __future__ import annotations

from collections import Counter

import pytest

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube import FullCube, full_or_partial
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.fabrics.cube.view import View
from antiphon.kernel import Environment, ProtocolError, ProtocolMessage, UsageError
from antiphon.simulator.engine.actions import PublishAction, SubscribeAction, UnsubscribeAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from antiphon_lab.protocols.cube.published_messages import NO_ENTRIES, Ack, Sub, Uns
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubeOptions, PublishedVCubePs
from tests.fabrics.cube.hand_driven import Table, barrier_of, bringing, members_named, over, published
from tests.support import Notebook


def message_of(table: Table, text: str) -> ProtocolMessage:
    """A publication that has been sent."""
    return next(copy.message for copy in [*table.handed_over, *table.on_the_way] if copy.payload == text.encode())


# The worked examples.


def test_the_causal_barriers_of_figure_5_3() -> None:
    """p0 publishes a; p1 delivers it and publishes b; p2 publishes c; p1 delivers c and publishes e."""
    table = Table(published(), 2).begin(0, 1, 2)
    table.publish(2, "c")
    table.publish(0, "a")
    table.settle(hold=lambda copy: copy.payload == b"c")
    table.publish(1, "b")
    table.settle(hold=lambda copy: copy.payload == b"c")
    table.settle()
    table.publish(1, "e")
    table.settle()
    assert barrier_of(message_of(table, "a")) == set()
    assert barrier_of(message_of(table, "b")) == {(0, 1)}
    assert barrier_of(message_of(table, "c")) == set()
    assert barrier_of(message_of(table, "e")) == {(2, 1), (1, 1)}, "a is an indirect predecessor of e"
    assert table.delivered(0) == ["a", "b", "c", "e"]
    assert table.delivered(2) == ["c", "a", "b", "e"]


def test_a_publication_waits_for_its_barrier_in_figure_5_3() -> None:
    table = Table(published(), 2).begin(0, 1, 2)
    slow = bringing("a", 2)
    table.publish(0, "a")
    table.settle(hold=slow)
    table.publish(1, "b")
    table.settle(hold=slow)
    assert table.delivered(2) == []
    assert table.processes[2].topic(0).delivery.waiting() == 1
    table.settle()
    assert table.delivered(2) == ["a", "b"]
    assert all(process.unfinished() == 0 for process in table.processes)


def test_who_joins_late_does_not_wait_for_what_is_older_than_the_first_reception() -> None:
    """Section 5.4.2: if c' is the first counter received from a source, nothing before c' will come."""
    table = Table(published(), 2).begin(0, 1, 2)
    table.publish(0, "a")
    table.settle()
    table.subscribe(3)
    table.settle()
    table.publish(0, "b")
    table.settle()
    table.publish(1, "c")
    table.settle()
    assert barrier_of(message_of(table, "b")) == {(0, 1)}
    assert table.log[3] == ["(subscribed)", "b", "c"]


@pytest.mark.parametrize(
    ("members", "publisher", "tree"),
    [
        (range(8), 0, {0: [1, 2, 4], 2: [3], 4: [5, 6], 6: [7]}),
        ((0, 2, 3, 5, 7), 2, {2: [3, 0, 7], 7: [5]}),
        ((0, 3, 4), 0, {0: [3, 4]}),
        ((0, 1, 3, 5, 6), 0, {0: [1, 3, 5], 5: [6]}),
        ((0, 1, 3, 5, 7), 0, {0: [1, 3, 5], 5: [7]}),
        ((0,), 0, {}),
    ],
    ids=["Figure 5.4, everybody", "Figure 5.4, t2", "section 5.5.1", "Figure 5.2", "Figure 2.8", "nobody else"],
)
def test_trees_hold_subscribers_only(members: range, publisher: int, tree: dict[int, list[int]]) -> None:
    """Children in ascending order of cluster, as CHILDREN lists them."""
    table = Table(published(), 3).begin(*members)
    table.publish(publisher, "a")
    table.settle()
    assert table.tree("a") == tree
    assert [node for node in range(8) if table.delivered(node) == ["a"]] == list(members)


def test_the_answers_to_a_newcomer_in_figure_5_5() -> None:
    """Node 0 subscribes to a topic with the members 1, 4, 5 and 6; each of them introduces itself."""
    table = Table(published(), 3).begin(1, 4, 5, 6)
    table.subscribe(0)
    table.settle()
    down = [copy.link for copy in table.handed_over if isinstance(copy.message, Sub)]
    assert sorted(down) == [(0, 1), (0, 2), (0, 4), (2, 3), (4, 5), (4, 6), (6, 7)]
    up = {copy.link: members_named(copy.message) for copy in table.handed_over if isinstance(copy.message, Ack)}
    assert up == {(1, 0): {1}, (3, 2): set(), (2, 0): set(), (5, 4): {5}, (7, 6): set(), (6, 4): {6}, (4, 0): {4, 5, 6}}
    assert table.processes[0].topic(0).view.members() == [0, 1, 4, 5, 6]
    assert all(table.processes[member].topic(0).view.members() == [0, 1, 4, 5, 6] for member in (1, 4, 5, 6))
    assert table.log[0] == ["(subscribed)"]


def test_whole_views_answer_a_newcomer_with_every_member_that_each_member_knows() -> None:
    table = Table(published(whole_view_in_acknowledgements=True), 3).begin(1, 4, 5, 6)
    table.unsubscribe(5)
    table.settle()
    table.subscribe(0)
    table.settle()
    up = {copy.link: members_named(copy.message) for copy in table.handed_over if copy.message.source == 0
          and isinstance(copy.message, Ack)}  # fmt: skip
    # Node 4 answers after it has heard of node 0 itself.
    assert up[1, 0] == {1, 4, 6}
    assert up[4, 0] == {0, 1, 4, 6}
    assert table.processes[0].topic(0).view.members() == [0, 1, 4, 6]


def test_who_subscribes_in_the_middle_of_a_wave_learns_all_that_the_wave_has_gathered() -> None:
    """Lines 63 and 76: the view is updated with what an acknowledgement says and what was kept from those before."""
    table = Table(published(), 3).begin(5, 6)
    table.subscribe(0)
    for link in [(0, 4), (4, 5), (4, 6), (5, 4)]:
        table.hand_over(over(*link))
    table.subscribe(4)
    assert table.processes[4].topic(0).view.members() == [4]
    table.hand_over(over(6, 7))
    table.hand_over(over(7, 6))
    table.hand_over(over(6, 4))
    assert table.processes[4].topic(0).view.members() == [4, 5, 6]


# What the algorithms promise.


def test_a_source_waits_for_all_acknowledgements_before_its_next_message() -> None:
    table = Table(published(), 2).begin(0, 1, 2, 3)
    table.publish(0, "a")
    table.publish(0, "b")
    table.settle(hold=over(3, 2))
    assert table.tree("b") == {}
    table.settle()
    assert table.tree("b") == {0: [1, 2], 2: [3]}


def test_topics_do_not_wait_for_each_other_and_share_one_counter() -> None:
    table = Table(published(), 2).begin(0, 1, 2, 3)
    table.begin(0, 1, topic=7)
    assert table.publish(0, "a", topic=0) == 1
    assert table.publish(0, "b", topic=7) == 2
    table.unsubscribe(0, topic=7)
    assert table.publish(0, "c", topic=0) == 4
    assert table.tree("b") == {0: [1]}
    table.settle()
    assert table.delivered(1) == ["a", "b", "c"]
    assert table.delivered(3) == ["a", "c"]
    assert barrier_of(message_of(table, "c")) == {(0, 1)}


def test_who_has_left_forwards_and_does_not_deliver() -> None:
    """A temporary relay, until its unsubscription is known (section 5.5.5)."""
    table = Table(published(), 3).begin(0, 4, 6, 7)
    table.unsubscribe(4)
    table.publish(0, "a")
    table.settle()
    assert table.tree("a") == {0: [4], 4: [6], 6: [7]}
    assert table.log[4] == ["(unsubscribed)"]
    assert table.delivered(7) == ["a"]
    table.publish(0, "b")
    table.settle()
    assert table.tree("b") == {0: [6], 6: [7]}
    assert table.processes[0].topic(0).view.members() == [0, 6, 7]


def test_unsubscribing_goes_to_members_only() -> None:
    table = Table(published(), 3).begin(0, 4, 6)
    table.unsubscribe(6)
    table.settle()
    assert [copy.link for copy in table.handed_over if isinstance(copy.message, Uns)] == [(6, 4), (6, 0)]


def test_a_sender_task_ends_with_an_unsubscription_after_which_nothing_is_queued() -> None:
    """Lines 35 to 39; so even where every subscription starts a task there is one, unless the two overlap."""
    table = Table(published(single_sender=False), 1).begin(0, 1)
    table.unsubscribe(0)
    table.settle()
    table.subscribe(0)
    table.settle()
    table.publish(0, "a")
    table.publish(0, "b")
    assert [copy.payload for copy in table.on_the_way] == [b"a"]
    table.settle()
    assert table.delivered(1) == ["a", "b"]


@pytest.mark.parametrize("joins_when_started", [False, True])
@pytest.mark.parametrize("leaves_when_started", [False, True])
def test_whenever_changes_of_membership_take_effect_the_last_one_counts(
    joins_when_started: bool, leaves_when_started: bool
) -> None:
    system = published(
        joins_when_started=joins_when_started, leaves_when_started=leaves_when_started, forgets_last_deliveries=False
    )
    table = Table(system, 1).begin(0, 1)
    table.publish(0, "a")
    table.unsubscribe(0)
    table.subscribe(0)
    table.settle()
    table.publish(1, "b")
    table.settle()
    assert table.log[0] == ["a", "(unsubscribed)", "(subscribed)", "b"]
    # Node 1 publishes before it knows that 0 leaves.
    table.publish(1, "c")
    table.unsubscribe(0)
    table.settle()
    assert table.log[0][4:] == ["(unsubscribed)"]
    assert not table.processes[0].topic(0).is_member


def test_misuse_is_refused_with_a_reason() -> None:
    table = Table(published(), 1)
    process = table.processes[0]
    with pytest.raises(UsageError, match="node 0 is not subscribed to topic 3; only subscribers publish"):
        process.publish(b"", 3)
    with pytest.raises(UsageError, match="node 0 is not subscribed to topic 3; subscribe before"):
        process.unsubscribe(3)
    assert not process.is_subscribed(3)
    process.subscribe(3)
    assert process.is_subscribed(3)
    with pytest.raises(UsageError, match="node 0 is subscribed to topic 3 already"):
        process.subscribe(3)
    with pytest.raises(ProtocolError, match="node 1 sent a ProtocolMessage"):
        process.receive(1, ProtocolMessage(1, 1))


def test_an_acknowledgement_that_nobody_waits_for_changes_nothing() -> None:
    notebook = Notebook(1)
    process = PublishedVCubePs(notebook, FullCube(1), PublishedVCubeOptions.minimal())
    before = process.state()
    process.receive(0, Ack(0, 5, 0, NO_ENTRIES))
    assert process.state() == before
    assert notebook.sent == []


def test_presets() -> None:
    minimal, printed = PublishedVCubeOptions.minimal(), PublishedVCubeOptions.as_printed()
    assert minimal.single_sender and minimal.prunes_barriers and minimal.leaves_keep_payload
    assert not (printed.single_sender or printed.prunes_barriers or printed.leaves_keep_payload)
    assert printed.matches_acknowledgements, "without this nothing runs"


# In the simulator.


def simulated(node_count: int, members: list[int], options: PublishedVCubeOptions) -> tuple[Engine, MemoryTrace]:
    """An engine with these members from the start, and its trace of everything."""
    cube = full_or_partial(node_count)
    view = View(cube.dimension, members)
    trace = MemoryTrace("everything")

    def build(environment: Environment) -> PublishedVCubePs:
        process = PublishedVCubePs(environment, cube, options)
        if environment.identifier in members:
            process.begin_as_member(0, view)
        return process

    network = NetworkModel(ConstantDelay(100), charge_control=False)
    return Engine(node_count, network, build, recorder=trace.recorder), trace


@pytest.mark.parametrize(
    "options", [PublishedVCubeOptions.minimal(), PublishedVCubeOptions.as_printed()], ids=["minimal", "printed"]
)
def test_without_churn_everything_is_delivered_once_and_in_causal_order(options: PublishedVCubeOptions) -> None:
    members = list(range(0, 64, 3))
    engine, trace = simulated(64, members, options)
    for position, member in enumerate(members * 3):
        engine.at(40 * position, PublishAction(member, b"x"))
    assert engine.run() == "finished"
    findings = judge(trace.table(), 64)
    assert findings.clean, findings
    assert findings.deliveries == 3 * len(members) ** 2


def test_publications_travel_like_a_broadcast_when_everybody_is_a_member() -> None:
    """With acknowledgements free of charge the copies of both protocols arrive at the same times."""
    node_count = 32
    engine, trace = simulated(node_count, list(range(node_count)), PublishedVCubeOptions.minimal())
    rival_trace = MemoryTrace("everything")
    cube = full_or_partial(node_count)
    rival = Engine(
        node_count,
        NetworkModel(ConstantDelay(100), charge_control=False),
        lambda environment: TreeBroadcast(environment, cube),
        recorder=rival_trace.recorder,
    )
    for node in range(node_count):
        for each in (engine, rival):
            each.at(7 * node % 100, PublishAction(node))
            each.run(until=0)
    engine.run()
    rival.run()

    def arrivals(table: MemoryTrace, kind: str) -> Counter[tuple[int, int, int]]:
        rows = table.table().to_pylist()
        return Counter(
            (row["time"], row["node"], row["source"])
            for row in rows
            if row["event"] == "receive" and row["message"] == kind
        )

    assert arrivals(trace, "Pub").total() == node_count * (node_count - 1)
    assert arrivals(trace, "Pub") == arrivals(rival_trace, "Ordered")


def test_the_trace_shows_when_subscriptions_take_effect() -> None:
    engine, trace = simulated(8, [0, 5], PublishedVCubeOptions.minimal())
    engine.at(0, SubscribeAction(3))
    engine.at(2000, PublishAction(0))
    engine.at(4000, UnsubscribeAction(3))
    engine.at(4000, PublishAction(0))
    engine.run()
    rows = [(row["time"], row["event"], row["node"]) for row in trace.table().to_pylist() if row["node"] == 3]
    events = [
        (time, event) for time, event, _ in rows if event in {"subscribe", "subscribed", "deliver", "unsubscribed"}
    ]
    # The last copy goes to 7 behind two others (104), to 5 behind one (207), to 4 (309); each answer takes 102 ticks.
    assert events == [(0, "subscribe"), (615, "subscribed"), (2102, "deliver"), (4000, "unsubscribed")]
