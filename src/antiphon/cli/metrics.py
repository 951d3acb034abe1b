"""``antiphon metrics``: measures a trace, live or simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from antiphon.pipeline.measures import Metric

ROWS_SHOWN = 20
"""Longer tables are cut for people; JSON has all rows."""


class Measured(msgspec.Struct):
    """One metric of a trace."""

    name: str
    unit: str
    definition: str
    rows: list[dict[str, Any]]


def metrics(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACE...", help="Trace files, or directories of them.", show_default=False),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="Only this metric; may be given several times.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the metrics and what they mean.")] = False,
    master: Annotated[str | None, typer.Option("--master", help="Measure on a Spark cluster.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Measure a run: latencies, messages and bytes by kind, queues, duplicates, order, load by node and topic.

    Times are in ticks in simulated runs, and in milliseconds or seconds in those of live nodes.

    Examples: antiphon simulate examples/scenarios/topics.toml --trace t.parquet --level everything
        antiphon metrics t.parquet --metric delivery-latency
    """
    from antiphon.audit.auditor import files_in
    from antiphon.pipeline.metrics import METRICS, metric_named

    if list_:
        show_list(json)
        return
    chosen = [metric_named(name) for name in metric or METRICS]
    files = files_in(traces or [])
    if not files:
        raise UsageError("there is no trace to measure; name one, for example: antiphon metrics trace.parquet")
    from antiphon.audit.spark.traces import describe
    from antiphon.pipeline.session import SessionOptions, spark_session

    abouts = [describe(file)[0] for file in files]
    levels = {about.get("level", "deliveries") for about in abouts}
    chosen = measurable(chosen, levels == {"everything"}, metric is not None)
    with spark_session("antiphon metrics", SessionOptions(master=master, memory="2g")) as session:
        found = measure(session, files, chosen)
    if all(about.get("unit") == "microseconds" for about in abouts):
        names = {int(number): name for about in abouts for number, name in about.get("topics", {}).items()}
        found = [for_live(each, names) for each in found]
    if json:
        output.print_json({"metrics": found})
    else:
        show(found)


def measurable(chosen: list[Metric], has_copies: bool, named: bool) -> list[Metric]:
    """The metrics that a trace supports; one that was requested by name must be among them."""
    possible = [each for each in chosen if has_copies or each.level == "deliveries"]
    if named and len(possible) < len(chosen):
        left = next(each for each in chosen if each not in possible)
        raise UsageError(f"{left.name} needs a trace of level everything; write it with --level everything")
    return possible


def measure(session: SparkSession, files: list[Path], chosen: list[Metric]) -> list[Measured]:
    """Measure with a running Spark."""
    from antiphon.audit.spark.traces import open_trace

    frame = open_trace(session, files).frame
    found = []
    with output.progress("measuring", len(chosen)) as steps:
        for each in chosen:
            rows = [row.asDict() for row in each.measure(frame).collect()]
            found.append(Measured(each.name, each.unit, each.definition, rows))
            steps.step(each.name)
    return found


def for_live(measured: Measured, names: dict[int, str]) -> Measured:
    """A metric of live nodes: times in milliseconds or seconds instead of ticks, and topics by name."""
    unit, rows = measured.unit, measured.rows
    if unit == "ticks":
        unit = "milliseconds"
        rows = [{name: in_milliseconds(name, value) for name, value in row.items()} for row in rows]
    elif measured.name == "throughput" and rows:
        first = rows[0]["from"]
        rows = [
            {
                "from_seconds": (row.pop("from") - first) / 1_000_000,
                "seconds": row.pop("ticks") / 1_000_000,
                **row,
            }
            for row in map(dict, rows)
        ]
    rows = [{**row, "topic": names.get(row["topic"], str(row["topic"]))} if "topic" in row else row for row in rows]
    return Measured(measured.name, unit, measured.definition, rows)


def in_milliseconds(name: str, value: Any) -> Any:
    """A value of a row about times; names and counts are left as they are."""
    from antiphon.pipeline.measures import PERCENTILES

    is_time = name in ("mean", "minimum", "maximum", "from", "to", *PERCENTILES)
    return value / 1000 if is_time and value is not None else value


def show_list(json: bool) -> None:
    """Print the metrics and their definitions."""
    from antiphon.pipeline.metrics import METRICS

    if json:
        output.print_json(
            {"metrics": [Measured(each.name, each.unit, each.definition, []) for each in METRICS.values()]}
        )
        return
    for each in METRICS.values():
        output.console.print(f"[bold]{each.name}[/] ({each.unit})")
        output.console.print(f"  {each.definition}")


def show(found: list[Measured]) -> None:
    """Print metrics for people."""
    for each in found:
        output.console.print(f"[bold]{each.name}[/] ({each.unit})")
        if not each.rows:
            output.console.print("  nothing of the kind happened")
            continue
        table = Table(box=None, pad_edge=False)
        for name in each.rows[0]:
            table.add_column(name, justify="right")
        for row in each.rows[:ROWS_SHOWN]:
            table.add_row(*(as_text(value) for value in row.values()))
        output.console.print(table)
        if len(each.rows) > ROWS_SHOWN:
            output.console.print(f"  and {len(each.rows) - ROWS_SHOWN} more; --json prints all")


def as_text(value: object) -> str:
    """A value for a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
