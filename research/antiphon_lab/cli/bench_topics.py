"""``antiphon bench spark --topics``: how fast Spark reads and writes topics, beside Parquet files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from antiphon.cli import output
from antiphon.node.local_cluster import Plan, running_cluster

if TYPE_CHECKING:
    from antiphon_lab.bench.topics_bench import TopicsLine


def measure(rows: int, rounds: int, nodes: int, cores: int) -> list[TopicsLine]:
    """Start nodes with logs on the disk, and Spark, and measure."""
    from antiphon.pipeline.session import SessionOptions, spark_session
    from antiphon_lab.bench.topics_bench import measure_topics

    settings = ("--log-level", "warning", "--durability", "disk", "--keep", ">")
    with (
        tempfile.TemporaryDirectory() as directory,
        running_cluster(Plan(nodes, data=Path(directory), settings=settings)) as servers,
        spark_session("bench topics", SessionOptions(cores=cores)) as session,
    ):
        return measure_topics(session, servers, rows, rounds, Path(directory))


def show(lines: list[TopicsLine]) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("rows", "seconds", "rows/s", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        goal = "" if line.goal is None else f"{line.goal:,}"
        table.add_row(line.name, f"{line.rows:,}", f"{line.seconds:.2f}", f"{line.rows_per_second:,.0f}", goal)
    output.console.print(table)
