"""Who is subscribed to what, when: the memberships that a scenario plans, known before the run begins.

What counts here is the application's word: a node is subscribed from the tick at which it is told to subscribe until
that at which it is told to unsubscribe. When a subscription takes effect is the protocol's affair.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario, expand_nodes

MEMBER_STREAM = 5
"""Names the stream from which first members are drawn; 1 and 2 are the engine's, 3 the workload's, 4 the links'."""


class Change(NamedTuple):
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
    """Different nodes, each as likely as any other, in ascending order."""
    nodes = list(range(node_count))
    if count < node_count:
        for position in range(count):
            other = random.between(position, node_count - 1)
            nodes[position], nodes[other] = nodes[other], nodes[position]
    return sorted(nodes[:count])


def changes_by_time(scenario: Scenario) -> list[Change]:
    """All changes in the order in which they happen: at the same tick ends come first, then the order of the file."""
    changes = [
        Change(table.at, node, table.topic, subscribes, number)
        for subscribes, tables in ((False, scenario.unsubscriptions), (True, scenario.subscriptions))
        for number, table in enumerate(tables)
        for node in table.targets(scenario.nodes)
    ]
    # Sorting is stable, so equal times keep the order in which they were listed.
    return sorted(changes, key=lambda change: change.at)


class Members:
    """The members of all topics, followed through time."""

    def __init__(self, scenario: Scenario) -> None:
        self.of_topic = first_members(scenario)
        self._changes = changes_by_time(scenario)
        self._done = 0

    def advance(self, time: int) -> None:
        """Go on to the moment of ``time`` at which publications are made; times must not go back."""
        while self._done < len(self._changes) and self._changes[self._done].at <= time:
            self._apply(self._changes[self._done])
            self._done += 1

    def _apply(self, change: Change) -> None:
        members = self.of_topic[change.topic]
        if change.subscribes:
            insort(members, change.node)
        else:
            del members[bisect_left(members, change.node)]


def subscribed_spans(scenario: Scenario, start: int, end: int) -> Iterator[tuple[int, int, list[Span]]]:
    """Each node and topic with the spans from ``start`` to ``end`` in which the one is subscribed to the other.

    In the order of nodes, then topics; only where there is such a span. A node that unsubscribes does not publish in
    that tick any more; one that subscribes does.
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
