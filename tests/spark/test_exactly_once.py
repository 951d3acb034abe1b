"""Exactly once: whoever is killed, and whatever Spark does again, every row is in the log once.

A longer run, over a tree of three brokers, with faults drawn by chance:

    ANTIPHON_EXACTLY_ONCE_ROUNDS=20 ANTIPHON_EXACTLY_ONCE_SEED=1 pytest tests/spark/test_exactly_once.py -k chance -s
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.live.support import free_addresses
from tests.spark.faults import CLEAN, NodeProcess, Query, audit, rows_on_disk

ROUNDS = int(os.environ.get("ANTIPHON_EXACTLY_ONCE_ROUNDS", "0"))
SEED = int(os.environ.get("ANTIPHON_EXACTLY_ONCE_SEED", "1"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    (address,) = free_addresses(1)
    found = NodeProcess(address, tmp_path / "node").start().until_ready()
    yield found
    found.end(signal.SIGKILL)


def query_of(servers: list[str], directory: Path, place: str = "nowhere") -> Query:
    return Query(",".join(servers), "numbers", str(directory / "checkpoint"), str(directory / "weapon"), place)


def test_a_worker_dies_in_a_partition(spark: SparkSession, tmp_path: Path, node: NodeProcess) -> None:
    query = query_of([node.address], tmp_path, "worker")
    query.arm(1)
    assert query.run(spark, 1)
    assert not query.is_armed
    node.end()
    assert audit(rows_on_disk(node.data, "numbers"), query.last_commit() + 1) == CLEAN


def test_the_last_commit_is_removed(spark: SparkSession, tmp_path: Path, node: NodeProcess) -> None:
    query = query_of([node.address], tmp_path)
    assert query.run(spark, 1)
    done = query.forget_last_commit()
    assert query.run(spark, done + 1)
    node.end()
    assert audit(rows_on_disk(node.data, "numbers"), query.last_commit() + 1) == CLEAN


def test_the_node_dies_in_a_partition(spark: SparkSession, tmp_path: Path, node: NodeProcess) -> None:
    """There is no other, so the query fails; with the node it comes back."""
    query = query_of([node.address], tmp_path, "node")
    query.arm(node.pid)
    assert not query.run(spark, 1)
    assert not query.is_armed
    node.end(signal.SIGKILL)
    node.start().until_ready()
    assert query.run(spark, 1)
    node.end()
    assert audit(rows_on_disk(node.data, "numbers"), query.last_commit() + 1) == CLEAN


def test_the_driver_dies_between_the_last_task_and_the_commit(
    spark: SparkSession, tmp_path: Path, node: NodeProcess
) -> None:
    query = query_of([node.address], tmp_path, "driver")
    assert query.run_apart(5) == -signal.SIGKILL
    assert not query.is_armed
    died_at = query.last_commit() + 1
    assert query.run(spark, died_at + 1)
    node.end()
    assert audit(rows_on_disk(node.data, "numbers"), query.last_commit() + 1) == CLEAN
