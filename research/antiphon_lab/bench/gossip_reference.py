"""A fixed amount of work for the gossip fabric: a system joins one overlay, then one node sends a stream.

``N`` nodes are members of one topic. One in a thousand is a contact, and at least three are; the others join through
these at random times of a window. A node needs a tick to send a message, and a contact sends about a dozen for each
newcomer; the window is such that a newcomer comes to each contact every twenty ticks (fifty per second, if a tick is a
millisecond), which leaves no queue. Thirty seconds later, when the overlay has come to rest, node ``N // 2`` begins to
publish, five times per second, as in section 4.3 of the thesis of M. Matos. Active views of 4 with expansion 2, trees,
first-come parents, order fifo. A hop takes 102 ticks. The run ends when the whole system has fallen silent.
"""

from __future__ import annotations

import gc
import time

import msgspec

from antiphon.fabrics.gossip import Brisa, BrisaOptions
from antiphon.fabrics.gossip.messages import structure_key
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.bench.reference import PROPAGATION_TICKS, peak_memory_bytes

NODES_PER_CONTACT = 1000
FEWEST_CONTACTS = 3
TICKS_PER_JOIN = 20
SETTLING_TICKS = 30_000
GAP_TICKS = 200


class GossipMeasurement(msgspec.Struct):
    """The result of one run. The overlay is built before the first publication; ``seconds`` are those of all of it."""

    nodes: int
    publications: int
    seed: int
    events: int
    seconds: float
    bootstrap_seconds: float
    setup_seconds: float
    processor_seconds: float
    """Processor time of the process, setup included; on a busy machine less than elapsed time."""
    events_per_second: float
    peak_memory_bytes: int
    deliveries: int
    """One for each node and publication, if nothing is missing."""
    duplicates: int
    mean_links: float
    mean_depth: float
    largest_depth: int
    mean_latency: float
    max_latency: int
    end_time: int

    @property
    def is_complete(self) -> bool:
        """Whether every node has delivered everything."""
        return self.deliveries == self.nodes * self.publications


def run_gossip(nodes: int, publications: int, seed: int) -> GossipMeasurement:
    """Run the workload."""
    if nodes < FEWEST_CONTACTS:
        raise UsageError(f"the workload has {FEWEST_CONTACTS} contacts and needs at least as many nodes, not {nodes}")
    if publications < 1:
        raise UsageError(f"a stream has at least 1 publication, not {publications}")
    begun = time.perf_counter()
    processor_begun = time.process_time()
    contacts = range(max(FEWEST_CONTACTS, nodes // NODES_PER_CONTACT))
    window = nodes * TICKS_PER_JOIN // len(contacts)
    options = BrisaOptions(contacts=contacts, order="fifo", join_window=window)
    processes: list[Brisa] = []

    def build(environment: Environment) -> Brisa:
        process = Brisa(environment, options)
        if environment.identifier in contacts:
            process.begin_as_contact(0, environment.identifier == contacts[0])
        process.begin_as_member(0)
        processes.append(process)
        return process

    gc.disable()
    try:
        engine = Engine(nodes, NetworkModel(ConstantDelay(PROPAGATION_TICKS)), build, seed)
        source = nodes // 2
        start = window + SETTLING_TICKS
        for number in range(publications):
            engine.at(start + number * GAP_TICKS, PublishAction(source))
        ready = time.perf_counter()
        engine.run(start - 1)
        joined = time.perf_counter()
        engine.run()
        done = time.perf_counter()
        processor_done = time.process_time()
    finally:
        gc.enable()
    groups = [process.group(0) for process in processes]
    depths = [int(group.trees.structure(structure_key(source, 0)).position.depth) for group in groups]
    return GossipMeasurement(
        nodes=nodes,
        publications=publications,
        seed=seed,
        events=engine.events,
        seconds=done - ready,
        bootstrap_seconds=joined - ready,
        setup_seconds=ready - begun,
        processor_seconds=processor_done - processor_begun,
        events_per_second=int(engine.events) / (done - ready),
        peak_memory_bytes=peak_memory_bytes(),
        deliveries=engine.deliveries,
        duplicates=sum(int(group.duplicates) for group in groups),
        mean_links=sum(len(group.sampling.neighbours()) for group in groups) / nodes,
        mean_depth=sum(depths) / nodes,
        largest_depth=max(depths),
        mean_latency=int(engine.latency_sum) / max(1, int(engine.deliveries - engine.own_deliveries)),
        max_latency=engine.latency_maximum,
        end_time=engine.end_time,
    )
