"""The links of StaN on Spark: for every process of a universe, before StaN and at its fixed point.

The members of each topic go to every worker once, four bytes per subscription. The subscriptions are then distributed
by process, and each task computes the links of its processes alone (:mod:`antiphon_lab.universes.stan_links`): no links
are ever moved, of which there are ten times as many as subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon_lab.universes.law import Integers
from antiphon_lab.universes.stan_links import Links, TopicMembers, links_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "process long, topics long, logical long, initial long, aligned long"
ROWS_AT_A_TIME = 1 << 16
"""The approximate number of subscriptions that a task takes at a time, plus the rest of the last process."""
SUBSCRIPTIONS_PER_TASK = 1 << 18
FEWEST_TASKS = 8


def stan_links(
    spark: SparkSession, subscriptions: DataFrame, processes: int, topics: int, seed: int, key: int = 0
) -> DataFrame:
    """One row per process that subscribes to anything; ``subscriptions`` has ``process`` and ``topic``, from 0."""
    members = spark.sparkContext.broadcast(members_of(subscriptions, processes, topics))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for owners, of in by_whole_processes(batches):
            yield to_batch(links_of(members.value, owners, of, seed, key))

    tasks = max(FEWEST_TASKS, len(members.value.members) // SUBSCRIPTIONS_PER_TASK)
    dealt = subscriptions.select("process", "topic").repartition(tasks, "process")
    return dealt.sortWithinPartitions("process", "topic").mapInArrow(work, SCHEMA)


def members_of(subscriptions: DataFrame, processes: int, topics: int) -> TopicMembers:
    """The members of each topic, on the driver."""
    from pyspark.sql import functions as f

    table = subscriptions.select(f.col("topic").cast("int"), f.col("process").cast("int")).toArrow()
    topic, process = table["topic"].to_numpy(), table["process"].to_numpy()
    order = np.argsort(topic, kind="stable")
    offsets = np.searchsorted(topic[order], np.arange(topics + 1))
    return TopicMembers(offsets, process[order], processes)


def by_whole_processes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Integers, Integers]]:
    """Subscriptions in the order of processes, cut between processes only: processes and topics."""
    owners: Integers = np.empty(0, np.int64)
    of: Integers = np.empty(0, np.int64)
    for batch in batches:
        owners = np.concatenate((owners, batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64)))
        of = np.concatenate((of, batch.column(1).to_numpy(zero_copy_only=False).astype(np.int64)))
        if len(owners) >= ROWS_AT_A_TIME:
            # Of the last process there may be more.
            end = int(np.searchsorted(owners, owners[-1]))
            if end > 0:
                yield owners[:end], of[:end]
            owners, of = owners[end:], of[end:]
    if len(owners):
        yield owners, of


def to_batch(links: Links) -> pa.RecordBatch:
    """Links as rows."""
    columns = [links.process, links.topics, links.logical, links.initial, links.aligned]
    names = ["process", "topics", "logical", "initial", "aligned"]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], names)
