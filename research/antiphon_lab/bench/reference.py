"""The reference workload: a fixed amount of work, defined to the last tie, to compare simulators.

``N = 2**d`` nodes, integer time. Node ``i`` starts its one broadcast at
``(mix64(seed + (i + 1) * 0x9E3779B97F4A7C15) >> 11) mod 1001``, where ``mix64`` is the finaliser of SplitMix64. It
sends one copy to ``i xor 2**(s-1)`` for ``s = 1 .. d``, ascending; a node that got it over bit ``c`` forwards for
``s = 1 .. c - 1``. A leaf acknowledges to its parent when the message is handled, an inner node when all its children
have. Data and acknowledgements share one FIFO output server per node: ``free = max(now, free) + 1``, handled at the
receiver at ``free + 101``. Events of the same time are handled in the order in which they were scheduled, starts
first, by identifier. There are ``N + 2 N (N - 1)`` events. For 256 nodes and seed 1 the latencies sum to 27,744,465,
their maximum is 865 and the last event is at 2657; with causal order by vector clocks the sum is 27,746,018, 539
publications wait, and at most 4 at one node at a time.

It runs on the general engine and the broadcast that everything else uses. Sizes that are not a power of two, and
fewer publishers, are allowed too. The *whole protocol* is the same work done by VCube-PS: all nodes are members of
one topic, publications carry causal barriers and are delivered in causal order, at the same ticks as by vector clocks.
With *aggregation* the broadcast is that of chapter 4 of the thesis on its calibrated model
(:mod:`antiphon_lab.experiments.aggregation.model`), where delays vary and there are no acknowledgements.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from antiphon.fabrics.cube import full_or_partial
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import GOLDEN_GAMMA, mix64
from antiphon.orders.order import Order
from antiphon.orders.vectors import CausalVectors
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.experiments.aggregation import model as aggregation
from antiphon_lab.protocols.cube.causal_aggregation import CausalAggregation

WINDOW_TICKS = 1001
PROPAGATION_TICKS = 100


class ReferenceMeasurement(msgspec.Struct, omit_defaults=True):
    """The result of one run. ``seconds`` is the run alone; creating nodes and scheduling starts is set-up."""

    nodes: int
    seed: int
    events: int
    seconds: float
    events_per_second: float
    sum_latency: int
    mean_latency: float
    max_latency: int
    end_time: int
    peak_memory_bytes: int
    setup_seconds: float
    publishers: int | None = None
    held_total: int | None = None
    held_peak: int | None = None
    receptions: int | None = None
    receptions_per_second: float | None = None
    packets: int | None = None

    @classmethod
    def of_run(
        cls,
        nodes: int,
        seed: int,
        events: int,
        receptions: int,
        sum_latency: int,
        max_latency: int,
        end_time: int,
        times: tuple[float, float, float],
    ) -> ReferenceMeasurement:
        """The measurement from the counters of a run and the times of its beginning, its start, and its end."""
        begun, ready, done = times
        return cls(
            nodes=nodes,
            seed=seed,
            events=events,
            seconds=done - ready,
            events_per_second=events / (done - ready),
            sum_latency=sum_latency,
            mean_latency=sum_latency / receptions,
            max_latency=max_latency,
            end_time=end_time,
            peak_memory_bytes=peak_memory_bytes(),
            setup_seconds=ready - begun,
        )


def start_ticks(seed: int, identifier: int) -> int:
    """The time at which a node starts its broadcast."""
    return (mix64(seed + (identifier + 1) * GOLDEN_GAMMA) >> 11) % WINDOW_TICKS


def run_reference(nodes: int, seed: int, causal: bool = False, publishers: int | None = None) -> ReferenceMeasurement:
    """Run the workload; with ``publishers`` only the first so many nodes start a broadcast."""
    check_sizes(nodes, publishers)
    cube = full_or_partial(nodes)
    orders: list[Order] = []

    def build(environment: Environment) -> Process:
        if not causal:
            return TreeBroadcast(environment, cube)
        orders.append(CausalVectors(environment.identifier))
        return TreeBroadcast(environment, cube, orders[-1])

    return on_reference(nodes, seed, publishers, build, orders)


def run_whole_protocol(nodes: int, seed: int, publishers: int | None = None) -> ReferenceMeasurement:
    """Run the workload on VCube-PS: all nodes are members of one topic from the start."""
    check_sizes(nodes, publishers)
    cube = full_or_partial(nodes)
    view = View(cube.dimension, range(nodes))
    options = Options(largest_first=False)
    orders: list[Order] = []

    def build(environment: Environment) -> Process:
        process = VCubePs(environment, cube, options)
        process.begin_as_member(0, view)
        orders.append(process.topics()[0].order)
        return process

    return on_reference(nodes, seed, publishers, build, orders)


def run_aggregation(nodes: int, seed: int) -> ReferenceMeasurement:
    """Run causal aggregation on its calibrated model: every node broadcasts one message of 50 bytes."""
    check_sizes(nodes, None)
    begun = time.perf_counter()
    cube = full_or_partial(nodes)
    orders: list[Order] = []

    def build(environment: Environment) -> Process:
        process = CausalAggregation(environment, cube)
        orders.append(process.order)
        return process

    case = aggregation.AggregationCase(nodes)
    law = NormalDelay(aggregation.MEAN_TICKS, aggregation.LAWS[case.starts].deviation_ticks)
    engine = Engine(nodes, NetworkModel(law), build, seed)
    for identifier, start in enumerate(aggregation.start_times(case, seed)):
        engine.at(start, PublishAction(identifier, bytes(case.payload_bytes)))
    measurement = measured(engine, nodes, seed, None, orders, begun)
    measurement.receptions = engine.deliveries - engine.own_deliveries
    measurement.receptions_per_second = measurement.receptions / measurement.seconds
    measurement.packets = engine.sent
    return measurement


def on_reference(
    nodes: int, seed: int, publishers: int | None, build: Callable[[Environment], Process], orders: list[Order]
) -> ReferenceMeasurement:
    """Run the workload on processes that ``build`` makes, with ``orders`` where there are any."""
    begun = time.perf_counter()
    engine = Engine(nodes, NetworkModel(ConstantDelay(PROPAGATION_TICKS)), build, seed)
    for identifier in range(nodes if publishers is None else publishers):
        engine.at(start_ticks(seed, identifier), PublishAction(identifier))
    return measured(engine, nodes, seed, publishers, orders, begun)


def measured(
    engine: Engine, nodes: int, seed: int, publishers: int | None, orders: list[Order], begun: float
) -> ReferenceMeasurement:
    """Run a prepared engine; preparation started at ``begun``."""
    ready = time.perf_counter()
    engine.run()
    measurement = ReferenceMeasurement.of_run(
        nodes=nodes,
        seed=seed,
        events=engine.events,
        receptions=engine.deliveries - engine.own_deliveries,
        sum_latency=engine.latency_sum,
        max_latency=engine.latency_maximum,
        end_time=engine.end_time,
        times=(begun, ready, time.perf_counter()),
    )
    measurement.publishers = publishers
    if orders:
        measurement.held_total = sum(order.held_total for order in orders)
        measurement.held_peak = max(order.held_peak for order in orders)
    return measurement


def check_sizes(nodes: int, publishers: int | None) -> None:
    """Refuse invalid sizes."""
    if nodes < 2:
        raise UsageError(f"the reference workload needs at least 2 nodes, not {nodes}; raise --nodes")
    if publishers is not None and not 1 <= publishers <= nodes:
        raise UsageError(f"from 1 to {nodes} of {nodes} nodes can publish, not {publishers}; change --publishers")


def peak_memory_bytes() -> int:
    """The peak memory of this process."""
    # This value of the kernel is for this program alone. The one of getrusage also includes, across exec, the memory of
    # the parent, which would make a small run look as large as its parent.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
