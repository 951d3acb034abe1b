"""Topics in Spark, cell by cell: a live topic, averages over windows of time, and a topic with the results.

Run it: .venv/bin/python examples/spark_windows.py    (or open it in an editor that runs the cells between ``# %%``)
"""

# %% Nodes with logs on the disk. If yours run already, `servers` has their addresses, and this cell is not needed.
from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import antiphon.spark
import antiphon.sync
from antiphon.pipeline.session import SessionOptions, spark_session

opened = ExitStack()
directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-windows-")))
topics = ["readings", "averages"]
first = opened.enter_context(antiphon.sync.start(data=str(directory / "first"), keep=topics))
second = opened.enter_context(antiphon.sync.start(data=str(directory / "second"), keep=topics, join=[first.address]))
servers = f"{first.address},{second.address}"
print(f"two nodes, at {servers}")

# %% A session of Spark that knows topics.
session = opened.enter_context(spark_session("windows", SessionOptions(cores=2, brief=True)))
session.conf.set("spark.sql.shuffle.partitions", "2")
antiphon.spark.register(session)

# %% Two thermometers publish what they read, once a second. Nothing here knows of Spark.
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def publish_readings(first_second: int, end_second: int) -> None:
    """In the kitchen it becomes warmer, in the cellar it does not."""
    with antiphon.sync.connect(servers) as client:
        for second in range(first_second, end_second):
            at = (BEGIN + timedelta(seconds=second)).isoformat()
            for room, celsius in (("kitchen", 20 + second / 10), ("cellar", 12.0)):
                reading = {"room": room, "at": at, "celsius": celsius}
                client.publish("readings", json.dumps(reading).encode(), key=room.encode())


publish_readings(0, 50)

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
    """Process what is there and stop. A window is published when a reading that is later than its end has come."""
    writer = results.writeStream.format("antiphon").options(servers=servers, topic="averages")
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


def published() -> DataFrame:
    """The topic of the results as a table. `antiphon sub averages --start earliest` shows the same."""
    rows = session.read.format("antiphon").options(servers=servers, subscribe="averages").load()
    return rows.select(f.col("value").cast("string")).orderBy("value")


run_to_the_end_of_the_topic()
print("after 50 seconds:")
for row in published().collect():
    print(" ", row["value"])

# %% More readings come, and the query continues behind its checkpoint.
publish_readings(50, 70)
run_to_the_end_of_the_topic()
print("after 70 seconds:")
for row in published().collect():
    print(" ", row["value"])

# %% As if the driver had died before it could write down that its last batch was done: Spark runs that batch again.
# Every node recognises the rows by query, batch and partition, and takes none of them twice.
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
