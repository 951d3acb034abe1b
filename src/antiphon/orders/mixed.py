"""Publications of different orders on one topic: each waits for what its own order says.

``NONE`` waits for nothing, ``FIFO`` for everything earlier of its source, ``CAUSAL`` for everything that its source had
published or delivered, whatever order that had. This is causal order by barriers
(:mod:`antiphon.orders.barriers`) with three differences.

* Only causal publications carry a barrier, prune the barriers of those who deliver them, and leave their source with an
  empty one. A weaker one does not wait, so nobody who has delivered it has what its source had delivered: it can stand
  for nothing but itself, and the next causal publication of its source names all that it would have named.
* A publication without order is delivered out of sequence. So what counts as past is, per source, a number up to which
  it is complete, and single publications beyond.
* Such single publications are named one by one until the gap below them is closed. To name "all up to here" instead
  would name something that the publisher has not delivered itself. What counts as past there would not be closed under
  what its own publication names; others rely on that when they name this publication and nothing before it, and the
  publisher, of all nodes, would deliver in the wrong order. (``docs/proofs/mixed-orders.md`` has the argument,
  ``tests/fabrics/cube/test_vcube_ps_mixed.py`` the schedule.)

Where all publications are causal it does what causal barriers do and costs one comparison more per arrival.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.message import CAUSAL, NONE, SOURCE_BITS, SOURCE_MASK, publication_key
from antiphon.orders.barriers import CausalBarriers
from antiphon.orders.fifo import NO_DEPENDENCIES
from antiphon.orders.order import Ordered, prefixes_of, singles_of


class MixedOrder(CausalBarriers):
    """Serves publications of all orders; ``strength`` is that of publications that name none."""

    def __init__(self, me: i64, strength: i64 = CAUSAL) -> None:
        super().__init__(me, True, strength)
        # Of what was delivered beyond a gap that which no own publication has named yet.
        self._unnamed: Final[set[i64]] = set()

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        if order != CAUSAL:
            self.count_own(sequence)
            return NO_DEPENDENCIES
        dependencies = super().stamp(sequence)
        self._unnamed.clear()
        return dependencies

    def arrived(self, publication: Ordered) -> list[Ordered]:
        if self._past.has_gaps() and self._past.has(publication.source, publication.sequence):
            return []
        return super().arrived(publication)

    def barrier(self) -> vec[i64]:
        return followed_by(super().barrier(), sorted(self._unnamed))

    def adopt_barrier(self, keys: vec[i64]) -> None:
        super().adopt_barrier(prefixes_of(keys))
        self._unnamed.update(singles_of(keys))

    def frontier(self) -> vec[i64]:
        return followed_by(super().frontier(), self._past.beyond())

    def start_from(self, frontier: vec[i64]) -> None:
        super().start_from(frontier)
        for key in singles_of(frontier):
            self._past.add(key & SOURCE_MASK, key >> SOURCE_BITS)

    def _missing(self, publication: Ordered, start: i64) -> i64:
        if publication.order == NONE:
            return -1
        # Singles are passed over there: they read as sequence numbers below 0.
        missing = super()._missing(publication, start)
        dependencies = publication.dependencies
        end = len(dependencies)
        if missing != -1 or end == 0 or dependencies[end - 1] >= 0:
            return missing
        position = start
        while position < end:
            key = ~dependencies[position]
            if key >= 0 and not self._past.has(key & SOURCE_MASK, key >> SOURCE_BITS):
                return position
            position += 1
        return -1

    def _count(self, publication: Ordered) -> None:
        source, sequence = publication.source, publication.sequence
        if sequence > self.past(source) + 1:
            self._past.add(source, sequence)
            self._unnamed.add(publication_key(source, sequence))
            return
        super()._count(publication)
        self._name_completed(source, sequence + 1)

    def noticed(self, publication: Ordered) -> None:
        super().noticed(publication)
        if len(self._unnamed) > 0:
            # Who names this publication need not name what it names.
            self._unnamed.difference_update(singles_of(publication.dependencies))

    # Where something may be missing for good.

    def counts_any_of(self, source: i64) -> bool:
        """Whether a publication of this source counts as past."""
        return self._past.has_any_of(source)

    def held_keys(self) -> list[i64]:
        """What has arrived and waits."""
        return sorted(self._held)

    def is_held(self, key: i64) -> bool:
        """Whether a publication has arrived and waits."""
        return key in self._held

    def gaps(self) -> list[tuple[i64, i64]]:
        """What something waits for that has not arrived: per source up to which number all is missing, ascending."""
        found: dict[i64, i64] = {}
        for key in self._waiting_for:
            name = key if key >= 0 else ~key
            source, wanted = name & SOURCE_MASK, name >> SOURCE_BITS
            last = self.past(source)
            while last < wanted and publication_key(source, last + 1) not in self._held:
                last += 1
            if last > max(self.past(source), found.get(source, 0)):
                found[source] = last
        return sorted(found.items())

    def pass_over(self, source: i64, sequence: i64) -> list[Ordered]:
        """Count everything of a source up to a number as past, delivered or not; what may be delivered now.

        Nothing of it may be waiting here.
        """
        first = self.past(source) + 1
        number = first
        while number <= sequence:
            assert publication_key(source, number) not in self._held, "what has arrived is not passed over"
            number += 1
        self._past.complete_to(source, sequence)
        self._frontier = vec[i64]()
        self._name_completed(source, first)
        released: list[Ordered] = []
        while first <= self.past(source):
            self._release_waiting(publication_key(source, first), released)
            self._release_waiting(~publication_key(source, first), released)
            first += 1
        self._release_after(released)
        return released

    def _name_completed(self, source: i64, first: i64) -> None:
        """Of what lay beyond a gap that is closed now, from a number on, the barrier names all up to the last."""
        if len(self._unnamed) == 0:
            return
        last = self.past(source)
        number = first
        while number <= last:
            key = publication_key(source, number)
            if key in self._unnamed:
                self._unnamed.remove(key)
                # What was delivered before comes into the barrier first: of one source the last to come in stays.
                self._settle()
                self._barrier.put(source, number)
            number += 1

    def _release_after(self, released: list[Ordered]) -> None:
        position: i64 = 0
        while position < len(released):
            done = released[position]
            position += 1
            source, sequence = done.source, done.sequence
            self._release_waiting(~publication_key(source, sequence), released)
            # If it closed a gap, all that was delivered beyond is complete now.
            while sequence <= self.past(source):
                self._release_waiting(publication_key(source, sequence), released)
                sequence += 1


def followed_by(prefixes: vec[i64], singles: list[i64]) -> vec[i64]:
    """Numbers per source and single publications, both in order, as one set."""
    keys = prefixes
    for key in singles:
        keys = append(keys, ~key)
    return keys
