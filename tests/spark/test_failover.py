"""Streams that survive the loss of a node: no message lost, none twice, none before something that it follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from antiphon import Node, PeerError, UsageError
from antiphon.spark.marks import Marks, WantedRows, marks_from
from antiphon.spark.options import read_options
from antiphon.spark.stream import TopicStreamReader
from tests.spark.nodes import Nodes

Messages = set[tuple[int, int]]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def reader_of(servers: list[Node], **options: str) -> TopicStreamReader:
    given = {"servers": ",".join(node.address for node in servers), "subscribe": "room", **options}
    return TopicStreamReader(read_options({"failover": "true", "patienceSeconds": "0", **given}, is_stream=True))


def read(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    batches = [batch for piece in reader.partitions(start, end) for batch in reader.read(piece)]
    return [row["value"] for batch in batches for row in batch.to_pylist()]


def chosen(offsets: dict[str, Any], nodes: list[Node]) -> tuple[Node, Node]:
    """Of two nodes the one whose log is read, and the other one."""
    first, second = nodes
    return (first, second) if str(first._live.log_server.number) in offsets["room"] else (second, first)


@pytest.mark.parametrize("most", [4, 7])
def test_a_stream_goes_on_with_another_log(nodes: Nodes, tmp_path: Path, most: int) -> None:
    """The limit cuts batches of messages that were published together."""
    pair = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(pair[0], "room", numbered(6))
    nodes.publish(pair[1], "room", numbered(6, 6))
    start = reader_of(pair, startingOffsets="earliest").initialOffset()
    lost, left = chosen(start, pair)
    reader = reader_of([left], startingOffsets="earliest")
    end = reader.latestOffset(start, ReadMaxRows(most))
    before = read(reader, start, end)
    assert len(before) == most
    nodes.stop(lost)
    nodes.publish(left, "room", numbered(3, 12))
    # What Spark keeps goes through JSON, and another process may go on with it.
    reader, kept = reader_of([left]), json.loads(json.dumps(end))
    moved = reader.latestOffset(kept, ReadAllAvailable())
    assert list(moved["room"]) == [str(left._live.log_server.number)]
    assert read(reader, kept, moved) == []
    last = reader.latestOffset(moved, ReadAllAvailable())
    assert before + read(reader, moved, last) == numbered(15)
    assert reader.latestOffset(last, ReadAllAvailable()) == last


def test_a_batch_that_was_decided_is_read_elsewhere_and_is_the_same(nodes: Nodes, tmp_path: Path) -> None:
    pair = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(pair[0], "room", numbered(10))
    start = reader_of(pair, startingOffsets="earliest").initialOffset()
    lost, left = chosen(start, pair)
    reader = reader_of([left], startingOffsets="earliest")
    middle = reader.latestOffset(start, ReadMaxRows(3))
    end = reader.latestOffset(middle, ReadMaxRows(4))
    same = read(reader, middle, end)
    assert same == numbered(4, 3)
    nodes.stop(lost)
    assert read(reader_of([left]), middle, end) == same
    with pytest.raises(PeerError, match="no node that answers has partition"):
        TopicStreamReader(
            read_options({"servers": left.address, "subscribe": "room", "patienceSeconds": "0"}, is_stream=True)
        ).latestOffset(end, ReadAllAvailable())


def test_who_starts_with_what_comes_does_not_get_what_was_before(nodes: Nodes, tmp_path: Path) -> None:
    pair = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(pair[0], "room", numbered(5))
    start = reader_of(pair).initialOffset()
    lost, left = chosen(start, pair)
    # One that has kept nothing but offsets looks for what was before them.
    plain = {"room": start["room"]}
    assert reader_of(pair).latestOffset(plain, ReadAllAvailable()) == start
    nodes.stop(lost)
    nodes.publish(left, "room", numbered(2, 5))
    reader = reader_of([left])
    moved = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, moved, reader.latestOffset(moved, ReadAllAvailable())) == numbered(2, 5)


def test_numbers_that_come_again_are_not_taken_for_what_was_read(nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room"])
    nodes.publish(node, "room", numbered(4))
    store = node._live.store
    assert store is not None
    for entry in store.read("room", 0, 1 << 20):
        store.append("room", entry.count, entry.appended_at_us, entry.batch)
    store.commit()
    reader = reader_of([node], startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    assert read(reader, start, end) == numbered(4)
    with pytest.raises(UsageError, match="two messages of one publisher with the same number"):
        reader.latestOffset(end, ReadAllAvailable())


def test_spark_goes_on_with_another_log(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    pair = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(pair[0], "room", numbered(10))
    found: list[bytes] = []

    def run(servers: str) -> dict[str, Any]:
        options = {"subscribe": "room", "startingOffsets": "earliest", "failover": "true", "patienceSeconds": "1"}
        frame = spark.readStream.format("antiphon").options(servers=servers, maxOffsetsPerTrigger=8, **options).load()
        writer = frame.writeStream.foreachBatch(lambda rows, _: found.extend(bytes(r["value"]) for r in rows.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.lastProgress is not None
        offsets: dict[str, Any] = json.loads(query.lastProgress["sources"][0]["endOffset"])
        return offsets

    lost, left = chosen(run(",".join(node.address for node in pair)), pair)
    assert found == numbered(10)
    nodes.stop(lost)
    nodes.publish(left, "room", numbered(5, 10))
    offsets = run(left.address)
    assert found == numbered(15)
    assert offsets["room"] == {str(left._live.log_server.number): 15}


messages = st.sets(st.tuples(st.integers(0, 2), st.integers(1, 30)), max_size=40)


def marks_of(wanted: Messages) -> Marks:
    marks = Marks()
    for publisher, number in sorted(wanted, key=lambda each: hash((each, 7))):
        marks.add(publisher, number, number)
    return marks


@given(messages, messages)
def test_marks_are_sets_of_messages(one: Messages, other: Messages) -> None:
    both = marks_of(one).with_all(marks_of(other))
    assert both == marks_of(one | other)
    assert len(both) == len(one | other)
    assert marks_from(both.as_texts()) == both
    assert marks_of(one).has_any_of(marks_of(other)) == bool(one & other)
    assert marks_of(one).holds(marks_of(other)) == (other <= one)


@given(messages, messages, st.integers(1, 20), st.integers(1, 15))
def test_what_is_wanted_of_a_batch(known: Messages, batch: Messages, first: int, count: int) -> None:
    numbers = [(1, first + place) for place in range(count)]
    for wanted, expected in (
        (WantedRows(marks_of(known)), set(numbers) - known),
        (WantedRows(marks_of(known), marks_of(batch)), (set(numbers) & batch) - known),
    ):
        places = [place for low, high in wanted.places(1, first, count) for place in range(low, high + 1)]
        assert [numbers[place] for place in places] == sorted(expected)
