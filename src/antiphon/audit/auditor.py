"""The audit of a run: reads its traces, finds its promises, judges them, and explains violations.

:func:`audit_trace` does all of it. A caller that judges several runs, or large ones on Spark, uses :func:`judging`. The
judge in this process is :mod:`antiphon.audit.verdict`; on Spark it is :mod:`antiphon.audit.spark.job`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from antiphon.audit.columns.incarnations import rows_by_incarnation, spans_in_table
from antiphon.audit.columns.verdict import Example, judge_part, rules_for
from antiphon.audit.evidence import Evidence, read_evidence
from antiphon.audit.explanations import tell_from_table
from antiphon.audit.oracle import evidence
from antiphon.audit.promises import (
    Scenarios,
    check_judgeable,
    contract_for,
    is_live,
    needs_memory,
    stopped_of,
)
from antiphon.audit.report import CHECKS, MORE_CHECKS, NO_SCENARIO, Audit, Check, verdict_of
from antiphon.audit.requests import requests_in
from antiphon.audit.survey import TraceSurvey, survey_of
from antiphon.audit.verdict import Verdict, add_requests, judge_trace, stuck_in
from antiphon.kernel.errors import UsageError
from antiphon.trace.contract import REQUESTS, Contract
from antiphon.trace.store import PARTIAL, count_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDINGS = (".parquet", ".arrow")

ROWS_FOR_SPARK = 1_500_000
"""The judge in this process needs about as long for so many rows as Spark needs to start."""

Judge = Callable[[list[Path]], Audit]
"""Judges the traces of one run."""

StartSpark = Callable[[], "AbstractContextManager[SparkSession]"]
"""Starts a session of Spark, and stops it at the end."""


def audit_trace(
    paths: Sequence[Path | str], *, spark: SparkSession | None = None, scenarios: Scenarios | None = None
) -> Audit:
    """Judge the traces of one run: files, or directories of them; on Spark if a session is given.

    ``scenarios`` answers questions about simulated runs that their traces do not
    (``antiphon.simulator.scenario.audited.SCENARIOS``).
    """
    files = files_in([Path(path) for path in paths])
    with judging(None if spark is None else lambda: nullcontext(spark), spark is not None, scenarios) as judge:
        return judge(files)


@contextmanager
def judging(
    start_spark: StartSpark | None, on_spark: bool = False, scenarios: Scenarios | None = None
) -> Iterator[Judge]:
    """A judge of one or more runs: in this process, or on Spark if that is requested or there is much to judge."""
    with ExitStack() as stack:
        session: SparkSession | None = None

        def judge(files: list[Path]) -> Audit:
            nonlocal session
            if start_spark is None or (session is None and not on_spark and not is_large(files)):
                return audit_files(files, scenarios)
            from antiphon.audit.spark.auditor import audit_in_session
            from antiphon.audit.spark.traces import describe

            # Before Spark starts: a wrong name, or a run that cannot be judged, is found at once.
            described = [describe(file)[0] for file in files if file.suffix in ENDINGS]
            for about in described:
                check_judgeable(about, scenarios)
            if any(needs_memory(about) for about in described):
                return audit_files(files, scenarios)
            if session is None:
                session = stack.enter_context(start_spark())
            return audit_in_session(session, files, scenarios)

        yield judge


def files_in(paths: list[Path]) -> list[Path]:
    """The trace files among the given paths, and in the given directories."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        # Killed nodes leave their rows under a name that begins with a dot.
        inside = sorted(
            each
            for each in path.iterdir()
            if (each.suffix in ENDINGS and not each.name.startswith(".")) or each.suffix == PARTIAL
        )
        if not inside:
            raise UsageError(
                f"there is no trace ({' or '.join(ENDINGS)}) in {path}; nodes write theirs when they leave"
            )
        files += inside
    return files


def is_large(files: list[Path]) -> bool:
    """Whether there are more rows than the judge in this process should handle."""
    return sum(count_rows(file) for file in files) > ROWS_FOR_SPARK


@dataclass(frozen=True)
class JudgedEvidence:
    """The verdict on a run, and the promises by which it was judged."""

    survey: TraceSurvey
    contract: Contract
    stopped: str
    verdict: Verdict


def judge_evidence(found: Evidence, scenarios: Scenarios | None) -> JudgedEvidence:
    """Judge a run in this process; what the scenario alone could tell is noted as unjudged without it."""
    table, about = found.table, found.about
    survey = survey_of(table)
    contract = contract_for(about, survey, scenarios)
    stopped = stopped_of(about, survey, scenarios)
    verdict = judge_trace(table, contract, stopped, stuck_in(table))
    if REQUESTS in verdict.checks:
        if scenarios is None:
            verdict.checks = tuple(name for name in verdict.checks if name != REQUESTS)
            found.unjudged.append(NO_SCENARIO)
        else:
            add_requests(verdict, scenarios.unmet_requests(about, requests_in(evidence(table))))
    return JudgedEvidence(survey, contract, stopped, verdict)


def audit_files(files: Sequence[Path], scenarios: Scenarios | None = None) -> Audit:
    """Read, merge and judge in this process."""
    started = time.perf_counter()
    found = read_evidence(files)
    judged = judge_evidence(found, scenarios)
    verdict = judged.verdict
    stories = tell_from_table(found.table, examples_in(found.table, judged)) if verdict.broken() else {}
    checks = {}
    for name in (*CHECKS, *(name for name in MORE_CHECKS if name in verdict.checks)):
        applies = name in verdict.checks
        count = verdict.counts.get(name, 0) if applies else 0
        example = verdict.examples.get(name) if count else None
        checks[name] = Check(applies, count, example, stories.get(name, []) if count else [])
    seconds = time.perf_counter() - started
    missing = judged.survey.silent_publishers if is_live(found.about) else []
    return Audit(
        verdict.publications,
        verdict.deliveries,
        seconds,
        checks,
        verdict_of(checks),
        missing,
        "memory",
        verdict.losses,
        found.unjudged,
    )


def examples_in(table: pa.Table, judged: JudgedEvidence) -> dict[str, Example]:
    """The first violation of each kind; the judge of columns keeps its place."""
    contract = judged.contract
    spans = spans_in_table(table, contract.remembers)
    rows = rows_by_incarnation(table, contract.nodes if contract.everybody else 0, spans)
    return judge_part(rows, rules_for(contract, judged.stopped, spans)).examples
