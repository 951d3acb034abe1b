"""Exactly once: whoever is killed, and whatever Spark does again, every row is in the log once.

A longer run, over a tree of three brokers, with faults drawn by chance:

    ANTIPHON_EXACTLY_ONCE_ROUNDS=20 ANTIPHON_EXACTLY_ONCE_SEED=1 pytest tests/spark/test_exactly_once.py -k chance -s
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.node.local_cluster import free_addresses
from tests.spark.faults import CLEAN, NodeProcess, Query, audit, rows_on_disk

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("ANTIPHON_EXACTLY_ONCE_ROUNDS", "0"))
SEED = int(os.environ.get("ANTIPHON_EXACTLY_ONCE_SEED", "1"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    (address,) = free_addresses(1)
    found = NodeProcess(address, tmp_path / "node").start().until_ready()
    yield found
    found.end(signal.SIGKILL)


def query_of(servers: list[str], directory: Path, place: str = "nowhere", order: str = "causal") -> Query:
    checkpoint, weapon = directory / "checkpoint", directory / "weapon"
    return Query(",".join(servers), "numbers", str(checkpoint), str(weapon), place, order)


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


def test_another_broker_takes_over(spark: SparkSession, tmp_path: Path) -> None:
    """One of three dies in the middle of a partition; the attempt after it goes to another, and the query goes on."""
    with tree_of_brokers(tmp_path) as brokers:
        query = query_of([broker.address for broker in reversed(brokers)], tmp_path, "node")
        query.arm(brokers[2].pid)
        assert query.run(spark, 1)
        assert not query.is_armed
    assert_exactly_once(brokers, 1, query.last_commit() + 1)


@pytest.mark.skipif(ROUNDS == 0, reason="a long run: set ANTIPHON_EXACTLY_ONCE_ROUNDS")
def test_faults_by_chance(spark: SparkSession, tmp_path: Path) -> None:
    """Rounds of whatever can happen, one after the other, on one checkpoint and one topic; the first broker stays."""
    draw, order = random.Random(SEED), ("fifo", "causal", "total")[SEED % 3]
    with tree_of_brokers(tmp_path) as brokers:
        servers = [broker.address for broker in brokers]
        for number in range(ROUNDS):
            place = draw.choice(["worker", "node", "driver", "somewhere", "commit"])
            query = query_of(draw.sample(servers, len(servers)), tmp_path, place, order)
            target = query.last_commit() + 2
            if place == "driver":
                query.run_apart(target)
            elif place == "somewhere":
                query.run_apart(target + 50, draw.uniform(6.0, 20.0))
            elif place == "commit":
                query.forget_last_commit()
                query.run(spark, target)
            else:
                victim = draw.choice(brokers[1:])
                query.arm(victim.pid)
                query.run(spark, target)
                if place == "node" and not query.is_armed:
                    victim.end(signal.SIGKILL)
                    victim.start().until_ready()
            Path(query.weapon).unlink(missing_ok=True)
            print(f"round {number}: {place}, then batch {query.last_commit()}")
        query = query_of(servers, tmp_path, order=order)
        assert query.run(spark, query.last_commit() + 1)
    assert_exactly_once(brokers, 1, query.last_commit() + 1)


@contextmanager
def tree_of_brokers(directory: Path) -> Iterator[list[NodeProcess]]:
    """Three brokers in processes of their own; they have left at the end."""
    addresses = free_addresses(3)
    (directory / "tree.toml").write_text(f"[tree]\nbrokers = {addresses}\n", encoding="utf-8")
    flags = ("--fabric", "tree", "--tree", str(directory / "tree.toml"))
    brokers = [NodeProcess(address, directory / f"broker-{place}", *flags) for place, address in enumerate(addresses)]
    try:
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.until_ready()
        yield brokers
        for broker in brokers:
            broker.end()
    finally:
        for broker in brokers:
            broker.end(signal.SIGKILL)


def assert_exactly_once(brokers: list[NodeProcess], always_there: int, batches: int) -> None:
    """Nothing is twice in any log, and all is in the logs of those who were there all the time."""
    for place, broker in enumerate(brokers):
        found = audit(rows_on_disk(broker.data, "numbers", "tree"), batches)
        print(f"broker {place}: {found}")
        assert (found.doubled, found.strange) == (0, 0), f"broker {place}: {found}"
        assert place >= always_there or found.lost == 0, f"broker {place}: {found}"
