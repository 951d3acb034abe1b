"""The record: one page for the documentation with every published number and what one run says about it.

``python -m antiphon_lab.report.record DIR > docs/record.md`` makes it from the output directory of
``antiphon reproduce --all``. It is Markdown, has no figures and does not repeat the sentences of the documents: they
are in ``published/``, and ``antiphon reproduce --ledger`` shows them beside the same values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon_lab.report.ledger import Entry, counts_of, ledger
from antiphon_lab.report.page import ends
from antiphon_lab.report.stored import Result, load
from antiphon_lab.reproduction.experiment import shown
from antiphon_lab.reproduction.job import REPORTS
from antiphon_lab.reproduction.measurements import Measured
from antiphon_lab.reproduction.registry import EXPERIMENTS
from antiphon_lab.reproduction.verdicts import DIFFERS, VERDICTS

HEAD = """\
# The published record

This page is generated from the output directory of `antiphon reproduce --all`, by
`python -m antiphon_lab.report.record reproduced`.
[Reproducing the published experiments](reproducing.md) defines the verdicts and explains the rows that differ.
"""

EXPERIMENT_COLUMNS = ("experiment", "place", "measurements", "processor s", *VERDICTS)
NUMBER_COLUMNS = ("number", "place", "row", "published", "measured", "interval", "verdict", "experiment")


def record_page(results: Sequence[Result], measured: dict[str, list[Measured]]) -> str:
    """The page; ``measured`` has the measurements of each experiment."""
    entries = ledger(results)
    every = {(one.measure, one.parameters, one.seed): one for found in measured.values() for one in found}
    spent = sum(one.processor_seconds for one in every.values())
    lines = [
        HEAD,
        f"The run made {len(every):,} measurements for {len(results)} experiments. Together they took {spent:,.0f} s "
        "of processor time. A measurement that several experiments use is counted once here, and once in each of their "
        "rows below.",
        "",
        *absent(results),
        *(f"- {place}" for place in machines(results)),
        "",
        "## Verdicts",
        "",
        *table(("verdict", "rows"), ([name, str(count)] for name, count in counts_of(entries).items())),
        "",
        "A number can have several rows, such as one per size or per reading. Numbers without a row have the reason in "
        "its place.",
        "",
        "## Rows that differ",
        "",
        *(differing(entries) or ["None."]),
        "",
        "## Experiments",
        "",
        "Experiments without verdicts measure what the documents do not.",
        "",
        *table(EXPERIMENT_COLUMNS, (experiment_cells(result, measured[result.name]) for result in results)),
        "",
        "## Every number",
        "",
        *table(NUMBER_COLUMNS, (number_cells(entry) for entry in entries)),
    ]
    return "\n".join(lines) + "\n"


def absent(results: Sequence[Result]) -> Iterator[str]:
    """The experiments that the directory has no report of, if there are any."""
    found = {result.name for result in results}
    names = [f"`{experiment.name}`" for experiment in EXPERIMENTS if experiment.name not in found]
    if names:
        yield f"**Not finished** in this directory, and so without rows: {', '.join(names)}."
        yield ""


def machines(results: Sequence[Result]) -> list[str]:
    """The versions and machines of the run, with the day."""
    found = {
        f"Antiphon {result.antiphon}, Python {machine.python}, {machine.system.split('-')[0]}, {machine.cores} cores, "
        f"{machine.date[:10]}"
        for result in results
        if (machine := result.machine) is not None
    }
    return sorted(found)


def differing(entries: Sequence[Entry]) -> list[str]:
    """The rows that nobody understands yet."""
    return [
        f"- `{entry.experiment}`: {entry.label}: published {entry.published:g}, "
        f"measured {shown(entry.measured or 0.0)} {entry.unit}"
        for entry in entries
        if entry.verdict == DIFFERS
    ]


def experiment_cells(result: Result, measured: Sequence[Measured]) -> list[str]:
    """The time of one experiment, and its rows by verdict."""
    counts = [str(count) if count else "" for count in result.counts().values()]
    spent = sum(one.processor_seconds for one in measured)
    return [f"`{result.name}`", result.document, str(len(measured)), f"{spent:.1f}", *counts]


def number_cells(entry: Entry) -> list[str]:
    """One line about one number."""
    about = [f"`{entry.key}`", f"{entry.document}, {entry.where}"]
    published = f"{entry.published:g} {entry.unit}"
    if entry.label is None or entry.measured is None:
        return [*about, entry.reason or "", published, "", "", "", ""]
    values = [published, shown(entry.measured), ends(entry.interval), entry.verdict or "", f"`{entry.experiment}`"]
    return [*about, entry.label, *values]


def table(columns: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join([' --- '] * len(columns))}|"
    for cells in rows:
        yield f"| {' | '.join(escaped(cell) for cell in cells)} |"


def escaped(cell: str) -> str:
    """Text that does not end its cell, and is no mark-up unless it is code."""
    plain = cell.replace("|", "\\|").replace("\n", " ")
    return plain if plain.startswith("`") else plain.replace("*", "\\*").replace("<", "&lt;")


def measurements_in(out: Path) -> dict[str, list[Measured]]:
    """The measurements of each experiment that has a report."""
    found: dict[str, list[Measured]] = {}
    for file in sorted((out / REPORTS).rglob("[!.]*.json")):
        report: dict[str, Any] = msgspec.json.decode(file.read_bytes())
        found[report["name"]] = [
            msgspec.json.decode((out / name).read_bytes(), type=Measured) for name in report["measurements"]
        ]
    return found


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    sys.stdout.write(record_page(load([directory]), measurements_in(directory)))
