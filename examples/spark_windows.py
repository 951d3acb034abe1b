"""Topics in Spark, cell by cell: a live topic, averages over windows of time, and a topic with the results.

Run it: .venv/bin/python examples/spark_windows.py    (or open it in an editor that runs the cells between ``# %%``)
"""

# %% Nodes with logs on the disk. Yours run already: then `servers` is where they are, and this cell is not needed.
from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import antiphon
import antiphon.spark
from antiphon.node.local_cluster import Plan, running_cluster
from antiphon.pipeline.session import SessionOptions, spark_session

opened = ExitStack()
directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-windows-")))
settings = ("--keep", "readings", "--keep", "averages", "--log-level", "warning")
servers = opened.enter_context(running_cluster(Plan(2, data=directory / "nodes", settings=settings)))
print(f"two nodes, at {servers}")

# %% A session of Spark that knows topics.
session = opened.enter_context(spark_session("windows", SessionOptions(cores=2, brief=True)))
session.conf.set("spark.sql.shuffle.partitions", "2")
antiphon.spark.register(session)

# %% Two thermometers publish what they read, once a second. Nothing here knows of Spark.
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


async def publish_readings(first_second: int, end_second: int) -> None:
    """In the kitchen it becomes warmer, in the cellar it does not."""
    async with antiphon.connect(servers) as client:
        for second in range(first_second, end_second):
            at = (BEGIN + timedelta(seconds=second)).isoformat()
            for room, celsius in (("kitchen", 20 + second / 10), ("cellar", 12.0)):
                reading = {"room": room, "at": at, "celsius": celsius}
                await client.publish("readings", json.dumps(reading).encode(), key=room.encode())


antiphon.run(publish_readings(0, 50))

# %% The query: from the topic `readings` over windows of 20 seconds to the topic `averages`.
readings = (
    session.readStream.format("antiphon")
    .options(servers=servers, subscribe="readings", startingOffsets="earliest")
    .load()
    .select(f.from_json(f.col("value").cast("string"), "room string, at timestamp, celsius double").alias("reading"))
    .select("reading.*")
)
averages = (
    readings.withWatermark("at", "0 seconds")
    .groupBy(f.window("at", "20 seconds"), "room")
    .agg(f.round(f.avg("celsius"), 2).alias("celsius"), f.count("*").alias("readings"))
)
results = averages.select(
    f.col("room").alias("key"),
    f.to_json(f.struct(f.col("window.start").alias("from"), "room", "celsius", "readings")).alias("value"),
)


def run_to_the_end_of_the_topic() -> None:
    """Work off what is there; a window is published when a reading has come from behind its end."""
    writer = results.writeStream.format("antiphon").options(servers=servers, topic="averages")
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


def published() -> DataFrame:
    """What anybody sees who reads the topic of the results, in Spark or by `antiphon sub averages --start earliest`."""
    rows = session.read.format("antiphon").options(servers=servers, subscribe="averages").load()
    return rows.select(f.col("value").cast("string")).orderBy("value")


run_to_the_end_of_the_topic()
print("after 50 seconds:")
for row in published().collect():
    print(" ", row["value"])

# %% More readings come, and the query goes on where it was.
antiphon.run(publish_readings(50, 70))
run_to_the_end_of_the_topic()
print("after 70 seconds:")
for row in published().collect():
    print(" ", row["value"])

# %% As if the driver had died before it could write down that its last batch was done: Spark runs that batch again.
# Every node knows the rows by the query, the batch and the partition, and takes none of them twice.
before = published().count()
last = max(
    (path for path in (directory / "checkpoint/commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
)
last.unlink()
last.with_name(f".{last.name}.crc").unlink()
run_to_the_end_of_the_topic()
print(f"batch {last.name} was run twice; there were {before} results, and there are {published().count()}")

# %% The end.
opened.close()
