"""``antiphon audit``: judges the traces of a run, live or simulated."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError
from antiphon.trace.quantities import quantity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from antiphon.audit.auditor import Judge
    from antiphon.audit.report import Audit

COUNTS = ("messages", "deliveries")
"""The printed counts of an audit; each count and each violation of a check is a defined quantity."""


def audit(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Trace files, or directories of them.", show_default=False),
    ],
    spark: Annotated[bool, typer.Option("--spark", help="Judge on Spark; large traces always are.")] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Judge on a Spark cluster, such as spark://host:7077.")
    ] = None,
    opens: Annotated[
        bool, typer.Option("--open", help="Show the run in the console, at its first violation, until Ctrl-C.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Judge a run: is anything lost, duplicated, invented or out of order?

    Give the traces of all live nodes of a run together, the one trace file of a simulated run, or the directory that a
    live campaign has kept. The judge knows no protocol: it keeps its own clocks. Spark judges large traces. A broken
    promise is exit code 1.

    Examples: antiphon up -n 4 --trace traces    antiphon audit traces    antiphon audit traces --open
    """
    from antiphon.audit.auditor import files_in
    from antiphon.audit.report import VIOLATED
    from antiphon.torture.live.audit import audit_campaign, is_campaign

    if opens and is_campaign(traces):
        raise UsageError("a live campaign keeps journals and no traces to show; give the traces of a run to --open")
    with judging(spark or master is not None, master) as judge:
        found = audit_campaign(traces[0], judge) if is_campaign(traces) else judge(files_in(traces))
    if json:
        output.print_json(found)
    else:
        show(found)
    if opens:
        open_at(traces, next((name for name, check in found.checks.items() if check.violations), None), json)
    if found.verdict == VIOLATED:
        raise typer.Exit(1)


def open_at(traces: list[Path], violated: str | None, as_json: bool) -> None:
    """Show a run in the console, at the first violation of a promise if one is broken."""
    import antiphon
    from antiphon.cli.console.recorded import ANY_PORT, show_run

    fragment = "" if violated is None else f"#/run?violation={violated}"
    antiphon.run(show_run(traces, ANY_PORT, fragment, True, as_json))


def judging(on_spark: bool, master: str | None = None) -> AbstractContextManager[Judge]:
    """A judge of one or more runs: in this process, or on Spark if that is requested or the trace is large."""
    from antiphon.audit import auditor
    from antiphon.simulator.scenario.audited import SCENARIOS

    return auditor.judging(partial(start_spark, master), on_spark, SCENARIOS)


def start_spark(master: str | None) -> AbstractContextManager[SparkSession]:
    """Start Spark, here or on a cluster."""
    from antiphon.pipeline.session import SessionOptions, spark_session

    return spark_session("antiphon audit", SessionOptions(master=master, memory="2g"))


def show(found: Audit) -> None:
    """Print a judgement for people."""
    from antiphon.audit.report import VIOLATED

    by_spark = " by Spark" if found.judge == "spark" else ""
    counts = ", ".join(f"{getattr(found, name):,} {quantity(name).unit}" for name in COUNTS)
    output.console.print(f"{counts}, judged{by_spark} in {found.seconds:.1f} seconds")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, check in found.checks.items():
        if not check.applies:
            table.add_row(name, "[dim]not promised[/]" if name != "validity" else "[dim]cannot be told[/]")
        elif check.violations:
            table.add_row(name, f"[bold red]{check.violations:,} violations[/], such as {escape(check.example or '')}")
        else:
            table.add_row(name, "kept")
    output.console.print(table)
    for name, check in found.checks.items():
        if check.violations:
            output.console.print(f"{name}: {quantity(f'violations-of-{name}').definition}")
            for line in check.story:
                output.console.print(f"  {escape(line)}")
    if found.losses:
        output.console.print(f"Nodes reported {found.losses:,} losses.")
    for sentence in found.unjudged:
        output.console.print(escape(sentence))
    if found.missing_nodes:
        nodes = ", ".join(map(str, found.missing_nodes))
        output.console.print(
            f"The traces of the publishers {nodes} are missing; their publications were judged in part."
        )
    output.console.print("[bold red]violated[/]" if found.verdict == VIOLATED else "[bold green]nothing violated[/]")
