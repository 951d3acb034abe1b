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

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import CAUSAL, SOURCE_BITS, SOURCE_MASK
from antiphon.orders.causal import CausalOrder
from antiphon.orders.order import Ordered, frontier_of

RECENT_AT_MOST: Final = 64


class CausalBarriers(CausalOrder):
    """Publications carry the causal barrier of their source; no vector of the size of the system anywhere."""

    def __init__(self, me: i64, prune: bool = True, strength: i64 = CAUSAL) -> None:
        super().__init__(me, strength)
        self._prune: Final[bool] = prune
        self._barrier: IntegerMap = IntegerMap()
        # Delivered, but not yet in the barrier: many at a time find it in the cache, and before a publication of
        # this process nobody asks for it.
        self._recent: list[Ordered] = []

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        self.count_own(sequence)
        # The own predecessor is implied by the sequence number and never listed.
        dependencies = self.barrier()
        self._barrier = IntegerMap()
        return dependencies

    def noticed(self, publication: Ordered) -> None:
        self._recent.append(publication)
        if len(self._recent) >= RECENT_AT_MOST:
            self._settle()

    def _settle(self) -> None:
        """Bring the barrier up to date with what was delivered."""
        barrier = self._barrier
        for publication in self._recent:
            if self._prune and len(barrier) > 0:
                for key in publication.dependencies:
                    source = key & SOURCE_MASK
                    if barrier.get(source, -1) == key >> SOURCE_BITS:
                        barrier.remove(source)
            barrier.put(publication.source, publication.sequence)
        self._recent.clear()

    def barrier(self) -> vec[i64]:
        self._settle()
        return frontier_of(self._barrier.sorted_items())

    def adopt_barrier(self, keys: vec[i64]) -> None:
        for key in keys:
            self._barrier.put(key & SOURCE_MASK, key >> SOURCE_BITS)
