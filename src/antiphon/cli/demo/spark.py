"""The part of the tour about Spark: a live topic, averages over windows of time, and a topic with the results.

``examples/spark_windows.py`` tells the same story cell by cell.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.kernel.errors import PeerError
from antiphon.node.local_cluster import Plan, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES = 2
SECONDS = 50
WINDOW = "20 seconds"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE, RESULT = "readings", "averages"


@dataclass(frozen=True)
class SparkStory:
    """The results of the Spark part."""

    readings: int
    results: list[str]
    start_seconds: float
    query_seconds: float
    again: str
    """The batch that was run twice."""
    results_after: int


def run_windows() -> SparkStory:
    """Run the Spark part; all files are removed afterwards."""
    import antiphon
    from antiphon.pipeline.session import SessionOptions, spark_session

    settings = ("--keep", SOURCE, "--keep", RESULT, "--log-level", "warning")
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Plan(NODES, data=Path(directory) / "nodes", settings=settings)) as servers,
    ):
        count = antiphon.run(publish_readings(servers))
        started = time.perf_counter()
        with spark_session("antiphon demo", SessionOptions(cores=2, brief=True)) as session:
            return tell(session, servers, Path(directory), count, time.perf_counter() - started)


async def publish_readings(servers: str) -> int:
    """Publish the readings of two thermometers, one per second each; returns their number."""
    import antiphon

    async with antiphon.connect(servers) as client:
        for second in range(SECONDS):
            at = (BEGIN + timedelta(seconds=second)).isoformat()
            for room, celsius in (("kitchen", 20 + second / 10), ("cellar", 12.0)):
                reading = {"room": room, "at": at, "celsius": celsius}
                await client.publish(SOURCE, json.dumps(reading).encode(), key=room.encode())
    return 2 * SECONDS


def tell(session: SparkSession, servers: str, directory: Path, readings: int, start_seconds: float) -> SparkStory:
    """Run the query, and once more its last batch."""
    import antiphon.spark

    antiphon.spark.register(session)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    begun = time.perf_counter()
    run_query(session, servers, directory / "checkpoint")
    query_seconds = time.perf_counter() - begun
    results = [row["value"] for row in published(session, servers).collect()]
    again = forget_last_commit(directory / "checkpoint")
    run_query(session, servers, directory / "checkpoint")
    return SparkStory(readings, results, start_seconds, query_seconds, again, published(session, servers).count())


def run_query(session: SparkSession, servers: str, checkpoint: Path) -> None:
    """Read the topic of readings to its present end, average over windows, and publish on the topic of results."""
    from pyspark.sql import functions as f

    source = session.readStream.format("antiphon").options(
        servers=servers, subscribe=SOURCE, startingOffsets="earliest"
    )
    shape = "room string, at timestamp, celsius double"
    readings = source.load().select(f.from_json(f.col("value").cast("string"), shape).alias("reading"))
    averages = (
        readings.select("reading.*")
        .withWatermark("at", "0 seconds")
        .groupBy(f.window("at", WINDOW), "room")
        .agg(f.round(f.avg("celsius"), 2).alias("celsius"), f.count("*").alias("readings"))
    )
    value = f.to_json(f.struct(f.col("window.start").alias("from"), "room", "celsius", "readings")).alias("value")
    sink = averages.select(f.col("room").alias("key"), value).writeStream.format("antiphon")
    sink = sink.options(servers=servers, topic=RESULT, checkpointLocation=str(checkpoint))
    sink.trigger(availableNow=True).start().awaitTermination()


def published(session: SparkSession, servers: str) -> DataFrame:
    """The messages on the topic of results."""
    rows = session.read.format("antiphon").options(servers=servers, subscribe=RESULT).load()
    return rows.selectExpr("cast(value as string) as value").orderBy("value")


def forget_last_commit(checkpoint: Path) -> str:
    """Remove the commit of the last batch; returns its number."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    if not commits:
        raise PeerError("the query of the tour has done nothing; please report this")
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    return last.name
