"""One campaign for all fabrics: a seed draws a family of schedules, a schedule of it, and extra faults.

The schedules of a family have the faults that hurt its protocol most (:mod:`antiphon.torture.schedules.operations` and
the modules beside it). :mod:`antiphon.torture.schedules.extra_faults` adds faults that all fabrics have in common. At
the end all faults are healed. Long afterwards every member of each topic publishes once more: a node that waits for
ever, or is out of step with the others, misses one of these publications
(:mod:`antiphon.simulator.scenario.last_words`).
"""

from __future__ import annotations

from functools import partial

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.extra_faults import ExtraFaults
from antiphon.torture.schedules.families import FAMILIES, Draw, agreement_of, orders_of
from antiphon.torture.schedules.last_words import with_last_words
from antiphon.torture.schedules.operations import pick
from antiphon.torture.schedules.spaces.drawing import draw_space_schedule

ALL_STREAM = 30
"""The stream of random numbers for this draw; the simulator and the families use smaller numbers."""

WEIGHTED = [name for name, family in FAMILIES.items() for _ in range(family.weight)]
"""The families to draw from, each as often as its weight says."""


def draw_any_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed, from one of the families that have the order, if one is given."""
    random = RandomStream(seed, ALL_STREAM)
    name = pick(random, [name for name in WEIGHTED if order in orders_of(name) or order is None])
    scenario = FAMILIES[name].draw(seed, order)
    return scenario if is_calm(scenario) else ExtraFaults(scenario, random).draw()


def draw_schedule_of(name: str, seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed from one family, with last words."""
    scenario = FAMILIES[name].draw(seed, order)
    return scenario if is_calm(scenario) else with_last_words(scenario)


def is_calm(scenario: Scenario) -> bool:
    """Whether theory predicts the agreement of a schedule. The prediction holds only for the schedule as drawn."""
    return agreement_of(scenario) is not None


ALL = "all"

SPACES = "spaces"
"""Schedules of several topics with causal order across them; they are counted under the family of their protocol."""


def draw_schedule_of_spaces(seed: int, _order: str | None = None) -> Scenario:
    """The scenario of a seed with spaces, with last words; all are causal."""
    return with_last_words(draw_space_schedule(seed))


SCHEDULES: dict[str, Draw] = {
    ALL: draw_any_schedule,
    **{name: partial(draw_schedule_of, name) for name in FAMILIES},
    SPACES: draw_schedule_of_spaces,
}
"""Draws the schedule of a seed, with last words, by the name that ``antiphon torture --fabric`` takes."""
