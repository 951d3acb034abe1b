"""Answers an audit's questions about the scenario of a simulated run (:class:`antiphon.audit.promises.Scenarios`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from antiphon.audit.promises import Scenarios, cannot_be_judged
from antiphon.audit.requests import RequestCounts
from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.incarnations import changes_lives
from antiphon.simulator.scenario.promises import contract_of, why_not_judged
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario
from antiphon.simulator.scenario.verdict import unmet_requests
from antiphon.trace.contract import TOLD_NEVER, Contract


class AuditedScenarios:
    """Reads the scenario from the metadata of a trace, and answers from it."""

    def contract_of_old_trace(self, about: Mapping[str, Any]) -> Contract:
        """The promises to a run whose trace does not list them; refused where they depend on reported losses."""
        scenario = scenario_of(about)
        reason = why_not_judged(scenario)
        if reason is not None:
            raise UsageError(cannot_be_judged(reason))
        contract = contract_of(scenario)
        if changes_lives(scenario) or contract.told != TOLD_NEVER or contract.holes_in is not None:
            raise UsageError(
                "this trace is of an older version, which does not record the losses that failed or isolated nodes "
                "reported; run the scenario again: antiphon simulate FILE --trace TRACE"
            )
        # The trace does not record stuck processes either.
        return replace(contract, at_end=tuple(name for name in contract.at_end if name == "completeness"))

    def could_be_cut(self, about: Mapping[str, Any], last_time: int) -> bool:
        """Whether the run may have ended at a limit of time or events."""
        limits = scenario_of(about).limits
        return limits != LimitsTable() or last_time >= limits.time

    def unmet_requests(self, about: Mapping[str, Any], requests: RequestCounts) -> list[str]:
        """Requests of the application that were not fulfilled, and effects that it did not request."""
        return unmet_requests(scenario_of(about), requests)


SCENARIOS: Scenarios = AuditedScenarios()
"""The argument for audits of simulated runs."""


def scenario_of(about: Mapping[str, Any]) -> Scenario:
    """The scenario of a simulated run."""
    try:
        return msgspec.convert(about.get("scenario"), Scenario)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the trace has no valid scenario in its metadata ({error}); run the scenario again"
        ) from error
