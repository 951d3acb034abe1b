"""Holds publications that their topic's order has released and that wait for other topics of their space, at one node.

A publication may be delivered when all that it names is *past*: delivered here, or passed over, on each topic that this
node is a member of. Names of other topics do not matter here. It also waits for the publications that the order of its
own topic puts before it, since these may still wait themselves.

A waiting publication waits for one missing one at a time, and is looked at again when the past of that source grows or
when the memberships of this node change.
"""

from __future__ import annotations

from collections import deque

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication, publication_key
from antiphon.kernel.publication_set import PublicationSet
from antiphon.spaces.header import Frontier

Place = tuple[int, int]
"""A topic and a source."""


class HeldPublication:
    """A publication that waits, and what it names."""

    def __init__(self, publication: Publication, header: Frontier) -> None:
        self.publication = publication
        self.header = header
        self.waits_for: tuple[int, int, int] = (0, 0, 0)


class SpaceBarrier:
    """The past of one node in one space, and what waits for it."""

    def __init__(self) -> None:
        self._past: dict[int, PublicationSet] = {}
        self._waiting: dict[Place, list[HeldPublication]] = {}
        self.held: dict[tuple[int, int], HeldPublication] = {}
        """By topic and key: the publications that wait."""
        self.held_total = 0
        self.held_peak = 0

    # Memberships.

    def begin(self, topic: int, frontier: list[int]) -> None:
        """This node becomes a member of a topic; all up to a frontier counts as past."""
        past = self._past[topic] = PublicationSet()
        for key in frontier:
            if key >= 0:
                past.complete_to(key & SOURCE_MASK, key >> SOURCE_BITS)
            else:
                past.add(~key & SOURCE_MASK, ~key >> SOURCE_BITS)

    def end(self, topic: int) -> list[HeldPublication]:
        """This node is no longer a member: nothing waits for the topic, and publications that wait on it are dropped.

        Returns what may be delivered now.
        """
        self._past.pop(topic, None)
        for place in [place for place in self.held if place[0] == topic]:
            held = self.held.pop(place)
            waiting = self._waiting[held.waits_for[:2]]
            waiting.remove(held)
        released: list[HeldPublication] = []
        for place in sorted(place for place in self._waiting if place[0] == topic):
            self._look_again(place, released)
        self._release_after(released)
        return released

    def is_member(self, topic: int) -> bool:
        """Whether this node is a member of a topic."""
        return topic in self._past

    def topics(self) -> list[int]:
        """The topics that this node is a member of."""
        return sorted(self._past)

    def is_held(self, topic: int, source: int, sequence: int) -> bool:
        """Whether a publication is here and waits."""
        return (topic, int(publication_key(source, sequence))) in self.held

    def get_held(self, topic: int, source: int, sequence: int) -> Publication | None:
        """A publication that is here and waits."""
        held = self.held.get((topic, int(publication_key(source, sequence))))
        return None if held is None else held.publication

    def wanted(self) -> list[tuple[int, int, int]]:
        """The publications that others wait for: topic, source and number."""
        return sorted({held.waits_for for held in self.held.values()})

    def count(self, topic: int, source: int) -> int:
        """Up to which number the publications of a source are past."""
        past = self._past.get(topic)
        return 0 if past is None else int(past.counts.get(source))

    def covers(self, topic: int, entries: dict[int, int]) -> bool:
        """Whether all of these publications of a topic are past."""
        return all(self.count(topic, source) >= number for source, number in entries.items())

    # What comes.

    def arrived(self, publication: Publication, header: Frontier) -> list[HeldPublication]:
        """A publication comes out of the order of its topic: what may be delivered now, in order."""
        held = HeldPublication(publication, header)
        missing = self._missing(held)
        if missing is not None:
            self._hold(held, missing)
            return []
        released = [held]
        self._release_after(released)
        return released

    def passed(self, topic: int, source: int, sequence: int) -> list[HeldPublication]:
        """A publication is past without waiting: it is this node's own, or passed over.

        Returns the publications that may be delivered now.
        """
        past = self._past.get(topic)
        if past is None:
            return []
        past.add(source, sequence)
        released: list[HeldPublication] = []
        self._look_again((topic, source), released)
        self._release_after(released)
        return released

    def _missing(self, held: HeldPublication) -> tuple[int, int, int] | None:
        """A publication that must come first and is not past here."""
        publication = held.publication
        topic, source = int(publication.topic), int(publication.source)
        before = int(publication.sequence) - 1
        if self.count(topic, source) < before:
            return topic, source, before
        for key in publication.dependencies:
            if key >= 0 and self.count(topic, int(key) & SOURCE_MASK) < key >> SOURCE_BITS:
                return topic, int(key) & SOURCE_MASK, int(key) >> SOURCE_BITS
        for other, entries in sorted(held.header.items()):
            if not self.is_member(other):
                continue
            for named, number in sorted(entries.items()):
                if self.count(other, named) < number:
                    return other, named, number
        return None

    def _hold(self, held: HeldPublication, missing: tuple[int, int, int]) -> None:
        name = int(held.publication.topic), int(publication_key(held.publication.source, held.publication.sequence))
        if name not in self.held:
            self.held[name] = held
            self.held_total += 1
            self.held_peak = max(self.held_peak, len(self.held))
        held.waits_for = missing
        self._waiting.setdefault(missing[:2], []).append(held)

    def _release_after(self, released: list[HeldPublication]) -> None:
        """Count what is released as past, and add what that sets free."""
        queue = deque(released)
        while queue:
            publication = queue.popleft().publication
            place = int(publication.topic), int(publication.source)
            self._past[place[0]].add(place[1], int(publication.sequence))
            freed: list[HeldPublication] = []
            self._look_again(place, freed)
            released += freed
            queue += freed

    def _look_again(self, place: Place, released: list[HeldPublication]) -> None:
        """The past of a source has grown: add what may be delivered now."""
        for held in self._waiting.pop(place, ()):
            missing = self._missing(held)
            if missing is not None:
                self._hold(held, missing)
                continue
            publication = held.publication
            key = int(publication_key(publication.source, publication.sequence))
            del self.held[int(publication.topic), key]
            released.append(held)

    def waiting(self) -> int:
        """How many publications wait."""
        return len(self.held)

    def state(self) -> str:
        """The content as text."""
        past = [(topic, known.state()) for topic, known in sorted(self._past.items())]
        return f"{past} {sorted(self.held)}"
