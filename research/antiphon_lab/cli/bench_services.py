"""``antiphon bench services``: a replicated service beside the same work on PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError
from antiphon_lab.bench.services.bank import JOBS
from antiphon_lab.bench.services.measure import SYSTEMS, ServiceFigures, measure
from antiphon_lab.reproduction.machine import Machine


class ServicesReport(msgspec.Struct, frozen=True):
    """The result as JSON."""

    machine: Machine
    lines: list[ServiceFigures]


def services(
    systems: Annotated[str, typer.Option("--systems", metavar="NAME,...", help="What is measured.")] = ",".join(
        SYSTEMS
    ),
    jobs: Annotated[
        str,
        typer.Option("--jobs", metavar="NAME,...", help="deposit (causal), withdraw (total), balance (a local query)."),
    ] = ",".join(JOBS),
    keys: Annotated[str, typer.Option("--keys", metavar="N,...", help="How many accounts there are.")] = "1,1000",
    calls: Annotated[int, typer.Option("--calls", metavar="N", min=10, help="Calls of each job.")] = 10_000,
    in_flight: Annotated[int, typer.Option("--in-flight", metavar="N", min=1, help="Calls at a time.")] = 64,
    fabric: Annotated[str, typer.Option("--fabric", metavar="F", help="Of the nodes: cube or tree.")] = "cube",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure a bank: three replicas with durable nodes, one PostgreSQL, and three with synchronous replication.

    Everything runs on this machine, callers included, and callers are Python programs. Nodes and databases sync to the
    disk before an operation counts.
    """
    wanted = jobs.split(",")
    if any(job not in JOBS for job in wanted):
        raise UsageError(f"{jobs!r} are no jobs; choose among {', '.join(JOBS)}")
    try:
        counts = [int(count) for count in keys.split(",")]
    except ValueError:
        raise UsageError(f"{keys!r} are no numbers of accounts; write numbers, such as 1,1000") from None
    output.warn_if_not_compiled()
    lines: list[ServiceFigures] = []
    names = systems.split(",")
    with output.progress("bench services", len(names) * len(wanted) * len(counts)) as steps:
        for line in measure(names, wanted, counts, calls, in_flight, fabric):
            lines.append(line)
            steps.step(f"{line.system}, {line.job}, {line.keys} accounts")
    if json:
        output.print_json(ServicesReport(Machine.here(), lines))
    else:
        show(lines)


def show(lines: list[ServiceFigures]) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    for heading in ("system", "job"):
        table.add_column(heading, no_wrap=True)
    for heading in ("accounts", "calls/s", "median ms", "p99 ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        found = line.figures
        table.add_row(
            line.system,
            line.job,
            f"{line.keys:,}",
            f"{found.calls_per_second:,.0f}",
            f"{found.p50_ms:.1f}",
            f"{found.p99_ms:.1f}",
        )
    output.console.print(table)
