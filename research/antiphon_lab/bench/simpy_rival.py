"""The reference workload written on SimPy, the simulation library that most people know, as fast as we could make it.

A node's start is a SimPy process. A copy is a timeout whose callback hands it to the receiver: giving each copy a
process of its own, as SimPy's tutorials do, computes the same at half the speed, and putting mailboxes (stores) between
nodes takes five times as long. The garbage collector is off while it runs, as it is in our engine, which doubles its
speed again at 1024 nodes. SimPy is needed for this module only.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import cast

import simpy

from antiphon.kernel.errors import UsageError
from antiphon_lab.bench.reference import PROPAGATION_TICKS, ReferenceMeasurement, check_sizes, start_ticks

FLIGHT_TICKS = PROPAGATION_TICKS + 1
NOBODY = -1

Publication = tuple[int, int]
"""Its source and the time of publication."""

Copy = tuple[int, Publication, bool]
"""Sender, publication, and whether it is an acknowledgement."""


@dataclass
class Counters:
    """The totals of a run."""

    events: int = 0
    latency_sum: int = 0
    latency_maximum: int = 0


class Node:
    """One node: output server, tree broadcast, acknowledgements."""

    def __init__(
        self, environment: simpy.Environment, identifier: int, dimension: int, nodes: list[Node], counters: Counters
    ) -> None:
        self._environment = environment
        self._identifier = identifier
        self._dimension = dimension
        self._nodes = nodes
        self._counters = counters
        self._free = 0
        # Per publication: children that have not answered, and the parent to answer to.
        self._unacknowledged: dict[Publication, tuple[int, int]] = {}

    def begin(self, start: int) -> Generator[simpy.Event, None, None]:
        """The process of this node's one broadcast."""
        yield self._environment.timeout(start)
        self._counters.events += 1
        self._send_down(start, (self._identifier, start), NOBODY, self._dimension)

    def arrive(self, event: simpy.Event) -> None:
        """The end of a timeout: a copy has been processed by the receiver's input stage."""
        sender, publication, acknowledges = cast(Copy, event.value)
        now = int(self._environment.now)
        counters = self._counters
        counters.events += 1
        if acknowledges:
            self._acknowledged(now, publication)
            return
        latency = now - publication[1]
        counters.latency_sum += latency
        if latency > counters.latency_maximum:
            counters.latency_maximum = latency
        self._send_down(now, publication, sender, (self._identifier ^ sender).bit_length() - 1)

    def _send_down(self, now: int, publication: Publication, parent: int, height: int) -> None:
        for bit in range(height):
            self._send(now, self._identifier ^ (1 << bit), publication, False)
        if height > 0:
            self._unacknowledged[publication] = (height, parent)
        elif parent != NOBODY:
            self._send(now, parent, publication, True)

    def _acknowledged(self, now: int, publication: Publication) -> None:
        missing, parent = self._unacknowledged[publication]
        if missing > 1:
            self._unacknowledged[publication] = (missing - 1, parent)
            return
        del self._unacknowledged[publication]
        if parent != NOBODY:
            self._send(now, parent, publication, True)

    def _send(self, now: int, destination: int, publication: Publication, acknowledges: bool) -> None:
        free = self._free
        if free < now:
            free = now
        self._free = free + 1
        copy: Copy = (self._identifier, publication, acknowledges)
        timeout = simpy.Timeout(self._environment, free + 1 + FLIGHT_TICKS - now, copy)
        timeout.callbacks.append(self._nodes[destination].arrive)


def run_rival(nodes: int, seed: int) -> ReferenceMeasurement:
    """Run the reference workload on SimPy."""
    check_sizes(nodes, None)
    if nodes & (nodes - 1):
        raise UsageError(f"the SimPy program needs a power of two of nodes, not {nodes}; change --nodes")
    begun = time.perf_counter()
    environment = simpy.Environment()
    counters = Counters()
    everybody: list[Node] = []
    for identifier in range(nodes):
        everybody.append(Node(environment, identifier, nodes.bit_length() - 1, everybody, counters))
    for identifier, node in enumerate(everybody):
        environment.process(node.begin(start_ticks(seed, identifier)))
    ready = time.perf_counter()
    gc.disable()
    try:
        environment.run()
    finally:
        gc.enable()
    return ReferenceMeasurement.of_run(
        nodes=nodes,
        seed=seed,
        events=counters.events,
        receptions=nodes * (nodes - 1),
        sum_latency=counters.latency_sum,
        max_latency=counters.latency_maximum,
        end_time=int(environment.now),
        times=(begun, ready, time.perf_counter()),
    )
