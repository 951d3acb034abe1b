"""Every metric of a trace, defined once: a name, a unit, what it means, and a Spark job from DataFrame to DataFrame.

The docstring of a metric is its definition; ``docs/metrics.md`` is made of them. To add one, write a function from the
rows of a trace to a table and decorate it. Rows have the columns of :mod:`antiphon.trace.store` and ``position``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from antiphon.kernel.errors import UsageError
from antiphon.pipeline.traces import POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Measure = Callable[["DataFrame"], "DataFrame"]

PUBLICATION = ["topic", "source", "sequence"]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
ACCURACY = 10_000
"""Percentiles are off by at most one rank in this many; up to that many values they are exact."""

WRAPPERS = ("LeafCopy",)
"""Kinds of messages that carry one publication and are not delivered themselves."""

INTERVALS = 100
"""Into how many intervals of equal length a run is divided where something is measured over time."""


@dataclass(frozen=True)
class Metric:
    """One quantity."""

    name: str
    unit: str
    level: str
    """The level that a trace must have: ``deliveries`` or ``everything``."""
    measure: Measure

    @property
    def definition(self) -> str:
        """What it means, in one paragraph."""
        return " ".join(inspect.cleandoc(self.measure.__doc__ or "").split())


METRICS: dict[str, Metric] = {}


def metric(unit: str, level: str = "deliveries") -> Callable[[Measure], Measure]:
    """Register a function as the metric of its name."""

    def register(measure: Measure) -> Measure:
        name = measure.__name__.replace("_", "-")
        METRICS[name] = Metric(name, unit, level, measure)
        return measure

    return register


def metric_named(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise UsageError(f"there is no metric {name!r}; choose among {', '.join(METRICS)}")
    return METRICS[name]


def described(column: str) -> list[Column]:
    """Count, mean, percentiles and maximum of a column."""
    from pyspark.sql import functions as f

    percentiles = [f.percentile_approx(column, share, ACCURACY).alias(name) for name, share in PERCENTILES.items()]
    return [f.count(column).alias("count"), f.mean(column).alias("mean"), *percentiles, f.max(column).alias("maximum")]


def copies(rows: DataFrame, event: str) -> DataFrame:
    """Rows of an event that are about copies of publications: of the kinds that are delivered, or wrapped in others."""
    from pyspark.sql import functions as f

    kinds = rows.where((f.col("event") == "deliver") | f.col("message").isin(*WRAPPERS))
    kinds = kinds.where("message is not null").select("message").distinct()
    return rows.where(f.col("event") == event).join(f.broadcast(kinds), "message", "left_semi")


@metric("count")
def totals(rows: DataFrame) -> DataFrame:
    """How often each thing happened: publications asked for, copies and other messages sent, received, dropped and
    doubled by the network, deliveries, subscriptions that took effect and that ended."""
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


@metric("ticks")
def delivery_latency(rows: DataFrame) -> DataFrame:
    """From the moment when the application asks for a publication until another node delivers it. The publisher's own
    delivery does not count. Mean, percentiles and maximum over all deliveries."""
    return rows.where("event = 'deliver' and node != source").agg(*described("value"))


@metric("ticks")
def delivery_latency_distribution(rows: DataFrame) -> DataFrame:
    """How many deliveries at other nodes than the publisher's had a latency from ``from`` (included) to ``to``
    (excluded); the classes are 0 and the powers of two."""
    from pyspark.sql import functions as f

    latency = f.col("value")
    exponent = f.when(latency > 0, f.length(f.bin(latency)) - 1)
    low = f.when(latency > 0, f.pow(f.lit(2), exponent)).otherwise(0).cast("bigint")
    high = f.when(latency > 0, f.pow(f.lit(2), exponent + 1)).otherwise(1).cast("bigint")
    chosen = rows.where("event = 'deliver' and node != source")
    return chosen.groupBy(low.alias("from"), high.alias("to")).agg(f.count("*").alias("deliveries")).orderBy("from")


@metric("ticks", "everything")
def reception_latency(rows: DataFrame) -> DataFrame:
    """From the moment when the application asks for a publication until the first copy of it reaches another node,
    whether the node can deliver it then or not. Mean, percentiles and maximum over publications and nodes."""
    from pyspark.sql import functions as f

    asked = rows.where("event = 'publish'").groupBy(*PUBLICATION).agg(f.min("time").alias("asked"))
    first = (
        copies(rows, "receive").where("node != source").groupBy(*PUBLICATION, "node").agg(f.min("time").alias("time"))
    )
    return (
        first.join(asked, PUBLICATION).select((f.col("time") - f.col("asked")).alias("value")).agg(*described("value"))
    )


@metric("messages", "everything")
def messages_by_kind(rows: DataFrame) -> DataFrame:
    """For each kind of message how many copies were sent, received, dropped and doubled by the network."""
    from pyspark.sql import functions as f

    names = {"sent": "send", "received": "receive", "dropped": "drop", "duplicated": "duplicate"}
    counts = [f.count_if(f.col("event") == event).alias(name) for name, event in names.items()]
    chosen = rows.where(f.col("event").isin(*names.values()))
    return chosen.groupBy("message").agg(*counts).orderBy("message")


@metric("messages", "everything")
def losses(rows: DataFrame) -> DataFrame:
    """How many copies were dropped for each reason: lost by the network, cut off by a partition, sender or receiver
    down."""
    from pyspark.sql import functions as f

    return rows.where("event = 'drop'").groupBy("reason").agg(f.count("*").alias("dropped")).orderBy("reason")


@metric("bytes", "everything")
def payload_bytes(rows: DataFrame) -> DataFrame:
    """For each kind of message that carries publications the bytes of payload in all copies sent. Headers do not count:
    their size is the transport's business."""
    from pyspark.sql import functions as f

    sizes = rows.where("event = 'publish'").groupBy(*PUBLICATION).agg(f.max("value").alias("bytes"))
    carried = copies(rows, "send").join(sizes, PUBLICATION)
    return (
        carried.groupBy("message").agg(f.count("*").alias("copies"), f.sum("bytes").alias("bytes")).orderBy("message")
    )


