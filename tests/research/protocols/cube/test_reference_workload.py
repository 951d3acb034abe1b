"""The reference workload: every node broadcasts once, with acknowledgements, and the figures come out exactly.

Node i of N = 2**d starts at ``(mix64(seed + (i + 1) * golden gamma) >> 11) mod 1001``. Data and acknowledgements share
one output server per node, one tick per copy; a copy is handled 101 ticks after it has left. The figures were computed
by another program, so a run that gives all of them has every event at its right place.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from antiphon.fabrics.cube import FullCube
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.kernel import Environment, Process, mix64
from antiphon.orders import CausalVectors, Order
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel

GOLDEN_GAMMA = 0x9E3779B97F4A7C15


class ReferenceWorkload:
    """One run of the workload, with its processes and orders within reach."""

    def __init__(self, dimension: int, seed: int, order: Callable[[int], Order] | None = None) -> None:
        self.cube = FullCube(dimension)
        self.order = order
        self.orders: list[Order] = []
        self.processes: list[TreeBroadcast] = []
        nodes = 2**dimension
        self.engine = Engine(nodes, NetworkModel(ConstantDelay(100)), self.build, seed=seed)
        for node in range(nodes):
            self.engine.at((mix64(seed + (node + 1) * GOLDEN_GAMMA) >> 11) % 1001, PublishAction(node))
        assert self.engine.run() == "finished"

    def build(self, environment: Environment) -> Process:
        rule = None if self.order is None else self.order(environment.identifier)
        if rule is not None:
            self.orders.append(rule)
        self.processes.append(TreeBroadcast(environment, self.cube, rule))
        return self.processes[-1]


def test_the_figures_of_256_nodes() -> None:
    run = ReferenceWorkload(8, seed=1)
    engine = run.engine
    assert engine.events == 256 + 2 * 256 * 255 == 130_816
    assert (engine.latency_sum, engine.latency_maximum, engine.end_time) == (27_744_465, 865, 2657)
    assert round(engine.latency_sum / (256 * 255), 4) == 425.0071
    assert (engine.sent, engine.published, engine.deliveries, engine.dropped) == (2 * 256 * 255, 256, 256 * 256, 0)
    assert [process.completed() for process in run.processes] == [1] * 256


def test_the_figures_of_256_nodes_in_causal_order() -> None:
    run = ReferenceWorkload(8, seed=1, order=CausalVectors)
    engine = run.engine
    assert (engine.events, engine.end_time) == (130_816, 2657)
    assert engine.latency_sum == 27_746_018
    assert sum(order.held_total for order in run.orders) == 539
    assert max(order.held_peak for order in run.orders) == 4
    assert [order.waiting() for order in run.orders] == [0] * 256
    assert engine.deliveries == 256 * 256
    assert [process.completed() for process in run.processes] == [1] * 256


@pytest.mark.parametrize("dimension", range(6))
@pytest.mark.parametrize("seed", [1, 2])
def test_the_number_of_events_at_any_size(dimension: int, seed: int) -> None:
    """One start per node, one copy and one acknowledgement per node and source."""
    run = ReferenceWorkload(dimension, seed, CausalVectors)
    nodes = 2**dimension
    assert run.engine.events == nodes + 2 * nodes * (nodes - 1)
    assert [process.completed() for process in run.processes] == [1] * nodes
