"""Write a report: the page and the ledger, and beside them a folder with every table as CSV and Parquet."""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from antiphon.kernel.errors import UsageError
from antiphon_lab.report.page import ledger_page, page
from antiphon_lab.report.stored import Result, results_of
from antiphon_lab.report.tables import tables_of
from antiphon_lab.reproduction.experiment import Report


def write_reports(reports: Iterable[Report], path: Path) -> None:
    """A report on results that were just measured."""
    write_results(results_of(reports), path)


def write_results(results: Sequence[Result], path: Path) -> None:
    """A report on results wherever they come from."""
    folder = folder_of(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            for table in tables_of(result):
                table.write(folder)
        beside = ledger_of(path)
        path.write_text(page(results, folder.name, made_now(), beside.name), encoding="utf-8")
        beside.write_text(ledger_page(results, path.name), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write the report to {path}: {error.strerror or error}; choose another place"
        ) from error


def ledger_of(path: Path) -> Path:
    """Where the ledger of a report lies: ``report-ledger.html`` beside ``report.html``."""
    return path.with_name(f"{path.stem}-ledger.html")


def folder_of(path: Path) -> Path:
    """Where the tables of a report lie: ``report-tables`` beside ``report.html``."""
    return path.with_name(f"{path.stem}-tables")


def made_now() -> str:
    """When the page is made, and by which command."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    command = shlex.join(["antiphon", *sys.argv[1:]])
    return f"{now} by {command}"
