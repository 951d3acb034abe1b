"""Reading topics in batch queries: columns, bounds, partitions, filters, and what is said when something is wrong."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from antiphon import AntiphonError, Node, PeerError
from antiphon.kernel.errors import ProtocolError
from antiphon.node.local_cluster import free_addresses
from antiphon.sessions.client_messages import RangeResponse, StoredBatch
from antiphon.spark.options import read_options
from antiphon.spark.plan import Partition, Piece
from antiphon.spark.ranges import RangeReader
from antiphon.spark.reader import TopicReader
from tests.spark.nodes import Nodes


def rows_of(spark: SparkSession, servers: str, **options: Any) -> DataFrame:
    return spark.read.format("antiphon").options(servers=servers, **options).load()


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row["value"]) for row in frame.collect()]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.fixture
def pair(nodes: Nodes, tmp_path: Path) -> list[Node]:
    """Two nodes that keep two topics."""
    return nodes.cluster(2, tmp_path, ["room", "side"])


def number_of(node: Node) -> int:
    return node._live.log_server.number


def test_rows_have_kafkas_columns_and_ours(spark: SparkSession, nodes: Nodes, pair: list[Node]) -> None:
    before = datetime.now(UTC)
    nodes.publish(pair[1], "room", [b"why?"], key=b"k", headers={"lang": b"en"})
    nodes.publish(pair[1], "room", [b"because"], order="fifo")
    frame = rows_of(spark, pair[0].address, subscribe="room", includeHeaders="true", includeKeys="true")
    kafkas = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    assert frame.columns == [*kafkas, "publisher", "sequence", "order", "keys"]
    first, second = frame.collect()
    assert (bytes(first["key"]), bytes(first["value"]), first["topic"]) == (b"k", b"why?", "room")
    assert (first["partition"], first["offset"]) == (number_of(pair[0]), 0)
    assert [(header["key"], bytes(header["value"])) for header in first["headers"]] == [("lang", b"en")]
    assert (first["publisher"], first["sequence"], first["order"]) == (pair[1].identifier, 1, "causal")
    assert [bytes(key) for key in first["keys"]] == [b"k"]
    assert before.timestamp() - 1 < first["timestamp"].replace(tzinfo=UTC).timestamp() < time.time() + 1
    assert (second["key"], second["headers"], second["keys"]) == (None, None, None)
    assert (second["offset"], second["sequence"], second["order"]) == (1, 2, "fifo")
    assert "headers" not in rows_of(spark, pair[0].address, subscribe="room").columns


def test_a_partition_is_read_in_delivery_order_however_it_is_divided(
    spark: SparkSession, nodes: Nodes, pair: list[Node]
) -> None:
    nodes.publish(pair[0], "room", numbered(500))
    nodes.publish(pair[1], "room", numbered(500, 500))
    whole = rows_of(spark, pair[0].address, subscribe="room")
    divided = rows_of(spark, pair[0].address, subscribe="room", minPartitions="7")
    assert whole.rdd.getNumPartitions() == 1
    assert divided.rdd.getNumPartitions() == 7
    assert values(whole) == values(divided) == numbered(1000)
    assert [row["offset"] for row in divided.select("offset").collect()] == list(range(1000))


def test_topics_that_all_nodes_hold_are_read_from_all_of_them(
    spark: SparkSession, nodes: Nodes, tmp_path: Path
) -> None:
    topics = [f"t{number}" for number in range(12)]
    both = nodes.cluster(2, tmp_path, topics)
    for topic in topics:
        nodes.publish(both[0], topic, [topic.encode()])
    frame = rows_of(spark, f"{both[0].address},{both[1].address}", subscribePattern="t[0-9]+")
    read = {row["topic"]: row["partition"] for row in frame.collect()}
    assert set(read) == set(topics)
    assert set(read.values()) == {number_of(node) for node in both}


def test_a_topic_is_read_from_the_log_that_holds_most_of_it(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    early = nodes.start(data=str(tmp_path / "early"), keep=["room"])
    nodes.publish(early, "room", numbered(5))
    late = nodes.start(data=str(tmp_path / "late"), keep=["room"])
    nodes.publish(late, "room", numbered(5, 5))
    for servers in (early.address, f"{late.address},{early.address}"):
        assert values(rows_of(spark, servers, subscribe="room")) == numbered(10)
    assigned = json.dumps({"room": [number_of(late)]})
    assert values(rows_of(spark, early.address, assign=assigned)) == numbered(5, 5)


def test_bounds_are_offsets_or_times(spark: SparkSession, nodes: Nodes, pair: list[Node]) -> None:
    nodes.publish(pair[0], "room", numbered(10))
    time.sleep(0.01)
    between_ms = int(time.time() * 1000)
    time.sleep(0.01)
    nodes.publish(pair[0], "room", numbered(10, 10))
    servers, partition = pair[0].address, str(number_of(pair[0]))
    some = rows_of(
        spark,
        servers,
        subscribe="room",
        startingOffsets=json.dumps({"room": {partition: 3}}),
        endingOffsets=json.dumps({"room": {partition: 7}}),
    )
    assert values(some) == numbered(4, 3)
    ends = rows_of(
        spark,
        servers,
        subscribe="room",
        startingOffsets=json.dumps({"room": {partition: -2}}),
        endingOffsets=json.dumps({"room": {partition: -1}}),
    )
    assert values(ends) == numbered(20)
    assert values(rows_of(spark, servers, subscribe="room", startingTimestamp=str(between_ms))) == numbered(10, 10)
    assert values(rows_of(spark, servers, subscribe="room", endingTimestamp=str(between_ms))) == numbered(10)
    both = rows_of(spark, servers, subscribe="room", startingTimestamp="0", endingTimestamp=str(between_ms))
    assert values(both) == numbered(10)


def test_filters_on_topic_offset_and_time_are_left_to_the_nodes(
    spark: SparkSession, nodes: Nodes, pair: list[Node]
) -> None:
    nodes.publish(pair[0], "room", numbered(100))
    time.sleep(0.01)
    between = datetime.now(UTC)
    nodes.publish(pair[0], "room", numbered(100, 100))
    nodes.publish(pair[0], "side", numbered(5))
    frame = rows_of(spark, pair[0].address, subscribe="room,side", minPartitions="8")
    few = frame.where("topic = 'side'")
    assert values(few) == numbered(5)
    assert few.rdd.getNumPartitions() == 5
    some = frame.where("topic like 'ro%' and offset >= 40 and offset < 60 and offset <> 50")
    assert values(some) == [value for value in numbered(20, 40) if value != b"50"]
    late = frame.where(frame["timestamp"] >= between).where("topic = 'room'")
    assert values(late) == numbered(100, 100)
    plan = late._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan, plan
    assert values(frame.where(frame["timestamp"] < between)) == numbered(100)
    assert values(frame.where("offset in (3, 4) and value = '4'").where("topic = 'room'")) == [b"4"]
    assert values(frame.where("topic = 'elsewhere'")) == []


def test_what_the_nodes_do_not_have_is_said(nodes: Nodes, pair: list[Node]) -> None:
    nodes.publish(pair[0], "room", [b"here"])
    beyond = json.dumps({"room": {str(number_of(pair[0])): 2}})
    wrong = [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere' in the logs of 2 nodes"),
        ({"assign": '{"room":[7]}'}, "no node that answers has partition 7 of topic 'room'; there are"),
        ({"subscribe": "room", "cluster": "other"}, "refused"),
        ({"subscribe": "room", "endingOffsets": beyond}, "does not exist yet; the latest is 1"),
        ({"subscribe": "room", "startingOffsets": beyond}, "does not exist: the log ends at 1"),
        ({"subscribe": "room,side", "startingOffsets": beyond}, "does not name topic 'side'"),
        ({"subscribe": "side", "startingOffsets": beyond}, "names topic 'room', which is not to be read"),
    ]
    nodes.publish(pair[0], "side", [b"here"])
    for options, complaint in wrong:
        with pytest.raises(AntiphonError) as caught:
            TopicReader(read_options({"servers": pair[0].address, **options}, is_stream=False)).partitions()
        assert complaint in str(caught.value)


def test_spark_hands_on_what_is_said(spark: SparkSession, nodes: Nodes, pair: list[Node]) -> None:
    with pytest.raises(PySparkException, match="there is no topic 'nowhere' in the logs of 2 nodes"):
        rows_of(spark, pair[0].address, subscribe="nowhere").collect()
    with pytest.raises(PySparkException, match="the nearest one is 'startingOffsets'"):
        rows_of(spark, pair[0].address, subscribe="room", startingOffset="earliest")


def test_nodes_that_are_down_are_skipped(spark: SparkSession, nodes: Nodes, pair: list[Node]) -> None:
    nodes.publish(pair[0], "room", numbered(3))
    nowhere = free_addresses(1)[0]
    assert values(rows_of(spark, f"{nowhere},{pair[1].address}", subscribe="room")) == numbered(3)
    with pytest.raises(PeerError, match=f"none of 1 nodes answers: cannot connect to a node at {nowhere}"):
        TopicReader(read_options({"servers": nowhere, "subscribe": "room"}, is_stream=False)).partitions()


def test_what_retention_has_removed_is_said(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.start(data=str(tmp_path / "short"), keep=["room"], retention_bytes=2000)
    for _ in range(10):
        nodes.publish(node, "room", [b"x" * 100] * 10)
    assert node._live.store is not None
    assert node._live.store.trim(0) > 0
    first = node._live.store.earliest("room")
    options = {"servers": node.address, "subscribe": "room"}
    from_beginning = json.dumps({"room": {str(number_of(node)): 0}})
    with pytest.raises(PeerError, match=f"was removed by retention; the earliest remaining one is {first}"):
        TopicReader(read_options({**options, "startingOffsets": from_beginning}, is_stream=False)).partitions()
    forgiving = {**options, "startingOffsets": from_beginning, "failOnDataLoss": "false"}
    for given in (options, forgiving):
        reader = TopicReader(read_options(given, is_stream=False))
        found = [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == list(range(first, 100))
    # Removed after the query was planned.
    planned = Piece(Partition("room", number_of(node)), node.address, 0, 100)
    with pytest.raises(PeerError, match=f"offsets 0 to {first - 1} of partition .* were removed by retention"):
        list(TopicReader(read_options(options, is_stream=False)).read(planned))
    late = list(TopicReader(read_options(forgiving, is_stream=False)).read(planned))
    assert sum(batch.num_rows for batch in late) == 100 - first


def test_a_node_that_answers_nonsense_is_not_believed(nodes: Nodes) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write((5).to_bytes(4, "little") + b"hello")
        await reader.read()
        writer.close()
        ended.set()

    async def stop() -> None:
        await ended.wait()
        server.close()
        await server.wait_closed()

    ended = asyncio.Event()
    server = nodes.do(asyncio.start_server(babble, "127.0.0.1", 0))
    host, port = server.sockets[0].getsockname()
    with pytest.raises(PeerError, match="cannot be understood: a peer sent 5 bytes that are no message"):
        TopicReader(read_options({"servers": f"{host}:{port}", "subscribe": "room"}, is_stream=False)).partitions()
    nodes.do(stop())


@pytest.mark.parametrize(
    ("batches", "next_offset"),
    [([(5, 5, b"")], 10), ([(0, 5, b""), (6, 4, b"")], 10), ([(0, 5, b"")], 7), ([], 0), ([(0, 20, b"")], 20)],
)
def test_ranges_with_holes_are_not_believed(batches: list[StoredBatch], next_offset: int) -> None:
    options = read_options({"servers": "127.0.0.1:1", "subscribe": "room"}, is_stream=False)
    reader = RangeReader(options, Piece(Partition("room", 7), "127.0.0.1:1", 0, 10))
    with pytest.raises(ProtocolError):
        reader._check(RangeResponse(1, next_offset, batches))
