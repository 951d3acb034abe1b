"""Experiments as one job: every measurement once, the largest first, and a report for each complete experiment.

Measurements that several experiments need are run once for all of them. Finished ones are on disk (see
:mod:`antiphon_lab.reproduction.measurements`), so an interrupted job resumes where it stopped. Below the output
directory, ``reports`` has the report of each experiment, with the names of its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from antiphon.pipeline.atomic_output import write_failed
from antiphon.pipeline.jobs import Job
from antiphon_lab.reproduction.cost_model import expected_microseconds
from antiphon_lab.reproduction.experiment import Experiment, Plan, Report, Results
from antiphon_lab.reproduction.measurements import (
    Measured,
    Measurement,
    identity_of,
    measurement_of,
    read_measured,
    run_measurement,
)

REPORTS = "reports"

Wanted = list[tuple[Experiment[Any, Any], Plan]]


@dataclass(frozen=True)
class Failure:
    """An experiment of which there is no report."""

    name: str
    reason: str


@dataclass(frozen=True)
class Part:
    """An experiment within the job; ``runs`` are its cases with the numbers of their measurements, in order."""

    experiment: Experiment[Any, Any]
    plan: Plan
    runs: list[tuple[Any, int]]


class Reproduction:
    """Experiments that are reproduced together. ``job`` has their measurements."""

    def __init__(self, wanted: Wanted, seed: int, out: Path) -> None:
        self.names = [experiment.name for experiment, _ in wanted]
        self._seed = seed
        self._units: dict[tuple[str, str, int], Measurement] = {}
        self._waiting = [self._part(experiment, plan) for experiment, plan in wanted]
        self.job: Job[Measurement, Measured] = Job(
            title="reproduction",
            called="measurements",
            units=list(self._units.values()),
            out=out,
            read=read_measured,
            run=run_measurement,
        )
        self.job.poll()

    def _part(self, experiment: Experiment[Any, Any], plan: Plan) -> Part:
        """An experiment with its measurements, of which others may have some already."""
        runs = []
        for case, seed in experiment.runs(plan, self._seed):
            identity = identity_of(experiment.measure, case, seed)
            unit = self._units.get(identity)
            if unit is None:
                work = expected_microseconds(experiment.measure, case)
                unit = measurement_of(len(self._units), experiment.measure, case, seed, work)
                self._units[identity] = unit
            runs.append((case, unit.number))
        return Part(experiment, plan, runs)

    def expected_seconds(self) -> float:
        """The approximate time of the remaining measurements on one core."""
        return sum(unit.work for unit in self.job.left()) / 1e6

    def complete(self) -> Iterator[Report | Failure]:
        """The reports of experiments that have become complete since the last call."""
        still = []
        for part in self._waiting:
            numbers = {number for _, number in part.runs}
            failed = sorted(numbers & self.job.failures.keys())
            if not numbers <= self.job.records.keys() | self.job.failures.keys():
                still.append(part)
            elif failed:
                yield self._failure(part, failed)
            else:
                yield self._reported(part)
        self._waiting = still

    def _failure(self, part: Part, failed: list[int]) -> Failure:
        """Why an experiment cannot be reported."""
        first = self.job.units[failed[0]]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        reason = f"{first.case}, seed {first.seed}: {self.job.failures[failed[0]]}{more}"
        return Failure(part.experiment.name, reason)

    def _reported(self, part: Part) -> Report | Failure:
        """Compare, and write the report down."""
        results: Results[Any, Any] = Results()
        for case, number in part.runs:
            results.add(case, self.job.records[number].value)
        seconds = sum(self.job.records[number].seconds for _, number in part.runs)
        try:
            report = part.experiment.report(part.plan, self._seed, results, seconds)
        except Exception as error:
            return Failure(
                part.experiment.name, f"the measurements cannot be compared: {type(error).__name__}: {error}"
            )
        self._write(part, report)
        return report

    def _write(self, part: Part, report: Report) -> None:
        """Put the report where people find it."""
        place = self.job.out / REPORTS / f"{report.name}.json"
        records = [self.job.units[number].file for _, number in part.runs]
        beside = place.with_name(f".{place.name}.partial")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            written = msgspec.json.encode({**report.as_json(), "measurements": records}, enc_hook=str)
            beside.write_bytes(msgspec.json.format(written, indent=2))
            beside.replace(place)
        except OSError as error:
            raise write_failed(self.job.out, error) from error
