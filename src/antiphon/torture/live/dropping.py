"""Checks subscribers whose policy drops messages: they must miss no more messages than they were told.

A subscription with the policy ``drop_oldest`` or ``drop_newest`` reports how many messages were dropped, but not which.
So missed messages are counted: of each application's ordered messages (``fifo`` or ``causal``), those that were asked
for while the subscription was effective and did not arrive though a later one did. There must not be more of them than
were reported. Nor may the report exceed the number of published messages that did not arrive.

:mod:`antiphon.torture.live.judging` judges the order of the messages that arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from antiphon.torture.live.journal import JournalEntry

IN_ORDER: Final = ("fifo", "causal")
"""In these orders no message arrives before an earlier one of its publisher in one of them."""

Name = tuple[int, int, int]
"""Identity, topic and number of a message."""


class PublishedMessage(NamedTuple):
    """A published message, and the time at which it was asked for."""

    order: str
    asked_us: int


@dataclass
class Visit:
    """One subscriber of one topic, from its effective subscription to its end."""

    identity: int
    topic: int = -1
    ready_us: int = 0
    end_us: int = 0
    dropped: int = 0
    moves: int = -1
    """How often its client moved to another node; the first node does not count."""
    gaps: int = 0
    seen: set[Name] = field(default_factory=set)


def visits_in(lines: Iterable[JournalEntry]) -> Iterator[Visit]:
    """The consecutive subscribers of one journal."""
    visit = Visit(-1)
    for line in lines:
        if line.what == "begin":
            if visit.topic >= 0:
                yield visit
            visit = Visit(int(line.fields[0]))
        elif line.what == "node":
            visit.moves += 1
        elif line.what == "ready":
            visit.topic, visit.ready_us = int(line.fields[0]), line.time_us
        elif line.what == "see":
            topic, identity, number = map(int, line.fields[:3])
            visit.seen.add((identity, topic, number))
        elif line.what == "dropped":
            visit.dropped = int(line.fields[1])
        elif line.what == "gap":
            visit.gaps += 1
        visit.end_us = line.time_us
    if visit.topic >= 0:
        yield visit


class Droppings:
    """All published messages of each topic, to judge visits against."""

    def __init__(self, published: Mapping[Name, PublishedMessage]) -> None:
        self._published = published
        self._by_topic: dict[int, list[Name]] = {}
        for name in published:
            self._by_topic.setdefault(name[1], []).append(name)

    def complaints(self, visit: Visit) -> list[str]:
        """Contradictions between the reported and the actual drops of a subscriber, one line each."""
        found = []
        missed = self.missed(visit)
        if len(missed) > visit.dropped and not visit.gaps:
            identity, topic, number = missed[0]
            found.append(
                f"subscriber {visit.identity} was told of {visit.dropped} dropped messages and missed {len(missed)}, "
                f"such as message {number} of {identity} on topic {topic}"
            )
        unseen = self.unseen(visit)
        # A node that the client moved to may have shown messages that the first one had dropped.
        if visit.dropped > unseen and visit.moves == 0:
            found.append(f"subscriber {visit.identity} was told of {visit.dropped} dropped messages of {unseen} unseen")
        return found

    def missed(self, visit: Visit) -> list[Name]:
        """Messages that should have arrived before one that did arrive."""
        last: dict[int, int] = {}
        for identity, topic, number in visit.seen:
            published = self._published.get((identity, topic, number))
            if published is not None and published.order in IN_ORDER:
                last[identity] = max(last.get(identity, 0), number)
        return [
            name
            for name in self._by_topic.get(visit.topic, ())
            if name[2] < last.get(name[0], 0)
            and name not in visit.seen
            and self._published[name].order in IN_ORDER
            and self._published[name].asked_us > visit.ready_us
        ]

    def unseen(self, visit: Visit) -> int:
        """The number of messages on the topic that were asked for before the end and did not arrive."""
        names = self._by_topic.get(visit.topic, ())
        return sum(self._published[name].asked_us <= visit.end_us and name not in visit.seen for name in names)
