"""The audit of a run on Spark: the counterpart of :mod:`antiphon.audit.auditor` for traces of any size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.audit.explanations import sentence
from antiphon.audit.promises import Scenarios, contract_for, is_live, stopped_of
from antiphon.audit.report import CHECKS, MORE_CHECKS, NO_SCENARIO, Audit, Check, verdict_of
from antiphon.audit.requests import RequestCounts
from antiphon.audit.spark.explanations import tell_from_frame
from antiphon.audit.spark.job import ROWS_PER_PART, audit_trace
from antiphon.audit.spark.traces import Trace, changes_in, counts_in, merged_in_memory, open_trace, survey
from antiphon.trace.contract import REQUESTS, TOTAL_ORDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONLY_TOTALS = (
    "Spark has judged the order among total messages. Only the judge in memory checks that messages of weaker "
    "orders are on the same side of them everywhere: audit without --spark."
)

NO_SPACES = (
    "Spark has judged each topic by itself. Only the judge in memory checks causal order across the topics of a space: "
    "audit without --spark."
)


def audit_in_session(
    session: SparkSession, files: Sequence[Path], scenarios: Scenarios | None = None, rows_per_part: int | None = None
) -> Audit:
    """Judge in an existing session."""
    started = time.perf_counter()
    trace = open_trace(session, files)
    surveyed = survey(trace.frame)
    if surveyed.losses and trace.files > 1:
        # Live nodes report losses by batch number, and the rows of publishers give the messages of a batch.
        trace = merged_in_memory(session, files)
        surveyed = survey(trace.frame)
    contract = contract_for(trace.about, surveyed, scenarios)
    stopped = stopped_of(trace.about, surveyed, scenarios)
    size = rows_per_part or ROWS_PER_PART
    found = audit_trace(trace, surveyed, contract, stopped, size)
    applying = contract.checks(stopped)
    if found.judgement.counts["validity"] and trace.files > 1 and "validity" in applying:
        # The clocks of machines may disagree: try an order in which no delivery precedes its publication.
        trace = merged_in_memory(session, files)
        found = audit_trace(trace, surveyed, contract, stopped, size)
    unjudged = [*trace.unjudged]
    if REQUESTS in applying and scenarios is None:
        applying = tuple(name for name in applying if name != REQUESTS)
        unjudged.append(NO_SCENARIO)
    elif REQUESTS in applying and scenarios is not None:
        complaints = scenarios.unmet_requests(trace.about, requests_in_frame(trace))
        found.more[REQUESTS] = (len(complaints), complaints[0] if complaints else None)
    broken = {kind: example for kind, example in found.judgement.examples.items() if kind in applying}
    stories = tell_from_frame(trace.frame, broken) if broken else {}
    checks = {}
    for name in (*CHECKS, *(name for name in MORE_CHECKS if name in applying)):
        if name in found.more:
            checks[name] = Check(True, *found.more[name])
            continue
        applies = name in applying
        example = broken.get(name)
        text = None if example is None else sentence(example)
        count = found.judgement.counts.get(name, 0) if applies else 0
        checks[name] = Check(applies, count, text, stories.get(name, []))
    seconds = time.perf_counter() - started
    missing = surveyed.silent_publishers if is_live(trace.about) else []
    judged = (found.judgement.publications, found.judgement.deliveries)
    verdict = verdict_of(checks)
    if contract.secured and TOTAL_ORDER in applying and surveyed.orders != {TOTAL_ORDER}:
        unjudged.append(ONLY_TOTALS)
    if contract.spaces:
        unjudged.append(NO_SPACES)
    return Audit(*judged, seconds, checks, verdict, missing, "spark", surveyed.losses, unjudged)


def requests_in_frame(trace: Trace) -> RequestCounts:
    """The requests of the application, and their effects."""
    counts = counts_in(trace.frame)
    return RequestCounts(counts["publish"], counts["deliver"], sum(counts["lost"].values()), changes_in(trace.frame))
