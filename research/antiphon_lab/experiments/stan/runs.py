"""StaN on a universe, as the thesis of M. Matos evaluates it (section 3.3), and its measurements.

Every process of a universe runs the protocol in the simulator. At the start it knows random members of each of its
topics, enough for a connected overlay with probability 0.99. Open points of the text, and how they are read here:

* **Rounds** are in step: a round is a period, and all walks of it end before the next begins, as in the simulator of
  the thesis. A walk makes 4 hops, about as many as the overlays are wide.
* **Learning.** A process that a walk visits considers the process that sent it, unless a case chooses otherwise. As
  published none does, and some processes are then forgotten by all others.
* **Weights** depend on the seed, so that repetitions are independent; so do first views.
* **Joins** are those of Scamp, one per topic, through a present member.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import numpy as np

from antiphon.kernel.process import Environment
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.protocols.gossip.stan import Stan
from antiphon_lab.protocols.gossip.stan_options import SOURCES, Rendezvous, StanOptions
from antiphon_lab.universes.law import Integers
from antiphon_lab.universes.stan_links import TopicMembers, Views, aligned_views, physical_links, random_views
from antiphon_lab.universes.universe import Universe, grid_universe, synthetic_universe

HOP_TICKS = 100
PERIOD_TICKS = 1000
HOPS = 4
DETECTION_TICKS = 300
"""A broken link is noticed within the round."""

WIKIPEDIA, LIVEJOURNAL, GRID = "wikipedia", "livejournal", "grid"
GRID_TOPICS = 16
UNIVERSE_SEED = 1
"""All repetitions are on one universe, as in the thesis."""

MODEL: dict[str, object] = {
    "view_size": "ceil(ln n + 4.6), at most n - 1",
    "hops_of_a_walk": HOPS,
    "rounds": "in step",
    "learning": SOURCES,
    "universe_seed": UNIVERSE_SEED,
}

LOST_DATA = (
    "The traces of LiveJournal and Wikipedia that the thesis took its universes from are not published. The universes "
    "here are drawn by a law that has the stated properties; that of Wikipedia was chosen among twelve such that StaN "
    "gains what the text says of W8, so agreement on the gain itself is no evidence. Everything else is."
)


@cache
def universe_named(kind: str, processes: int) -> Universe:
    """The universe of all repetitions."""
    if kind == GRID:
        return grid_universe(processes, GRID_TOPICS, UNIVERSE_SEED)
    return synthetic_universe(kind, processes, UNIVERSE_SEED)


@cache
def topics_of(kind: str, processes: int) -> TopicMembers:
    """The topics of that universe."""
    universe = universe_named(kind, processes)
    return TopicMembers(universe.topic_offsets, universe.topic_processes, universe.processes)


def subscriptions_of(universe: Universe) -> tuple[Integers, Integers]:
    """All subscriptions in the order of processes: processes and topics."""
    return np.repeat(np.arange(universe.processes), universe.activity), universe.process_topics


@dataclass(frozen=True)
class StanCase:
    """One run. ``loss`` is the probability that a message is lost."""

    kind: str
    nodes: int
    rounds: int
    loss: float = 0.0
    learning: str = SOURCES
    random_slots: int = 0
    hops: int = HOPS

    def __str__(self) -> str:
        parts = [f"StaN, {self.nodes} processes like {self.kind}, {self.rounds} rounds"]
        if self.loss:
            parts.append(f"{100 * self.loss:g} % lost")
        if self.learning != SOURCES:
            parts.append(f"learning {self.learning}")
        if self.random_slots:
            parts.append(f"{self.random_slots} random")
        if self.hops != HOPS:
            parts.append(f"{self.hops} hops")
        return ", ".join(parts)

    def options(self, key: int) -> StanOptions:
        """The configuration of all processes; none falls silent."""
        return StanOptions(
            hops=self.hops,
            period=PERIOD_TICKS,
            learning=self.learning,
            random_slots=self.random_slots,
            refill=0,
            patience=0,
            in_step=True,
            key=key,
        )


def key_of(seed: int) -> int:
    """The key of weights of a repetition."""
    return seed & 0xFFFFFFFF


class StanWorld:
    """Processes of a universe that run StaN; some may be absent at first."""

    def __init__(
        self,
        universe: Universe,
        options: StanOptions,
        seed: int,
        loss: float = 0.0,
        can_fail: bool = False,
        absent: Collection[int] = (),
    ) -> None:
        self.universe = universe
        self.rendezvous = Rendezvous(universe.topics)
        self._options = options
        self._absent = frozenset(absent)
        self._first_views = self._draw_views(seed)
        network = NetworkModel(
            ConstantDelay(HOP_TICKS), transmission=0, processing=0, loss=loss, detection=DETECTION_TICKS
        )
        self.engine = Engine(
            universe.processes, network, self._build, seed, can_fail=can_fail, absent={int(node) for node in absent}
        )
        self.rounds = 0

    def _draw_views(self, seed: int) -> dict[int, list[tuple[int, list[int]]]]:
        """For each process that is there at the start, its topics and first views."""
        owners, of = subscriptions_of(self.universe)
        offsets, members = self.universe.topic_offsets, self.universe.topic_processes
        if self._absent:
            present = ~np.isin(members, list(self._absent))
            sums = np.concatenate(([0], np.cumsum(present)))
            offsets, members = sums[offsets], members[present]
            there = ~np.isin(owners, list(self._absent))
            owners, of = owners[there], of[there]
        views = random_views(TopicMembers(offsets, members, self.universe.processes), owners, of, seed)
        starts = np.searchsorted(views.place, np.arange(len(owners) + 1)).tolist()
        neighbours = views.neighbour.tolist()
        found: dict[int, list[tuple[int, list[int]]]] = {}
        for place, (owner, topic) in enumerate(zip(owners.tolist(), of.tolist(), strict=True)):
            found.setdefault(owner, []).append((topic, neighbours[starts[place] : starts[place + 1]]))
        return found

    def _build(self, environment: Environment) -> Stan:
        process = Stan(environment, self._options, self.rendezvous)
        node = int(environment.identifier)
        if environment.now() == 0:
            for topic, view in self._first_views.get(node, ()):
                process.begin_as_member(topic, view)
        else:
            for topic in self.universe.topics_of(node).tolist():
                process.begin_as_newcomer(topic)
        return process

    def run_round(self) -> None:
        """Let one more round begin and end."""
        self.rounds += 1
        self.engine.run((self.rounds + 1) * PERIOD_TICKS - 1)

    def present(self) -> list[Stan]:
        """The processes that are there."""
        return [node.process for node in self.engine.nodes if isinstance(node.process, Stan)]

    def links(self) -> tuple[Integers, Integers]:
        """The logical and the physical links of the processes that are there."""
        there = self.present()
        logical = np.array([int(process.logical_links()) for process in there])
        return logical, np.array([int(process.physical_links()) for process in there])

    def views(self) -> dict[int, dict[int, list[int]]]:
        """By topic and process, the views of present processes."""
        found: dict[int, dict[int, list[int]]] = {}
        for process in self.present():
            for topic in process.topics():
                view = [int(peer) for peer in process.view(topic)]
                found.setdefault(int(topic), {})[int(process.me)] = view
        return found


@dataclass(frozen=True)
class StanOutcome:
    """The results of a run: links of each process at the start and the end, and means by round, the start included."""

    initial: Integers
    final: Integers
    fixed: Integers
    """The physical links that each process has when StaN has come to rest."""
    logical: tuple[float, ...]
    physical: tuple[float, ...]
    at_fixed_point: float
    """The share of the entries of all views that are those of the fixed point."""
    unheard: int
    """Subscriptions that are in no view."""
    messages: int
    entries: int
    """Messages of all rounds, and identifiers in them."""


def measure(case: StanCase, seed: int) -> StanOutcome:
    """Run a case once."""
    universe = universe_named(case.kind, case.nodes)
    key = key_of(seed)
    world = StanWorld(universe, case.options(key), seed, case.loss)
    logical, initial = world.links()
    logical_means, means = [subscribed_mean(logical, universe)], [subscribed_mean(initial, universe)]
    physical = initial
    for _ in range(case.rounds):
        world.run_round()
        logical, physical = world.links()
        logical_means.append(subscribed_mean(logical, universe))
        means.append(subscribed_mean(physical, universe))
    owners, of = subscriptions_of(universe)
    topics = topics_of(case.kind, case.nodes)
    at_rest = aligned_views(topics, owners, of, key)
    there = world.present()
    return StanOutcome(
        initial=initial,
        final=physical,
        fixed=physical_links(owners, at_rest, np.flatnonzero(universe.activity)),
        logical=tuple(logical_means),
        physical=tuple(means),
        at_fixed_point=share_at_rest(world, at_rest, owners, of),
        unheard=unheard_in(world),
        messages=int(world.engine.sent),
        entries=sum(int(process.entries_sent) for process in there),
    )


def subscribed_mean(values: Integers, universe: Universe) -> float:
    """The mean over the processes that subscribe to anything."""
    return float(values[universe.activity > 0].mean())


def share_at_rest(world: StanWorld, at_rest: Views, owners: Integers, of: Integers) -> float:
    """Which share of the entries of all views is as it will be in the end."""
    wanted = set(
        zip(owners[at_rest.place].tolist(), of[at_rest.place].tolist(), at_rest.neighbour.tolist(), strict=True)
    )
    entries = [
        (process, topic, peer)
        for topic, views in world.views().items()
        for process, view in views.items()
        for peer in view
    ]
    return sum(entry in wanted for entry in entries) / max(1, len(entries))


def unheard_in(world: StanWorld) -> int:
    """The number of subscriptions in no view, though the topic has other members."""
    count = 0
    for views in world.views().values():
        heard = {peer for view in views.values() for peer in view}
        count += sum(process not in heard for process in views) if len(views) > 1 else 0
    return count
