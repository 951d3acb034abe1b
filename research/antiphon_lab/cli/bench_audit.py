"""``antiphon bench audit``: how the audit of a trace grows with the trace."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from antiphon.cli import output

if TYPE_CHECKING:
    from antiphon_lab.bench.audit_bench import AuditMeasurement

DELIVERIES = "3125000,6250000,12500000"
BAR = 40
"""Columns of the longest bar."""


def audit(
    deliveries: Annotated[
        str, typer.Option("--deliveries", metavar="N,...", help="Sizes of the traces, the smallest first.")
    ] = DELIVERIES,
    topics: Annotated[int, typer.Option("--topics", metavar="N", min=1, help="Over how many topics they go.")] = 1,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIRECTORY", help="Where traces are kept for the next time; default nowhere."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Judge clean traces of growing size on Spark: seconds, deliveries per second, processor time and peak memory.

    Each trace is of a simulated run of 64 nodes that all publish in causal order. It is judged by `antiphon audit` in
    processes of its own. 50 million deliveries: --deliveries 12500000,25000000,50000000
    """
    sizes = parse_sizes(deliveries)
    output.warn_if_not_compiled()
    if traces is not None:
        traces.mkdir(parents=True, exist_ok=True)
        measured = measure_all(sizes, topics, traces)
    else:
        with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
            measured = measure_all(sizes, topics, Path(place))
    if json:
        output.print_json({"measurements": measured})
    else:
        show(measured)


def parse_sizes(text: str) -> list[int]:
    """Numbers of deliveries from a list with commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"expected numbers such as {DELIVERIES}, not {text!r}", param_hint="--deliveries")
    return [int(word) for word in words]


def measure_all(sizes: list[int], topics: int, directory: Path) -> list[AuditMeasurement]:
    """Write and judge a trace of each size."""
    from antiphon_lab.bench.audit_bench import measure_audit, trace_of

    measured = []
    with output.progress("bench audit", 2 * len(sizes)) as steps:
        for size in sizes:
            trace = trace_of(size, topics, directory)
            steps.step(f"a trace of {size:,} deliveries")
            measured.append(measure_audit(trace, topics))
            steps.step(f"judged {size:,} deliveries")
    return measured


def show(measured: list[AuditMeasurement]) -> None:
    """The table for people, and the curve as bars."""
    table = Table(box=None, pad_edge=False)
    for heading in ("deliveries", "seconds", "times", "deliveries/s", "with start", "processor", "peak memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    longest = max(one.seconds for one in measured)
    before = None
    for one in measured:
        growth = "" if before is None else f"{one.seconds / before.seconds:.2f}"
        table.add_row(
            f"{one.deliveries:,}",
            f"{one.seconds:.1f}",
            growth,
            f"{one.deliveries_per_second:,.0f}",
            f"{one.elapsed_seconds:.1f} s",
            f"{one.processor_seconds:.0f} s",
            f"{one.peak_memory_bytes / 2**30:.2f} GiB",
            "#" * max(1, round(BAR * one.seconds / longest)),
        )
        before = one
    output.console.print(table)