@metric("ticks", "everything")
def output_queue(rows: DataFrame) -> DataFrame:
    """How long each message stays in the output queue of its sender, its own transmission included. Where a
    transmission takes one tick this is the length of the queue that the message finds, itself included."""
    return rows.where("event = 'send'").agg(*described("value"))


@metric("copies", "everything")
def duplicates(rows: DataFrame) -> DataFrame:
    """How many copies of publications reached a node that had received the same publication before; with it, how many
    copies were received at all, and the share."""
    from pyspark.sql import functions as f

    received = copies(rows, "receive").groupBy(*PUBLICATION, "node").agg(f.count("*").alias("copies"))
    whole = received.agg(
        f.coalesce(f.sum("copies"), f.lit(0)).alias("received"),
        f.coalesce(f.sum(f.col("copies") - 1), f.lit(0)).alias("duplicates"),
    )
    return whole.withColumn("share", f.try_divide("duplicates", "received"))


@metric("copies", "everything")
def false_positives(rows: DataFrame) -> DataFrame:
    """How many copies of publications reached a node that at that moment neither was a member of their topic nor had
    asked to be; with it, how many copies were received at all, and the share. On topics where nobody ever subscribes
    everybody is a member."""
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


@metric("count per interval")
def throughput(rows: DataFrame) -> DataFrame:
    """Publications asked for and deliveries over time: the run in 100 intervals of equal length, of which those are
    listed in which anything happened. ``from`` is the time at which an interval begins."""
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


@metric("count")
def node_load(rows: DataFrame) -> DataFrame:
    """For each node what it published, sent, received and delivered. Traces of level ``deliveries`` show no messages,
    so nothing is sent and received there."""
    from pyspark.sql import functions as f

    names = {"published": "publish", "sent": "send", "received": "receive", "deliveries": "deliver"}
    counts = [f.count_if(f.col("event") == event).alias(name) for name, event in names.items()]
    return rows.groupBy("node").agg(*counts).orderBy("node")


@metric("count")
def topic_load(rows: DataFrame) -> DataFrame:
    """For each topic what was published and delivered on it, by how many publishers, and to how many nodes."""
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


def as_document() -> str:
    """The page about all metrics."""
    parts = [
        "# Metrics",
        "What `antiphon metrics TRACE` measures in a trace, live or simulated. Times are in ticks of the clock of the "
        "run: what the scenario means by them, or microseconds in traces of live nodes.\n\n"
        "This page is made of the definitions in `src/antiphon/pipeline/metrics.py`; a test compares the two.",
    ]
    for each in METRICS.values():
        needs = "any trace" if each.level == "deliveries" else "a trace of level `everything`"
        parts.append(f"## {each.name}\n\nUnit: {each.unit}. Needs {needs}.\n\n{each.definition}")
    return "\n\n".join(parts) + "\n"
