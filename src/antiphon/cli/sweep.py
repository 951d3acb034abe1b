"""``antiphon sweep``: runs a grid of simulations on Spark, and resumes an interrupted one."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.jobs import Cores, Master, run_with_progress

if TYPE_CHECKING:
    from antiphon.pipeline.sweep import Sweep
    from antiphon.pipeline.sweep_cells import CellRecord, Scalar

MOST_LINES = 40
"""The most rows of the table for people; the table of results has all of them."""


class SweepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep, for programs."""

    experiment: str
    out: str
    cells: int
    ran: int
    kept: int
    """Cells that were finished before."""
    failed: dict[str, str]
    """Why cells failed, by their directory."""
    seconds: float
    records: list[dict[str, object]]


def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="The grid file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where traces and results go.")] = Path("sweeps"),
    master: Master = None,
    cores: Cores = None,
    list_cells: Annotated[
        bool, typer.Option("--list", help="Show the cells and which are finished; run none.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON and nothing else.")] = False,
) -> None:
    """Run every combination of a grid of parameters, each a deterministic simulation, as tasks of Apache Spark.

    An interrupted sweep resumes where it stopped; a finished cell is not run again, unless its scenario changed. Traces
    are in DIR/traces, one Parquet file per cell, in directories that spell the parameters: Spark reads them as one
    table. DIR/results has a row per cell. docs/sweeps.md describes the format of grids. Exit code 1 if a cell failed or
    broke a promise.

    Example: [bold]antiphon sweep examples/sweeps/order-and-size.toml --out out/sweeps[/]
    """
    from antiphon.pipeline import grid as grids
    from antiphon.pipeline import sweep as sweeps
    from antiphon.pipeline.session import SessionOptions

    wanted = grids.load_grid(grid)
    found = sweeps.inspect(wanted, out)
    if list_cells:
        show_cells(found, json)
        return
    output.warn_if_not_compiled()
    begun = time.perf_counter()
    kept = len(found.records)
    options = SessionOptions(master=master, cores=cores, brief=True)
    with sweeps.held(wanted, out):
        run_with_progress(found, wanted.experiment, partial(sweeps.run_sweep, found, options), lambda _: None)
    outcome = outcome_of(found, kept, time.perf_counter() - begun)
    if json:
        output.print_json(outcome)
    else:
        show(found, outcome)
    broken = any(
        record.result.violations and any(record.result.violations.values()) for record in found.records.values()
    )
    if outcome.failed or broken:
        raise typer.Exit(1)


def outcome_of(found: Sweep, kept: int, seconds: float) -> SweepOutcome:
    """The result of a sweep."""
    cells = found.grid.cells
    return SweepOutcome(
        experiment=found.grid.experiment,
        out=str(found.out),
        cells=len(cells),
        ran=len(found.records) - kept,
        kept=kept,
        failed={cells[number].directory: reason for number, reason in sorted(found.failures.items())},
        seconds=seconds,
        records=[msgspec.to_builtins(found.records[cell.number]) for cell in cells if cell.number in found.records],
    )


def show_cells(found: Sweep, json: bool) -> None:
    """Print the cells of a grid, and which are finished."""
    cells = found.grid.cells
    if json:
        output.print_json(
            [
                {"parameters": cell.parameters, "work": cell.work, "finished": cell.number in found.records}
                for cell in cells
            ]
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in found.grid.columns:
        table.add_column(escape(column))
    table.add_column("work (copies, about)", justify="right")
    table.add_column("")
    for cell in cells:
        state = "finished" if cell.number in found.records else "to do"
        table.add_row(*shown(cell.parameters), f"{cell.work:,}", state)
    output.console.print(table)
    output.console.print(f"{len(cells):,} cells, {len(found.records):,} finished, {len(found.left()):,} to do")


def shown(parameters: dict[str, Scalar]) -> list[str]:
    """Parameters as cells of a table."""
    return [escape(str(value)) for value in parameters.values()]


def show(found: Sweep, outcome: SweepOutcome) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    for column in found.grid.columns:
        table.add_column(escape(column))
    for heading in ("deliveries", "latency", "waited", "events", "seconds", "trace rows"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("judgement")
    finished = [found.records[cell.number] for cell in found.grid.cells if cell.number in found.records]
    for record in finished[:MOST_LINES]:
        table.add_row(*shown(record.parameters), *measures(record))
    output.console.print(table)
    if len(finished) > MOST_LINES:
        output.console.print(f"... and {len(finished) - MOST_LINES:,} more")
    for directory, reason in outcome.failed.items():
        output.complain(f"{directory} failed: {reason}")
    rows = sum(record.result.trace_rows or 0 for record in finished)
    size = sum(record.trace_bytes for record in finished)
    output.console.print(
        f"{outcome.ran:,} cells run, {outcome.kept:,} finished before, {len(outcome.failed):,} failed; "
        f"{rows:,} trace rows in {size / 2**20:,.1f} MiB; {outcome.seconds:.1f} s"
    )
    output.console.print(f"read them with: spark.read.parquet({str(found.out / 'traces')!r})", markup=False)


def measures(record: CellRecord) -> list[str]:
    """The most important values of a cell, for people."""
    result = record.result
    if result.violations is None:
        judgement = "not judged"
    else:
        broken = [f"{count:,} x {promise}" for promise, count in result.violations.items() if count]
        judgement = ", ".join(broken) or "kept every promise"
    return [
        f"{result.deliveries:,}",
        "" if result.latency_mean is None else f"{result.latency_mean:,.1f}",
        f"{result.held_total:,}",
        f"{result.events:,}",
        f"{result.seconds:.2f}",
        "" if result.trace_rows is None else f"{result.trace_rows:,}",
        escape(judgement),
    ]
