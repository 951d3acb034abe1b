"""Traces of several nodes as one history."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.audit.oracle import judge
from antiphon.kernel import UsageError
from antiphon.trace.merging import merge_traces

Row = tuple[int, str, int, int, int]
"""Time, event, node, source and number."""

LIVE = {"host": "live"}


def trace(rows: list[Row], about: dict[str, str] | None = None, order: str | None = "causal") -> pa.Table:
    """A trace of one topic."""
    times, events, nodes, sources, sequences = ([row[column] for row in rows] for column in range(5))
    columns: dict[str, Any] = {
        "time": pa.array(times, pa.int64()),
        "event": pa.array(events, pa.string()).dictionary_encode(),
        "node": pa.array(nodes, pa.int32()),
        "source": pa.array(sources, pa.int32()),
        "sequence": pa.array(sequences, pa.int64()),
        "topic": pa.array([5] * len(rows), pa.int32()),
        "order": pa.array([order] * len(rows), pa.string()).dictionary_encode(),
    }
    metadata = {"antiphon": json.dumps(LIVE if about is None else about)}
    return pa.table(columns).replace_schema_metadata(metadata)


def rows_of(table: pa.Table) -> list[Row]:
    names = ("time", "event", "node", "source", "sequence")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def run_of(nodes: int, messages: int, seed: int) -> list[list[Row]]:
    """What each node writes in a run in which all are members, publish and deliver in one order, on one clock."""
    generator = random.Random(seed)
    written: list[list[Row]] = [[(0, "subscribed", node, node, 0)] for node in range(nodes)]
    counts = [0] * nodes
    for message in range(messages):
        source = generator.randrange(nodes)
        counts[source] += 1
        for node in range(nodes):
            late = 0 if node == source else 1 + generator.randrange(5)
            written[node].append((10 * message + 10 + late, "deliver", node, source, counts[source]))
    return written


def test_rows_are_sorted_by_time_and_rows_of_one_time_keep_their_order() -> None:
    first = [(1, "subscribed", 0, 0, 0), (5, "deliver", 0, 0, 1), (5, "deliver", 0, 0, 2)]
    second = [(2, "subscribed", 1, 1, 0), (7, "deliver", 1, 0, 1), (7, "deliver", 1, 0, 2)]
    merged = merge_traces([trace(second), trace(first)])
    assert rows_of(merged) == [first[0], second[0], *first[1:], *second[1:]]


def test_nobody_is_earlier_than_the_publisher() -> None:
    first = [(1, "subscribed", 0, 0, 0), (50, "deliver", 0, 0, 1), (60, "deliver", 0, 1, 1)]
    second = [(2, "subscribed", 1, 1, 0), (7, "deliver", 1, 0, 1), (8, "deliver", 1, 1, 1)]
    merged = merge_traces([trace(first), trace(second)])
    assert rows_of(merged) == [first[0], second[0], first[1], second[1], second[2], first[2]]
    assert judge(merged, 2).clean


def test_a_total_publication_may_come_to_its_publisher_late() -> None:
    """Who subscribes between these two moments is owed nothing: no row is held back for the publisher's."""
    first = [(1, "subscribed", 0, 0, 0), (2, "publish", 0, 0, 1), (60, "deliver", 0, 0, 1)]
    second = [(1, "subscribed", 1, 1, 0), (40, "deliver", 1, 0, 1)]
    third = [(50, "subscribed", 2, 2, 0)]
    merged = merge_traces([trace(rows, order="total") for rows in (first, second, third)])
    assert rows_of(merged) == [first[0], second[0], first[1], second[1], third[0], first[2]]
    assert judge(merged, 3).clean


