"""Peer sampling services, each alone: properties of their overlays, and the effects of failures and churn.

Nodes join one after the other, each through a random present one, and run one service. No node has a contact to turn to
later: damage that the overlay cannot repair by itself stays. A tick is a millisecond, a period a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.sampling.cyclon import Cyclon, CyclonOptions
from antiphon.fabrics.gossip.sampling.hyparview import HyParView, HyParViewOptions
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling, SamplingMessage
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import JoinAction
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.delays import NormalDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.experiments.brisa.graphs import (
    clustering,
    graph_of,
    largest_component,
    largest_strong_component,
    path_lengths,
)
from antiphon_lab.protocols.gossip.newscast import Newscast, NewscastOptions
from antiphon_lab.protocols.gossip.scamp import Scamp, ScampOptions

HYPARVIEW, CYCLON, NEWSCAST, SCAMP = "HyParView", "Cyclon", "Newscast", "Scamp"
SERVICES = (HYPARVIEW, CYCLON, NEWSCAST, SCAMP)
ACTIVE, VIEW, EXCHANGED, COPIES = 4, 30, 8, 1

GROWTH_STREAM = 13
PERIOD_MS = 1000
JOIN_GAP_MS = 50
SETTLING_MS = 30_000
REPAIR_MS = 30_000
CHURN_MINUTES = 3

MODEL: dict[str, object] = {
    "hops": "normal, 10 ms with a standard deviation of 2 ms",
    "joins": f"one per {JOIN_GAP_MS} ms, through a random node that is there; {SETTLING_MS // 1000} s to settle",
    "period_ms": PERIOD_MS,
    "failures": "links that are kept open break noticeably after one second",
    HYPARVIEW: f"active view {ACTIVE} with expansion 2, passive view {VIEW}",
    CYCLON: f"view {VIEW}, {EXCHANGED} exchanged",
    NEWSCAST: f"view {VIEW}",
    SCAMP: f"{COPIES} more copy of each subscription, about 2 ln n entries",
}


@dataclass(frozen=True)
class SamplingCase:
    """One simulation: a share of nodes that fail at once, or a percentage that is replaced per minute."""

    service: str
    nodes: int
    failing: int = 0
    churn: int = 0

    def __str__(self) -> str:
        text = f"{self.service}, {self.nodes} nodes"
        if self.failing:
            text += f", {self.failing} % fail"
        return f"{text}, {self.churn} % replaced per minute" if self.churn else text


@dataclass(frozen=True)
class Overlay:
    """The properties of an overlay; shares in percent. ``dead`` are entries of absent nodes."""

    nodes: int
    view: float
    in_degrees: np.ndarray
    connected: float
    strongly_connected: float
    clustering: float
    path_length: float
    diameter: int
    dead: float


@dataclass(frozen=True)
class Observed:
    """An overlay before anything fails, at once afterwards, and when there was time to repair it."""

    settled: Overlay
    struck: Overlay
    repaired: Overlay


def new_service(name: str, environment: Environment) -> PeerSampling:
    """A service at one node."""
    connections, listener = Connections(environment), Neighbourhood()
    if name == HYPARVIEW:
        return HyParView(environment, 0, connections, listener, HyParViewOptions(ACTIVE, VIEW))
    if name == CYCLON:
        return Cyclon(environment, 0, connections, listener, CyclonOptions(VIEW, EXCHANGED))
    if name == NEWSCAST:
        return Newscast(environment, 0, connections, listener, NewscastOptions(VIEW))
    return Scamp(environment, 0, connections, listener, ScampOptions(COPIES))


class SamplingHost(Process):
    """A peer sampling service with nothing above it."""

    def __init__(self, environment: Environment, service: PeerSampling, contact: int | None) -> None:
        super().__init__(environment)
        self.service = service
        self._contact = contact

    def start(self) -> None:
        if self._contact is not None:
            self.service.join(self._contact)
        # Nodes are not in step.
        self.environment.set_timer(1 + self.environment.random().below(PERIOD_MS), 0)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        assert isinstance(message, SamplingMessage), "nothing else is sent"
        self.service.receive(sender, message)

    def expire(self, name: int) -> None:
        self.service.tick()
        self.environment.set_timer(PERIOD_MS, 0)

    def peer_lost(self, peer: int) -> None:
        self.service.lost(peer)


class SamplingReplacement(Action):
    """A node fails, and a new one joins."""

    def __init__(self, world: World, newcomer: int) -> None:
        self._world = world
        self._newcomer = newcomer

    def run(self, engine: Engine) -> None:
        self._world.fail_one()
        engine.join(self._newcomer)


class World:
    """Nodes with one service each."""

    def __init__(self, case: SamplingCase, seed: int) -> None:
        self._case = case
        self._random = RandomStream(seed, GROWTH_STREAM)
        self.replaced = case.nodes * case.churn * CHURN_MINUTES // 100
        total = case.nodes + self.replaced
        self.present: list[int] = []
        network = NetworkModel(NormalDelay(10, 2), transmission=0, processing=0, in_order=True)
        self.engine = Engine(total, network, self._build, seed, can_fail=True, absent=set(range(total)))
        for node in range(case.nodes):
            self.engine.at(node * JOIN_GAP_MS, JoinAction(node))
        self.settled_at = case.nodes * JOIN_GAP_MS + SETTLING_MS

    def _build(self, environment: Environment) -> SamplingHost:
        contact = self.present[self._random.below(len(self.present))] if self.present else None
        self.present.append(int(environment.identifier))
        return SamplingHost(environment, new_service(self._case.service, environment), contact)

    def fail_one(self) -> None:
        """A random node stops."""
        place = self._random.below(len(self.present))
        self.present[place], self.present[-1] = self.present[-1], self.present[place]
        self.engine.crash(self.present.pop())

    def observe(self) -> Overlay:
        """The properties of the overlay of present nodes now."""
        views: dict[int, list[int]] = {}
        for node in sorted(self.present):
            process = self.engine.nodes[node].process
            assert isinstance(process, SamplingHost), "the node is there"
            views[node] = [int(peer) for peer in process.service.neighbours()]
        graph = graph_of(views)
        entries = sum(len(view) for view in views.values())
        mean, largest = path_lengths(graph)
        return Overlay(
            nodes=len(views),
            view=entries / len(views),
            in_degrees=graph.sum(axis=0),
            connected=100 * largest_component(graph) / len(views),
            strongly_connected=100 * largest_strong_component(graph) / len(views),
            clustering=clustering(graph),
            path_length=mean,
            diameter=largest,
            dead=100 * (1 - float(graph.sum()) / max(1, entries)),
        )


def measure(case: SamplingCase, seed: int) -> Observed:
    """Grow an overlay, apply the case to it, and observe it three times."""
    world = World(case, seed)
    engine = world.engine
    engine.run(world.settled_at)
    settled = world.observe()
    at = world.settled_at
    for _ in range(case.nodes * case.failing // 100):
        world.fail_one()
    churn_ms = CHURN_MINUTES * 60_000 if case.churn else 0
    for number in range(world.replaced):
        engine.at(at + 1 + number * churn_ms // world.replaced, SamplingReplacement(world, case.nodes + number))
    engine.run(at + churn_ms)
    struck = world.observe()
    engine.run(at + churn_ms + REPAIR_MS)
    return Observed(settled, struck, world.observe())
