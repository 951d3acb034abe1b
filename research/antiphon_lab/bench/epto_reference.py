"""A fixed amount of work for EpTO: every node publishes with some probability in each of its first rounds.

The set-up is that of the experiments (:mod:`antiphon_lab.experiments.epto.runs`): PlanetLab delays, a period of 125
ticks with a drift of a tenth, perfect views, published fanout and ttl, global clock, whole events in balls unless told
otherwise. Events persist in balls, as they do by default; as published, where each comes into balls again whenever a
copy comes that took longer, there are several times as many entries. The run ends when everything is delivered and all
nodes have fallen silent. Most of the work is to look up entries of balls, nearly all of which are known: ``entries``
counts them.
"""

from __future__ import annotations

import gc
import time

import msgspec

from antiphon.fabrics.gossip.epto.order import HostClock
from antiphon.fabrics.gossip.sampling.known_nodes import Everybody, KnownNodes
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import QuantileDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.bench.reference import peak_memory_bytes
from antiphon_lab.experiments.epto.runs import PLANETLAB, EptoCase, RoundPublisher

PAYLOAD = bytes(100)


class EptoMeasurement(msgspec.Struct):
    """The result of one run."""

    nodes: int
    rate: float
    rounds: int
    digests: bool
    published: bool
    """Whether an event leaves the balls when it does not arrive again, and enters them whenever it does."""
    seed: int
    publications: int
    deliveries: int
    """One for each node and publication, if nothing is missing."""
    holes: int
    balls: int
    entries: int
    """Entries of all balls that were sent."""
    largest_ball: int
    payload_copies: int
    events: int
    seconds: float
    setup_seconds: float
    processor_seconds: float
    """Processor time of the process, setup included; on a busy machine less than elapsed time."""
    entries_per_second: float
    """Entries per second of processor time."""
    peak_memory_bytes: int
    mean_latency: float
    max_latency: int
    end_time: int


def run_epto(
    nodes: int, rate: float, rounds: int, seed: int, digests: bool = False, published: bool = False
) -> EptoMeasurement:
    """Run the workload."""
    if nodes < 2 or rounds < 1 or not 0 < rate <= 1:
        raise UsageError(
            f"{nodes} nodes, {rounds} rounds and a rate of {rate} give no events; choose at least 2 nodes and "
            "1 round, and a rate above 0 and up to 1"
        )
    begun, processor_begun = time.perf_counter(), time.process_time()
    options = EptoCase(nodes, rate, digests=digests, persists=not published).options()
    known = KnownNodes()
    for node in range(nodes):
        known.add(node)
    processes: list[RoundPublisher] = []

    def build(environment: Environment) -> RoundPublisher:
        process = RoundPublisher(environment, options, HostClock(environment), rate, PAYLOAD, rounds=rounds)
        process.begin(Everybody(environment, 0, Connections(environment), Neighbourhood(), known), [])
        processes.append(process)
        return process

    gc.disable()
    try:
        engine = Engine(nodes, NetworkModel(QuantileDelay(PLANETLAB), transmission=0, processing=0), build, seed)
        ready = time.perf_counter()
        engine.run()
        done, processor_done = time.perf_counter(), time.process_time()
    finally:
        gc.enable()
    entries = sum(int(process.balls.entries_sent) for process in processes)
    return EptoMeasurement(
        nodes=nodes,
        rate=rate,
        rounds=rounds,
        digests=digests,
        published=published,
        seed=seed,
        publications=engine.own_deliveries,
        deliveries=engine.deliveries,
        holes=engine.lost,
        balls=sum(int(process.balls.balls_sent) for process in processes),
        entries=entries,
        largest_ball=max(int(process.balls.largest_ball) for process in processes),
        payload_copies=sum(int(process.balls.payloads.copies_sent) for process in processes),
        events=engine.events,
        seconds=done - ready,
        setup_seconds=ready - begun,
        processor_seconds=processor_done - processor_begun,
        entries_per_second=entries / (processor_done - processor_begun),
        peak_memory_bytes=peak_memory_bytes(),
        mean_latency=int(engine.latency_sum) / max(1, int(engine.deliveries - engine.own_deliveries)),
        max_latency=engine.latency_maximum,
        end_time=engine.end_time,
    )
