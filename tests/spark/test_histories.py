"""Histories in Spark: positions as a column, as the place to begin at, and in the checkpoint of a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from antiphon import Node, UsageError
from antiphon.spark.options import read_options
from antiphon.spark.plan import Partition, Piece, logs_for
from antiphon.spark.reader import read_piece
from tests.spark.nodes import Nodes


@pytest.fixture
def pair(nodes: Nodes, tmp_path: Path) -> list[Node]:
    """Two nodes with a history of one topic at both."""
    found = nodes.cluster(2, tmp_path, [])

    async def create() -> None:
        await found[0].topics.create("orders", replicas=2)

    nodes.do(create())
    return found


def publish(nodes: Nodes, node: Node, first: int, count: int) -> list[str]:
    """Publish numbers; their positions."""

    async def several() -> list[str]:
        options: dict[str, Any] = {"key": "k", "headers": {"h": b"\x00"}, "acks": "quorum"}
        return [
            str((await each).position)
            for each in [node.publish("orders", b"%d" % number, **options) for number in range(first, first + count)]
        ]

    return nodes.do(several())


def test_rows_have_positions_and_begin_at_one(
    spark: SparkSession, nodes: Nodes, pair: list[Node], tmp_path: Path
) -> None:
    positions = publish(nodes, pair[1], 0, 300) + publish(nodes, pair[0], 300, 10)
    generation = int(positions[0].split("-")[0])
    # Any node answers, also the one that does not lead.
    options = {"servers": pair[1].address, "subscribe": "orders", "history": "true", "includeHeaders": "true"}
    rows = spark.read.format("antiphon").options(**options).load().orderBy("offset").collect()
    assert [row["position"] for row in rows] == positions
    assert [bytes(row["value"]) for row in rows] == [b"%d" % number for number in range(310)]
    assert {row["partition"] for row in rows} == {generation}
    start = json.dumps({"orders": {str(generation): 250}})
    frame = spark.read.format("antiphon").options(**options, startingOffsets=start).load()
    assert frame.filter("offset < 305").count() == 55
    # A stream goes on from its checkpoint at another node.
    for server, expected in ((pair[0], 310), (pair[1], 320)):
        source = spark.readStream.format("antiphon").options(**{**options, "servers": server.address})
        query = (
            source.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(60)
        table = spark.read.parquet(str(tmp_path / "table")).collect()
        assert (len(table), len({row["position"] for row in table})) == (expected, expected)
        positions += publish(nodes, pair[0], expected, 10)


def test_pieces_of_a_history_are_cut_at_their_bounds_and_wrong_options_are_refused(
    nodes: Nodes, pair: list[Node]
) -> None:
    positions = publish(nodes, pair[0], 0, 50)
    generation = int(positions[0].split("-")[0])
    options = {"servers": pair[0].address, "subscribe": "orders", "history": "true"}
    chosen = read_options(options, is_stream=False)
    found = logs_for(chosen).range("orders", generation)
    assert found is not None and (found.first, found.end) == (0, 50)
    piece = Piece(Partition("orders", generation), pair[0].address, 7, 31)
    table = [row for batch in read_piece(chosen, piece) for row in batch.to_pylist()]
    assert [row["position"] for row in table] == positions[7:31]
    for name, value in (("failover", "true"), ("startingTimestamp", "1")):
        with pytest.raises(UsageError, match=f"option '{name}' is for logs"):
            read_options({**options, name: value}, is_stream=True)
    with pytest.raises(Exception, match="has no history"):
        logs_for(read_options({**options, "subscribe": "nothing"}, is_stream=False))
