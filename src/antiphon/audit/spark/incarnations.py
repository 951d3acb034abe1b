"""Incarnations of nodes in traces that Spark reads: which rows belong to which incarnation, and what ends with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.audit.columns.histories import (
    BEFORE_EVERYTHING,
    POSITION,
)
from antiphon.audit.columns.incarnations import CHANGES, NAMES, IncarnationSpans, incarnation_spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def spans_in_frame(frame: DataFrame, remembers: bool) -> IncarnationSpans:
    """The incarnations in a trace that Spark reads."""
    from pyspark.sql import functions as f

    changes = frame.where(f.col("event").isin(*CHANGES)).select(POSITION, "event", "node").collect()
    if not changes:
        return IncarnationSpans(0)
    found = frame.agg(f.max("node").alias("node"), f.max("source").alias("source")).first()
    assert found is not None, "an aggregate over everything has one row"
    highest = max(found["node"] or 0, found["source"] or 0)
    return incarnation_spans(((row[POSITION], row["event"], row["node"]) for row in changes), remembers, highest)


def frame_by_incarnation(frame: DataFrame, spans: IncarnationSpans, has_unshown: bool) -> DataFrame:
    """The rows of a trace by incarnation, with rows that unsubscribe incarnations when they end."""
    from pyspark.sql import functions as f

    if has_unshown:
        frame = without_unshown(frame)
    if not spans.ends:
        return frame
    session = frame.sparkSession
    periods: list[tuple[int, int, int, int | None]] = []
    begin: dict[int, tuple[int, int]] = {}
    for node, position in spans.ends:
        life, since = begin.get(node, (0, BEFORE_EVERYTHING))
        periods.append((node, life, since, position))
        begin[node] = (life + 1, position)
    periods += [(node, life, since, None) for node, (life, since) in begin.items()]
    schema = "mortal int, life int, since bigint, until bigint"
    incarnations = f.broadcast(session.createDataFrame(periods, schema))
    inside = (f.col("node") == f.col("mortal")) & (f.col(POSITION) > f.col("since"))
    inside &= f.col("until").isNull() | (f.col(POSITION) <= f.col("until"))
    incarnation = f.col("node") + f.coalesce(f.col("life"), f.lit(0)) * spans.stride
    placed = frame.join(incarnations, inside, "left").withColumn("node", incarnation.cast("bigint"))
    ended = placed.where((f.col("event") == "subscribed") & f.col("until").isNotNull())
    closing = ended.select("topic", "node", "source", "until").distinct()
    rows = closing.select(
        f.col("topic"),
        f.col("node"),
        f.col("source"),
        f.lit(0).cast("bigint").alias("sequence"),
        f.lit("unsubscribed").alias("event"),
        f.lit(None).cast("string").alias("order"),
        f.col("until").alias(POSITION),
    )
    return placed.drop("mortal", "life", "since", "until").unionByName(rows, allowMissingColumns=True)


def without_unshown(frame: DataFrame) -> DataFrame:
    """The rows without deliveries that a disk lost before they were shown."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counted = frame.where(f.col("event") == "unshown").groupBy(*NAMES).agg(f.count("*").alias("unshown"))
    place = f.row_number().over(Window.partitionBy(*NAMES).orderBy(POSITION))
    deliveries = frame.where(f.col("event") == "deliver").join(f.broadcast(counted), list(NAMES))
    gone = deliveries.withColumn("place", place).where("place <= unshown").select(POSITION)
    return frame.join(f.broadcast(gone), POSITION, "left_anti")
