"""``antiphon reproduce --ledger``: every published number, with what the reports of earlier runs say about it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon_lab.report.ledger import Entry, counts_of, ledger
from antiphon_lab.report.page import ends
from antiphon_lab.report.stored import Result, files_in, read
from antiphon_lab.reproduction.experiment import shown
from antiphon_lab.reproduction.verdicts import DIFFERS


def show_ledger(out: Path, json: bool) -> None:
    """Print the table; the exit code is 1 if a number differs."""
    entries = ledger(results_in(out))
    if json:
        output.print_json({"claims": msgspec.to_builtins(entries), "counts": counts_of(entries)})
    else:
        output.console.print(table_of(entries))
        counted = ", ".join(f"{count} {name}" for name, count in counts_of(entries).items())
        output.console.print(f"\n{len(entries)} lines: {counted}", markup=False)
    if any(entry.verdict == DIFFERS for entry in entries):
        raise typer.Exit(1)


def results_in(out: Path) -> list[Result]:
    """The reports in an output directory; none if nothing was run there yet."""
    return [result for file in files_in(out) for result in read(file)] if out.is_dir() else []


def table_of(entries: list[Entry]) -> Table:
    """One line per claim and row; a claim without a row has the reason instead."""
    table = Table(box=None, pad_edge=False)
    for heading in ("claim", "where"):
        table.add_column(heading)
    for heading in ("published", "measured", "interval"):
        table.add_column(heading, justify="right")
    for heading in ("verdict", "seconds"):
        table.add_column(heading)
    for entry in entries:
        table.add_row(
            entry.claim,
            f"{entry.document}, {entry.where}",
            f"{entry.published:g} {entry.unit}",
            "" if entry.measured is None else shown(entry.measured),
            ends(entry.interval),
            entry.verdict or entry.reason or "",
            "" if entry.seconds is None else f"{entry.seconds:.1f}",
        )
    return table
