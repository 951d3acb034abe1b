"""The planned subscriptions of a scenario, known before the run begins.

They follow the application's requests: a node is subscribed from the tick at which it is told to subscribe until the
tick at which it is told to unsubscribe. The protocol decides when a subscription becomes effective.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario, expand_nodes

MEMBER_STREAM = 5
"""The random stream for first members; the engine uses 1 and 2, the workload 3, links 4."""


class SubscriptionChange(NamedTuple):
    """One node subscribes to a topic, or unsubscribes from it."""

    at: int
    node: int
    topic: int
    subscribes: bool
    number: int
    """The position of its table in the file, among those of its kind, counted from 0."""


class Span(NamedTuple):
    """A stretch of time, both ends included."""

    first: int
    last: int


def first_members(scenario: Scenario) -> list[list[int]]:
    """Per topic, the members from the start, ascending."""
    table = scenario.topics
    if table is None:
        return [list(range(scenario.nodes))]
    if table.members is not None:
        return [sorted(set(expand_nodes(nodes, scenario.nodes))) for nodes in table.members]
    count = int(table.share * scenario.nodes + 0.5)
    return [
        draw_nodes(count, scenario.nodes, RandomStream(scenario.seed, MEMBER_STREAM, topic))
        for topic in range(table.count)
    ]


def draw_nodes(count: int, node_count: int, random: RandomStream) -> list[int]:
    """Different nodes, all with the same probability, in ascending order."""
    nodes = list(range(node_count))
    if count < node_count:
        for position in range(count):
            other = random.between(position, node_count - 1)
            nodes[position], nodes[other] = nodes[other], nodes[position]
    return sorted(nodes[:count])


def changes_by_time(scenario: Scenario) -> list[SubscriptionChange]:
    """All changes in the order in which they happen: at the same tick unsubscriptions first, then the order of the
    file.
    """
    changes = [
        SubscriptionChange(table.at, node, table.topic, subscribes, number)
        for subscribes, tables in ((False, scenario.unsubscriptions), (True, scenario.subscriptions))
        for number, table in enumerate(tables)
        for node in table.targets(scenario.nodes)
    ]
    # Sorting is stable, so equal times keep the order in which they were listed.
    return sorted(changes, key=lambda change: change.at)


class PlannedMembers:
    """The members of all topics, followed through time."""

    def __init__(self, scenario: Scenario) -> None:
        self.of_topic = first_members(scenario)
        self._changes = changes_by_time(scenario)
        self._done = 0

    def advance(self, time: int) -> None:
        """Advance to the moment of ``time`` at which publications are made; times must not go back."""
        while self._done < len(self._changes) and self._changes[self._done].at <= time:
            self._apply(self._changes[self._done])
            self._done += 1

    def _apply(self, change: SubscriptionChange) -> None:
        members = self.of_topic[change.topic]
        if change.subscribes:
            insort(members, change.node)
        else:
            del members[bisect_left(members, change.node)]


def subscribed_spans(scenario: Scenario, start: int, end: int) -> Iterator[tuple[int, int, list[Span]]]:
    """Each node and topic with the spans from ``start`` to ``end`` in which the node is subscribed to the topic.

    In the order of nodes, then topics; only pairs with such a span. A node does not publish in the tick in which it
    unsubscribes; it may in the tick in which it subscribes.
    """
    since: dict[tuple[int, int], int] = {}
    spans: dict[tuple[int, int], list[Span]] = {}
    for topic, members in enumerate(first_members(scenario)):
        since.update(((node, topic), 0) for node in members)
    for change in changes_by_time(scenario):
        key = (change.node, change.topic)
        if change.subscribes:
            since[key] = change.at
        else:
            spans.setdefault(key, []).append(Span(since.pop(key), change.at - 1))
    for key, first in since.items():
        spans.setdefault(key, []).append(Span(first, end))
    for node, topic in sorted(spans):
        within = [Span(max(first, start), min(last, end)) for first, last in spans[node, topic]]
        within = [span for span in within if span.first <= span.last]
        if within:
            yield node, topic, within
