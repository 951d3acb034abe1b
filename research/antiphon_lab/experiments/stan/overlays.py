"""The overlays of topics: before StaN, at its fixed point, and as a greedy rival makes them.

The greedy rival knows everything (thesis of M. Matos, section 3.3.7): in each topic a process links to the members with
which it has most topics in common. The thesis compares it to SpiderCast without random links. It leaves open whether
links are chosen per topic and how ties are broken; here they are, and ties are broken by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from antiphon_lab.experiments.brisa.graphs import clustering, largest_component, largest_strong_component, path_lengths
from antiphon_lab.experiments.stan.runs import key_of, subscriptions_of, topics_of, universe_named
from antiphon_lab.universes.law import Integers, Reals
from antiphon_lab.universes.stan_links import TopicMembers, Views, aligned_views, joined, physical_links, random_views
from antiphon_lab.universes.universe import Universe

INITIAL, STAN, GREEDY = "initial", "StaN", "greedy"
ARRANGEMENTS = (INITIAL, STAN, GREEDY)
LARGEST_TOPIC = 600
"""The size up to which topics are inspected as graphs: larger ones take most of the time and are few."""
GREEDY_STREAM = 152

Graph = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TopicOverlayCase:
    """All overlays of a universe, arranged in one way."""

    kind: str
    nodes: int
    arrangement: str

    def __str__(self) -> str:
        return f"{self.arrangement} overlays, {self.nodes} processes like {self.kind}"


@dataclass(frozen=True)
class Fitness:
    """The properties of each inspected overlay, and the number of neighbours of each process."""

    clustering: Reals
    path_length: Reals
    diameter: Reals
    connected: int
    strongly_connected: int
    overlays: int
    physical: Integers


def greedy_views(universe: Universe, topics: TopicMembers, seed: int) -> Views:
    """In each topic the members with which a process has most topics in common."""
    random = np.random.default_rng([GREEDY_STREAM, seed])
    subscribed = np.zeros((universe.processes, universe.topics), dtype=np.float32)
    owners, of = subscriptions_of(universe)
    subscribed[owners, of] = 1.0
    found = []
    for topic in range(universe.topics):
        members = universe.processes_of(topic)
        count = int(topics.view_sizes[topic])
        if count == 0:
            continue
        common = subscribed[members] @ subscribed[members].T
        # Numbers of topics are whole, so less than one decides ties and nothing else.
        common += random.random(common.shape, dtype=np.float32) * 0.5
        np.fill_diagonal(common, -1.0)
        chosen = np.argpartition(-common, count - 1, axis=1)[:, :count]
        places = universe.process_offsets[members] + places_among_topics(universe, members, topic)
        found.append(Views(np.repeat(places, count), members[chosen].ravel()))
    return joined(found)


def places_among_topics(universe: Universe, members: Integers, topic: int) -> Integers:
    """The how-manieth of its topics a topic is for each of its members."""
    return np.array(
        [int(np.searchsorted(universe.topics_of(member), topic)) for member in members.tolist()], dtype=np.int64
    )


def arranged(case: TopicOverlayCase, seed: int) -> Views:
    """All views of a case."""
    universe, topics = universe_named(case.kind, case.nodes), topics_of(case.kind, case.nodes)
    owners, of = subscriptions_of(universe)
    if case.arrangement == INITIAL:
        return random_views(topics, owners, of, seed)
    if case.arrangement == STAN:
        return aligned_views(topics, owners, of, key_of(seed))
    return greedy_views(universe, topics, seed)


class Overlays:
    """The views of all topics, as graphs on demand."""

    def __init__(self, universe: Universe, views: Views) -> None:
        owners, of = subscriptions_of(universe)
        topic = of[views.place]
        order = np.argsort(topic, kind="stable")
        self._owner, self._neighbour = owners[views.place][order], views.neighbour[order]
        self._starts = np.searchsorted(topic[order], np.arange(universe.topics + 1))

    def graph(self, topic: int, among: Integers) -> Graph:
        """The overlay of a topic as a graph of some processes, all members included."""
        entries = slice(int(self._starts[topic]), int(self._starts[topic + 1]))
        graph = np.zeros((len(among), len(among)), dtype=bool)
        places = np.searchsorted(among, self._owner[entries]), np.searchsorted(among, self._neighbour[entries])
        graph[places] = True
        return graph


def measure(case: TopicOverlayCase, seed: int) -> Fitness:
    """Arrange all overlays, and look at those that are not too large."""
    universe = universe_named(case.kind, case.nodes)
    views = arranged(case, seed)
    overlays = Overlays(universe, views)
    found: list[tuple[float, float, float, bool, bool]] = []
    for number in range(universe.topics):
        members = universe.processes_of(number)
        if not 1 < len(members) <= LARGEST_TOPIC:
            continue
        graph = overlays.graph(number, members)
        mean, longest = path_lengths(graph)
        whole = largest_component(graph) == len(members)
        strong = largest_strong_component(graph) == len(members)
        found.append((clustering(graph), mean, float(longest), whole, strong))
    columns = np.array(found, dtype=np.float64).reshape(-1, 5)
    return Fitness(
        clustering=columns[:, 0],
        path_length=columns[:, 1],
        diameter=columns[:, 2],
        connected=int(columns[:, 3].sum()),
        strongly_connected=int(columns[:, 4].sum()),
        overlays=len(found),
        physical=physical_links(subscriptions_of(universe)[0], views, np.arange(universe.processes)),
    )
