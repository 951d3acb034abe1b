"""Topics in scenarios: who is a member, who may publish, and what is said about mistakes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.kernel.errors import ScenarioError, UsageError
from antiphon.simulator.engine import actions
from antiphon.simulator.scenario.file import check_scenario, parse_scenario
from antiphon.simulator.scenario.run import Simulation, schedule_subscriptions
from antiphon.simulator.scenario.scenario import (
    OnceWorkload,
    PublishTable,
    RateWorkload,
    Scenario,
    SubscribeTable,
    TopicsTable,
)
from antiphon.simulator.scenario.subscriptions import first_members, subscribed_spans
from antiphon.simulator.scenario.workload import plan
from antiphon.trace.store import MemoryTrace

TOPICS = 'nodes = 8\nprotocol = "vcube-ps"\nworkload = { kind = "once" }\n'
EVERYBODY = 'nodes = 8\nworkload = { kind = "once" }\n'

NO_TOPICS = 'has no topics: all nodes receive everything; leave this out, or choose: protocol = "vcube-ps"'
NO_FAILURES = "vcube-ps needs nodes that do not fail and are up from the start"

WRONG = {
    "best effort": (
        TOPICS + 'order = "best-effort"',
        "a.toml, line 4: order: vcube-ps supports the orders none, fifo, causal, total, not best-effort; "
        'for example: order = "none"',
    ),
    "an option of another protocol": (
        TOPICS + "[protocol-options]\nacknowledge = false",
        "a.toml, line 5: protocol-options.acknowledge: there is no such key; "
        "the keys here are window, bundle, largest_first, directory, aggregate",
    ),
    "topics without topics": (EVERYBODY + "[topics]\ncount = 2", f"a.toml, line 3: topics: broadcast {NO_TOPICS}"),
    "a subscription without topics": (
        EVERYBODY + "[[subscribe]]\nat = 1\nnode = 2",
        f"a.toml, line 3: subscribe 1: broadcast {NO_TOPICS}",
    ),
    "an unsubscription without topics": (
        EVERYBODY + "[[unsubscribe]]\nat = 1\nnode = 2",
        f"a.toml, line 3: unsubscribe 1: broadcast {NO_TOPICS}",
    ),
    "a publication on a topic without topics": (
        EVERYBODY + "[[publish]]\nat = 1\nnode = 2\ntopic = 1",
        f"a.toml, line 6: publish 1, topic: broadcast {NO_TOPICS}",
    ),
    "a workload on a topic without topics": (
        'nodes = 8\nworkload = { kind = "once", topic = "any" }',
        f"a.toml, line 2: workload.topic: broadcast {NO_TOPICS}",
    ),
    "no such topic": (
        TOPICS + "[[subscribe]]\nat = 1\nnode = 2\ntopic = 3",
        "a.toml, line 7: subscribe 1, topic: there is no topic 3; choose from 0 to 0, or have more of them: [topics] "
        "with count = 4",
    ),
    "no such word for a topic": (
        'nodes = 8\nprotocol = "vcube-ps"\nworkload = { kind = "once", topic = "all" }',
        'a.toml, line 3: workload.topic: expected the number of a topic or "any", not "all"; for example: topic = 0',
    ),
    "members for some topics": (
        TOPICS + '[topics]\ncount = 2\nmembers = ["0-7"]',
        "a.toml, line 6: topics.members: expected a set of nodes for each of 2 topics, not 1 sets; write for example: "
        "count = 1",
    ),
    "members drawn and named": (
        TOPICS + '[topics]\nshare = 0.5\nmembers = ["0-7"]',
        "a.toml, line 6: topics.members: members are drawn or named, not both; leave out members, or share",
    ),
    "members that do not exist": (
        TOPICS + '[topics]\nmembers = ["0-8"]',
        "a.toml, line 5: topics.members 1: there is no node 8 among 8; choose from 0 to 7, for example: 4",
    ),
    "a subscription of nobody": (
        TOPICS + "[[subscribe]]\nat = 1",
        "a.toml, line 4: subscribe 1: expected node or nodes, but found neither; for example: node = 5, or: "
        "nodes = [5, 6]",
    ),
    "a subscription after the end": (
        TOPICS + "[[subscribe]]\nat = 200\nnode = 1\n[limits]\ntime = 100",
        "a.toml, line 5: subscribe 1, at: 200 is after the end of the run; choose an earlier time, for example: 50, or "
        "a later end in [limits], for example: time = 400",
    ),
    "subscribed twice": (
        TOPICS + "[[subscribe]]\nat = 5\nnode = 2",
        "a.toml, line 4: subscribe 1: node 2 is subscribed to topic 0 at time 5 and cannot subscribe; let for example "
        "come before it: [[unsubscribe]] with at = 4, node = 2, topic = 0",
    ),
    "unsubscribed twice": (
        TOPICS + "[[unsubscribe]]\nat = 5\nnodes = [2, 2]",
        "a.toml, line 4: unsubscribe 1: node 2 is not subscribed to topic 0 at time 5 and cannot unsubscribe; let for "
        "example come before it: [[subscribe]] with at = 4, node = 2, topic = 0",
    ),
    "published by an outsider": (
        TOPICS + "[[unsubscribe]]\nat = 5\nnode = 2\n[[publish]]\nat = 5\nnode = 2",
        "a.toml, line 7: publish 1: node 2 is not subscribed to topic 0 at time 5 and cannot publish on it; let for "
        "example come before it: [[subscribe]] with at = 5, node = 2, topic = 0",
    ),
    "unsubscribed during a pause": (
        TOPICS + '[[unsubscribe]]\nat = 5\nnode = 2\n[[fault]]\nat = 5\nkind = "pause"\nnode = 2',
        "a.toml, line 4: unsubscribe 1: node 2 is paused at time 5 and cannot unsubscribe; let for example come before "
        'it: at = 5, kind = "resume", node = 2',
    ),
    "loss": (
        TOPICS + "[network]\nloss = 0.1",
        "a.toml, line 5: network.loss: vcube-ps needs links that neither lose nor duplicate (they may delay and "
        'reorder, see reordering); leave this out, or choose: protocol = "broadcast"',
    ),
    "duplication": (
        TOPICS + "[network]\nduplication = 0.1",
        "a.toml, line 5: network.duplication: vcube-ps needs links that neither lose nor duplicate (they may delay and "
        'reorder, see reordering); leave this out, or choose: protocol = "broadcast"',
    ),
    "a crash": (
        TOPICS + '[[fault]]\nat = 5\nkind = "crash"\nnode = 2',
        f"a.toml, line 4: fault 1: {NO_FAILURES} (they may pause and resume; members join and leave by [[subscribe]] "
        'and [[unsubscribe]]); leave this out, or choose: protocol = "broadcast"',
    ),
    "a partition": (
        TOPICS + '[[fault]]\nat = 5\nkind = "partition"\ngroups = [[1]]',
        f"a.toml, line 4: fault 1: {NO_FAILURES} (they may pause and resume; members join and leave by [[subscribe]] "
        'and [[unsubscribe]]); leave this out, or choose: protocol = "broadcast"',
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_about_topics_is_explained(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "a.toml")
    assert str(caught.value) == expected


def rows_of(scenario: Scenario) -> list[dict[str, Any]]:
    trace = MemoryTrace("deliveries")
    simulation = Simulation(scenario, trace.recorder)
    assert simulation.run() == "finished"
    rows: list[dict[str, Any]] = trace.table().to_pylist()
    return rows


def receivers(rows: list[dict[str, Any]], topic: int) -> list[int]:
    return sorted(row["node"] for row in rows if row["event"] == "deliver" and row["topic"] == topic)


# Who is a member.


def test_without_a_table_everybody_is_a_member_of_one_topic() -> None:
    scenario = parse_scenario('nodes = 5\nprotocol = "vcube-ps"\npublish = [{ at = 0, node = 3 }]')
    assert receivers(rows_of(scenario), 0) == [0, 1, 2, 3, 4]


def test_each_topic_has_its_members() -> None:
    scenario = parse_scenario(
        """
        nodes = 8
        protocol = "vcube-ps"
        publish = [{ at = 0, node = 3, topic = 1 }, { at = 0, node = 3 }]
        [topics]
        count = 3
        members = ["3, 5-6", [7, 3], []]
        """
    )
    rows = rows_of(scenario)
    assert [receivers(rows, topic) for topic in range(3)] == [[3, 5, 6], [3, 7], []]


def test_members_are_drawn_for_each_topic() -> None:
    scenario = Scenario(nodes=40, topics=TopicsTable(count=3, share=0.25))
    drawn = first_members(scenario)
    assert [len(members) for members in drawn] == [10, 10, 10]
    assert len({tuple(members) for members in drawn}) == 3
    assert all(members == sorted(set(members)) for members in drawn)
    assert first_members(Scenario(nodes=40, topics=TopicsTable(share=0.0))) == [[]]


def test_members_come_and_go() -> None:
    scenario = parse_scenario(
        """
        nodes = 4
        protocol = "vcube-ps"
        topics = { members = ["0-1"] }
        subscribe = [{ at = 1000, nodes = "2-3" }]
        unsubscribe = [{ at = 3000, nodes = [1, 2] }]
        publish = [{ at = 0, node = 0 }, { at = 2000, node = 0 }, { at = 4000, node = 0 }]
        """
    )
    rows = rows_of(scenario)
    delivered = {(row["sequence"], row["node"]) for row in rows if row["event"] == "deliver"}
    assert delivered == {(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0), (3, 3)}
    assert [row["node"] for row in rows if row["event"] == "unsubscribed"] == [1, 2]


def test_at_the_same_tick_a_node_leaves_and_comes_back_and_publishes() -> None:
    scenario = parse_scenario(
        """
        nodes = 2
        protocol = "vcube-ps"
        publish = [{ at = 5, node = 1 }]
        subscribe = [{ at = 5, node = 1 }]
        unsubscribe = [{ at = 5, node = 1 }]
        """
    )
    events = [(row["event"], row["node"]) for row in rows_of(scenario) if row["node"] == 1]
    assert events == [
        ("subscribed", 1),
        ("unsubscribe", 1),
        ("unsubscribed", 1),
        ("subscribe", 1),
        ("publish", 1),
        ("subscribed", 1),
        ("deliver", 1),
    ]


def test_what_had_to_wait_is_counted_over_all_memberships() -> None:
    scenario = parse_scenario(
        """
        nodes = 2
        protocol = "vcube-ps"
        order = "fifo"
        publish = [{ at = 0, node = 0 }, { at = 1, node = 0 }, { at = 2, node = 0 }, { at = 3, node = 0 }]
        unsubscribe = [{ at = 3000, node = 1 }]
        [network]
        reordering = 0.5
        reordering_window = 1000
        """
    )
    simulation = Simulation(scenario)
    result = simulation.result(simulation.run(), 1.0)
    assert (result.held_total, result.held_at_end, simulation.stuck()) == (2, 0, 0)


# Who publishes.

COMING_AND_GOING = Scenario(
    nodes=6,
    protocol="vcube-ps",
    topics=TopicsTable(count=3, members=["0-3", [1, 4], []]),
    unsubscriptions=[SubscribeTable(at=100, nodes=[0, 1]), SubscribeTable(at=150, node=4, topic=1)],
    subscriptions=[SubscribeTable(at=200, nodes=[0, 5]), SubscribeTable(at=120, node=3, topic=1)],
)


def subscribed_at(node: int, topic: int, at: int) -> bool:
    spans = {(member, name): found for member, name, found in subscribed_spans(COMING_AND_GOING, 0, 1000)}
    return any(first <= at <= last for first, last in spans.get((node, topic), []))


def test_spans_of_subscription_begin_and_end_with_the_ticks_of_the_tables() -> None:
    assert list(subscribed_spans(COMING_AND_GOING, 50, 300)) == [
        (0, 0, [(50, 99), (200, 300)]),
        (1, 0, [(50, 99)]),
        (1, 1, [(50, 300)]),
        (2, 0, [(50, 300)]),
        (3, 0, [(50, 300)]),
        (3, 1, [(120, 300)]),
        (4, 1, [(50, 149)]),
        (5, 0, [(200, 300)]),
    ]
    assert [node for node, topic, _ in subscribed_spans(COMING_AND_GOING, 150, 199) if topic == 0] == [2, 3]


@pytest.mark.parametrize("topic", [0, 1, 2, "any"])
@pytest.mark.parametrize("seed", range(4))
def test_only_those_publish_who_are_subscribed(topic: int | str, seed: int) -> None:
    for workload in (
        OnceWorkload(window=300, topic=topic),
        RateWorkload(mean_gap=1, until=300, topic=topic),
    ):
        scenario = Scenario(
            nodes=6,
            seed=seed,
            protocol="vcube-ps",
            topics=COMING_AND_GOING.topics,
            unsubscriptions=COMING_AND_GOING.unsubscriptions,
            subscriptions=COMING_AND_GOING.subscriptions,
            workload=workload,
        )
        check_scenario(scenario)
        planned = list(plan(scenario))
        assert all(subscribed_at(publication.node, publication.topic, publication.at) for publication in planned)
        topics = {publication.topic for publication in planned}
        assert topics == ({0, 1} if topic == "any" else set() if topic == 2 else {topic})
        if isinstance(workload, OnceWorkload):
            members = {0: [0, 1, 2, 3, 5], 1: [1, 3, 4], 2: [], "any": list(range(6))}
            assert [publication.node for publication in planned] == members[topic]
        else:
            assert topic == 2 or len(planned) > 60


CHANGES = st.lists(
    st.tuples(st.sampled_from(["subscribe", "unsubscribe", "publish"]), st.integers(0, 6), st.integers(0, 1)),
    min_size=1,
    max_size=8,
)


@given(changes=CHANGES)
@settings(max_examples=300, deadline=None)
def test_the_check_before_the_run_agrees_with_the_protocol(changes: list[tuple[str, int, int]]) -> None:
    """Operations are refused exactly when the protocol would have refused them in the middle of the run."""
    scenario = Scenario(
        nodes=2,
        protocol="vcube-ps",
        topics=TopicsTable(members=[[0]]),
        subscriptions=[SubscribeTable(at=at, node=node) for kind, at, node in changes if kind == "subscribe"],
        unsubscriptions=[SubscribeTable(at=at, node=node) for kind, at, node in changes if kind == "unsubscribe"],
        publications=[PublishTable(at=at, node=node) for kind, at, node in changes if kind == "publish"],
    )
    try:
        unchecked_run(scenario)
        accepted = True
    except UsageError:
        accepted = False
    if accepted:
        check_scenario(scenario)
    else:
        with pytest.raises(ScenarioError, match=r"is (not )?subscribed to topic 0"):
            check_scenario(scenario)


def unchecked_run(scenario: Scenario) -> None:
    """Run the operations of a scenario without the check before the run."""
    bare = Scenario(
        nodes=2, protocol="vcube-ps", topics=scenario.topics, workload=RateWorkload(mean_gap=1, until=1, topic=0)
    )
    simulation = Simulation(bare)
    schedule_subscriptions(simulation.engine, scenario)
    for publication in plan(scenario):
        simulation.engine.at(publication.at, actions.PublishAction(publication.node, b"", publication.topic))
    simulation.run()
