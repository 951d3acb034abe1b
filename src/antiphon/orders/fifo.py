"""Per-source orders: first in, first out, and the weakest of all, each publication once.

``Fifo`` delivers the publications of one source in the order in which it published them and says nothing about
different sources. ``Unordered`` delivers at once and only suppresses duplicates, which best-effort dissemination over
a network that duplicates would let through. Both cost one look-up per arrival; a gap costs one entry per
publication beyond it until it is filled.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.counters import Counters
from antiphon.kernel.message import CAUSAL, FIFO, NONE, SOURCE_BITS, SOURCE_MASK, Publication, publication_key
from antiphon.kernel.publication_set import PublicationSet
from antiphon.orders.order import Order, frontier_of, raise_to

NO_DEPENDENCIES: Final = vec[i64]()


@mypyc_attr(acyclic=True)
class Fifo(Order):
    """Per-source order."""

    def __init__(self, me: i64) -> None:
        super().__init__(FIFO)
        self._me: Final[i64] = me
        self._delivered: Final = Counters()
        self._held: dict[i64, Publication] = {}

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        self._delivered.put(self._me, sequence)
        return NO_DEPENDENCIES

    def arrived(self, publication: Publication) -> list[Publication]:
        source, sequence = publication.source, publication.sequence
        last = self._delivered.get(source)
        if sequence <= last:
            return []
        if sequence > last + 1:
            key = publication_key(source, sequence)
            if key not in self._held:
                self._held[key] = publication
                self.count_held()
            return []
        released = [publication]
        while len(self._held) > 0:
            follower = self._held.pop(publication_key(source, sequence + 1), None)
            if follower is None:
                break
            sequence += 1
            released.append(follower)
        self._delivered.put(source, sequence)
        return released

    def state(self) -> str:
        return f"{self._delivered.sorted_items()} {sorted(self._held)}"

    def frontier(self) -> vec[i64]:
        return frontier_of(self._delivered.sorted_items())

    def start_from(self, frontier: vec[i64]) -> None:
        raise_to(self._delivered, frontier)

    def counts(self, key: i64) -> bool:
        return (key >> SOURCE_BITS) <= self._delivered.get(key & SOURCE_MASK)

    def waiting(self) -> i64:
        return len(self._held)


@mypyc_attr(acyclic=True)
class Unordered(Order):
    """Each publication once, in the order of arrival."""

    def __init__(self, me: i64) -> None:
        super().__init__(NONE)
        self._me: Final[i64] = me
        self._delivered: Final = PublicationSet()

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        self._delivered.complete_to(self._me, sequence)
        return NO_DEPENDENCIES

    def arrived(self, publication: Publication) -> list[Publication]:
        return [publication] if self._delivered.add(publication.source, publication.sequence) else []

    def state(self) -> str:
        return self._delivered.state()

    def frontier(self) -> vec[i64]:
        return frontier_of(self._delivered.counts.sorted_items())

    def start_from(self, frontier: vec[i64]) -> None:
        for key in frontier:
            self._delivered.complete_to(key & SOURCE_MASK, key >> SOURCE_BITS)

    def counts(self, key: i64) -> bool:
        return self._delivered.has(key & SOURCE_MASK, key >> SOURCE_BITS)

    def waiting(self) -> i64:
        return 0
