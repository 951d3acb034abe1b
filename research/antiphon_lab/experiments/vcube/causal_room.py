"""A room in which every node speaks once and none receives an answer before its question.

Every node publishes once over its own tree. Delays vary, so a publication may arrive before one that its author had
already received; causal order holds it back until that one arrives. Used by the tour.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.findings import Findings
from antiphon.audit.oracle import judge
from antiphon.simulator.scenario.run import Result, timed
from antiphon.simulator.scenario.scenario import NetworkTable, NormalLaw, OnceWorkload, Scenario
from antiphon.trace.store import MemoryTrace

MEAN_DELAY_TICKS = 100
DELAY_DEVIATION_TICKS = 25
WINDOW_TICKS = 1000


@dataclass(frozen=True)
class Wait:
    """A publication that arrived early: its author, its time, and the author whose publication released it."""

    node: int
    source: int
    received: int
    delivered: int
    after: int


@dataclass(frozen=True)
class Room:
    """The events of a run, and the verdict of a judge that shares no code with the protocol."""

    result: Result
    findings: Findings
    longest_wait: Wait | None


def run_room(nodes: int, seed: int) -> Room:
    """Let every node publish once, at a random time."""
    scenario = Scenario(
        name="a room",
        seed=seed,
        order="causal",
        nodes=nodes,
        network=NetworkTable(delay=NormalLaw(mean=MEAN_DELAY_TICKS, deviation=DELAY_DEVIATION_TICKS)),
        workload=OnceWorkload(window=WINDOW_TICKS),
    )
    trace = MemoryTrace("everything")
    result = timed(scenario, trace.recorder, None)
    table = trace.table()
    return Room(result, judge(table, nodes, everybody=True), longest_wait(table))


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
