"""Causal order by causal barriers: a publication names its immediate predecessors only.

The barrier of a process is what its next publication will name: at first nothing; when it delivers a publication, that
one comes in and what it names itself goes out, since it is now an indirect predecessor; when it publishes, only that
publication remains (section 5.4.1 of the thesis, after Prakash, Raynal and Singhal 1996). Of one source only the latest
publication is kept, because each implies the earlier ones.

The printed check (CHECKCB) empties the barrier that it is given; if that is the stored set, nothing is pruned later and
barriers grow. Here a publication's barrier never changes. ``prune=False`` gives the faulty behaviour, which may explain
the sizes published in Figure 5.9.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import CAUSAL, SOURCE_BITS, SOURCE_MASK, Publication, publication_key
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.publication_set import PublicationSet
from antiphon.orders.causal import NO_PUBLICATIONS, CausalOrder, DependencyTracker, followed_by
from antiphon.orders.fifo import NO_DEPENDENCIES
from antiphon.orders.order import frontier_of, singles_of

RECENT_AT_MOST: Final = 64
RECENT_BYTES_AT_MOST: Final[i64] = 256 << 10
"""Publications that are not in the barrier yet are held in memory, so few of them, and few bytes."""


@final
@mypyc_attr(acyclic=True)
class CausalBarrier(DependencyTracker):
    """The immediate predecessors of a process's next publication; no vector of the size of the system.

    Publications of source ``unlisted`` are never named.
    """

    def __init__(self, prune: bool = True, unlisted: i64 = NO_NODE) -> None:
        self._prune: Final[bool] = prune
        self._unlisted: Final[i64] = unlisted
        self._barrier: IntegerMap | None = None
        # Delivered, but not yet in the barrier: many at a time find it in the cache, and before a publication of
        # this process nobody asks for it.
        self._recent: list[Publication] | None = None
        self._recent_bytes: i64 = 0
        # Of what was delivered beyond a gap, that which no own publication has named yet.
        self._unnamed: set[i64] = NO_PUBLICATIONS

    def delivered(self, publication: Publication) -> None:
        recent = self._recent
        if recent is None:
            recent = self._recent = [publication]
        else:
            recent.append(publication)
        self._recent_bytes += len(publication.payload)
        if len(recent) >= RECENT_AT_MOST or self._recent_bytes >= RECENT_BYTES_AT_MOST:
            self._settle()
        if len(self._unnamed) > 0:
            # A publication that names this one need not name what it names.
            self._unnamed.difference_update(singles_of(publication.dependencies))

    def delivered_beyond_gap(self, source: i64, sequence: i64) -> None:
        self._add_unnamed(publication_key(source, sequence))

    def _add_unnamed(self, key: i64) -> None:
        if len(self._unnamed) == 0:
            self._unnamed = set()
        self._unnamed.add(key)

    def gap_closed(self, source: i64, first: i64, last: i64) -> None:
        if len(self._unnamed) == 0:
            return
        number = first
        while number <= last:
            key = publication_key(source, number)
            if key in self._unnamed:
                self._unnamed.remove(key)
                # What was delivered before comes into the barrier first: of one source the last to come in stays.
                self._settle().put(source, number)
            number += 1

    def _settle(self) -> IntegerMap:
        """Bring the barrier up to date with what was delivered."""
        barrier = self._barrier
        if barrier is None:
            barrier = self._barrier = IntegerMap()
        recent = self._recent
        if recent is None:
            return barrier
        for publication in recent:
            if self._prune and len(barrier) > 0:
                for key in publication.dependencies:
                    source = key & SOURCE_MASK
                    if barrier.get(source, -1) == key >> SOURCE_BITS:
                        barrier.remove(source)
            if publication.source != self._unlisted:
                barrier.put(publication.source, publication.sequence)
        self._recent = None
        self._recent_bytes = 0
        return barrier

    def take(self, past: PublicationSet) -> vec[i64]:
        dependencies = self.barrier()
        self._barrier = None
        self._unnamed = NO_PUBLICATIONS
        return dependencies

    def barrier(self) -> vec[i64]:
        if self._barrier is None and self._recent is None:
            keys = NO_DEPENDENCIES
        else:
            keys = frontier_of(self._settle().sorted_items())
        return followed_by(keys, sorted(self._unnamed)) if len(self._unnamed) > 0 else keys

    def adopt(self, keys: vec[i64]) -> None:
        for key in keys:
            if key >= 0:
                self._settle().put(key & SOURCE_MASK, key >> SOURCE_BITS)
            else:
                self._add_unnamed(~key)


@final
@mypyc_attr(acyclic=True)
class CausalBarriers(CausalOrder):
    """All publications are causal, and carry the causal barrier of their source."""

    def __init__(self, me: i64, prune: bool = True) -> None:
        super().__init__(me, CausalBarrier(prune), False, CAUSAL)
