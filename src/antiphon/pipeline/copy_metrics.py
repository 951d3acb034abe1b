"""Metrics of messages, for traces that show every copy. Their definitions are in :mod:`antiphon.trace.quantities`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon.audit.columns.histories import POSITION
from antiphon.pipeline.measures import PUBLICATION, copies, described, in_classes, message_bytes, metric, packets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUPS = 64
"""The number of groups of publications where SQL cannot follow their paths."""


def first_receptions(rows: DataFrame) -> DataFrame:
    """The first copy of each publication at each node but the publisher: its time and its sender."""
    from pyspark.sql import functions as f

    first = f.min(f.struct(POSITION, "time", "peer")).alias("first")
    found = copies(rows, "receive").where("node != source").groupBy(*PUBLICATION, "node").agg(first)
    return found.select(*PUBLICATION, "node", f"first.{POSITION}", "first.time", "first.peer")


def reception_latencies(rows: DataFrame) -> DataFrame:
    """From the application's call to each first reception."""
    from pyspark.sql import functions as f

    asked = rows.where("event = 'publish'").groupBy(*PUBLICATION).agg(f.min("time").alias("asked"))
    return first_receptions(rows).join(asked, PUBLICATION).select((f.col("time") - f.col("asked")).alias("value"))


@metric
def reception_latency(rows: DataFrame) -> DataFrame:
    """Statistics over first receptions."""
    return reception_latencies(rows).agg(*described("value"))


@metric
def reception_latency_distribution(rows: DataFrame) -> DataFrame:
    """The same values in classes."""
    return in_classes(reception_latencies(rows), "value", "receptions")


def stays(rows: DataFrame) -> DataFrame:
    """Publications that were received and then delivered, with the times and positions of both."""
    from pyspark.sql import functions as f

    deliveries = rows.where("event = 'deliver' and node != source").groupBy(*PUBLICATION, "node")
    delivered = deliveries.agg(f.min(f.struct(POSITION, "time")).alias("delivered"))
    received = first_receptions(rows).select(*PUBLICATION, "node", f.struct(POSITION, "time").alias("received"))
    return received.join(delivered, [*PUBLICATION, "node"])


@metric
def delivery_wait(rows: DataFrame) -> DataFrame:
    """Statistics over publications that were received and delivered."""
    from pyspark.sql import functions as f

    return (
        stays(rows).select((f.col("delivered.time") - f.col("received.time")).alias("value")).agg(*described("value"))
    )


@metric
def pending_buffer(rows: DataFrame) -> DataFrame:
    """One more at each reception and one less at each delivery, summed along the rows of a node."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    found = stays(rows)
    comes = found.select("node", f.col(f"received.{POSITION}").alias(POSITION), f.lit(1).alias("change"))
    goes = found.select("node", f.col(f"delivered.{POSITION}").alias(POSITION), f.lit(-1).alias("change"))
    # Publications that arrived in one bundle share a position: they wait together.
    here = Window.partitionBy("node").orderBy(POSITION)
    waiting = comes.unionAll(goes).withColumn("waiting", f.sum("change").over(here) - 1)
    return waiting.where("change = 1").agg(*described("waiting"))


@metric
def hops(rows: DataFrame) -> DataFrame:
    """Follows the paths of many publications at once: in each pass, every node looks one step further back."""
    from pyspark.sql import functions as f

    def measure(table: pa.Table) -> pa.Table:
        names = [table[name].to_numpy().astype(np.int64) for name in (*PUBLICATION, "node", "peer")]
        topic, source, sequence, node, peer = names
        _, publication = np.unique(np.stack([topic, source, sequence]), axis=1, return_inverse=True)
        span = int(max(node.max(), peer.max())) + 1
        here, there = publication * span + node, publication * span + peer
        order = np.argsort(here)
        place = np.minimum(np.searchsorted(here[order], there), len(order) - 1)
        # A node that was sent nothing is the start of a path; one extra index, at the end, stands for it.
        parent = np.append(np.where(here[order][place] == there, order[place], len(order)), len(order))
        depth = np.append(np.ones(len(order), np.int64), 0)
        for _ in range(len(order).bit_length()):
            depth, parent = depth + depth[parent], parent[parent]
        return pa.table({"hops": depth[:-1]})

    group = f.pmod(f.xxhash64(*PUBLICATION), f.lit(GROUPS))
    return first_receptions(rows).groupBy(group).applyInArrow(measure, "hops bigint").agg(*described("hops"))


@metric
def messages_by_kind(rows: DataFrame) -> DataFrame:
    """Count events by kind of message."""
    from pyspark.sql import functions as f

    names = {"sent": "send", "received": "receive", "dropped": "drop", "duplicated": "duplicate"}
    counts = [f.count_if(f.col("event") == event).alias(name) for name, event in names.items()]
    chosen = rows.where(f.col("event").isin(*names.values()))
    return chosen.groupBy("message").agg(*counts).orderBy("message")


@metric
def bytes_by_kind(rows: DataFrame) -> DataFrame:
    """Sums over sent messages."""
    from pyspark.sql import functions as f

    return (
        rows.where("event = 'send'")
        .groupBy("message")
        .agg(
            f.count("*").alias("messages"),
            f.sum("carried").alias("publications"),
            f.sum("entries").alias("entries"),
            f.sum("payload").alias("payload_bytes"),
            f.sum(message_bytes()).alias("bytes"),
        )
        .orderBy("message")
    )


@metric
def aggregation(rows: DataFrame) -> DataFrame:
    """Packets by the number of publications in them."""
    from pyspark.sql import functions as f

    sent = packets(rows, "send").select(f.coalesce("carried", f.lit(1)).alias("held"))
    counted = sent.groupBy("held").agg(f.count("*").alias("packets"), f.sum("held").alias("publications"))
    return counted.orderBy("held")


@metric
def causal_information(rows: DataFrame) -> DataFrame:
    """One value for each publication that is sent alone, independent of the number of its copies."""
    from pyspark.sql import functions as f

    alone = packets(rows, "send").where("carried = 1")
    once = alone.groupBy("message", *PUBLICATION).agg(f.max("entries").alias("entries"))
    return once.groupBy("message").agg(*described("entries")).orderBy("message")


@metric
def losses(rows: DataFrame) -> DataFrame:
    """Count drops by reason."""
    from pyspark.sql import functions as f

    return rows.where("event = 'drop'").groupBy("reason").agg(f.count("*").alias("dropped")).orderBy("reason")


@metric
def output_queue(rows: DataFrame) -> DataFrame:
    """The trace has the waiting time in each row of a send."""
    return rows.where("event = 'send'").agg(*described("value"))


@metric
def queue_length(rows: DataFrame) -> DataFrame:
    """One more when a message is sent and one less when it has left, summed along the time of a node."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    sent = packets(rows, "send")
    comes = sent.select("node", "time", f.lit(1).alias("change"), POSITION)
    goes = sent.select("node", (f.col("time") + f.col("value")).alias("time"), f.lit(-1).alias("change"), POSITION)
    # A message that leaves in a tick is gone for messages that are sent in the same tick.
    here = Window.partitionBy("node").orderBy("time", "change", POSITION)
    return (
        comes.unionAll(goes)
        .withColumn("length", f.sum("change").over(here))
        .where("change = 1")
        .agg(*described("length"))
    )


