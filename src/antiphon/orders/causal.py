"""Causal order: what every causal order shares, whatever its publications carry.

A publication names other publications that must be delivered before it. A process counts, per source, what it has
delivered; a publication may be delivered when it is the next of its source and all it names are counted. The set of
what counts as past is closed under happened-before at every moment: that is the invariant which makes it enough to
name the *immediate* predecessors (:mod:`antiphon.orders.barriers`) or the changed entries of a vector clock
(:mod:`antiphon.orders.vectors`).

A process that joins late starts from a **frontier**: all up to it counts as past without having been delivered. A
frontier must be closed in the same sense; the union of what several processes count as past is.

A publication that cannot be delivered waits for *one* missing delivery, is looked at again exactly when that delivery
happens, and goes on from where it stopped. So a publication with k dependencies costs k comparisons plus one step per
time it has to wait, however many others are waiting; the printed algorithms scan all that waits at every arrival.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import CAUSAL, SOURCE_BITS, SOURCE_MASK, publication_key
from antiphon.kernel.publication_set import PublicationSet
from antiphon.orders.order import Order, Ordered, frontier_of


class Waiting:
    """A publication that had to wait; its dependencies before position ``checked`` are met."""

    def __init__(self, publication: Ordered, checked: i64) -> None:
        self.publication: Final[Ordered] = publication
        self.checked: i64 = checked


@mypyc_attr(allow_interpreted_subclasses=True)
class CausalOrder(Order):
    """Waits for dependencies; subclasses decide what a publication names."""

    def __init__(self, me: i64, strength: i64 = CAUSAL) -> None:
        super().__init__(strength)
        self.me: Final[i64] = me
        # What counts as past.
        self._past: Final = PublicationSet()
        # Computed when it is asked for and forgotten with the next change: newcomers ask more often than it changes.
        self._frontier: vec[i64] = vec[i64]()
        # Keyed by the one delivery that each of the listed publications waits for.
        self._waiting_for: dict[i64, list[Waiting]] = {}
        self._held: set[i64] = set()

    def noticed(self, publication: Ordered) -> None:
        """Called at every delivery, own publications excepted: what later own publications will depend on."""
        raise NotImplementedError

    def arrived(self, publication: Ordered) -> list[Ordered]:
        if publication.sequence <= self._past.counts.get(publication.source):
            return []
        missing = self._missing(publication, 0)
        if missing != -1:
            self._hold(publication, missing)
            return []
        self._count(publication)
        released = [publication]
        if len(self._held) > 0:
            self._release_after(released)
        return released

    def waiting(self) -> i64:
        return len(self._held)

    def state(self) -> str:
        return f"{self._past.state()} {sorted(self._held)} {list(self.barrier())}"

    def past(self, source: i64) -> i64:
        """Up to which number the publications of ``source`` count as past."""
        return self._past.counts.get(source)

    def counts(self, key: i64) -> bool:
        """Whether a publication counts as past."""
        return self._past.has(key & SOURCE_MASK, key >> SOURCE_BITS)

    def frontier(self) -> vec[i64]:
        if len(self._frontier) == 0:
            self._frontier = frontier_of(self._past.counts.sorted_items())
        return self._frontier

    def start_from(self, frontier: vec[i64]) -> None:
        assert len(self._held) == 0, "a frontier is set before anything arrives"
        for key in frontier:
            self._past.complete_to(key & SOURCE_MASK, key >> SOURCE_BITS)
        self._frontier = vec[i64]()

    def count_own(self, sequence: i64) -> None:
        """An own publication is past from now on."""
        assert sequence == self.past(self.me) + 1, "own publications are stamped in sequence"
        self._past.add(self.me, sequence)
        self._frontier = vec[i64]()

    def _count(self, publication: Ordered) -> None:
        self._past.add(publication.source, publication.sequence)
        self._frontier = vec[i64]()
        self.noticed(publication)

    def _missing(self, publication: Ordered, start: i64) -> i64:
        """The position of the first unmet dependency from ``start`` on; -1 if there is none.

        The position after the last one stands for the predecessor from the same source.
        """
        past = self._past.counts
        if past.get(publication.source) < publication.sequence - 1:
            return len(publication.dependencies)
        return past.first_behind(publication.dependencies, start)

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
            self._release_waiting(publication_key(done.source, done.sequence), released)

    def _release_waiting(self, key: i64, released: list[Ordered]) -> None:
        """What waited under ``key`` does so no more: add to ``released`` what waits for nothing else."""
        queue = self._waiting_for.pop(key, None)
        if queue is None:
            return
        for waiting in queue:
            publication = waiting.publication
            missing = self._missing(publication, waiting.checked)
            if missing != -1:
                self._wait(waiting, missing)
                continue
            self._held.remove(publication_key(publication.source, publication.sequence))
            self._count(publication)
            released.append(publication)
