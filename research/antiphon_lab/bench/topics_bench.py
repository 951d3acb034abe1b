"""How fast Spark reads and writes topics, beside the same rows in Parquet files: the floor that the disk and Spark set.

Rows of 100 bytes are written to a topic of live nodes and to Parquet, and read from both. Each operation is done once
before it is measured, and the lines take turns, so that other load of the machine affects all of them equally. Rows
that are read are discarded (Spark's ``noop``). A write to a topic has ended when every node has every row on its disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import antiphon.spark
from antiphon.kernel.errors import PeerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW_BYTES: Final = 100
SOURCE_TOPIC: Final = "bench.source"
SINK_TOPIC: Final = "bench.sink"
GOALS: Final = {"topic, read": 500_000, "topic, written": 100_000}
"""Rows per second."""


class TopicsLine(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: the fastest of its rounds, and all of them."""

    name: str
    rows: int
    seconds: float
    rows_per_second: float
    rounds_seconds: list[float]
    goal: int | None = None


def measure_topics(session: SparkSession, servers: str, rows: int, rounds: int, directory: Path) -> list[TopicsLine]:
    """All lines."""
    antiphon.spark.register(session)
    made = rows_of(session, rows)
    stored = str(directory / "read.parquet")
    publish(made, servers, SOURCE_TOPIC)
    # A task for each core, as Spark divides Parquet files by itself.
    tasks = str(session.sparkContext.defaultParallelism)
    reading = session.read.format("antiphon").options(servers=servers, subscribe=SOURCE_TOPIC, minPartitions=tasks)
    topic = reading.load()
    topic.write.mode("overwrite").parquet(stored)
    count = session.read.parquet(stored).count()
    if count % rows or count == 0:
        raise PeerError(f"{rows} rows were published and {count} were read; one of the two has a fault")
    work: dict[str, tuple[int, Callable[[], None]]] = {
        "topic, read": (count, lambda: consume(topic)),
        "Parquet, read": (count, lambda: consume(session.read.parquet(stored))),
        "topic, written": (rows, lambda: publish(made, servers, SINK_TOPIC)),
        "Parquet, written": (rows, lambda: made.write.mode("overwrite").parquet(str(directory / "written.parquet"))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, (_, run) in work.items():
            begun = time.perf_counter()
            run()
            if number > 0:
                seconds[name].append(time.perf_counter() - begun)
    return [line_of(name, work[name][0], taken) for name, taken in seconds.items()]


def line_of(name: str, rows: int, rounds_seconds: list[float]) -> TopicsLine:
    """A line from its rounds."""
    best = min(rounds_seconds)
    return TopicsLine(
        name=name,
        rows=rows,
        seconds=best,
        rows_per_second=rows / best,
        rounds_seconds=rounds_seconds,
        goal=GOALS.get(name),
    )


def rows_of(session: SparkSession, count: int) -> DataFrame:
    """Rows of 100 bytes, all different."""
    from pyspark.sql import functions as f

    return session.range(count).select(f.rpad(f.col("id").cast("string"), ROW_BYTES, "x").cast("binary").alias("value"))


def publish(rows: DataFrame, servers: str, topic: str) -> None:
    """Write rows to a topic."""
    rows.write.format("antiphon").option("servers", servers).option("topic", topic).mode("append").save()


def consume(rows: DataFrame) -> None:
    """Read everything, and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()
