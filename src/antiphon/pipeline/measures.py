"""Metrics: quantities of traces, each with the Spark job that measures it, from DataFrame to DataFrame.

:mod:`antiphon.trace.quantities` defines each metric. Rows have the columns of :mod:`antiphon.trace.store` and
``position``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from antiphon.trace.quantities import ENTRY_BYTES, HEADER_BYTES, NAME_BYTES, Quantity, quantity

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Measure = Callable[["DataFrame"], "DataFrame"]

PUBLICATION = ["topic", "source", "sequence"]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
ACCURACY = 10_000
"""Percentiles are off by at most one rank in this many; up to that many values they are exact."""

WRAPPERS = ("LeafCopy",)
"""Kinds of messages that wrap one publication, for traces that do not record the contents of messages."""

MIXED = ("Packet",)
"""Kinds of messages that carry publications of several sources; other kinds carry successive ones of one source."""


@dataclass(frozen=True)
class Metric:
    """A quantity and the job that measures it."""

    quantity: Quantity
    measure: Measure

    @property
    def name(self) -> str:
        """Its name."""
        return self.quantity.name

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.quantity.unit

    @property
    def level(self) -> str:
        """The level that a trace must have: ``deliveries`` or ``everything``."""
        return self.quantity.source

    @property
    def definition(self) -> str:
        """Its definition, in one paragraph."""
        return self.quantity.definition


MEASURES: dict[str, Measure] = {}


def metric(measure: Measure) -> Measure:
    """Register a function as the measure of the quantity with its name."""
    MEASURES[quantity(measure.__name__).name] = measure
    return measure


def described(column: str) -> list[Column]:
    """Count, mean, percentiles and maximum of a column."""
    from pyspark.sql import functions as f

    percentiles = [f.percentile_approx(column, share, ACCURACY).alias(name) for name, share in PERCENTILES.items()]
    return [f.count(column).alias("count"), f.mean(column).alias("mean"), *percentiles, f.max(column).alias("maximum")]


def in_classes(values: DataFrame, column: str, count: str) -> DataFrame:
    """The number of values that are 0, and of values in each range between two powers of two."""
    from pyspark.sql import functions as f

    value = f.col(column)
    exponent = f.when(value > 0, f.length(f.bin(value)) - 1)
    low = f.when(value > 0, f.pow(f.lit(2), exponent)).otherwise(0).cast("bigint")
    high = f.when(value > 0, f.pow(f.lit(2), exponent + 1)).otherwise(1).cast("bigint")
    return values.groupBy(low.alias("from"), high.alias("to")).agg(f.count("*").alias(count)).orderBy("from")


def packets(rows: DataFrame, event: str) -> DataFrame:
    """The rows in which messages with publications are sent or received.

    An older trace does not record the contents of messages; there, messages count whose kind is delivered or wraps one.
    """
    from pyspark.sql import functions as f

    kinds = rows.where((f.col("event") == "deliver") | f.col("message").isin(*WRAPPERS))
    kinds = kinds.where("message is not null").select("message").distinct().withColumn("carries", f.lit(True))
    chosen = rows.where(f.col("event") == event).join(f.broadcast(kinds), "message", "left")
    return chosen.where(f.coalesce(f.col("carried") > 0, f.col("carries"), f.lit(False))).drop("carries")


def copies(rows: DataFrame, event: str) -> DataFrame:
    """The same with one row per publication, as far as publications can be told apart."""
    from pyspark.sql import functions as f

    last = f.when(f.col("message").isin(*MIXED), f.col("sequence")).otherwise(
        f.col("sequence") + f.greatest(f.coalesce("carried", f.lit(1)), f.lit(1)) - 1
    )
    found = packets(rows, event)
    return found.withColumn("sequence", f.explode(f.sequence("sequence", last)))


def message_bytes() -> Column:
    """The bytes of a message; null where the trace does not record its contents."""
    from pyspark.sql import functions as f

    names = f.greatest(f.col("carried"), f.lit(1)) * NAME_BYTES
    return (f.lit(HEADER_BYTES) + names + f.col("entries") * ENTRY_BYTES + f.col("payload")).cast("bigint")


def longest_increasing(values: list[int]) -> int:
    """The length of the longest strictly increasing subsequence."""
    from bisect import bisect_left

    ends: list[int] = []
    for value in values:
        place = bisect_left(ends, value)
        ends[place : place + 1] = [value]
    return len(ends)
