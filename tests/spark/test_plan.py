"""Plans without Spark: every offset is read once however ranges are cut, filters keep what they say, all fabrics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from antiphon import Node
from antiphon.sessions.client_messages import LogRange, LogsResponse
from antiphon.spark.logs import Logs
from antiphon.spark.options import read_options
from antiphon.spark.plan import Partition, Piece, divided, offsets_from, positions_from
from antiphon.spark.pushdown import Pushed, microseconds_of
from antiphon.spark.reader import TopicReader
from tests.spark.nodes import Nodes


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=6), st.integers(1, 40))
def test_however_ranges_are_cut_every_offset_is_in_one_piece(ranges: list[tuple[int, int]], minimal: int) -> None:
    pieces = [
        Piece(Partition("t", number), "here", start, start + length) for number, (start, length) in enumerate(ranges)
    ]
    cut = divided(pieces, minimal)
    wanted = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert [(piece.partition, offset) for piece in cut for offset in range(piece.start, piece.end)] == wanted
    assert all(piece.end > piece.start for piece in cut)
    # Shares are rounded, so there may be somewhat less than was asked for, as with Kafka's connector.
    assert len(cut) >= min(minimal, len(wanted)) - len(ranges)


def test_offsets_are_written_as_kafka_writes_them() -> None:
    positions = {Partition("room", 17): 23, Partition("room", 4): 5, Partition("side", 17): 0}
    written = offsets_from(positions)
    assert written == {"room": {"4": 5, "17": 23}, "side": {"17": 0}}
    assert positions_from(written) == positions  # type: ignore[arg-type]


COMPARISONS: dict[type[Any], Callable[[int, int], bool]] = {
    EqualTo: lambda value, wanted: value == wanted,
    GreaterThan: lambda value, wanted: value > wanted,
    GreaterThanOrEqual: lambda value, wanted: value >= wanted,
    LessThan: lambda value, wanted: value < wanted,
    LessThanOrEqual: lambda value, wanted: value <= wanted,
}


@given(st.lists(st.tuples(st.sampled_from(list(COMPARISONS)), st.integers(-3, 33)), max_size=4))
def test_filters_on_offsets_keep_what_they_say(comparisons: list[tuple[type[Any], int]]) -> None:
    pushed = Pushed()
    assert all(pushed.take(kind(("offset",), wanted)) for kind, wanted in comparisons)
    piece = pushed.cut(Piece(Partition("room", 1), "here", 0, 30))
    expected = [o for o in range(30) if all(COMPARISONS[kind](o, wanted) for kind, wanted in comparisons)]
    assert list(range(piece.start, piece.end)) == expected


@pytest.mark.parametrize(
    "left",
    [Not(EqualTo(("offset",), 3)), EqualTo(("value",), b"x"), EqualTo(("headers", "key"), "x"), IsNotNull(("key",)),
     In(("offset",), (3, 5)), GreaterThan(("offset",), 3.5), EqualTo(("timestamp",), "soon")],
)  # fmt: skip
def test_what_is_not_kept_exactly_is_left_to_spark(left: Filter) -> None:
    assert not Pushed().take(left)


def test_filters_on_topics_and_partitions() -> None:
    pushed = Pushed()
    assert pushed.take(StringStartsWith(("topic",), "orders."))
    assert pushed.take(In(("partition",), (1, 2)))
    assert pushed.take(IsNotNull(("offset",)))
    assert pushed.wants("orders.europe", 1)
    assert not pushed.wants("prices", 1)
    assert not pushed.wants("orders.europe", 3)


def test_times_are_compared_to_the_microsecond() -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
    assert microseconds_of(at) == microseconds_of(at.astimezone(timezone(timedelta(hours=2)))) == 1769860800000005
    assert microseconds_of(at.replace(tzinfo=None)) == 1769860800000005
    pushed = Pushed()
    assert pushed.take(GreaterThan(("timestamp",), at))
    assert pushed.times_us.first == 1769860800000006


def test_the_log_that_holds_most_serves_a_topic_and_equal_ones_share_topics() -> None:
    logs = Logs()
    topics = [f"t{number}" for number in range(40)]
    for number in (1, 2, 3):
        end = 5 if number == 3 else 10
        ranges = [LogRange(topic, 0, end, []) for topic in topics]
        logs.add(f"127.0.0.1:{number}", LogsResponse(1, number, number, ranges, [], []))
    served = {held.number for topic in topics if (held := logs.fullest(topic)) is not None}
    assert served == {1, 2}
    assert logs.fullest("nowhere") is None


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_the_logs_of_all_fabrics_are_read(nodes: Nodes, tmp_path: Path, fabric: str) -> None:
    node: Node = nodes.start(data=str(tmp_path / fabric), fabric=fabric, keep=["room"])
    for order in ("none", "fifo", "causal", "total"):
        nodes.publish(node, "room", [b"a", b"b"], order=order, key=order.encode())
    reader = TopicReader(read_options({"servers": node.address, "subscribe": "room"}, is_stream=False))
    rows = [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]
    seen = [(row["value"], row["order"], row["key"], row["sequence"]) for row in rows]
    assert seen == [
        (value, order, order.encode(), 2 * place + 1 + (value == b"b"))
        for place, order in enumerate(("none", "fifo", "causal", "total"))
        for value in (b"a", b"b")
    ]
