"""The promises to the run of a trace, and whether it can be judged at all.

The metadata of a trace lists them. :class:`Scenarios` answers questions that need the scenario of a simulated run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from antiphon.audit.requests import RequestCounts
from antiphon.audit.survey import TraceSurvey
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.trace.contract import (
    CUT,
    FINISHED,
    TOLD_ALWAYS,
    TOTAL_ORDER,
    UNJUDGED,
    Contract,
    contract_in,
)


class Scenarios(Protocol):
    """Answers questions about simulated runs that need the scenario."""

    def contract_of_old_trace(self, about: Mapping[str, Any]) -> Contract:
        """The promises to a run whose trace does not list them; refused where they cannot be known."""

    def could_be_cut(self, about: Mapping[str, Any], last_time: int) -> bool:
        """Whether a run whose trace does not record its end may have ended at a limit."""

    def unmet_requests(self, about: Mapping[str, Any], requests: RequestCounts) -> list[str]:
        """Requests of the application that were not fulfilled, and effects that it did not request."""


def is_live(about: Mapping[str, Any]) -> bool:
    """Whether a trace is of a live node."""
    return about.get("host") == "live"


def check_judgeable(about: Mapping[str, Any], scenarios: Scenarios | None) -> None:
    """Refuse a trace that cannot be judged, before anything large is read or started."""
    if not is_live(about):
        simulated_contract(about, scenarios)


def needs_memory(about: Mapping[str, Any]) -> bool:
    """Whether only the judge in memory can judge a run.

    It separates the incarnations of nodes that publish under their number again, and it judges sessions that are loose.
    """
    contract = contract_in(about)
    return contract is not None and (contract.returns or contract.loose_sessions)


def stopped_of(about: Mapping[str, Any], survey: TraceSurvey, scenarios: Scenarios | None) -> str:
    """How a run ended: at its end, or before."""
    if is_live(about):
        return FINISHED
    if survey.ending is not None or contract_in(about) is not None:
        return survey.ending or CUT
    # Older traces do not record the end. A run that may have been cut short is not blamed for missing publications.
    return CUT if needed(scenarios).could_be_cut(about, survey.last_time) else FINISHED


def contract_for(about: Mapping[str, Any], survey: TraceSurvey, scenarios: Scenarios | None) -> Contract:
    """The promises to the run of a trace."""
    if is_live(about):
        return live_contract(about, survey)
    return simulated_contract(about, scenarios)


def live_contract(about: Mapping[str, Any], survey: TraceSurvey) -> Contract:
    """Every message is judged by its own order. Without its publisher's trace its start is unknown."""
    orders = survey.orders
    always = {"duplicates", "membership"}
    always |= {"fifo"} if orders & {"fifo", "causal"} else set()
    always |= {"causal"} if "causal" in orders else set()
    always |= {TOTAL_ORDER} if TOTAL_ORDER in orders else set()
    always |= set() if survey.silent_publishers else {"validity"}
    said = contract_in(about)
    if said is None:
        # All nodes leave in the end, and every row has its order.
        fabric = str(about.get("fabric", ""))
        passes = fabric in FABRICS and FABRICS[fabric].may_pass_over
        said = Contract(fabric, "", leavers=True, told=TOLD_ALWAYS, weaker_pass=passes)
    return replace(said, always=tuple(sorted(always)), at_end=("completeness",))


def simulated_contract(about: Mapping[str, Any], scenarios: Scenarios | None) -> Contract:
    """The promises of the scenario, as the trace records them."""
    reason = about.get(UNJUDGED)
    if reason is not None:
        raise UsageError(cannot_be_judged(reason))
    contract = contract_in(about)
    return contract if contract is not None else needed(scenarios).contract_of_old_trace(about)


def cannot_be_judged(reason: object) -> str:
    """The complaint about a run without promises."""
    return (
        f"this run cannot be judged: {reason}; choose a protocol that promises something to such a run "
        "(docs/scenarios.md), or measure the trace with antiphon metrics"
    )


def needed(scenarios: Scenarios | None) -> Scenarios:
    """Refuse a trace without promises where no scenario is available."""
    if scenarios is None:
        raise UsageError(
            "this trace is of an older version, which does not record its promises; pass scenarios=SCENARIOS of "
            "antiphon.simulator.scenario.audited, or run the scenario again"
        )
    return scenarios