def test_a_total_publication_is_held_back_until_it_was_asked_for() -> None:
    first = [(1, "subscribed", 0, 0, 0), (70, "publish", 0, 0, 1), (80, "deliver", 0, 0, 1), (90, "deliver", 0, 1, 1)]
    second = [(1, "subscribed", 1, 1, 0), (2, "publish", 1, 1, 1), (40, "deliver", 1, 0, 1), (41, "deliver", 1, 1, 1)]
    # A publication of a weaker order shows that the clocks disagree.
    weaker = [(3, "deliver", 1, 0, 2)]
    tables = [trace(first, order="total"), trace(second, order="total")]
    shown = [trace([(65, "deliver", 0, 0, 2)]), trace(weaker)]
    both = [
        pa.concat_tables([table.slice(0, 1), extra, table.slice(1)], promote_options="permissive")
        for table, extra in zip(tables, shown, strict=True)
    ]
    merged = rows_of(merge_traces(both))
    assert merged.index((70, "publish", 0, 0, 1)) < merged.index((40, "deliver", 1, 0, 1))


@given(st.integers(2, 5), st.integers(1, 30), st.integers(0, 1000), st.lists(st.integers(-60, 60), min_size=5))
def test_clocks_that_disagree_change_no_judgement(nodes: int, messages: int, seed: int, skews: list[int]) -> None:
    written = run_of(nodes, messages, seed)
    # Subscriptions are before everything on all clocks: who was a member when something started is no question here.
    skewed = [
        [rows[0], *((time + 100 + skews[node], *rest) for time, *rest in rows[1:])] for node, rows in enumerate(written)
    ]
    merged = merge_traces([trace(rows) for rows in skewed])  # type: ignore[arg-type]
    findings = judge(merged, nodes)
    assert findings.clean, str(findings)
    assert (findings.publications, findings.deliveries) == (messages, messages * nodes)
    for node, rows in enumerate(skewed):
        assert [row for row in rows_of(merged) if row[2] == node] == rows


def test_what_cannot_be_is_left_to_the_judge() -> None:
    """Each delivers the other's publication before its own: one of them must be too early."""
    first = [(1, "subscribed", 0, 0, 0), (5, "deliver", 0, 1, 1), (6, "deliver", 0, 0, 1)]
    second = [(1, "subscribed", 1, 1, 0), (7, "deliver", 1, 0, 1), (8, "deliver", 1, 1, 1)]
    merged = merge_traces([trace(first), trace(second)])
    assert sorted(rows_of(merged)) == sorted(first + second)
    findings = judge(merged, 2)
    assert findings.counts["validity"] == 1
    assert "publication 1 of node 1 on topic 5 at node 0: delivered before" in findings.examples["validity"]


def test_a_publisher_without_a_trace_holds_nobody_back() -> None:
    first = [(1, "subscribed", 0, 0, 0), (5, "deliver", 0, 9, 1)]
    second = [(1, "subscribed", 1, 1, 0), (4, "deliver", 1, 9, 1)]
    assert rows_of(merge_traces([trace(first), trace(second)])) == [first[0], second[0], second[1], first[1]]


@pytest.mark.parametrize(("order", "violations"), [("none", 0), ("fifo", 1), ("causal", 1), (None, 1)])
def test_without_requests_the_order_is_that_of_the_publishers_own_delivery(order: str | None, violations: int) -> None:
    first = [(1, "subscribed", 0, 0, 0), (5, "deliver", 0, 0, 1), (6, "deliver", 0, 0, 2)]
    second = [(2, "subscribed", 1, 1, 0), (7, "deliver", 1, 0, 2), (8, "deliver", 1, 0, 1)]
    merged = merge_traces([trace(first, order=order), trace(second, order=order)])
    assert judge(merged, 2).counts["fifo"] == violations


def test_a_single_trace_is_left_as_it_is() -> None:
    table = trace([(5, "deliver", 0, 0, 1), (1, "deliver", 1, 0, 1)], {"host": "simulator"})
    assert merge_traces([table]) is table


def test_traces_that_do_not_belong_together_are_refused() -> None:
    rows = [(1, "subscribed", 0, 0, 0)]
    with pytest.raises(UsageError, match="audit simulated runs one by one"):
        merge_traces([trace(rows), trace([(1, "subscribed", 1, 1, 0)], {"host": "simulator"})])
    with pytest.raises(UsageError, match="node 0 is in two traces"):
        merge_traces([trace(rows), trace(rows)])
    with pytest.raises(UsageError, match="no trace is named"):
        merge_traces([])
