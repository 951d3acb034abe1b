"""A room in which everybody speaks once and nobody hears an answer before its question.

Every node publishes once over its own tree. Delays vary, so a publication may arrive before one that its author had
already heard; causal order holds it back until that one is there. Used by the tour.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.fabrics.cube import TreeBroadcast, full_or_partial
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.lab.metrics import mean_latency
from antiphon.orders.vectors import CausalVectors
from antiphon.simulator.actions import Publish
from antiphon.simulator.engine import Engine
from antiphon.simulator.network import Network, NormalDelay
from antiphon.trace.store import MemoryTrace

MEAN_DELAY_TICKS = 100
DELAY_DEVIATION_TICKS = 25
WINDOW_TICKS = 1000
START_STREAM = 201


@dataclass(frozen=True)
class Wait:
    """A publication that came too early: from whom it was, when, and whose arrival at last set it free."""

    node: int
    source: int
    received: int
    delivered: int
    after: int


@dataclass(frozen=True)
class Room:
    """What happened."""

    nodes: int
    copies: int
    deliveries: int
    mean_latency: float
    held: int
    longest_wait: Wait | None


def run_room(nodes: int, seed: int) -> Room:
    """Let everybody speak once, at a random time."""
    cube = full_or_partial(nodes)
    orders: list[CausalVectors] = []

    def build(environment: Environment) -> Process:
        orders.append(CausalVectors(environment.identifier))
        return TreeBroadcast(environment, cube, orders[-1])

    trace = MemoryTrace("everything")
    network = Network(NormalDelay(MEAN_DELAY_TICKS, DELAY_DEVIATION_TICKS))
    engine = Engine(nodes, network, build, seed, trace.recorder)
    start = RandomStream(seed, START_STREAM)
    for identifier in range(nodes):
        engine.at(start.between(0, WINDOW_TICKS), Publish(identifier))
    engine.run()
    assert engine.deliveries == nodes * nodes, "nothing is lost, so everybody gets everything once"
    return Room(
        nodes=nodes,
        copies=engine.sent,
        deliveries=engine.deliveries,
        mean_latency=mean_latency(engine),
        held=sum(order.held_total for order in orders),
        longest_wait=longest_wait(trace.table()),
    )


def longest_wait(trace: pa.Table) -> Wait | None:
    """The publication that waited longest between its reception and its delivery; None if none had to wait."""
    received: dict[tuple[int, int], int] = {}
    arrived_last: dict[int, int] = {}
    longest: Wait | None = None
    chosen = pc.or_(
        pc.and_(pc.equal(trace["event"], "receive"), pc.equal(trace["message"], "Ordered")),
        pc.equal(trace["event"], "deliver"),
    )
    for row in trace.filter(chosen).select(["event", "time", "node", "source"]).to_pylist():
        node, source, time = row["node"], row["source"], row["time"]
        if row["event"] == "receive":
            received[node, source] = time
            arrived_last[node] = source
            continue
        since = received.get((node, source), time)
        if time > since and (longest is None or time - since > longest.delivered - longest.received):
            longest = Wait(node, source, since, time, arrived_last[node])
    return longest
