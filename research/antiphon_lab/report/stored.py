"""Results in the form of ``antiphon reproduce --json``: the one form from which reports are made.

A report of fresh results takes the same path as one of results from files, so a file always has enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.pipeline.atomic_output import LOCK
from antiphon_lab.reproduction.experiment import Report
from antiphon_lab.reproduction.figures import Figure
from antiphon_lab.reproduction.job import REPORTS
from antiphon_lab.reproduction.machine import Machine
from antiphon_lab.reproduction.measurements import MEASUREMENTS
from antiphon_lab.reproduction.registry import EXPERIMENTS
from antiphon_lab.reproduction.verdicts import VERDICTS

SPREADS = "Standard deviations between repetitions"
"""How the last note of a result begins; tables show the same beside the means."""


class StoredRow(msgspec.Struct, frozen=True):
    """One line of a table."""

    label: str
    unit: str
    measured: float
    published: float | None = None
    spread: float | None = None
    confidence: float | None = None
    repetitions: int = 1
    deviation: float | None = None
    interval: tuple[float | None, float | None] | None = None
    because: str | None = None
    verdict: str | None = None
    reason: str | None = None
    where: str | None = None
    says: str | None = None
    key: str | None = None


class Result(msgspec.Struct, frozen=True):
    """One experiment."""

    name: str
    document: str
    parameters: dict[str, Any]
    seconds: float
    rows: list[StoredRow]
    notes: list[str]
    description: str = ""
    meaning: str = ""
    command: str = ""
    antiphon: str = ""
    machine: Machine | None = None
    figures: list[Figure] = []

    @property
    def slug(self) -> str:
        """The name in a form for file names and addresses."""
        return self.name.replace("/", "_")

    def count(self, verdict: str) -> int:
        """How many rows have this verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        return {verdict: self.count(verdict) for verdict in VERDICTS}

    def reasons(self) -> list[str]:
        """The reasons of verdicts beside their intervals; each reason once."""
        return list(dict.fromkeys(row.reason for row in self.rows if row.reason is not None))

    def remarks(self) -> list[str]:
        """The notes that belong to the result as a whole."""
        of_rows = {f"{row.label}: {row.reason}" for row in self.rows if row.reason is not None}
        return [note for note in self.notes if note not in of_rows and not note.startswith(SPREADS)]


class ResultFile(msgspec.Struct, frozen=True):
    """Either the output of ``antiphon reproduce --json``, with all experiments, or the file of a single one."""

    experiments: list[Result] | None = None


def results_of(reports: Iterable[Report]) -> list[Result]:
    """Results that were just measured."""
    written = msgspec.json.encode({"experiments": [report.as_json() for report in reports]}, enc_hook=str)
    return msgspec.json.decode(written, type=ResultFile).experiments or []


def load(places: Sequence[Path]) -> list[Result]:
    """Results from files and directories; for an experiment that occurs twice the last one.

    They are in the order of the registry, independent of the order of the files.
    """
    files: list[Path] = []
    for place in places:
        if not place.exists():
            raise UsageError(
                f"there is no file or directory {place}; write one with: antiphon reproduce --json > {place}"
            )
        if place.is_dir():
            check_finished(place)
        files += files_in(place) if place.is_dir() else [place]
    if not files:
        raise UsageError("there are no results to report on; name a file that antiphon reproduce --json has printed")
    found: dict[str, Result] = {}
    for file in files:
        for result in read(file):
            found.pop(result.name, None)
            found[result.name] = result
    order = {experiment.name: number for number, experiment in enumerate(EXPERIMENTS)}
    return sorted(found.values(), key=lambda result: order.get(result.name, len(order)))


def check_finished(directory: Path) -> None:
    """Say so if a directory is that of an ``antiphon reproduce`` which has finished no experiment yet."""
    measurements = directory / MEASUREMENTS
    # The lock is there before the first measurement is.
    is_output = (directory / LOCK).exists() or measurements.is_dir()
    if not is_output or any((directory / REPORTS).rglob("[!.]*.json")):
        return
    count = sum(1 for _ in measurements.rglob("[!.]*.json"))
    raise UsageError(
        f"no experiment in {directory} is finished yet, so there is nothing to report on ({count:,} measurements are "
        "there); run the same antiphon reproduce again, which does the rest"
    )


def files_in(directory: Path) -> list[Path]:
    """The files with results in a directory, which may be the output directory of ``antiphon reproduce``."""
    reports = directory / REPORTS
    return sorted((reports if reports.is_dir() else directory).rglob("[!.]*.json"))


def read(file: Path) -> list[Result]:
    """The results of one file."""
    try:
        content = file.read_bytes()
        several = msgspec.json.decode(content, type=ResultFile).experiments
        return [msgspec.json.decode(content, type=Result)] if several is None else several
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; name a file with results") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} is not an output of antiphon reproduce --json ({error}); write it again with that command"
        ) from error
