"""Writing topics from Spark: which rows become which messages, what is recognised, and what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

import antiphon
from antiphon import Node, UsageError
from antiphon.client.idempotent_producer import lane_states_of_series
from antiphon.spark.sink import batch_writer
from antiphon.spark.sink_options import write_options
from antiphon.spark.sink_rows import PIECE_BYTES, PIECE_ROWS, Cutter, Layout, RowPiece
from tests.spark.nodes import Nodes

pytestmark = pytest.mark.slow

TEXTS = StructType().add("value", "string")


@pytest.fixture
def node(nodes: Nodes, tmp_path: Path) -> Node:
    (found,) = nodes.cluster(1, tmp_path, ["room"])
    return found


def write(frame: DataFrame, node: Node, **options: str) -> None:
    options.setdefault("topic", "room")
    frame.write.format("antiphon").options(servers=node.address, **options).mode("append").save()


def written(spark: SparkSession, node: Node, *topics: str) -> DataFrame:
    options = {"servers": node.address, "subscribe": ",".join(topics or ["room"]), "includeHeaders": "true"}
    return spark.read.format("antiphon").options(**options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())


def test_every_part_of_a_row_comes_back(spark: SparkSession, node: Node) -> None:
    frame = spark.sql(
        """select 'room' as topic, 'k' as key, 'why?' as value,
                  array(struct('lang' as key, cast('en' as binary) as value)) as headers
           union all select 'side', null, 'because', null"""
    )
    frame.write.format("antiphon").options(servers=node.address, order="fifo").mode("append").save()
    rows = {bytes(row["value"]): row for row in written(spark, node, "room", "side").collect()}
    why, because = rows[b"why?"], rows[b"because"]
    # The first batch of a series is published in causal order, so that it follows the series before at every node.
    assert (why["topic"], bytes(why["key"]), why["order"]) == ("room", b"k", "causal")
    assert [(header["key"], bytes(header["value"])) for header in why["headers"]] == [("lang", b"en")]
    assert (because["topic"], because["key"]) == ("side", None)


def test_rows_of_a_partition_keep_their_order(spark: SparkSession, node: Node) -> None:
    write(spark.range(3 * PIECE_ROWS).coalesce(1).select(f.col("id").cast("string").alias("value")), node)
    rows = written(spark, node).orderBy("offset").select(f.col("value").cast("string")).collect()
    assert [int(row["value"]) for row in rows] == list(range(3 * PIECE_ROWS))


@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_total_order_about_the_keys_of_rows(spark: SparkSession, nodes: Nodes, tmp_path: Path, fabric: str) -> None:
    """More keys than one batch is about."""
    node = nodes.start(data=str(tmp_path / "data"), fabric=fabric)
    frame = spark.range(1000).selectExpr("cast(id as string) as value", "cast(id % 200 as string) as key")
    for _ in range(2):
        write(frame, node, order="total", writeId="keys")
    rows = written(spark, node)
    assert numbers(rows) == list(range(1000))
    assert {row["order"] for row in rows.select("order").distinct().collect()} == {"total"}


def test_rows_that_were_read_can_be_written_as_they_are(spark: SparkSession, node: Node) -> None:
    write(spark.range(10).select(f.col("id").cast("string").alias("value")), node, topic="side")
    write(written(spark, node, "side"), node)
    assert numbers(written(spark, node)) == list(range(10))


def test_a_batch_write_with_a_name_can_be_run_again(spark: SparkSession, node: Node) -> None:
    frame = spark.range(5000).select(f.col("id").cast("string").alias("value"))
    for _ in range(2):
        write(frame, node, writeId="yesterday")
    assert numbers(written(spark, node)) == list(range(5000))
    write(frame, node)
    assert len(numbers(written(spark, node))) == 10_000, "without a name it is another write"


def test_another_result_under_the_same_name_is_refused(spark: SparkSession, node: Node) -> None:
    frame = spark.range(5000).select(f.col("id").cast("string").alias("value"))
    write(frame, node, writeId="yesterday")
    for other in (frame.where("value <> '17'"), frame.where("value < 0"), frame.selectExpr("concat(value, '!') value")):
        with pytest.raises(PySparkException, match="has written other rows in series 0 on 'room' before"):
            write(other, node, writeId="yesterday")
    assert numbers(written(spark, node)) == list(range(5000))


def test_work_that_is_divided_otherwise_is_refused(spark: SparkSession, nodes: Nodes, node: Node) -> None:
    """Only the second of two partitions had been written, and now there is only one: nobody sees it but the driver."""
    frame = spark.range(2000).select(f.col("id").cast("string").alias("value"))
    with pytest.raises(PySparkException, match="the first partition does not come"):
        write(failing_in_first_partition(frame, node.address, "write/yesterday"), node, writeId="yesterday")
    assert numbers(written(spark, node)) == list(range(1000, 2000))
    with pytest.raises(PySparkException, match=r"published rows on 'room' from partition 1, which has none there now"):
        write(frame.coalesce(1), node, writeId="yesterday")


def failing_in_first_partition(frame: DataFrame, address: str, writer: str) -> DataFrame:
    """Rows of which the first partition fails for good when the second has been written."""

    async def until_written() -> None:
        async with antiphon.connect(address) as client:
            while not await lane_states_of_series(client._live, writer, 0):
                await asyncio.sleep(0.02)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0:
            asyncio.run(until_written())
            raise ValueError("the first partition does not come")
        yield from batches

    return frame.mapInArrow(fail, frame.schema)


def test_for_each_batch_with_a_name(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    """A batch that is run again because its commit was lost is recognised inside of foreachBatch, too."""
    numbers_of = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").load()

    def write_batch(frame: DataFrame, _: int) -> None:
        write(frame.select(f.col("value").cast("string")), node, writeId="copy")

    def run(batch: int) -> None:
        query = numbers_of.writeStream.foreachBatch(write_batch).option("checkpointLocation", str(tmp_path / "c"))
        started = query.start()
        while started.isActive and not (tmp_path / f"c/commits/{batch}").exists():
            time.sleep(0.02)
        started.stop()
        assert started.exception() is None

    run(1)
    done = max(int(path.name) for path in (tmp_path / "c/commits").iterdir() if path.name.isdigit())
    for name in (str(done), f".{done}.crc"):
        (tmp_path / "c/commits" / name).unlink()
    run(done + 1)
    found = numbers(written(spark, node))
    assert len(found) == len(set(found)) >= (done + 2) * 100
    assert found[: (done + 2) * 100] == list(range((done + 2) * 100))


def test_a_node_without_a_log_is_refused_unless_that_is_wanted(spark: SparkSession, nodes: Nodes) -> None:
    forgetful = nodes.start()
    frame = spark.range(10).select(f.col("id").cast("string").alias("value"))
    with pytest.raises(PySparkException, match="keeps no log"):
        write(frame, forgetful)
    write(frame, forgetful, durable="false")


def columns_of(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("value string", {}, "rows need a topic: give the option 'topic', or a column 'topic'"),
        ("text string", {"topic": "room"}, "'text' is none of them"),
        ("key string", {"topic": "room"}, "need a column 'value'"),
        ("value bigint", {"topic": "room"}, "column 'value' is bigint and must be string or binary; cast it"),
        ("value string, headers string", {"topic": "room"}, "column 'headers' is string and must be array"),
        ("value string", {"topic": "room.*"}, "is a pattern; patterns are for subscribing"),
        ("value string", {"topic": "room", "order": "none"}, "option 'order' is fifo, causal, total, not 'none'"),
        ("value string", {"topic": "room", "ordre": "fifo"}, "there is no option 'ordre'; the nearest one is 'order'"),
        ("value string", {"topic": "room", "subscribe": "room"}, "there is no option 'subscribe'"),
        ("value string", {"topic": "room", "timeoutSeconds": "soon"}, "is a whole number of at least 1, not 'soon'"),
        ("value string", {"topic": "room", "writeId": ""}, "option 'writeId' has 1 to 120 characters"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    columns: str, options: dict[str, str], complaint: str
) -> None:
    schema = columns_of(columns)
    with pytest.raises(UsageError, match=complaint.replace("*", r"\*")):
        batch_writer({"servers": "127.0.0.1:1", **options}, schema, overwrite=False)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(UsageError, match="a topic cannot be overwritten"):
        batch_writer({"servers": "127.0.0.1:1", "topic": "room"}, TEXTS, overwrite=True)


def test_a_stream_has_its_name_from_its_checkpoint() -> None:
    with pytest.raises(UsageError, match="option 'writeId' is for batch writes"):
        write_options({"servers": "127.0.0.1:1", "writeId": "x"}, is_stream=True)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"value": None, "topic": "room"}], "its column 'value' is null"),
        ([{"value": "x", "topic": None}], "its column 'topic' is null"),
    ],
)
def test_rows_without_what_they_need_are_refused(rows: list[dict[str, Any]], complaint: str) -> None:
    layout = Layout(columns_of("value string, topic string"), None)
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("value", pa.string()), ("topic", pa.string())]))
    with pytest.raises(UsageError, match=complaint):
        list(layout.rows(batch))


def pieces_of(values: list[bytes], cuts: list[int]) -> list[list[bytes]]:
    """The pieces of rows that come in Arrow batches which end at these places."""
    layout, cutter = Layout(TEXTS, "room"), Cutter(is_total=False)
    full: list[RowPiece] = []
    for begin, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        for topic, row in layout.rows(pa.record_batch([pa.array(values[begin:end], pa.binary())], names=["value"])):
            piece = cutter.add(topic, row)
            if piece is not None:
                full.append(piece)
    return [piece.values for piece in (*full, *(piece for _, piece in cutter.rest()))]


def test_where_pieces_end_follows_from_the_rows_alone() -> None:
    """An attempt that gets the same rows in other Arrow batches must make the same pieces."""
    values = [b"x" * (number * 7919 % 900) for number in range(3 * PIECE_ROWS)]
    expected = pieces_of(values, [])
    assert [row for piece in expected for row in piece] == values
    assert all(len(piece) <= PIECE_ROWS and sum(map(len, piece)) < PIECE_BYTES + 900 for piece in expected)
    for cuts in ([1], [100, 2000, 2048, 2049], list(range(500, 6000, 500))):
        assert pieces_of(values, cuts) == expected
