"""One run of EpTO as the thesis of M. Matos evaluates it (section 5.3), and its measurements.

Every node runs a round every 125 ticks, give or take a tenth, and publishes in it with probability ``rate``, just
before the ball leaves. A message takes as long as a ping between PlanetLab nodes, of which the text gives five numbers
(Figure 5.7). Open points of the text, and how they are read here:

* **Delays** are drawn for every message, from a distribution in straight lines through eight points that has the five
  published numbers.
* **Rounds.** Every node publishes in 25 rounds, beginning at a random moment of a period, and continues until
  everything is delivered. The next round is one period after the last one, give or take: errors add up.
* **Views** are perfect: a node draws from all present nodes. Fanout and ttl follow from the published formulas.
* **The algorithm** is the published one with corrected comparisons in the ordering component: whole events in the
  balls, which are relayed when they arrive again. A copy at its last hop goes to the ordering component.
* **Unordered** delivery is the moment at which a node first receives an event, within the same run.
* **Similarity** is the longest part of a node's sequence that is in the order of all events, as a share of them.
* **Churn.** Half of the nodes are mortal. Every period ``churn`` percent of all nodes, drawn from these, crash at once
  and as many new ones join, which publish as all do. Only remaining nodes, and their publications, are measured.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from antiphon.fabrics.gossip.epto.analysis import published_fanout, published_ttl
from antiphon.fabrics.gossip.epto.dissemination import EptoListener
from antiphon.fabrics.gossip.epto.messages import ENTRY_BYTES, Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import EptoClock, HostClock, LogicalClock
from antiphon.fabrics.gossip.epto.process import Epto
from antiphon.fabrics.gossip.sampling.known_nodes import Everybody, KnownNodes
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling
from antiphon.kernel.message import Publication
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.engine import Action, Engine, SimulatedApplication
from antiphon.simulator.network.delays import QuantileDelay
from antiphon.simulator.network.network import NetworkModel

PERIOD_TICKS = 125
DRIFT = 0.1
ROUNDS = 25
PLANETLAB = [(0.0, 1), (0.05, 15), (0.25, 70), (0.5, 125), (0.75, 215), (0.95, 366), (0.99, 480), (1.0, 800)]
"""Shares of the pings and the ticks that they do not exceed."""

GLOBAL, LOGICAL = "global", "logical"
CHURN_STREAM = 141

MODEL: dict[str, object] = {
    "period_ticks": PERIOD_TICKS,
    "drift": DRIFT,
    "publishing_rounds": ROUNDS,
    "delay_points": PLANETLAB,
    "fanout": "ceil(2 e ln n / ln ln n)",
    "ttl": "ceil(log2 n)",
    "views": "perfect: all nodes that are there",
    "balls": "whole events, relayed when they come in again",
}


@dataclass(frozen=True)
class EptoCase:
    """One simulation. ``churn`` is the percentage of nodes that is replaced in every period."""

    nodes: int
    rate: float
    clock: str = GLOBAL
    period: int = PERIOD_TICKS
    drift: float = DRIFT
    churn: int = 0
    persists: bool = False
    digests: bool = False
    adapts: bool = False
    payload_bytes: int = 0

    def __str__(self) -> str:
        parts = [f"EpTO, {self.nodes} nodes, rate {self.rate:g}, {self.clock} clock"]
        if self.period != PERIOD_TICKS:
            parts.append(f"period {self.period}")
        if self.drift != DRIFT:
            parts.append(f"drift {self.drift:g}")
        if self.churn:
            parts.append(f"churn {self.churn} %")
        parts += [name for name in ("persists", "digests", "adapts") if getattr(self, name)]
        return ", ".join(parts)

    def options(self) -> EptoOptions:
        """The configuration of all nodes."""
        return EptoOptions(
            self.nodes,
            fanout=int(published_fanout(self.nodes)),
            ttl=int(published_ttl(self.nodes)),
            period=self.period,
            drift=self.drift,
            clock=self.clock,
            persists=self.persists,
            digests=self.digests,
            adapts=self.adapts,
            agreement=0.0,
        )


class RoundPublisher(Epto):
    """A node that publishes in some of its first rounds."""

    def __init__(
        self,
        environment: Environment,
        options: EptoOptions,
        clock: EptoClock,
        rate: float,
        payload: bytes,
        listener: EptoListener | None = None,
        is_founder: bool = True,
        rounds: int = ROUNDS,
    ) -> None:
        super().__init__(environment, options, clock, is_founder, 0, listener)
        self._rate = rate
        self._payload = payload
        self.rounds_left = rounds
        self.watch: Callable[[int], None] | None = None
        """Called before every round of this node."""

    def start(self) -> None:
        super().start()
        self.wake()

    def round_begins(self) -> None:
        if self.watch is not None:
            self.watch(int(self.me))
        if self.rounds_left > 0:
            self.rounds_left -= 1
            if self.environment.random().chance(self._rate):
                self.publish(self._payload)

    def is_idle(self) -> bool:
        return self.rounds_left == 0 and super().is_idle()


@dataclass
class Seen(SimulatedApplication):
    """The events that nodes received and delivered, in order."""

    now: Callable[[], int]
    heard: dict[int, dict[Stamped, None]] = field(default_factory=dict)
    """Each event once: an event may arrive again after it was delivered and forgotten."""
    heard_ticks: int = 0
    heard_count: int = 0
    heard_at: dict[tuple[int, Stamped], int] = field(default_factory=dict)
    delivered_at: dict[int, list[tuple[Stamped, int]]] = field(default_factory=dict)

    def hears(self, node: int, publication: Stamped) -> None:
        """A node receives an event for the first time."""
        heard = self.heard.setdefault(node, {})
        if publication in heard:
            return
        heard[publication] = None
        self.heard_at[node, publication] = self.now()
        if publication.source != node:
            self.heard_ticks += self.now() - int(publication.timestamp)
            self.heard_count += 1

    def corrects(self, node: int, publication: Stamped) -> None:
        """A node gets an event after others that it precedes: only where late events are corrected."""
        raise AssertionError("late events are dropped in these runs")

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        assert isinstance(publication, Stamped), "EpTO delivers nothing else"
        ticks = self.now() - int(publication.timestamp)
        self.delivered_at.setdefault(int(node), []).append((publication, ticks))


class Ear(EptoListener):
    """Reports the events that one node receives."""

    def __init__(self, node: int, seen: Seen) -> None:
        self._node = node
        self._seen = seen

    def on_publication(self, publication: Stamped) -> None:
        self._seen.hears(self._node, publication)

    def on_correction(self, publication: Stamped) -> None:
        self._seen.corrects(self._node, publication)


class EptoReplacement(Action):
    """In one period of churn: some mortal nodes crash, and as many new ones come."""

    def __init__(self, run: EptoRun, count: int) -> None:
        self._run = run
        self._count = count

    def run(self, engine: Engine) -> None:
        run = self._run
        for _ in range(self._count):
            place = int(run.random.below(len(run.mortal)))
            gone, run.mortal[place] = run.mortal[place], run.next_node
            run.known.remove(gone)
            engine.crash(gone)
            run.known.add(run.next_node)
            engine.join(run.next_node)
            run.next_node += 1


class EptoRun:
    """A system that is run once."""

    def __init__(self, case: EptoCase, seed: int) -> None:
        self.case = case
        self.options = case.options()
        self.random = RandomStream(seed, CHURN_STREAM)
        self.known = KnownNodes()
        self.processes: list[RoundPublisher] = []
        periods = ROUNDS if case.churn else 0
        per_period = case.nodes * case.churn // 100
        self.next_node = case.nodes
        self.mortal = list(range(case.nodes // 2, case.nodes)) if case.churn else []
        for node in range(case.nodes):
            self.known.add(node)
        self.seen = self.new_seen()
        self.engine = Engine(
            case.nodes + periods * per_period,
            NetworkModel(QuantileDelay(PLANETLAB), transmission=0, processing=0),
            self._build,
            seed,
            can_fail=case.churn > 0,
            absent=set(range(case.nodes, case.nodes + periods * per_period)),
            application=self.seen,
        )
        for period in range(1, periods + 1):
            self.engine.at(period * PERIOD_TICKS, EptoReplacement(self, per_period))

    def new_seen(self) -> Seen:
        """Where events are noted."""
        return Seen(lambda: int(self.engine.calendar.now))

    def _build(self, environment: Environment) -> RoundPublisher:
        case = self.case
        clock: EptoClock = LogicalClock() if case.clock == LOGICAL else HostClock(environment)
        is_founder = environment.identifier < case.nodes
        payload = bytes(case.payload_bytes)
        ear = Ear(int(environment.identifier), self.seen)
        process = RoundPublisher(environment, self.options, clock, case.rate, payload, ear, is_founder)
        process.begin(self.peers_of(environment), [])
        self.processes.append(process)
        return process

    def peers_of(self, environment: Environment) -> PeerSampling:
        """The source of a node's peers: all present nodes."""
        return Everybody(environment, 0, Connections(environment), Neighbourhood(), self.known)

    def run(self) -> EptoOutcome:
        """Run to the end."""
        self.engine.run()
        return outcome_of(self)


