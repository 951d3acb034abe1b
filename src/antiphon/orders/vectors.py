"""Causal order by vector clocks, sent as differences.

A process counts, per source, the publications it has delivered. A publication depends on everything that its source
had delivered before; it may be delivered here when this process has delivered all of that too (Birman, Schiper and
Stephenson 1991; used in chapter 4 of the thesis).

Only the entries that changed since the source's previous publication are sent (Birman's compression). That is enough:
the previous publication of the same source must be delivered first, and with it the older entries were checked.

A publication that cannot be delivered waits for *one* missing delivery, is looked at again exactly when that delivery
happens, and goes on from where it stopped. So a publication with k dependencies costs k comparisons plus one step per
time it has to wait, however many others are waiting; the printed algorithms scan all that waits at every arrival.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, publication_key
from antiphon.orders.order import Order, Ordered


class Waiting:
    """A publication that had to wait; its dependencies before position ``checked`` are met."""

    def __init__(self, publication: Ordered, checked: i64) -> None:
        self.publication: Final[Ordered] = publication
        self.checked: i64 = checked


class CausalVectors(Order):
    """Causal order among all publications that one process sees."""

    def __init__(self, me: i64) -> None:
        super().__init__()
        self._me: Final[i64] = me
        self._delivered: vec[i64] = vec[i64]()
        # Sources whose entry changed since this process last published, each once; the flag says who is listed.
        self._changed: vec[i64] = vec[i64]()
        self._is_changed: vec[i64] = vec[i64]()
        # Keyed by the one delivery that each of the listed publications waits for.
        self._waiting_for: dict[i64, list[Waiting]] = {}
        self._held: set[i64] = set()

    def stamp(self, sequence: i64) -> vec[i64]:
        self._make_room_for(self._me)
        assert sequence == self._delivered[self._me] + 1, "own publications are stamped in sequence"
        self._delivered[self._me] = sequence
        dependencies = vec[i64](capacity=len(self._changed))
        for source in self._changed:
            dependencies = append(dependencies, publication_key(source, self._delivered[source]))
            self._is_changed[source] = 0
        self._changed = vec[i64]()
        return dependencies

    def arrived(self, publication: Ordered) -> list[Ordered]:
        source = publication.source
        self._make_room_for(source)
        if publication.sequence <= self._delivered[source]:
            return []
        missing = self._missing(publication, 0)
        if missing != -1:
            self._hold(publication, missing)
            return []
        self._count(source)
        released = [publication]
        if len(self._held) > 0:
            self._release_after(released)
        return released

    def waiting(self) -> i64:
        return len(self._held)

    def delivered(self, source: i64) -> i64:
        """How many publications of ``source`` have been delivered here."""
        return self._delivered[source] if source < len(self._delivered) else 0

    def _make_room_for(self, source: i64) -> None:
        while len(self._delivered) <= source:
            self._delivered = append(self._delivered, 0)
            self._is_changed = append(self._is_changed, 0)

    def _count(self, source: i64) -> None:
        self._delivered[source] += 1
        if self._is_changed[source] == 0:
            self._is_changed[source] = 1
            self._changed = append(self._changed, source)

    def _missing(self, publication: Ordered, start: i64) -> i64:
        """The position of the first unmet dependency from ``start`` on; -1 if there is none.

        The position after the last one stands for the predecessor from the same source.
        """
        dependencies = publication.dependencies
        delivered = self._delivered
        known = len(delivered)
        count = len(dependencies)
        if delivered[publication.source] < publication.sequence - 1:
            return count
        position = start
        while position < count:
            key = dependencies[position]
            source = key & SOURCE_MASK
            if source >= known or delivered[source] < (key >> SOURCE_BITS):
                return position
            position += 1
        return -1

    def _hold(self, publication: Ordered, missing: i64) -> None:
        key = publication_key(publication.source, publication.sequence)
        if key in self._held:
            return
        self._held.add(key)
        self.count_held()
        self._wait(Waiting(publication, 0), missing)

    def _wait(self, waiting: Waiting, missing: i64) -> None:
        publication = waiting.publication
        if missing < len(publication.dependencies):
            waiting.checked = missing
            key = publication.dependencies[missing]
        else:
            key = publication_key(publication.source, publication.sequence - 1)
        queue = self._waiting_for.get(key)
        if queue is None:
            self._waiting_for[key] = [waiting]
        else:
            queue.append(waiting)

    def _release_after(self, released: list[Ordered]) -> None:
        """Add to ``released`` all that its own members set free, directly or through each other."""
        position: i64 = 0
        while position < len(released):
            done = released[position]
            position += 1
            queue = self._waiting_for.pop(publication_key(done.source, done.sequence), None)
            if queue is None:
                continue
            for waiting in queue:
                publication = waiting.publication
                missing = self._missing(publication, waiting.checked)
                if missing != -1:
                    self._wait(waiting, missing)
                    continue
                self._held.remove(publication_key(publication.source, publication.sequence))
                self._count(publication.source)
                released.append(publication)
