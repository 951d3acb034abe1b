"""Metrics of what applications saw, for every trace; defined in :mod:`antiphon.trace.quantities`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon.audit.columns.histories import POSITION
from antiphon.pipeline.measures import described, in_classes, longest_increasing, metric

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTERVALS = 100
"""The number of equal intervals of a run for measurements over time."""

EFFECTS = {"subscribed": "subscribe", "unsubscribed": "unsubscribe"}
"""Changes that become effective, and the requests for them."""

RETURNS = ("restart", "join", "resume")
"""Changes after which a node has to recover."""


@metric
def totals(rows: DataFrame) -> DataFrame:
    """Count events."""
    from pyspark.sql import functions as f

    names = {
        "published": "publish",
        "sent": "send",
        "received": "receive",
        "dropped": "drop",
        "duplicated": "duplicate",
        "deliveries": "deliver",
        "subscribed": "subscribed",
        "unsubscribed": "unsubscribed",
    }
    return rows.agg(*(f.count_if(f.col("event") == event).alias(name) for name, event in names.items()))


@metric
def delivery_latency(rows: DataFrame) -> DataFrame:
    """The trace has a latency in each delivery."""
    return rows.where("event = 'deliver' and node != source").agg(*described("value"))


@metric
def delivery_latency_distribution(rows: DataFrame) -> DataFrame:
    """The same values in classes."""
    return in_classes(rows.where("event = 'deliver' and node != source"), "value", "deliveries")


@metric
def reconfiguration_time(rows: DataFrame) -> DataFrame:
    """Compare successive rows about one node, or about one node and topic."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    membership = Window.partitionBy("topic", "node").orderBy(POSITION)
    changes = rows.where(f.col("event").isin(*EFFECTS, *EFFECTS.values())).select(
        "event", "time", f.lag("event").over(membership).alias("asked"), f.lag("time").over(membership).alias("since")
    )
    took_effect = f.lit(False)
    for effect, asked in EFFECTS.items():
        took_effect = took_effect | ((f.col("event") == effect) & (f.col("asked") == asked))
    effective = changes.where(took_effect).select(
        f.col("asked").alias("change"), (f.col("time") - f.col("since")).alias("value")
    )
    back = f.col("event").isin(*RETURNS)
    returned = f.broadcast(rows.where(back).select("node").distinct())
    life = Window.partitionBy("node").orderBy(POSITION)
    lives = rows.where(back | (f.col("event") == "deliver")).join(returned, "node", "left_semi")
    lives = lives.select(
        "event", "time", f.lead("event").over(life).alias("next"), f.lead("time").over(life).alias("until")
    )
    found = lives.where(back & (f.col("next") == "deliver"))
    found = found.select(f.col("event").alias("change"), (f.col("until") - f.col("time")).alias("value"))
    return effective.unionByName(found).groupBy("change").agg(*described("value")).orderBy("change")


@metric
def ordering_similarity(rows: DataFrame) -> DataFrame:
    """SQL cannot find a longest subsequence, so the deliveries of each node on a topic are processed as columns."""
    from pyspark.sql import functions as f

    def measure(table: pa.Table) -> pa.Table:
        by_position = np.argsort(table[POSITION].to_numpy())
        published, source, sequence = (
            table[name].to_numpy()[by_position] for name in ("published", "source", "sequence")
        )
        rank = np.empty(len(by_position), np.int64)
        rank[np.lexsort((sequence, source, published))] = np.arange(len(by_position))
        return pa.table({"share": [longest_increasing(rank.tolist()) / len(rank)]})

    delivered = rows.where("event = 'deliver'").select(
        "topic", "node", "source", "sequence", (f.col("time") - f.col("value")).alias("published"), POSITION
    )
    shares = delivered.groupBy("topic", "node").applyInArrow(measure, "share double")
    return shares.agg(*described("share"), f.min("share").alias("minimum"))


@metric
def throughput(rows: DataFrame) -> DataFrame:
    """Count events by interval."""
    from pyspark.sql import functions as f

    span = rows.agg(f.min("time").alias("begin"), f.max("time").alias("end"))
    width = f.greatest(f.lit(1), f.ceil((f.col("end") - f.col("begin") + 1) / INTERVALS))
    placed = rows.crossJoin(f.broadcast(span.withColumn("width", width)))
    begins = f.col("begin") + f.floor((f.col("time") - f.col("begin")) / f.col("width")) * f.col("width")
    counted = placed.groupBy(begins.cast("bigint").alias("from"), f.col("width").cast("bigint").alias("ticks"))
    return counted.agg(
        f.count_if(f.col("event") == "publish").alias("published"),
        f.count_if(f.col("event") == "deliver").alias("deliveries"),
    ).orderBy("from")


@metric
def node_load(rows: DataFrame) -> DataFrame:
    """Count events by node."""
    from pyspark.sql import functions as f

    names = {"published": "publish", "sent": "send", "received": "receive", "deliveries": "deliver"}
    counts = [f.count_if(f.col("event") == event).alias(name) for name, event in names.items()]
    return rows.groupBy("node").agg(*counts).orderBy("node")


@metric
def topic_load(rows: DataFrame) -> DataFrame:
    """Count events by topic."""
    from pyspark.sql import functions as f

    is_delivery = f.col("event") == "deliver"
    chosen = rows.where(f.col("event").isin("publish", "deliver"))
    return (
        chosen.groupBy("topic")
        .agg(
            f.count_if(f.col("event") == "publish").alias("published"),
            f.count_if(is_delivery).alias("deliveries"),
            f.count_distinct(f.when(~is_delivery, f.col("node"))).alias("publishers"),
            f.count_distinct(f.when(is_delivery, f.col("node"))).alias("subscribers"),
        )
        .orderBy("topic")
    )
