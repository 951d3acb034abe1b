"""What a campaign has found, on disk from the moment that it is found.

A campaign of hours must not lose anything to whatever ends it. So the process that runs a schedule which fails appends
it to the file of results at once, before the next schedule begins; the process that adds everything up appends the
totals now and then. Each record is one line of JSON and one write at the end of the file, so that several processes can
write at the same time, and what was written is whole. Nothing is ever changed or removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from antiphon.kernel.errors import PeerError

RESULTS = "torture-results.jsonl"
"""The file in the directory that ``--out`` names."""

SECONDS_BETWEEN_TOTALS = 5.0

FINISHED, INTERRUPTED, STOPPED = "finished", "interrupted", "stopped"
"""How a campaign ends: by itself, because somebody wants it to, or because it cannot go on."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules are run."""

    first_seed: int
    seeds: int
    fabric: str
    order: str | None = None
    fresh: bool = False
    """Whether the first seed was drawn, far from all that anybody has run."""
    product: str = ""
    """Which product runs them."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    """One line of the file."""

    at: str
    """The time of day."""
    plan: Plan


class Began(Record, frozen=True, kw_only=True, tag="began"):
    """A campaign begins, or goes on."""


class Failed(Record, frozen=True, kw_only=True, tag="failed"):
    """A schedule broke a promise."""

    seed: int
    fabric: str
    violations: dict[str, int]
    about: str


class Progress(Record, frozen=True, kw_only=True, tag="progress"):
    """So far."""

    seeds: int
    failed: int
    fabrics: dict[str, tuple[int, int]]
    """By fabric: schedules, and those of them that failed."""


class Ended(Record, frozen=True, kw_only=True, tag="ended"):
    """A campaign ends, with its result as ``--json`` prints it."""

    how: str
    result: dict[str, Any]


Line = Began | Failed | Progress | Ended


def now() -> str:
    """The time of day, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def append(path: Path, record: Line) -> None:
    """Write a record behind all others, in one piece."""
    line = msgspec.json.encode(record) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        raise PeerError(f"cannot write {path}: {error.strerror or error}; choose another place by --out") from error


def records_in(path: Path) -> Iterator[Line]:
    """All records of a file, oldest first; a line that was cut off by a crash of the machine is passed over."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Line)
        except msgspec.DecodeError:
            continue


class Journal:
    """Writes down one campaign as it goes."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.path = directory / RESULTS
        self.plan = plan
        self._next_totals = 0.0
        append(self.path, Began(at=now(), plan=plan))

    def is_due(self) -> bool:
        """Whether the totals were not written a moment ago."""
        return time.monotonic() >= self._next_totals

    def progress(self, seeds: int, failed: int, fabrics: dict[str, tuple[int, int]]) -> None:
        """Write the totals, unless that was done a moment ago."""
        if self.is_due():
            self._next_totals = time.monotonic() + SECONDS_BETWEEN_TOTALS
            append(self.path, Progress(at=now(), plan=self.plan, seeds=seeds, failed=failed, fabrics=fabrics))

    def failures(self) -> list[Failed]:
        """The schedules of this campaign that failed, one record for each, by seed."""
        found = {one.seed: one for one in records_in(self.path) if isinstance(one, Failed) and one.plan == self.plan}
        return [found[seed] for seed in sorted(found)]

    def end(self, how: str, result: dict[str, Any]) -> None:
        """The campaign is over."""
        append(self.path, Ended(at=now(), plan=self.plan, how=how, result=result))


def unfinished(path: Path, like: Plan) -> Plan | None:
    """The last fresh campaign of the same kind that was begun and did not come to its end."""
    found: Plan | None = None
    for record in records_in(path):
        plan = record.plan
        if plan.fresh and msgspec.structs.replace(plan, first_seed=like.first_seed) == like:
            if isinstance(record, Began):
                found = plan
            elif isinstance(record, Ended) and record.how == FINISHED and plan == found:
                found = None
    return found


def seeds_run(path: Path) -> list[range]:
    """The seeds of all campaigns in a file, whatever their fabric."""
    return [
        range(one.plan.first_seed, one.plan.first_seed + one.plan.seeds)
        for one in records_in(path)
        if isinstance(one, Began)
    ]
