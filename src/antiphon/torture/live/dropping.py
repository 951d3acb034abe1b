"""What subscribers missed whose policy lets messages be dropped: no more than they were told.

A subscriber with the policy ``drop_oldest`` or ``drop_newest`` is told by its subscription how many messages were
dropped. Which ones is not told, so they are counted: of each application's messages in order (``fifo`` or ``causal``),
those are missed that were asked for when the subscription was effective, and that did not come though a later one came.
There may not be more of them than were told. Nor may more be told than were published and did not come.

Whether what came is in order is judged with everything else (:mod:`antiphon.torture.live.judging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from antiphon.torture.live.journal import Entry

IN_ORDER: Final = ("fifo", "causal")
"""Of these nothing comes before something that its publisher asked for earlier in one of them."""

Name = tuple[int, int, int]
"""Identity, topic and number of a message."""


class Published(NamedTuple):
    """A message that was published, and when it was asked for."""

    order: str
    asked_us: int


@dataclass
class Visit:
    """One subscriber of one topic, from when its subscription was effective to its end."""

    identity: int
    topic: int = -1
    ready_us: int = 0
    end_us: int = 0
    dropped: int = 0
    moves: int = -1
    """How often it went on at another node; the first node is none."""
    gaps: int = 0
    seen: set[Name] = field(default_factory=set)


def visits_in(lines: Iterable[Entry]) -> Iterator[Visit]:
    """The subscribers that followed each other in one file."""
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
    """All that was published on each topic, against which visits are judged."""

    def __init__(self, published: Mapping[Name, Published]) -> None:
        self._published = published
        self._by_topic: dict[int, list[Name]] = {}
        for name in published:
            self._by_topic.setdefault(name[1], []).append(name)

    def complaints(self, visit: Visit) -> list[str]:
        """What is wrong with what a subscriber was told."""
        found = []
        missed = self.missed(visit)
        if len(missed) > visit.dropped and not visit.gaps:
            identity, topic, number = missed[0]
            found.append(
                f"subscriber {visit.identity} was told of {visit.dropped} dropped messages and missed {len(missed)}, "
                f"such as message {number} of {identity} on topic {topic}"
            )
        unseen = self.unseen(visit)
        # A node that it went on to may have shown what the first had dropped.
        if visit.dropped > unseen and visit.moves == 0:
            found.append(f"subscriber {visit.identity} was told of {visit.dropped} dropped messages of {unseen} unseen")
        return found

    def missed(self, visit: Visit) -> list[Name]:
        """What should have come before something that came."""
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
        """How much of the topic had been asked for until the end and did not come."""
        names = self._by_topic.get(visit.topic, ())
        return sum(self._published[name].asked_us <= visit.end_us and name not in visit.seen for name in names)
