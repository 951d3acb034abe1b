"""What agreement of EpTO to expect (thesis of M. Matos, section 5.2.3), played through apart from the protocol."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from antiphon.fabrics.gossip.epto.analysis import Spread
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.kernel import RandomStream
from antiphon.torture.campaign import run_schedule
from antiphon.torture.rates import wilson
from antiphon.torture.schedules.epto import calm_agreement, draw_epto_schedule, played_agreement
from antiphon.torture.schedules.epto_expectation import reaching


def exact_in_step(nodes: int, fanout: int, rounds: int) -> float:
    """The probability that all know after some rounds at the same moments, over all sets that can be drawn."""
    known = {frozenset({0}): 1.0}
    for _ in range(rounds):
        following: dict[frozenset[int], float] = {}
        for informed, chance in known.items():
            spread = {informed: chance}
            for node in informed:
                others = [other for other in range(nodes) if other != node]
                draws = list(combinations(others, fanout))
                after: dict[frozenset[int], float] = {}
                for reached, share in spread.items():
                    for draw in draws:
                        union = reached | frozenset(draw)
                        after[union] = after.get(union, 0.0) + share / len(draws)
                spread = after
            for reached, share in spread.items():
                following[reached] = following.get(reached, 0.0) + share
        known = following
    return known.get(frozenset(range(nodes)), 0.0)


@pytest.mark.parametrize(("nodes", "fanout", "rounds"), [(3, 1, 2), (4, 1, 3), (4, 2, 2), (5, 1, 4), (5, 2, 2)])
def test_with_rounds_in_step_the_theory_is_exact_or_a_little_cautious(nodes: int, fanout: int, rounds: int) -> None:
    """Nodes draw without replacement and never themselves; the chain takes hits for independent, which is less."""
    exact = exact_in_step(nodes, fanout, rounds)
    theory = float(Spread(nodes, fanout).stable(float(rounds)))
    assert theory <= exact + 1e-12 and exact - theory < 0.12


def test_where_rounds_are_not_in_step_nodes_that_stop_by_the_count_of_relays_reach_fewer() -> None:
    """The count follows the quickest way and runs ahead of the rounds; to relay in so many rounds makes up for most."""
    plays = 1500
    theory = float(Spread(12, 2, 0.1).stable(4.0))
    deviation = math.sqrt(theory * (1 - theory) / plays)
    by_count = reaching(12, 2, 4, 0.1, 10, RandomStream(1), plays, by_count=True)
    by_rounds = reaching(12, 2, 4, 0.1, 10, RandomStream(1), plays)
    assert by_count < theory - 5 * deviation
    assert by_rounds > (theory + by_count) / 2


@pytest.mark.parametrize(("nodes", "loss"), [(5, 0.3), (8, 0.2), (12, 0.3)])
def test_the_defaults_are_enough_also_where_rounds_are_not_in_step(nodes: int, loss: float) -> None:
    """Section 5.2.3; ttl is raised where messages are lost."""
    options = EptoOptions(nodes, loss=loss)
    found = reaching(nodes, int(options.fanout), int(options.ttl), loss, 10, RandomStream(2), 400)
    assert found > 0.995


def test_calm_schedules_agree_as_often_as_is_expected() -> None:
    """Agreement is measured, with its interval, against the game, which is near the theory."""
    agreed = owed = 0
    played = theory = 0.0
    seed = 0
    while owed < 900:
        seed += 1
        scenario = draw_epto_schedule(seed)
        in_step = calm_agreement(scenario)
        if in_step is not None:
            outcome = run_schedule(scenario)
            agreed += outcome.agreed
            owed += outcome.owed
            theory += in_step * outcome.owed
            played += played_agreement(scenario) * outcome.owed
    # Publications of one schedule share its options, so the interval of independent ones is too small.
    low, high = wilson(agreed, owed, 3.0)
    assert low < played / owed < high
    assert abs(theory - played) / owed < 0.03
