"""Schedules that are drawn for what others seldom meet: busy ones on the cube and on trees, rare ones for gossip."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import PartitionFault, RestartFault, Scenario
from antiphon.torture.campaign import run_schedule
from antiphon.torture.schedules import SCHEDULES, cube_busy, gossip_rare
from antiphon.torture.schedules.cube_busy import PUBLICATIONS, draw_busy_schedule
from antiphon.torture.schedules.gossip_rare import SILENCE, draw_apart, draw_forgetful

Draw = Callable[[int], Scenario]


def busy(seed: int) -> Scenario:
    return draw_busy_schedule(seed, None, RandomStream(seed, cube_busy.BUSY_STREAM))


def apart(seed: int) -> Scenario:
    return draw_apart(seed, RandomStream(seed, gossip_rare.RARE_STREAM))


def forgetful(seed: int) -> Scenario:
    return draw_forgetful(seed, None, RandomStream(seed, gossip_rare.RARE_STREAM))


def test_busy_schedules_have_logs_or_none_and_something_is_always_on_its_way() -> None:
    drawn = [busy(seed) for seed in range(60)]
    options = [scenario.protocol_options for scenario in drawn]
    assert {bool(each["log"]) for each in options} == {True, False}
    # Tight ones keep what may be under way: there nobody is cut off, and nobody comes or returns.
    tight = [one for one in drawn if not one.protocol_options["log"] and one.protocol_options["keep"] < PUBLICATIONS]
    assert len(tight) > 5
    for scenario in tight:
        assert scenario.protocol_options["keep"] == sum(
            scenario.protocol_options[name] for name in ("window", "bundle")
        )
        assert not any(isinstance(fault, PartitionFault | RestartFault) for fault in scenario.faults)
    assert sum(len(scenario.publications) for scenario in drawn) > 50 * len(drawn)
    assert any(isinstance(fault, RestartFault) for scenario in drawn for fault in scenario.faults)
    # Somebody leaves while it is cut off from all others, and two meet on a topic of their own.
    assert any(scenario.unsubscriptions for scenario in drawn)
    assert any(change.topic == cube_busy.QUIET_TOPIC for one in drawn for change in one.subscriptions)


def test_who_is_apart_misses_all_that_is_said_before_somebody_comes_back() -> None:
    for seed in range(20):
        scenario = apart(seed)
        parted = [fault for fault in scenario.faults if isinstance(fault, PartitionFault)]
        assert len(parted) == 1 and parted[0].until is not None
        left, back = scenario.unsubscriptions[0], scenario.subscriptions[0]
        assert left.node == back.node and back.at - left.at >= SILENCE[0]
        said_before = [each for each in scenario.publications if each.at < left.at]
        assert said_before and all(parted[0].at < each.at < parted[0].until for each in said_before)


def test_campaigns_draw_these_and_all_others() -> None:
    names = {SCHEDULES["cube-faults"](seed, None).name.split()[0] for seed in range(1, 30)}
    assert names == {"busy", "cube"}
    kept = {SCHEDULES["gossip"](seed, None).protocol_options.get("keep") for seed in range(1, 60)}
    assert None in kept and kept & {1, 2, 4}
    # Where only total order is wanted these are left out: they have none.
    assert all(SCHEDULES["cube-faults"](seed, "total").name.startswith("cube") for seed in range(1, 30))


@pytest.mark.parametrize("draw", [busy, apart, forgetful])
def test_nothing_breaks(draw: Draw) -> None:
    for seed in range(1, 6):
        outcome = run_schedule(draw(seed))
        assert not outcome.violations, (seed, outcome.about)


def test_in_every_other_gossip_schedule_neighbours_slow_publishers() -> None:
    drawn = [SCHEDULES["gossip"](seed, None).protocol_options for seed in range(200)]
    windows = [options["window"] for options in drawn if "window" in options]
    assert 60 < len(windows) < 140 and set(windows) >= {1, 4, 64}
    assert all(options.get("window", 0) <= options.get("buffer", 1024) for options in drawn)
