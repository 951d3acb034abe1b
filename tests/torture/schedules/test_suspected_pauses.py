"""Campaigns draw processes that stand still, noticed or not, and on the cube more than any buffer holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from antiphon.fabrics.cube.repair.retransmission import FILLING_AT_MOST
from antiphon.kernel.errors import ScenarioError
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.disks import ENTRIES_PER_PIECE
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.promises import standing_still
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import CrashFault, PauseFault, RestartFault, Scenario
from antiphon.torture.schedules.cube_busy import draw_cube_fault_schedule
from antiphon.torture.schedules.cube_overflow import OVERFLOW_STREAM, draw_alone, draw_most_down, draw_overflow_schedule
from antiphon.torture.schedules.gossip import draw_gossip_schedule
from antiphon.torture.schedules.operations import CRASH, PART, PUBLISH
from antiphon.torture.schedules.tree import draw_tree_schedule


@pytest.mark.parametrize("draw", [draw_cube_fault_schedule, draw_tree_schedule, draw_gossip_schedule])
def test_standstills_longer_and_shorter_than_detection_are_drawn(draw: Callable[[int], Scenario]) -> None:
    drawn = [draw(seed) for seed in range(80)]
    noticing = [scenario for scenario in drawn if scenario.network.notices_pauses]
    assert 10 < len(noticing) < 70
    assert sum(bool(standing_still(scenario)) for scenario in noticing) > 5
    shorter = [
        scenario
        for scenario in noticing
        if not standing_still(scenario) and any(isinstance(fault, PauseFault) for fault in scenario.faults)
    ]
    assert shorter


def test_more_is_published_behind_a_cut_than_any_buffer_holds() -> None:
    most = 0
    for seed in range(20):
        _, _, operations = draw_alone(RandomStream(seed, OVERFLOW_STREAM))
        (cut,) = (operation for operation in operations if operation.kind == PART)
        behind = [
            operation
            for operation in operations
            if operation.kind == PUBLISH and operation.node in cut.keys and cut.at < operation.at < cut.until
        ]
        assert len(behind) > 3 * ENTRIES_PER_PIECE
        most = max(most, len(behind))
    assert most > 4 * FILLING_AT_MOST


def test_half_of_the_nodes_or_more_are_down_at_once_and_all_come_back() -> None:
    for seed in range(20):
        nodes, _, operations = draw_most_down(RandomStream(seed, OVERFLOW_STREAM))
        crashes = [operation for operation in operations if operation.kind == CRASH]
        assert nodes / 2 <= len(crashes) < nodes
        assert max(crash.at for crash in crashes) < min(crash.until for crash in crashes)


@pytest.mark.parametrize("seed", [1, 5, 7])
def test_nothing_is_lost_beyond_every_buffer(seed: int) -> None:
    scenario = draw_overflow_schedule(seed, None, RandomStream(seed, OVERFLOW_STREAM))
    crashes = [fault for fault in scenario.faults if isinstance(fault, CrashFault)]
    assert scenario.publications and len(crashes) >= sum(isinstance(fault, RestartFault) for fault in scenario.faults)
    result = run_scenario(scenario)
    assert result.violations is not None and not any(result.violations.values()), result.judgement
    assert result.stopped == "finished"


def test_who_is_lost_does_not_come_back_to_a_tree_without_a_quorum() -> None:
    text = """
protocol = "broker-tree"
fabric = "tree"
nodes = 2
network = { in_order = true, notices_pauses = true }
workload = { kind = "once", window = 1000 }
"""
    with pytest.raises(
        ScenarioError, match=r"without a quorum no lost node comes back; write: protocol-options\.quorum = true"
    ):
        parse_scenario(text, "a.toml")
