"""What was promised to the run of a trace that is audited, and whether it can be judged at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.trace.contract import (
    CUT,
    FINISHED,
    TOLD_ALWAYS,
    TOLD_NEVER,
    TOTAL_ORDER,
    UNJUDGED,
    Contract,
    contract_in,
)

if TYPE_CHECKING:
    from antiphon.pipeline.traces import Survey
    from antiphon.simulator.scenario.scenario import Scenario


def is_live(about: Mapping[str, Any]) -> bool:
    """Whether a trace is of a live node."""
    return about.get("host") == "live"


def check_judgeable(about: Mapping[str, Any]) -> None:
    """Complain at once if a trace cannot be judged, before anything large is read or started."""
    if not is_live(about):
        simulated_contract(about)


def tells_lives_apart(about: Mapping[str, Any]) -> bool:
    """Whether nodes return and publish on under their number; the judge in memory alone tells their lives apart."""
    contract = None if is_live(about) else contract_in(about)
    return contract is not None and contract.returns


def stopped_of(about: Mapping[str, Any], survey: Survey) -> str:
    """How a run ended: at its end, or before."""
    from antiphon.simulator.scenario.scenario import LimitsTable

    if is_live(about):
        return FINISHED
    if survey.ending is not None or contract_in(about) is not None:
        return survey.ending or CUT
    # Older traces do not say it. One that could have been cut short is not blamed for what is missing.
    limits = scenario_of(about).limits
    return FINISHED if limits == LimitsTable() and survey.last_time < limits.time else CUT


def contract_for(about: Mapping[str, Any], survey: Survey) -> Contract:
    """What the run of a trace was to keep."""
    if is_live(about):
        return live_contract(about, survey)
    return simulated_contract(about)


def live_contract(about: Mapping[str, Any], survey: Survey) -> Contract:
    """Every message is judged by its own order. Without its publisher's trace nobody knows when it was published."""
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
        said = Contract(fabric, "", leavers=True, told=TOLD_ALWAYS, weaker_pass=fabric == "gossip")
    return replace(said, always=tuple(sorted(always)), at_end=("completeness",))


def scenario_of(about: Mapping[str, Any]) -> Scenario:
    """The scenario of a simulated run."""
    from antiphon.simulator.scenario.scenario import Scenario

    try:
        return msgspec.convert(about.get("scenario"), Scenario)
    except msgspec.ValidationError as error:
        raise UsageError(f"the trace does not say of which scenario it is ({error}); write it again") from error


def simulated_contract(about: Mapping[str, Any]) -> Contract:
    """What the scenario promises, as the trace says it."""
    reason = about.get(UNJUDGED)
    if reason is not None:
        raise UsageError(f"this run cannot be judged: {reason}; {WHAT_TO_DO}")
    contract = contract_in(about)
    return contract if contract is not None else contract_of_old_trace(scenario_of(about))


WHAT_TO_DO = (
    "choose a protocol that promises something to such a run (docs/scenarios.md), or measure the trace with antiphon "
    "metrics"
)


def contract_of_old_trace(scenario: Scenario) -> Contract:
    """What was promised to a run whose trace does not say it; refused where losses would have to be known."""
    from antiphon.simulator.scenario.incarnations import changes_lives
    from antiphon.simulator.scenario.promises import contract_of, why_not_judged

    reason = why_not_judged(scenario)
    if reason is not None:
        raise UsageError(f"this run cannot be judged: {reason}; {WHAT_TO_DO}")
    contract = contract_of(scenario)
    if changes_lives(scenario) or contract.told != TOLD_NEVER or contract.holes_in is not None:
        raise UsageError(
            "this trace is of an older version, which does not say what nodes that failed or were cut off have told as "
            "lost; run the scenario again: antiphon simulate FILE --trace TRACE"
        )
    # Nothing says either what was stuck.
    return replace(contract, at_end=tuple(name for name in contract.at_end if name == "completeness"))
