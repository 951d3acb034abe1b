"""The model of chapter 4 of the thesis: every node broadcasts one message, with and without causal aggregation.

``N = 2**d`` nodes; a message has 50 bytes of payload and a compressed vector. A hop costs 1 tick in the sender's output
queue, a normal delay of mean 100 drawn anew for every packet, and 1 tick of processing (section 4.5.1).

The start times as published, "a random time given by a Poisson distribution with interval rate 1000", do not give the
published numbers, whichever way they are read. **Literal** is a Poisson variable of mean 1000, with the published
deviation of delays, 25. **Calibrated** is uniform in a window of 430 ticks with a deviation of 33: found by trying, it
gives the published packets at all sizes, and with them the messages per packet and the waits. **Wide delays** are the
calibrated start times with a deviation of 80, which holds messages back as long as published, and saves more packets.
**Fixed delays** are the calibrated start times with a delay that every link draws once and keeps, of deviation 75:
section 4.5.6 states for its experiment alone that a delay is drawn whenever a link is used, as if others differed.
Further windows and deviations (:data:`TRIED`) show which published numbers can come from one law at all
(:mod:`antiphon_lab.experiments.aggregation.start_laws`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import exp, lgamma, log

import numpy as np

from antiphon.fabrics.cube import PacketFormat, Traffic, full_or_partial
from antiphon.fabrics.cube.aggregation.process import AggregatingVCubePs
from antiphon.fabrics.cube.vcube_ps import Options
from antiphon.fabrics.cube.view import View
from antiphon.kernel.message import SOURCE_MASK
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import Delay, LinkDelay, NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.protocols.cube.causal_aggregation import CausalAggregation
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast
from antiphon_lab.protocols.cube.riding_aggregation import RidingOptions
from antiphon_lab.protocols.cube.timer_bundling import TimerBundling

MEAN_TICKS = 100
PAYLOAD_BYTES = 50
LARGEST_PACKET_BYTES = 1500
WORKLOAD_STREAM = 110
DELAY_STREAM = 111

CALIBRATED = "calibrated"
LITERAL = "literal"
WIDE = "wide delays"
FIXED = "fixed delays"
WINDOW_TICKS = 430
POISSON_MEAN_TICKS = 1000


@dataclass(frozen=True)
class StartLaw:
    """A window in which all start, None for the Poisson law, and the deviation of delays, per packet or per link."""

    window_ticks: int | None
    deviation_ticks: int
    per_link: bool = False

    def __str__(self) -> str:
        drawn = "link" if self.per_link else "packet"
        return f"window {self.window_ticks}, deviation {self.deviation_ticks} per {drawn}"


LAWS = {
    CALIBRATED: StartLaw(WINDOW_TICKS, 33),
    LITERAL: StartLaw(None, 25),
    WIDE: StartLaw(WINDOW_TICKS, 80),
    FIXED: StartLaw(WINDOW_TICKS, 75, per_link=True),
}
OTHER_LAWS = {
    str(law): law
    for window in (WINDOW_TICKS, 550, 1000)
    for law in (StartLaw(window, 33), StartLaw(window, 60, per_link=True), StartLaw(window, 75, per_link=True))
    if law not in LAWS.values()
}
LAWS |= OTHER_LAWS
TRIED = (WIDE, FIXED, *OTHER_LAWS)
"""The laws that are tried beside the calibrated one."""

AGGREGATION = "aggregation"
NO_AGGREGATION = "no aggregation"
TIMER = "timer"
SINGLE_TREE = "single tree"
RIDE_ALONG = "ride-along"
HYBRID = "hybrid"
TOPIC = "VCube-PS"
TOPIC_AGGREGATION = "VCube-PS with aggregation"
"""The first four are published, the others our own; VCube-PS is the topic protocol, on causal barriers."""

MODEL: dict[str, object] = {
    "transmission_ticks": 1,
    "processing_ticks": 1,
    "propagation_ticks": f"normal, mean {MEAN_TICKS}, drawn for every packet",
    "payload_bytes": PAYLOAD_BYTES,
    "largest_packet_bytes": LARGEST_PACKET_BYTES,
    "literal": f"start at a Poisson variable of mean {POISSON_MEAN_TICKS}, deviation {LAWS[LITERAL].deviation_ticks}",
    **{name: f"start uniform in a {law}" for name, law in LAWS.items() if name != LITERAL},
}


@dataclass(frozen=True)
class AggregationCase:
    """One simulation of the model. ``paired`` makes a delay depend on link and time alone, so that pairs share it."""

    nodes: int
    protocol: str = AGGREGATION
    starts: str = CALIBRATED
    payload_bytes: int = PAYLOAD_BYTES
    timer_ticks: int = 0
    paired: bool = False

    def __str__(self) -> str:
        timer = f" of {self.timer_ticks}" if self.timer_ticks > 0 else ""
        payload = f", {self.payload_bytes} bytes" if self.payload_bytes != PAYLOAD_BYTES else ""
        return f"{self.protocol}{timer}, {self.nodes} nodes, {self.starts}{payload}"


@dataclass(frozen=True)
class AggregationMeasures:
    """The results of one run. Times are means over all messages and receivers, in ticks.

    ``packets`` counts those with messages, ``answers`` acknowledgements. ``pending_peaks`` and ``largest_packets`` have
    an entry per node, ``dependencies`` one per message, and ``by_publications`` and ``by_bytes`` one per size of a
    packet.
    """

    packets: int
    answers: int
    bytes_sent: int
    closed: int
    reception: float
    delivery: float
    send_wait: float
    delayed: int
    by_publications: np.ndarray
    by_bytes: np.ndarray
    largest_packets: np.ndarray
    pending_peaks: np.ndarray
    dependencies: np.ndarray

    @property
    def pending(self) -> float:
        """The mean time between reception and delivery."""
        return self.delivery - self.reception

    @property
    def aggregated(self) -> int:
        """Packets with more than one message."""
        return int(self.by_publications[2:].sum())

    def reduction_percent(self, nodes: int) -> float:
        """How many packets fewer than one per message and edge."""
        return 100 * (1 - self.packets / (nodes * (nodes - 1)))


class DelayByMoment(Delay):
    """Normal delays that depend on the link and the time alone: two runs that send at the same time meet the same."""

    def __init__(self, law: Delay, seed: int) -> None:
        self._law = law
        self._seed = seed
        self.now: Callable[[], int] = lambda: 0

    def draw(self, sender: int, receiver: int, random: RandomStream) -> int:
        return int(
            self._law.draw(sender, receiver, RandomStream(self._seed, DELAY_STREAM, sender, receiver, self.now()))
        )


@dataclass(frozen=True)
class Journeys:
    """One run message by message: arrays by source and node. The diagonal, own messages, means nothing."""

    engine: Engine
    traffic: Traffic
    starts: np.ndarray
    received: np.ndarray
    together: np.ndarray
    delivered: np.ndarray
    dependencies: np.ndarray

    def measured(self) -> AggregationMeasures:
        """The run in numbers."""
        nodes = len(self.starts)
        elsewhere = ~np.eye(nodes, dtype=bool)
        latency = (self.received - self.starts[:, None])[elsewhere]
        by_publications = np.array(list(self.traffic.by_publications))
        packets = int(by_publications.sum())
        return AggregationMeasures(
            packets=packets,
            answers=int(self.engine.sent) - packets,
            bytes_sent=int(self.traffic.bytes_sent),
            closed=int(self.traffic.closed),
            reception=float(latency.mean()),
            delivery=float((self.delivered - self.starts[:, None])[elsewhere].mean()),
            send_wait=int(self.engine.queue_ticks) / int(self.engine.charged),
            delayed=int(np.count_nonzero((self.delivered > self.received)[elsewhere])),
            by_publications=by_publications,
            by_bytes=np.array(list(self.traffic.by_bytes)),
            largest_packets=np.array(list(self.traffic.largest)),
            pending_peaks=self.pending_peaks(),
            dependencies=self.dependencies,
        )

    def pending_peaks(self) -> np.ndarray:
        """Per node, the most messages in its buffer: as printed, a message is buffered before it is delivered.

        Receptions and deliveries are two lists, each in the order of events. After each message a node delivers all
        that it can. So a delivery follows the reception of its message or the delivery before it, whichever is later.
        """
        nodes = len(self.starts)
        arrivals, releases = columns(self.traffic.receptions, 4), columns(self.traffic.deliveries, 3)
        received, delivered = by_node(arrivals, nodes), by_node(releases, nodes)
        peaks = np.zeros(nodes, np.int64)
        for node in range(nodes):
            sources = arrivals[1][received[node]] & SOURCE_MASK
            # Its own message, which a single root sends back, is no message of others.
            sources = sources[sources != node]
            places = np.arange(1, len(sources) + 1)
            place_of = np.zeros(nodes, np.int64)
            place_of[sources] = places
            gone = place_of[releases[1][delivered[node]] & SOURCE_MASK]
            moments = np.maximum.accumulate(gone[gone > 0])
            peaks[node] = (places - np.searchsorted(moments, places, "left")).max(initial=0)
        return peaks


def by_node(rows: np.ndarray, nodes: int) -> list[np.ndarray]:
    """The places of the rows of each node, whose number is the first column, in their order."""
    places = np.argsort(rows[0], kind="stable")
    return np.split(places, np.searchsorted(rows[0][places], np.arange(1, nodes)))


def start_times(case: AggregationCase, seed: int) -> list[int]:
    """When each node broadcasts; the same for all protocols."""
    random = RandomStream(seed, WORKLOAD_STREAM)
    window = LAWS[case.starts].window_ticks
    if window is not None:
        return [int(random.below(window + 1)) for _ in range(case.nodes)]
    mean = POISSON_MEAN_TICKS
    cumulative = list(accumulate(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(2 * mean)))
    return [bisect_right(cumulative, random.uniform()) for _ in range(case.nodes)]


def builder(case: AggregationCase, traffic: Traffic) -> Callable[[Environment], Process]:
    """A function that builds the process at a node."""
    cube = full_or_partial(case.nodes)
    form = PacketFormat(LARGEST_PACKET_BYTES)
    view = View(cube.dimension, range(case.nodes))
    # As all the others here it serves the children in the order of their clusters.
    options = Options(largest_first=False)

    def build(environment: Environment) -> Process:
        if case.protocol == AGGREGATION:
            return CausalAggregation(environment, cube, form, traffic)
        if case.protocol == TIMER:
            return TimerBundling(environment, cube, form, traffic, case.timer_ticks)
        if case.protocol == SINGLE_TREE:
            return CausalAggregation(environment, cube, form, traffic, root=0)
        if case.protocol in (RIDE_ALONG, HYBRID):
            riding = RidingOptions(case.timer_ticks, case.protocol == HYBRID)
            return CausalAggregation(environment, cube, form, traffic, riding=riding)
        if case.protocol in (TOPIC, TOPIC_AGGREGATION):
            holds = case.protocol == TOPIC_AGGREGATION
            member = AggregatingVCubePs(environment, cube, options, form, traffic, holds)
            member.begin_as_member(0, view)
            return member
        return PacketBroadcast(environment, cube, form, traffic)

    return build


def travel(case: AggregationCase, seed: int) -> Journeys:
    """Run one case to its end."""
    law: Delay = NormalDelay(MEAN_TICKS, LAWS[case.starts].deviation_ticks)
    if LAWS[case.starts].per_link:
        law = LinkDelay(law, seed)
    by_moment = DelayByMoment(law, seed)
    # Acknowledgements, which only VCube-PS has, are free of charge, as in the published experiments with it.
    network = NetworkModel(by_moment if case.paired else law, charge_control=False)
    return travel_over(case, seed, network, by_moment)


def travel_over(
    case: AggregationCase, seed: int, network: NetworkModel, by_moment: DelayByMoment | None = None
) -> Journeys:
    """Run one case over a network to its end; ``by_moment`` is a law of delays that needs the clock."""
    nodes = case.nodes
    traffic = Traffic(nodes, LARGEST_PACKET_BYTES, keeps_journeys=True)
    engine = Engine(nodes, network, builder(case, traffic), seed)
    calendar = engine.calendar
    if by_moment is not None:
        by_moment.now = lambda: int(calendar.now)
    starts = start_times(case, seed)
    for node, time in enumerate(starts):
        engine.at(time, PublishAction(node, bytes(case.payload_bytes)))
    engine.run()
    assert engine.deliveries == nodes * nodes, "everybody delivers everything"
    received, together, delivered = (np.zeros((nodes, nodes), np.int64) for _ in range(3))
    arrivals = columns(traffic.receptions, 4)
    place = (arrivals[1] & SOURCE_MASK, arrivals[0])
    received[place], together[place] = arrivals[3], arrivals[2]
    releases = columns(traffic.deliveries, 3)
    delivered[releases[1] & SOURCE_MASK, releases[0]] = releases[2]
    named = np.zeros(nodes, np.int64)
    published = columns(traffic.published, 2)
    named[published[0] & SOURCE_MASK] = published[1]
    return Journeys(engine, traffic, np.array(starts), received, together, delivered, named)


def columns(rows: object, width: int) -> np.ndarray:
    """Rows of numbers that a compiled class has written down, as columns."""
    return np.frombuffer(rows, dtype=np.int64).reshape(-1, width).T  # type: ignore[call-overload, no-any-return]


def measure(case: AggregationCase, seed: int) -> AggregationMeasures:
    """Run one case and return its results."""
    return travel(case, seed).measured()