@metric
def duplicates(rows: DataFrame) -> DataFrame:
    """Count receptions by publication and node."""
    from pyspark.sql import functions as f

    received = copies(rows, "receive").groupBy(*PUBLICATION, "node").agg(f.count("*").alias("copies"))
    whole = received.agg(
        f.coalesce(f.sum("copies"), f.lit(0)).alias("received"),
        f.coalesce(f.sum(f.col("copies") - 1), f.lit(0)).alias("duplicates"),
    )
    return whole.withColumn("share", f.try_divide("duplicates", "received"))


@metric
def false_positives(rows: DataFrame) -> DataFrame:
    """Find the last change of membership before each reception."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    lane = Window.partitionBy("topic", "node").orderBy(POSITION)
    columns = ["topic", "node", "event", POSITION]
    changes = rows.where(f.col("event").isin("subscribe", "subscribed", "unsubscribed")).select(*columns)
    with_members = f.broadcast(changes.select("topic").distinct().withColumn("closed", f.lit(True)))
    received = copies(rows, "receive").select(*columns)
    change = f.when(f.col("event") != "receive", f.col("event") != "unsubscribed")
    seen = received.unionByName(changes).withColumn("member", f.last(change, ignorenulls=True).over(lane))
    seen = seen.where("event = 'receive'").join(with_members, "topic", "left")
    unwanted = f.coalesce("closed", f.lit(False)) & ~f.coalesce("member", f.lit(False))
    whole = seen.agg(f.count("*").alias("received"), f.count_if(unwanted).alias("unwanted"))
    return whole.withColumn("share", f.try_divide("unwanted", "received"))


@metric
def links(rows: DataFrame) -> DataFrame:
    """Count pairs of senders and receivers."""
    from pyspark.sql import functions as f

    pair = [f.least("node", "peer").alias("one"), f.greatest("node", "peer").alias("other")]
    used = packets(rows, "send").select("topic", *pair).distinct()
    nodes = used.select(f.explode(f.array("one", "other")).alias("node")).agg(f.count_distinct("node").alias("nodes"))
    counted = used.agg(f.count("*").alias("logical"), f.count_distinct("one", "other").alias("physical"))
    return counted.crossJoin(nodes).select(
        "logical",
        "physical",
        f.try_divide("logical", "physical").alias("logical_per_physical"),
        f.try_divide(2 * f.col("physical"), f.col("nodes")).alias("physical_per_node"),
    )


@metric
def bandwidth_by_role(rows: DataFrame) -> DataFrame:
    """Join sent and received messages with the roles of their nodes in the topic."""
    from pyspark.sql import functions as f

    seen = rows.where(f.col("event").isin("publish", "deliver")).groupBy("topic", "node")
    roles = seen.agg(f.bool_or(f.col("event") == "publish").alias("publishes"))
    named = f.when(f.col("publishes"), "publisher").when(~f.col("publishes"), "subscriber").otherwise("relay")
    span = f.broadcast(rows.agg((f.max("time") - f.min("time") + 1).alias("ticks")))
    moved = (
        rows.where(f.col("event").isin("send", "receive"))
        .groupBy("topic", "node")
        .agg(
            f.sum(f.when(f.col("event") == "send", message_bytes())).alias("sent"),
            f.sum(f.when(f.col("event") == "receive", message_bytes())).alias("received"),
        )
    )
    by_role = (
        moved.join(roles, ["topic", "node"], "left")
        .groupBy(named.alias("role"))
        .agg(
            f.count("*").alias("nodes"),
            f.coalesce(f.sum("sent"), f.lit(0)).alias("sent"),
            f.coalesce(f.sum("received"), f.lit(0)).alias("received"),
        )
    )
    per_tick = [
        (f.col(name) / f.col("nodes") / f.col("ticks")).alias(f"{name}_per_tick") for name in ("sent", "received")
    ]
    return by_role.crossJoin(span).select("role", "nodes", "sent", "received", *per_tick).orderBy("role")
