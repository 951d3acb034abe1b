"""The oracle finds each kind of violation, and nothing in runs that are right."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from antiphon.audit.findings import KINDS, Findings
from antiphon.audit.oracle import Oracle, TopicOracle, judge
from antiphon.kernel import CAUSAL, FIFO, NONE, UsageError
from antiphon.kernel.message import TOTAL


def members(*nodes: int) -> tuple[Oracle, TopicOracle]:
    """An oracle of four nodes, some of which are members of topic 0."""
    oracle = Oracle(4)
    topic = oracle.topic(0)
    for node in nodes:
        topic.subscribed(node)
    return oracle, topic


def a_clean_run(topic: TopicOracle) -> None:
    """Thesis, Figure 5.3: a, then b after a; c apart; then e after b and c."""
    for node, source, sequence in [
        (0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 2, 1), (1, 2, 1), (1, 1, 2),
        (0, 2, 1), (0, 1, 1), (0, 1, 2), (2, 0, 1), (2, 1, 1), (2, 1, 2),
    ]:  # fmt: skip
        topic.delivered(node, source, sequence)


def twice(topic: TopicOracle) -> None:
    topic.delivered(2, 1, 2)


def late(topic: TopicOracle) -> None:
    topic.subscribed(3)
    topic.delivered(0, 0, 2)
    topic.delivered(0, 0, 3)
    for node in (1, 2, 3):
        topic.delivered(node, 0, 3)
        topic.delivered(node, 0, 2)


def answer_first(topic: TopicOracle) -> None:
    topic.delivered(0, 0, 2)
    topic.delivered(1, 0, 2)
    topic.delivered(1, 1, 3)
    for node in (0, 2):
        topic.delivered(node, 1, 3)
    topic.delivered(2, 0, 2)


def indirectly_first(topic: TopicOracle) -> None:
    """Happened-before goes through what the node itself never sees."""
    topic.unsubscribed(0)
    topic.unsubscribed(1)
    topic.delivered(2, 2, 2)
    topic.subscribed(0)
    topic.subscribed(1)
    topic.delivered(0, 2, 2)
    topic.delivered(0, 0, 2)
    topic.subscribed(3)
    topic.delivered(1, 0, 2)
    topic.delivered(1, 1, 3)
    topic.delivered(3, 1, 3)
    topic.delivered(3, 0, 2)
    topic.delivered(2, 0, 2)
    topic.delivered(2, 1, 3)
    topic.delivered(0, 1, 3)


def unpublished(topic: TopicOracle) -> None:
    topic.delivered(1, 3, 1)


def after_leaving(topic: TopicOracle) -> None:
    topic.delivered(0, 0, 2)
    topic.unsubscribed(2)
    topic.delivered(1, 0, 2)
    topic.delivered(2, 0, 2)


def lost(topic: TopicOracle) -> None:
    topic.delivered(0, 0, 2)
    topic.delivered(1, 0, 2)


PLANTED: list[tuple[str, Callable[[TopicOracle], None], int]] = [
    ("duplicates", twice, 1),
    ("fifo", late, 3),
    ("causal", answer_first, 1),
    ("causal", indirectly_first, 1),
    ("validity", unpublished, 1),
    ("membership", after_leaving, 1),
    ("completeness", lost, 1),
]


def test_a_run_that_is_right_is_clean() -> None:
    oracle, topic = members(0, 1, 2)
    a_clean_run(topic)
    findings = oracle.finish()
    assert findings.clean
    assert str(findings) == "12 deliveries of 4 publications, nothing violated"


@pytest.mark.parametrize(("kind", "plant", "times"), PLANTED)
def test_each_kind_of_violation_is_found_and_no_other(
    kind: str, plant: Callable[[TopicOracle], None], times: int
) -> None:
    oracle, topic = members(0, 1, 2)
    a_clean_run(topic)
    plant(topic)
    findings = oracle.finish()
    assert findings.counts == {**dict.fromkeys(KINDS, 0), kind: times}
    assert kind in str(findings)


def test_who_subscribes_after_a_publication_started_is_not_owed_it() -> None:
    oracle, topic = members(0)
    topic.delivered(0, 0, 1)
    topic.subscribed(1)
    assert oracle.finish().clean


def test_who_leaves_is_owed_nothing() -> None:
    oracle, topic = members(0, 1)
    topic.delivered(0, 0, 1)
    topic.unsubscribed(1)
    assert oracle.finish().clean


def test_topics_are_judged_apart() -> None:
    oracle, topic = members(0, 1)
    other = oracle.topic(1)
    for node in (0, 1):
        other.subscribed(node)
    topic.delivered(0, 0, 1)
    topic.delivered(1, 0, 1)
    other.delivered(1, 1, 1)
    other.delivered(0, 1, 1)
    assert oracle.finish().clean


def test_a_trace_without_a_column_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\['topic'\] is missing"):
        judge(pa.table({"event": ["deliver"], "node": [0], "source": [0], "sequence": [1]}), 1)


def test_judging_a_trace_is_judging_its_rows() -> None:
    rows = [("subscribed", 0, 0), ("subscribed", 1, 1), ("deliver", 0, 0), ("send", 0, 0), ("deliver", 1, 0)]
    table = pa.table(
        {
            "event": [event for event, _, _ in rows],
            "node": [node for _, node, _ in rows],
            "source": [source for _, _, source in rows],
            "sequence": [1] * len(rows),
            "topic": [0] * len(rows),
        }
    )
    assert judge(table, 2) == Findings(deliveries=2, publications=1)
    assert judge(table.slice(0, 4), 2).counts["completeness"] == 1
    assert judge(table.slice(0, 4), 2, complete=False).clean
    assert judge(table.slice(2), 2, everybody=True).clean


# Publications with orders of their own: what was published, what is delivered then, and what is wrong with it.

QUESTION, ANSWER, LATER = (0, 1), (1, 1), (0, 2)
MIXED: list[tuple[str, dict[tuple[int, int], int], list[tuple[int, int]], dict[str, int]]] = [
    ("no order overtakes all", {QUESTION: CAUSAL, LATER: NONE, ANSWER: NONE}, [ANSWER, LATER, QUESTION], {}),
    ("fifo does not overtake its source", {QUESTION: NONE, LATER: FIFO, ANSWER: NONE}, [LATER, QUESTION], {"fifo": 1}),
    ("fifo overtakes other sources", {QUESTION: CAUSAL, LATER: NONE, ANSWER: FIFO}, [ANSWER, LATER, QUESTION], {}),
    ("causal does not", {QUESTION: NONE, LATER: NONE, ANSWER: CAUSAL}, [ANSWER, QUESTION], {"causal": 1}),
    ("causal overtakes what its source lacked", {QUESTION: NONE, LATER: NONE, ANSWER: CAUSAL}, [LATER, ANSWER], {}),
]


@pytest.mark.parametrize(("orders", "sequence", "wrong"), [row[1:] for row in MIXED], ids=[row[0] for row in MIXED])
def test_each_publication_is_judged_by_its_own_order(
    orders: dict[tuple[int, int], int], sequence: list[tuple[int, int]], wrong: dict[str, int]
) -> None:
    """Node 1 has what comes first for node 2 too, or else the question, before it answers."""
    oracle, topic = members(0, 1, 2)
    for publication, order in orders.items():
        topic.published(*publication, order)
    topic.delivered(0, *QUESTION, orders[QUESTION])
    topic.delivered(0, *LATER, orders[LATER])
    topic.delivered(1, *(LATER if sequence[0] == LATER and ANSWER in sequence else QUESTION))
    topic.delivered(1, *ANSWER, orders[ANSWER])
    for publication in [*sequence, *({QUESTION, LATER, ANSWER} - set(sequence))]:
        topic.delivered(2, *publication)
    found = {kind: count for kind, count in oracle.findings.counts.items() if count}
    assert found == wrong


def test_what_a_weaker_publication_follows_is_not_passed_on_by_it() -> None:
    """The publisher of the last one has delivered the answer without order, but not the question."""
    oracle, topic = members(0, 1, 2, 3)
    for publication, order in {(0, 1): CAUSAL, (1, 1): NONE, (2, 1): CAUSAL}.items():
        topic.published(*publication, order)
    for node, source in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 0)]:
        topic.delivered(node, source, 1)
    assert oracle.findings.clean


def test_in_fifo_order_what_the_source_followed_before_counts() -> None:
    """Node 1 answers in causal order and adds something in fifo order, which node 2 gets first, as a newcomer might."""
    oracle, topic = members(0, 1, 2)
    for publication, order in {(0, 1): NONE, (1, 1): CAUSAL, (1, 2): FIFO}.items():
        topic.published(*publication, order)
    for node, publication in [(0, (0, 1)), (1, (0, 1)), (1, (1, 1)), (1, (1, 2)), (2, (1, 2)), (2, (0, 1))]:
        topic.delivered(node, *publication)
    assert oracle.findings.counts["causal"] == 1


def test_an_order_that_was_not_asked_for_is_found() -> None:
    oracle, topic = members(0)
    topic.published(0, 1, CAUSAL)
    topic.delivered(0, 0, 1, NONE)
    assert oracle.findings.counts["validity"] == 1
    assert "published in order causal, not none" in str(oracle.findings)


def test_a_trace_says_which_order_was_asked_for() -> None:
    """Without a word about it a publication is judged as causal, or as the default that is given."""
    events = [("publish", 0, 1), ("publish", 0, 2), ("deliver", 0, 1), ("deliver", 0, 2), ("deliver", 1, 2)]
    events.append(("deliver", 1, 1))
    columns = {
        "event": [event for event, _, _ in events],
        "node": [node for _, node, _ in events],
        "source": [0] * len(events),
        "sequence": [sequence for _, _, sequence in events],
        "topic": [0] * len(events),
    }
    table = pa.table(columns)
    named = table.append_column("order", pa.array(["none", "none", None, None, None, None], pa.string()))
    assert judge(table, 2, everybody=True).counts["fifo"] == 1
    assert judge(table, 2, everybody=True, default=NONE).clean
    assert judge(named, 2, everybody=True).clean


@pytest.mark.parametrize(("lost", "violations"), [(1, 1), (2, 1), (3, 0)])
def test_who_leaves_may_lack_what_was_on_its_way_and_nothing_else(lost: int, violations: int) -> None:
    oracle, topic = members(0, 1)
    for sequence in (1, 2, 3):
        topic.delivered(0, 0, sequence)
    for sequence in (1, 2, 3):
        if sequence != lost:
            topic.delivered(1, 0, sequence)
    topic.leaving(1)
    topic.unsubscribed(1)
    findings = oracle.finish()
    assert findings.counts == dict.fromkeys(KINDS, 0) | {"completeness": violations}
    if violations:
        assert "never delivered, though something that follows it was" in findings.examples["completeness"]


def test_who_joins_and_leaves_is_not_owed_what_was_before() -> None:
    oracle, topic = members(0)
    topic.delivered(0, 0, 1)
    topic.subscribed(1)
    topic.delivered(0, 0, 2)
    topic.delivered(1, 0, 2)
    topic.leaving(1)
    topic.unsubscribed(1)
    assert oracle.finish().clean


def test_who_asks_to_leave_is_not_owed_what_starts_afterwards() -> None:
    """Publisher 0 has heard of the leave and does not send to node 2; publisher 1, who answers, has not."""
    oracle, topic = members(0, 1, 2)
    topic.leaving(2)
    topic.delivered(0, 0, 1)
    topic.delivered(1, 0, 1)
    for node in (1, 0, 2):
        topic.delivered(node, 1, 1)
    topic.unsubscribed(2)
    assert oracle.finish().clean


@pytest.mark.parametrize(("orders", "violations"), [(["none", "fifo"], 1), (["fifo", "none"], 0)])
def test_what_a_silent_node_published_is_judged_by_the_order_that_others_name(
    orders: list[str], violations: int
) -> None:
    """Node 2 left no trace. Its second publication came first, and the first came after it."""
    table = pa.table(
        {
            "event": ["deliver"] * 2,
            "node": [0, 0],
            "topic": [0, 0],
            "source": [2, 2],
            "sequence": [2, 1],
            "order": orders[::-1],
        }
    )
    assert judge(table, 1, everybody=True).counts["fifo"] == violations


def test_a_run_that_is_cut_short_before_anything_is_delivered_is_judged() -> None:
    """A node that has asked for a total publication knows something, and has delivered nothing."""
    oracle, topic = members(0, 1)
    topic.published(0, 1, TOTAL)
    assert oracle.cut_off().clean
