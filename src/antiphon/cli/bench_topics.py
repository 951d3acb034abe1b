"""``antiphon bench spark --topics``: how fast Spark reads and writes topics, beside Parquet files."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from antiphon.cli import output
from antiphon.cli.processes import Member, Plan, ProcessCluster
from antiphon.cli.up import relay_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.pipeline.topics_bench import Line


def measure(rows: int, rounds: int, nodes: int, cores: int) -> list[Line]:
    """Start nodes with logs on the disk, and Spark, and measure."""
    from antiphon.pipeline.session import SessionOptions, spark_session
    from antiphon.pipeline.topics_bench import measure_topics

    with (
        tempfile.TemporaryDirectory() as directory,
        cluster_of(nodes, Path(directory)) as servers,
        spark_session("bench topics", SessionOptions(cores=cores)) as session,
    ):
        return measure_topics(session, servers, rows, rounds, Path(directory))


@contextmanager
def cluster_of(nodes: int, directory: Path) -> Iterator[str]:
    """A cluster of processes that keeps everything on the disk, for a program that has no loop of its own."""
    settings = ("--log-level", "warning", "--durability", "disk", "--keep", ">")
    with asyncio.Runner() as runner:
        cluster = runner.run(started(Plan(nodes, data=directory, settings=settings)))
        try:
            yield ",".join(member.address for member in cluster.members)
        finally:
            runner.run(cluster.stop())


async def started(plan: Plan) -> ProcessCluster:
    """A cluster of processes that are ready."""

    def ended(member: Member) -> None:
        relay_text(member.index, f"ended with exit code {member.process.returncode}")

    cluster = ProcessCluster(plan, relay_text, ended)
    await cluster.start()
    return cluster


def show(lines: list[Line]) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("rows", "seconds", "rows/s", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        goal = "" if line.goal is None else f"{line.goal:,}"
        table.add_row(line.name, f"{line.rows:,}", f"{line.seconds:.2f}", f"{line.rows_per_second:,.0f}", goal)
    output.console.print(table)
