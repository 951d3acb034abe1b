"""The rivals of BRISA survive the schedules of the gossip fabric, so that comparisons are fair."""

from __future__ import annotations

import pytest

from antiphon.torture.campaign import run_schedule
from antiphon_lab.scenarios.gossip_schedules import draw_rival_schedule


@pytest.mark.parametrize("first_seed", range(1, 101, 20))
def test_no_schedule_breaks_a_promise(first_seed: int) -> None:
    outcomes = [run_schedule(draw_rival_schedule(seed)) for seed in range(first_seed, first_seed + 20)]
    assert {outcome.seed: outcome.violations for outcome in outcomes if outcome.violations} == {}
    assert sum(outcome.deliveries for outcome in outcomes) > 0
