"""The results file of a campaign: every finding is on disk as soon as it is found.

A campaign of hours must not lose findings when it ends early. The process that runs a failing schedule appends it to
the file before it starts the next one; the process that adds up results appends totals now and then. Each record is one
line of JSON and one write at the end of the file, so several processes can write at the same time without mixing lines.
No record is ever changed or removed.
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
"""How a campaign ends: after its last seed, on request, or because it cannot continue."""


class SeedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The seeds of a campaign, and the schedules they stand for."""

    first_seed: int
    seeds: int
    fabric: str
    order: str | None = None
    fresh: bool = False
    """Whether the first seed was drawn from a range that no earlier campaign has used."""
    product: str = ""
    """The version of the product that runs the schedules."""


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    """One line of the results file."""

    at: str
    """The time of day."""
    plan: SeedPlan


class Began(ResultRecord, frozen=True, kw_only=True, tag="began"):
    """A campaign starts or resumes."""


class Failed(ResultRecord, frozen=True, kw_only=True, tag="failed"):
    """A schedule broke a promise."""

    seed: int
    fabric: str
    violations: dict[str, int]
    about: str


class Progress(ResultRecord, frozen=True, kw_only=True, tag="progress"):
    """Totals so far."""

    seeds: int
    failed: int
    fabrics: dict[str, tuple[int, int]]
    """By family: the number of schedules, and how many of them failed."""


class Ended(ResultRecord, frozen=True, kw_only=True, tag="ended"):
    """A campaign has ended; ``result`` is the form that ``--json`` prints."""

    how: str
    result: dict[str, Any]


Line = Began | Failed | Progress | Ended


def now() -> str:
    """The time of day, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def append(path: Path, record: Line) -> None:
    """Append a record to the file in one write."""
    line = msgspec.json.encode(record) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        raise PeerError(
            f"cannot write {path}: {error.strerror or error}; choose another directory with --out"
        ) from error


def records_in(path: Path) -> Iterator[Line]:
    """All records of a file, oldest first. A line that was cut off by a crash of the machine is skipped."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Line)
        except msgspec.DecodeError:
            continue


class CampaignJournal:
    """Appends the records of one campaign to its results file."""

    def __init__(self, directory: Path, plan: SeedPlan) -> None:
        self.path = directory / RESULTS
        self.plan = plan
        self._next_totals = 0.0
        append(self.path, Began(at=now(), plan=plan))

    def is_due(self) -> bool:
        """Whether the last totals are old enough to write new ones."""
        return time.monotonic() >= self._next_totals

    def progress(self, seeds: int, failed: int, fabrics: dict[str, tuple[int, int]]) -> None:
        """Append the totals, unless the last ones are recent."""
        if self.is_due():
            self._next_totals = time.monotonic() + SECONDS_BETWEEN_TOTALS
            append(self.path, Progress(at=now(), plan=self.plan, seeds=seeds, failed=failed, fabrics=fabrics))

    def failures(self) -> list[Failed]:
        """The failing schedules of this campaign, one record each, by seed."""
        found = {one.seed: one for one in records_in(self.path) if isinstance(one, Failed) and one.plan == self.plan}
        return [found[seed] for seed in sorted(found)]

    def end(self, how: str, result: dict[str, Any]) -> None:
        """Record the end of the campaign."""
        append(self.path, Ended(at=now(), plan=self.plan, how=how, result=result))


def unfinished(path: Path, like: SeedPlan) -> SeedPlan | None:
    """The plan of the last fresh campaign of the same kind that started and did not finish."""
    found: SeedPlan | None = None
    for record in records_in(path):
        plan = record.plan
        if plan.fresh and msgspec.structs.replace(plan, first_seed=like.first_seed) == like:
            if isinstance(record, Began):
                found = plan
            elif isinstance(record, Ended) and record.how == FINISHED and plan == found:
                found = None
    return found


def seeds_run(path: Path) -> list[range]:
    """The seeds of all campaigns in a file, for every fabric."""
    return [
        range(one.plan.first_seed, one.plan.first_seed + one.plan.seeds)
        for one in records_in(path)
        if isinstance(one, Began)
    ]
