"""The nodes of a scenario that crash, restart, join and leave.

:mod:`antiphon.audit.incarnations` finds the same in a trace.
"""

from __future__ import annotations

from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import CrashFault, LeaveFault, RestartFault, Scenario
from antiphon.simulator.scenario.workload import plan


def crashing_nodes(scenario: Scenario) -> set[int]:
    """The nodes that are not up from the start to the end of a run; pauses do not count."""
    mortal = (CrashFault, LeaveFault)
    failing = set(scenario.absent_at_start())
    for fault in scenario.faults:
        if isinstance(fault, mortal):
            failing.update(fault.targets(scenario.nodes))
    return failing


def failing_nodes(scenario: Scenario) -> set[int]:
    """The crashing nodes that need not receive everything: where nodes remember, only those that do not restart."""
    failing = crashing_nodes(scenario)
    if not PROTOCOLS[scenario.protocol].remembers:
        return failing
    failing -= set(scenario.absent_at_start())
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, CrashFault):
            failing.update(fault.targets(scenario.nodes))
        elif isinstance(fault, RestartFault):
            failing.difference_update(fault.targets(scenario.nodes))
    return failing


def returns_as_itself(scenario: Scenario) -> bool:
    """Whether restarted nodes continue to publish under their number, and must receive all later publications."""
    has_disks = bool(scenario.protocol_options.get("disk", False)) and not PROTOCOLS[scenario.protocol].remembers
    return has_disks and any(isinstance(fault, RestartFault) for fault in scenario.faults)


def changes_lives(scenario: Scenario) -> bool:
    """Whether nodes crash, restart, join or leave."""
    return len(crashing_nodes(scenario)) > 0


def failing_publisher(scenario: Scenario) -> int | None:
    """A publishing node that is not up for the whole run; its publications may be lost with it."""
    failing = failing_nodes(scenario)
    for planned in plan(scenario):
        if planned.node in failing:
            return planned.node
    return None
