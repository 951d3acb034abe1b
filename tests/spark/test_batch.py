"""Reading topics in batch queries: columns, bounds, partitions, filters, and what is said when something is wrong."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from antiphon import Node
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
    return node.log_desk.number


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


def test_what_the_nodes_do_not_have_is_said(spark: SparkSession, nodes: Nodes, pair: list[Node]) -> None:
    nodes.publish(pair[0], "room", [b"here"])
    partition = number_of(pair[0])
    wrong = [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere' in the logs of 2 nodes"),
        ({"subscribe": "room", "startingOffset": "1"}, "the nearest one is 'startingOffsets'"),
        ({"assign": '{"room":[7]}'}, "no node that answers has partition 7 of topic 'room'; there are"),
        ({"subscribe": "room", "cluster": "other"}, "refused"),
        (
            {"subscribe": "room", "endingOffsets": f'{{"room":{{"{partition}":2}}}}'},
            "does not exist yet; the latest is 1",
        ),
        ({"subscribe": "room", "startingOffsets": f'{{"room":{{"{partition}":2}}}}'}, "is not there: it ends at 1"),
    ]
    for options, complaint in wrong:
        with pytest.raises(PySparkException) as caught:
            rows_of(spark, pair[0].address, **options).collect()
        assert complaint in str(caught.value)
