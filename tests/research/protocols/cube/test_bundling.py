"""The rivals of causal aggregation: bundles that wait for a timer, and a single tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube import Cube, FullCube, PacketFormat, Traffic
from antiphon.kernel import Environment, UsageError
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.protocols.cube.causal_aggregation import CausalAggregation
from antiphon_lab.protocols.cube.timer_bundling import TimerBundling
from tests.research.protocols.cube.test_aggregation_properties import (
    Build,
    Run,
    aggregating,
    alone,
    sizes,
    starts,
    wild,
)
from tests.support import Notebook


def waiting(ticks: int, largest: int = 1500) -> Build:
    return lambda environment, cube, traffic: TimerBundling(environment, cube, PacketFormat(largest), traffic, ticks)


def single(environment: Environment, cube: Cube, traffic: Traffic) -> CausalAggregation:
    return CausalAggregation(environment, cube, None, traffic, root=1)


def test_a_bundle_leaves_when_its_timer_fires_or_the_next_does_not_fit() -> None:
    """Four publications of 0 bytes and one or two entries at node 0; a packet of 40 bytes has room for three."""
    begun = [(0, 0), (3, 0), (6, 0), (8, 0)]
    network = NetworkModel(ConstantDelay(100), transmission=0, processing=0)
    run = Run(2, begun, network, waiting(10), 1)
    assert [row[0] for row in run.rows("send")] == [10]
    assert list(run.traffic.by_publications) == [0, 0, 0, 0, 1]
    run = Run(2, begun, network, waiting(10, largest=40), 1)
    assert [row[0] for row in run.rows("send")] == [8, 18]
    assert list(run.traffic.by_publications) == [0, 1, 0, 1]
    assert run.traffic.closed == 1


@pytest.mark.parametrize("build", [waiting(1), waiting(80), waiting(80, largest=60), single])
@settings(max_examples=20)
@given(nodes=sizes, starts=starts, seed=st.integers(0, 1000))
def test_everybody_delivers_everything_once_in_causal_order(
    build: Build, nodes: int, starts: list[tuple[int, int]], seed: int
) -> None:
    run = Run(nodes, starts, wild(), build, seed)
    findings = judge(run.trace.table(), nodes, everybody=True)
    assert findings.clean, str(findings)
    assert findings.deliveries == len(starts) * nodes
    assert run.unfinished() == 0


def test_longer_timers_save_packets_and_cost_time_where_causal_aggregation_costs_none() -> None:
    begun = [(7 * number % 400, 5 * number) for number in range(128)]
    builds = {"alone": alone, "causal": aggregating(), 10: waiting(10), 100: waiting(100)}
    runs = {name: Run(16, begun, NetworkModel(NormalDelay(100, 33)), build) for name, build in builds.items()}
    sent = {name: int(run.engine.sent) for name, run in runs.items()}
    latency = {name: int(run.engine.latency_sum) for name, run in runs.items()}
    assert sent["alone"] > sent[10] > sent[100]
    assert latency["alone"] < latency[10] < latency[100]
    assert sent["causal"] < sent["alone"]
    assert latency["causal"] < latency[10]


def test_a_single_tree_sends_everything_through_its_root_and_comes_back_to_its_source() -> None:
    begun = [(0, 3), (0, 1)]
    run = Run(4, begun, NetworkModel(ConstantDelay(100)), single)
    edges = {(row[2], row[3]) for row in run.rows("send")}
    assert edges == {(3, 1), (1, 0), (1, 3), (3, 2)}
    # One hop to the root for what node 3 publishes, and three edges down for each of the two.
    assert int(run.engine.sent) == 1 + 2 * 3


def test_a_timer_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="a bundle waits for at least 1 tick, not 0"):
        TimerBundling(Notebook(0), FullCube(2), timer_ticks=0)
