"""Reading topics in streams: what Spark keeps of where it was, limits, topics that appear, nodes that go and return."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from antiphon import Node, PeerError
from antiphon.spark.options import read_options
from antiphon.spark.plan import Partition
from antiphon.spark.stream import TopicStreamReader, limited
from tests.spark.nodes import Nodes


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def reader_of(node: Node, **options: str) -> TopicStreamReader:
    return TopicStreamReader(read_options({"servers": node.address, **options}, is_stream=True))


def read(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """What a micro-batch has."""
    batches = [batch for piece in reader.partitions(start, end) for batch in reader.read(piece)]
    return [row["value"] for batch in batches for row in batch.to_pylist()]


class Collected:
    """A sink that remembers the micro-batches."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches.append([bytes(row["value"]) for row in frame.collect()])

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]


def run_available(spark: SparkSession, checkpoint: Path, servers: str, **options: str) -> Collected:
    """Read what is there, and stop."""
    collected = Collected()
    frame = spark.readStream.format("antiphon").options(servers=servers, **options).load()
    writer = frame.writeStream.foreachBatch(collected).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return collected


def test_a_query_goes_on_where_it_was_and_a_replayed_batch_is_the_same(
    spark: SparkSession, nodes: Nodes, tmp_path: Path
) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room"])
    nodes.publish(node, "room", numbered(25))
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": "room", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    first = run_available(spark, checkpoint, node.address, **options)
    assert first.batches == [numbered(10), numbered(10, 10), numbered(5, 20)]
    nodes.publish(node, "room", numbered(3, 25))
    # The batch was done and its commit entry is gone, as after a crash between the two: it is done again, the same.
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    second = run_available(spark, checkpoint, node.address, **options)
    assert second.batches == [numbered(5, 20), numbered(3, 25)]


def test_rows_come_as_they_are_published(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room"])
    nodes.publish(node, "room", [b"before"])
    collected = Collected()
    frame = spark.readStream.format("antiphon").options(servers=node.address, subscribe="room").load()
    writer = frame.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="50 milliseconds").start()
    try:
        query.processAllAvailable()
        for first in (0, 10):
            nodes.publish(node, "room", numbered(10, first))
            query.processAllAvailable()
            assert collected.values == numbered(first + 10)
        progress = query.lastProgress
        assert progress is not None
        latest = json.loads(progress["sources"][0]["latestOffset"])
        assert latest == {"room": {str(node._live.log_server.number): 21}}
    finally:
        query.stop()