@dataclass(frozen=True)
class EptoOutcome:
    """The results of a run, of remaining nodes and their publications."""

    events: int
    unordered_ticks: float
    ordered_ticks: float
    delivered_share: float
    hole_free_share: float
    """The share of nodes that delivered everything."""
    disorders: int
    """Pairs of neighbours in a node's sequence that are not in the one order; EpTO allows none."""
    similarities: tuple[float, ...]
    """Without ordering: for each node, the share of received events that arrived in order."""
    entries_per_ball: float
    largest_ball: int
    bytes_per_node_and_round: float
    payload_copies_per_delivery: float
    mean_period: float
    mean_ttl: float
    holes_reported: int


def outcome_of(run: EptoRun) -> EptoOutcome:
    """Measure."""
    case, seen = run.case, run.seen
    stays = range(case.nodes // 2 if case.churn else case.nodes)
    events = {event for node in stays for event in seen.heard.get(node, {}) if event.source == node}
    place_of = {event: place for place, event in enumerate(sorted(events, key=key_of))}
    ticks, count, complete, disorders = 0, 0, 0, 0
    similarities = []
    for node in stays:
        delivered = [(event, took) for event, took in seen.delivered_at.get(node, []) if event in place_of]
        ticks += sum(took for event, took in delivered if event.source != node)
        count += sum(event.source != node for event, _ in delivered)
        complete += len(delivered) == len(events)
        places = [place_of[event] for event, _ in delivered]
        disorders += sum(one >= other for one, other in pairwise(places))
        heard = [place_of[event] for event in seen.heard.get(node, {}) if event in place_of]
        similarities.append(longest_ascent(heard) / len(events))
    processes = run.processes
    rounds = sum(int(process.balls.round) for process in processes)
    balls = sum(int(process.balls.balls_sent) for process in processes)
    entries = sum(int(process.balls.entries_sent) for process in processes)
    copies = sum(int(process.balls.payloads.copies_sent) for process in processes)
    bytes_sent = sum(int(process.balls.payloads.bytes_sent) for process in processes) + entries * int(ENTRY_BYTES)
    return EptoOutcome(
        events=len(events),
        unordered_ticks=seen.heard_ticks / max(1, seen.heard_count),
        ordered_ticks=ticks / max(1, count),
        delivered_share=(count + len(events)) / (len(events) * len(stays)),
        hole_free_share=complete / len(stays),
        disorders=disorders,
        similarities=tuple(similarities),
        entries_per_ball=entries / balls,
        largest_ball=max(int(process.balls.largest_ball) for process in processes),
        bytes_per_node_and_round=bytes_sent / rounds,
        payload_copies_per_delivery=copies / max(1, count),
        mean_period=statistics.fmean(int(process.rounds.period) for process in processes),
        mean_ttl=statistics.fmean(int(process.balls.ttl) for process in processes),
        holes_reported=int(run.engine.lost),
    )


def key_of(event: Stamped) -> tuple[int, int, int]:
    """The place of an event in the one order."""
    return int(event.stamp), int(event.source), int(event.sequence)


def longest_ascent(places: list[int]) -> int:
    """How long the longest ascending part of a sequence is, gaps allowed (Schensted 1961)."""
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        if at == len(ends):
            ends.append(place)
        else:
            ends[at] = place
    return len(ends)


def measure(case: EptoCase, seed: int) -> EptoOutcome:
    """Run a case once."""
    return EptoRun(case, seed).run()
