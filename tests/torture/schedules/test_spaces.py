"""Schedules with spaces: what they draw, that the order holds in them, and that the judge finds where it does not."""

from __future__ import annotations

import pytest

from antiphon.simulator.scenario import run as runs
from antiphon.simulator.scenario.scenario import CrashFault, PartitionFault
from antiphon.simulator.scenario.spaces import spaces_of
from antiphon.torture.campaign import run_schedule
from antiphon.torture.schedules.every_fabric import SCHEDULES, SPACES
from antiphon.torture.shrinking import spaces_without

SEEDS = range(1, 13)


def test_schedules_have_subscriptions_that_change_or_faults() -> None:
    drawn = [SCHEDULES[SPACES](seed, None) for seed in range(40)]
    assert all(spaces_of(scenario) for scenario in drawn)
    assert {scenario.protocol for scenario in drawn} == {"vcube-ps", "vcube-ps-lasting"}
    assert any(scenario.subscriptions for scenario in drawn)
    faults = {type(fault) for scenario in drawn for fault in scenario.faults}
    assert {CrashFault, PartitionFault} <= faults


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_spaces_holds(seed: int) -> None:
    outcome = run_schedule(SCHEDULES[SPACES](seed, None))
    assert not outcome.violations, outcome.about


def test_the_judge_finds_that_topics_have_no_order_across_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "with_spaces", lambda build, *_: build)
    outcomes = [run_schedule(SCHEDULES[SPACES](seed, None)) for seed in SEEDS]
    broken = [outcome for outcome in outcomes if outcome.violations]
    assert len(broken) > 3
    assert all(set(outcome.violations) == {"causal"} for outcome in broken)
    assert all("after something of its space that follows it" in outcome.about for outcome in broken)


def test_a_topic_less_leaves_the_spaces_of_the_others() -> None:
    assert spaces_without([[0, 1], [2, 3], [4]], 1) == [[0], [1, 2], [3]]
    assert spaces_without([[4], [0]], 4) == [[0]]
