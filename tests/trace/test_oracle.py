"""The oracle finds each kind of violation, and nothing in runs that are right."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from antiphon.kernel import UsageError
from antiphon.trace.oracle import KINDS, Findings, Oracle, TopicOracle, judge


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
