"""``antiphon bench spark --topics``: every line has read or written what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.cli import output
from antiphon_lab.bench.topics_bench import GOALS, TopicsLine, line_of, measure_topics
from antiphon_lab.cli import bench_topics
from tests.spark.nodes import Nodes

pytestmark = pytest.mark.slow


def test_topics_beside_parquet(spark: SparkSession, nodes: Nodes, tmp_path: Path) -> None:
    (node,) = nodes.cluster(1, tmp_path, [">"])
    lines = measure_topics(spark, node.address, 3000, 1, tmp_path)
    assert [(line.name, line.rows, len(line.rounds_seconds)) for line in lines] == [
        ("topic, read", 3000, 1),
        ("Parquet, read", 3000, 1),
        ("topic, written", 3000, 1),
        ("Parquet, written", 3000, 1),
    ]
    assert node._live.store is not None
    assert node._live.store.latest("bench.source") == 3000
    assert node._live.store.latest("bench.sink") == 2 * 3000, "once to warm up, and once measured"


def test_the_fastest_round_counts() -> None:
    assert line_of("topic, read", 100, [2.0, 0.5, 4.0]) == TopicsLine(
        name="topic, read", rows=100, seconds=0.5, rows_per_second=200.0, rounds_seconds=[2.0, 0.5, 4.0], goal=500_000
    )


def test_the_table_says_what_was_aimed_at() -> None:
    with output.console.capture() as captured:
        bench_topics.show([line_of(name, 1_000_000, [2.0]) for name in (*GOALS, "Parquet, read")])
    rows = [line.split() for line in captured.get().splitlines()]
    assert rows[1] == ["topic,", "read", "1,000,000", "2.00", "500,000", "500,000"]
    assert rows[3] == ["Parquet,", "read", "1,000,000", "2.00", "500,000"]
