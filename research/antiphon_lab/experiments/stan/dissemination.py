"""BRISA over StaN's overlays: what the alignment of topics is worth where payloads travel along trees.

The thesis of M. Matos calls the two a natural pair for large payloads on many topics (section 6.1), and leaves it open.
Every topic of a universe has a publisher that publishes a short stream. Compared are overlays before StaN, at its fixed
point, and overlays that change from one to the other in the middle of the streams; and BRISA as live nodes run it,
with an overlay of HyParView for each topic.

A **physical link** is a pair of processes that are neighbours in some topic. It carries payload if some tree uses it
after the first publications, which build the trees. The fewer links carry the same trees, the more publications share
one connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.messages import Beat, Data, FetchResponse
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Action, Engine, SimulatedApplication
from antiphon_lab.experiments.brisa.hops import CLUSTER, network_of
from antiphon_lab.experiments.stan.overlays import INITIAL, STAN, TopicOverlayCase, arranged
from antiphon_lab.experiments.stan.runs import LOST_DATA, MODEL, WIKIPEDIA, subscriptions_of, universe_named
from antiphon_lab.protocols.gossip.stan_brisa import StanBrisa
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series

CHANGING, HYPARVIEW = "initial, then StaN", "HyParView"
ARRANGEMENTS = (INITIAL, STAN, CHANGING, HYPARVIEW)
PUBLISHERS_STREAM = 155
MESSAGES = 12
CONSTRUCTION = 4
GAP_MS = 500
START_MS = 20_000
DRAIN_MS = 15_000
HYPARVIEW_ACTIVE = 4
Views = dict[int, dict[int, list[int]]]
"""By process and topic."""


@dataclass(frozen=True)
class TreesOverStanCase:
    """All topics of a universe, over overlays of one arrangement."""

    nodes: int
    arrangement: str

    def __str__(self) -> str:
        return f"BRISA over {self.arrangement} overlays, {self.nodes} processes like {WIKIPEDIA}"


@dataclass(frozen=True)
class TreesOverStan:
    """The results of a run. Links are counted per process; ``sends`` are the copies that each process sends."""

    missing: int
    copies: float
    """Copies of a publication per delivery, without the publications that build the trees."""
    latency_ms: float
    links: float
    carrying: float
    trees_per_link: float
    """How many pairs of topic and direction share a link that carries payload."""
    beats: float
    """Periodic messages per second and process while the streams run."""
    sends: np.ndarray


def symmetric_views(nodes: int, arrangement: str, seed: int) -> Views:
    """The neighbours of each process in each topic: those in its view, and those in whose view it is."""
    universe = universe_named(WIKIPEDIA, nodes)
    views = arranged(TopicOverlayCase(WIKIPEDIA, nodes, arrangement), seed)
    owners, of = subscriptions_of(universe)
    found: Views = {}
    for owner, topic in zip(owners.tolist(), of.tolist(), strict=True):
        found.setdefault(owner, {})[topic] = []
    for owner, topic, peer in zip(
        owners[views.place].tolist(), of[views.place].tolist(), views.neighbour.tolist(), strict=True
    ):
        for one, other in ((owner, peer), (peer, owner)):
            if other not in found[one][topic]:
                found[one][topic].append(other)
    return found


class Traffic:
    """The messages that arrive while streams run."""

    def __init__(self, nodes: int) -> None:
        self.is_counting = False
        self.copies = 0
        self.beats = 0
        self.sends = np.zeros(nodes, np.int64)
        self.used: set[tuple[int, int, int]] = set()
        """Topic, sender and receiver of payloads."""

    def note(self, sender: int, receiver: int, message: ProtocolMessage) -> None:
        """A message has arrived."""
        if isinstance(message, Beat):
            self.beats += 1
        elif isinstance(message, Data | FetchResponse) and message.sequence > CONSTRUCTION:
            self.copies += 1
            self.sends[sender] += 1
            self.used.add((int(message.topic), sender, receiver))


class WatchedTopics(Process):
    """BRISA at one node, with a counter of arrivals."""

    def __init__(self, environment: Environment, brisa: Brisa, traffic: Traffic) -> None:
        super().__init__(environment)
        self.brisa = brisa
        self._traffic = traffic

    def start(self) -> None:
        self.brisa.start()

    def publish(self, payload: bytes, topic: int = 0, order: int = -1) -> int:
        return self.brisa.publish(payload, topic, order)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if self._traffic.is_counting:
            self._traffic.note(int(sender), int(self.me), message)
        self.brisa.receive(sender, message)

    def expire(self, name: int) -> None:
        self.brisa.expire(name)

    def unfinished(self) -> int:
        return self.brisa.unfinished()


class TopicDelays(SimulatedApplication):
    """Deliveries at others than the publisher, after the trees were built."""

    def __init__(self) -> None:
        self.count = 0
        self.settled = 0
        self.ticks = 0

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        if publication.source == node:
            return
        self.count += 1
        if publication.sequence > CONSTRUCTION:
            self.settled += 1
            self.ticks += int(engine.calendar.now) - int(publication.timestamp)


class Realign(Action):
    """All views of one process become those of another arrangement."""

    def __init__(self, node: int, views: dict[int, list[int]]) -> None:
        self._node = node
        self._views = views

    def run(self, engine: Engine) -> None:
        process = engine.nodes[self._node].process
        assert isinstance(process, WatchedTopics) and isinstance(process.brisa, StanBrisa), "made as such"
        for topic, peers in self._views.items():
            process.brisa.set_view(topic, peers)


class TopicTrees:
    """A system of topics that is run once."""

    def __init__(self, case: TreesOverStanCase, seed: int) -> None:
        self.case = case
        self.universe = universe_named(WIKIPEDIA, case.nodes)
        self.topics = [topic for topic in range(self.universe.topics) if len(self.universe.processes_of(topic)) > 1]
        first = INITIAL if case.arrangement == CHANGING else case.arrangement
        self.views = {} if first == HYPARVIEW else symmetric_views(case.nodes, first, seed)
        self.options = BrisaOptions(HyParViewOptions(HYPARVIEW_ACTIVE), [0], order="none", join_window=10_000)
        self.traffic, self.delays = Traffic(case.nodes), TopicDelays()
        self.engine = Engine(
            case.nodes, network_of(CLUSTER, case.nodes, seed), self._build, seed, application=self.delays
        )
        random = RandomStream(seed, PUBLISHERS_STREAM)
        for topic in self.topics:
            members = self.universe.processes_of(topic)
            publisher = int(members[random.below(len(members))])
            shift = random.below(GAP_MS)
            for number in range(MESSAGES):
                self.engine.at(START_MS + shift + number * GAP_MS, PublishAction(publisher, b"", topic))
        self.end_ms = START_MS + MESSAGES * GAP_MS
        if case.arrangement == CHANGING:
            # Both ends of a link hear of it at the same time, as they would of a message of StaN.
            for node, views in symmetric_views(case.nodes, STAN, seed).items():
                self.engine.at(START_MS + MESSAGES * GAP_MS // 2, Realign(node, views))

    def _build(self, environment: Environment) -> WatchedTopics:
        node = int(environment.identifier)
        if self.case.arrangement == HYPARVIEW:
            brisa = Brisa(environment, self.options)
            if node == 0:
                for topic in self.topics:
                    brisa.begin_as_contact(topic, True)
            for topic in self.universe.topics_of(node).tolist():
                brisa.begin_as_member(topic)
        else:
            brisa = StanBrisa(environment, self.options, self.views.get(node, {}))
        return WatchedTopics(environment, brisa, self.traffic)

    def links(self) -> set[tuple[int, int]]:
        """The pairs of processes that are neighbours in some topic."""
        found: set[tuple[int, int]] = set()
        for node in range(self.case.nodes):
            process = self.engine.nodes[node].process
            assert isinstance(process, WatchedTopics), "nobody fails"
            for group in process.brisa.groups():
                found.update((min(node, int(peer)), max(node, int(peer))) for peer in group.sampling.neighbours())
        return found


def measure(case: TreesOverStanCase, seed: int) -> TreesOverStan:
    """Let every topic have a stream."""
    system = TopicTrees(case, seed)
    engine, traffic = system.engine, system.traffic
    engine.run(START_MS - 1)
    traffic.is_counting = True
    engine.run(system.end_ms)
    beats = traffic.beats
    links = system.links()
    engine.run(system.end_ms + DRAIN_MS)
    due = sum(MESSAGES * (len(system.universe.processes_of(topic)) - 1) for topic in system.topics)
    carrying = {(min(sender, receiver), max(sender, receiver)) for _, sender, receiver in traffic.used}
    return TreesOverStan(
        missing=due - system.delays.count,
        copies=traffic.copies / max(1, system.delays.settled),
        latency_ms=system.delays.ticks / max(1, system.delays.settled),
        links=2 * len(links) / case.nodes,
        carrying=2 * len(carrying) / case.nodes,
        trees_per_link=len(traffic.used) / max(1, len(carrying)),
        beats=1000 * beats / (system.end_ms - START_MS) / case.nodes,
        sends=traffic.sends,
    )


def cases(plan: Plan) -> list[TreesOverStanCase]:
    """Every arrangement."""
    return [TreesOverStanCase(nodes, arrangement) for nodes in plan.sizes for arrangement in ARRANGEMENTS]


QUANTITIES = {
    "physical links of a process": ("links", "links"),
    "links of a process that carry payload": ("links", "carrying"),
    "trees over a link that carries payload": ("trees", "trees_per_link"),
    "copies of a publication per delivery": ("copies", "copies"),
    "delay": ("ms", "latency_ms"),
    "periodic messages of a process": ("per second", "beats"),
}


def compare(plan: Plan, results: Results[TreesOverStanCase, TreesOverStan]) -> Iterator[Finding]:
    """Links, copies and delays by arrangement."""
    yield promised(
        "missing deliveries, all runs", [found.missing for case in cases(plan) for found in results.of(case)]
    )
    for label, (unit, name) in QUANTITIES.items():
        for case in cases(plan):
            yield Row(f"{label}, {case}", unit, of(results, case, name))
    for case in cases(plan):
        busiest = results.sample(case, lambda found: float(found.sends.max() / found.sends.mean()))
        yield Row(f"copies sent by the busiest process / by the mean one, {case}", "times", busiest)
    for nodes in plan.sizes:
        yield links_figure(nodes, results)
    yield Note(
        "A process is a neighbour in a topic if it is in the view or has the other in its own, so overlays of StaN "
        "have twice as many links as views have entries. Periodic messages are counted one per neighbour and topic; "
        "those that go the same way at the same time could travel in one packet."
    )
    yield Note(LOST_DATA)


def of(results: Results[TreesOverStanCase, TreesOverStan], case: TreesOverStanCase, name: str) -> Sample:
    """One quantity."""
    return results.sample(case, lambda found: float(getattr(found, name)))


def links_figure(nodes: int, results: Results[TreesOverStanCase, TreesOverStan]) -> Figure:
    """Links by arrangement."""
    series = []
    for variant, (name, label) in enumerate((("links", "physical links"), ("carrying", "links that carry payload"))):
        points = tuple(
            of(results, TreesOverStanCase(nodes, arrangement), name).point(place)
            for place, arrangement in enumerate(ARRANGEMENTS)
        )
        series.append(Series(label, "StaN", points, "bars", variant))
    return Figure(
        "links",
        f"Links of a process, {nodes} processes like {WIKIPEDIA}",
        Axis("overlays", categories=ARRANGEMENTS),
        Axis("links of a process"),
        tuple(series),
    )


TREES_OVER_STAN: Experiment[TreesOverStanCase, TreesOverStan] = Experiment(
    name="stan/brisa",
    document="not measured in the thesis of M. Matos: section 6.1 proposes it",
    description="BRISA over StaN's overlays: links, copies and delays of trees in many topics",
    default=Plan((96,), repetitions=3, large_repetitions=3),
    full=Plan((690,), repetitions=3, large_repetitions=3, full=True),
    parameters={
        **MODEL,
        "messages_per_topic": MESSAGES,
        "counted_from": CONSTRUCTION + 1,
        "gap_ms": GAP_MS,
        "hyparview_active": HYPARVIEW_ACTIVE,
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What is StaN worth under BRISA? Trees need one link per member and topic, wherever it leads. Over aligned "
    "views the trees of many topics share links, so a process keeps fewer connections for the same publications, and "
    "trees survive that views change below them. Views of HyParView are smaller, and each topic has its own.",
)
