"""Judges total order in traces of any size: the judgement of :mod:`antiphon.audit.total_order`, as a Spark job.

Each node adds at most two pairs per delivery and equal pairs count once, so without violations there are hardly more
pairs than twice the publications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from antiphon.audit.columns.histories import POSITION
from antiphon.audit.incarnations import ENDS
from antiphon.audit.out_of_reach import publications_out_of_reach
from antiphon.audit.total_order import circle_in, circle_text
from antiphon.trace.contract import Contract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOUND = "topic int, violations bigint, example string"
GONE = "topic int, source int, sequence bigint"


def judge_key(table: pa.Table) -> pa.Table:
    """Whether the pairs of one topic and key fit into one order."""
    columns = (table[name].to_pylist() for name in ("source", "sequence", "next_source", "next_sequence"))
    circle = circle_in(((one, two), (three, four)) for one, two, three, four in zip(*columns, strict=True))
    topic, key = table["topic"][0].as_py(), table["key"][0].as_py()
    if not circle:
        return pa.table(
            {
                "topic": pa.array([], pa.int32()),
                "violations": pa.array([], pa.int64()),
                "example": pa.array([], pa.string()),
            }
        )
    text = circle_text(topic, key, circle)
    return pa.table({"topic": pa.array([topic], pa.int32()), "violations": [1], "example": [text]})


def in_one_order(frame: DataFrame, contract: Contract) -> DataFrame:
    """The rows of publications that must be in one order with others: of some nodes only the total ones."""
    from pyspark.sql import functions as f

    is_total = f.coalesce(f.col("order") == "total", f.lit(False))
    if contract.weaker_pass or contract.secured:
        # Only the judge in memory decides which weaker publications a majority had in time (antiphon.audit.majorities).
        return frame.where(is_total)
    if not contract.apart:
        return frame
    return frame.where(is_total | ~f.col("source").isin(list(contract.apart)))


def without_out_of_reach(frame: DataFrame, trace: DataFrame) -> DataFrame:
    """The rows without weaker publications that began while a total one about their keys was out of reach.

    The judge reads the whole ``trace``, one topic after the other: the deliveries of total publications, the starts of
    weaker ones on their topics, and the ends of lives.
    """
    from pyspark.sql import functions as f

    ends = trace.where(f.col("event").isin(*ENDS)).select("event", "node", POSITION)
    if ends.isEmpty():
        return frame
    is_total = f.col("order") == "total"
    deliveries = trace.where(f.col("event") == "deliver")
    topics = deliveries.where(is_total).select("topic").distinct()
    looked_at = deliveries.where(f.coalesce(is_total, f.lit(False)) | (f.col("node") == f.col("source")))
    looked_at = looked_at.select("event", "node", "topic", "source", "sequence", "order", "keys", POSITION)
    rows = looked_at.join(topics, "topic", "left_semi").unionByName(topics.crossJoin(ends), allowMissingColumns=True)
    gone = rows.groupBy("topic").applyInArrow(found_out_of_reach, GONE)
    return frame.join(f.broadcast(gone), ["topic", "source", "sequence"], "left_anti")


def found_out_of_reach(table: pa.Table) -> pa.Table:
    """The publications of one topic that began out of reach of a total one."""
    found = sorted(publications_out_of_reach(table.sort_by(POSITION)))
    topics, sources, numbers = ([name[place] for name in found] for place in range(3))
    return pa.table(
        {
            "topic": pa.array(topics, pa.int32()),
            "source": pa.array(sources, pa.int32()),
            "sequence": pa.array(numbers, pa.int64()),
        }
    )


def judge_total_order(frame: DataFrame) -> tuple[int, str | None]:
    """The number of topics and keys without a single order, and an example."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    deliveries = frame.where(f.col("event") == "deliver")
    # A publication with several keys has its place in the order of each.
    deliveries = deliveries.select(
        "topic",
        f.explode_outer("keys").alias("key"),
        "node",
        "source",
        "sequence",
        f.when(f.col("order") == "total", f.struct("source", "sequence")).alias("total"),
        POSITION,
    )
    ordered = deliveries.where("total is not null").select("topic", "key").distinct()
    deliveries = deliveries.join(
        f.broadcast(ordered),
        deliveries.topic.eqNullSafe(ordered.topic) & deliveries.key.eqNullSafe(ordered.key),
        "left_semi",
    )
    history = Window.partitionBy("topic", "key", "node")
    # The rows after a row are computed as the rows before it in a history that is read backwards: for a "first
    # following" window, Spark would scan all following rows of each row again.
    before, after = (
        f.last("total", ignorenulls=True).over(history.orderBy(way).rowsBetween(Window.unboundedPreceding, -1))
        for way in (f.col(POSITION).asc(), f.col(POSITION).desc())
    )
    neighbours = deliveries.select(
        "topic", "key", f.struct("source", "sequence").alias("this"), before.alias("before"), after.alias("after")
    )
    pairs = neighbours.select("topic", "key", f.col("before").alias("one"), f.col("this").alias("other")).union(
        neighbours.select("topic", "key", f.col("this").alias("one"), f.col("after").alias("other"))
    )
    pairs = pairs.where("one is not null and other is not null").select(
        "topic",
        "key",
        f.col("one.source").alias("source"),
        f.col("one.sequence").alias("sequence"),
        f.col("other.source").alias("next_source"),
        f.col("other.sequence").alias("next_sequence"),
    )
    found = pairs.distinct().groupBy("topic", "key").applyInArrow(judge_key, FOUND)
    rows = found.orderBy(f.length("example"), "topic").collect()
    return len(rows), rows[0]["example"] if rows else None