def test_limits_are_shared_by_size(nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room", "side"])
    nodes.publish(node, "room", numbered(90))
    nodes.publish(node, "side", numbered(10))
    reader = reader_of(node, subscribe="room,side", startingOffsets="earliest", maxOffsetsPerTrigger="20")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    partition = str(node._live.log_server.number)
    end = reader.latestOffset(start, limit)
    assert end == {"room": {partition: 18}, "side": {partition: 2}}
    assert sorted(read(reader, start, end)) == sorted([*numbered(18), *numbered(2)])
    everything = {"room": {partition: 90}, "side": {partition: 10}}
    assert reader.latestOffset(start, ReadAllAvailable()) == everything
    assert reader.reportLatestOffset() == everything
    assert reader_of(node, subscribe="room").getDefaultReadLimit() == ReadAllAvailable()


def test_a_small_partition_does_not_wait_for_ever() -> None:
    large, small = Partition("large", 1), Partition("small", 1)
    ends = limited({large: 0, small: 0}, {large: 1_000_000, small: 3}, 100)
    assert ends == {large: 99, small: 1}


def test_topics_that_appear_are_read_from_their_beginning(nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["orders.>"])
    nodes.publish(node, "orders.europe", numbered(3))
    reader = reader_of(node, subscribePattern="orders[.].*")
    start = reader.initialOffset()
    partition = str(node._live.log_server.number)
    assert start == {"orders.europe": {partition: 3}}
    nodes.publish(node, "orders.asia", numbered(2))
    # Where it begins is written down first: whatever is removed later, a replayed batch is the same or fails.
    known = reader.latestOffset(start, ReadAllAvailable())
    assert known == {"orders.asia": {partition: 0}, "orders.europe": {partition: 3}}
    assert read(reader, start, known) == []
    end = reader.latestOffset(known, ReadAllAvailable())
    assert read(reader, known, end) == numbered(2)
    # A query that is to stop takes no more topics than there were when it began.
    reader.prepareForTriggerAvailableNow()
    nodes.publish(node, "orders.africa", numbered(2))
    nodes.publish(node, "orders.asia", numbered(2))
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_who_starts_again_may_add_topics_and_leave_some_out(nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room", "side"])
    for topic in ("room", "side"):
        nodes.publish(node, topic, numbered(3))
    partition = str(node._live.log_server.number)
    begun = {"room": {partition: 2}}
    both = reader_of(node, subscribe="room,side")
    known = both.latestOffset(begun, ReadAllAvailable())
    assert known == {"room": {partition: 3}, "side": {partition: 0}}
    assert read(both, begun, known) == numbered(1, 2)
    other = reader_of(node, assign=json.dumps({"side": [node._live.log_server.number]}))
    end = other.latestOffset(known, ReadAllAvailable())
    assert end == {"side": {partition: 3}}
    assert read(other, known, end) == numbered(3)


def test_a_log_is_found_again_wherever_its_node_runs(nodes: Nodes, tmp_path: Path) -> None:
    first, second = nodes.cluster(2, tmp_path, ["room"])
    nodes.publish(first, "room", numbered(5))
    partition = str(first._live.log_server.number)
    reader = reader_of(
        second, subscribe="room", startingOffsets=json.dumps({"room": {partition: 0}}), patienceSeconds="0"
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert read(reader, start, end) == numbered(3)
    address = first.address
    nodes.stop(first)
    with pytest.raises(PeerError, match=f"no node that answers has partition {partition} of topic 'room'"):
        reader.latestOffset(end, ReadAllAvailable())
    forgiving = reader_of(second, subscribe="room", failOnDataLoss="false")
    assert forgiving.latestOffset(end, ReadAllAvailable()) == end
    assert read(forgiving, end, {"room": {partition: 5}}) == []
    again = nodes.start(data=str(tmp_path / "node-0"), keep=["room"], join=[second.address])
    assert again.address != address
    last = reader.latestOffset(end, ReadAllAvailable())
    assert last == {"room": {partition: 5}}
    assert read(reader, end, last) == numbered(2, 3)
    # It is not among the servers, and is asked all the same from now on.
    assert reader._memory.first(["first"], [int(partition)]) == ["first", again.address]


def test_a_node_that_is_restarted_is_waited_for(nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room"])
    nodes.publish(node, "room", numbered(5))
    reader = reader_of(node, subscribe="room", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    [piece] = reader.partitions(start, end)
    address = node.address
    nodes.stop(node)
    with ThreadPoolExecutor(2) as threads:
        planning = threads.submit(reader.latestOffset, start, ReadAllAvailable())
        reading = threads.submit(lambda: [row for batch in reader.read(piece) for row in batch.to_pylist()])
        nodes.start(listen=address, data=str(tmp_path / "node-0"), keep=["room"])
        assert planning.result() == end
        assert [row["value"] for row in reading.result()] == numbered(5)


def test_another_log_at_the_same_address_is_not_taken_for_the_first(nodes: Nodes, tmp_path: Path) -> None:
    node, *_ = nodes.cluster(1, tmp_path, ["room"])
    nodes.publish(node, "room", numbered(5))
    reader = reader_of(node, subscribe="room", startingOffsets="earliest", patienceSeconds="0")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    [piece] = reader.partitions(start, end)
    address = node.address
    nodes.stop(node)
    other = nodes.start(listen=address, data=str(tmp_path / "other"), keep=["room"], join=[])
    nodes.publish(other, "room", [b"other"] * 5)
    with pytest.raises(PeerError, match=f"does not have log {piece.partition.number}"):
        list(reader.read(piece))


def test_a_node_that_does_not_answer_is_not_asked_every_time(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    async def stop() -> None:
        server.close()
        await server.wait_closed()

    server = nodes.do(asyncio.start_server(say_nothing, "127.0.0.1", 0))
    host, port = server.sockets[0].getsockname()
    monkeypatch.setattr("antiphon.spark.logs.ANSWER_SECONDS", 0.5)
    node, *_ = nodes.cluster(1, tmp_path, ["room"])
    nodes.publish(node, "room", numbered(5))
    options = {"servers": f"{host}:{port},{node.address}", "subscribe": "room", "startingOffsets": "earliest"}
    reader = TopicStreamReader(read_options(options, is_stream=True))
    start = reader.initialOffset()
    for _ in range(3):
        assert read(reader, start, reader.latestOffset(start, ReadAllAvailable())) == numbered(5)
    assert asked == 1
    nodes.do(stop())
