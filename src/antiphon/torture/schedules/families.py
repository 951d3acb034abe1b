"""The families of schedules: one for each name that ``antiphon torture --fabric`` takes, beside ``all``.

A family describes itself, so campaigns do not compare names: how a schedule of a seed is drawn, which protocol it is
for, and, where theory predicts agreement, how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.fabrics.cube.fabric import CUBE
from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.fabrics.tree.fabric import TREE
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.cube_busy import draw_cube_fault_schedule
from antiphon.torture.schedules.epto import calm_agreement, draw_epto_schedule, played_agreement
from antiphon.torture.schedules.gossip_rare import draw_any_gossip_schedule
from antiphon.torture.schedules.operations import MIXED
from antiphon.torture.schedules.topic_schedule import draw_schedule
from antiphon.torture.schedules.tree import draw_tree_schedule

Draw = Callable[[int, str | None], Scenario]
"""Draws the schedule of a seed; the second argument is the order, or None if the seed draws that too."""


@dataclass(frozen=True)
class Family:
    """Schedules of one kind: how they are drawn, and which protocol must survive them."""

    draw: Draw
    protocol: str
    agreement: Callable[[Scenario], float | None] | None = None
    """The probability that a publication reaches all nodes, or None where theory does not know it."""
    played: Callable[[Scenario], float] | None = None
    """The same probability, from a game in which rounds are not in step."""
    weight: int = 1
    """How often a campaign over all families draws it, compared with others: more where more can go wrong."""


FAMILIES: dict[str, Family] = {
    CUBE.name: Family(draw_schedule, "vcube-ps"),
    "cube-faults": Family(draw_cube_fault_schedule, "vcube-ps-lasting", weight=2),
    TREE.name: Family(draw_tree_schedule, "broker-tree", weight=2),
    GOSSIP.name: Family(draw_any_gossip_schedule, "brisa"),
    "epto": Family(draw_epto_schedule, "epto", calm_agreement, played_agreement),
}
"""All families by name, in the order in which results list them."""

NAMES = {family.protocol: name for name, family in FAMILIES.items()}


def family_name(scenario: Scenario) -> str:
    """The family that a schedule is counted under; a protocol without a family is counted under its fabric."""
    return NAMES.get(scenario.protocol, scenario.fabric)


def orders_of(family: str) -> tuple[str, ...]:
    """The orders that a campaign on a family can be restricted to."""
    protocol = PROTOCOLS[FAMILIES[family].protocol]
    return (*protocol.orders, MIXED) if protocol.mixes_orders else protocol.orders


def agreement_of(scenario: Scenario) -> float | None:
    """The probability that a publication of a schedule reaches all nodes; None where theory does not know it."""
    family = FAMILIES.get(family_name(scenario))
    return None if family is None or family.agreement is None else family.agreement(scenario)


def played_agreement_of(scenario: Scenario) -> float:
    """The probability from the game with rounds that are not in step, for a schedule whose agreement is known."""
    family = FAMILIES[family_name(scenario)]
    assert family.played is not None, "a family with a theory has a game too"
    return family.played(scenario)
