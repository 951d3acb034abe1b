"""Causal order by vector clocks, sent as differences.

A publication depends on everything that its source had delivered before (Birman, Schiper and Stephenson 1991; used in
chapter 4 of the thesis). Only the entries that changed since the source's previous publication are sent (Birman's
compression). That is enough: the previous publication of the same source must be delivered first, and with it the
older entries were checked.
"""

from __future__ import annotations

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import CAUSAL, publication_key
from antiphon.orders.causal import CausalOrder
from antiphon.orders.order import Ordered


class CausalVectors(CausalOrder):
    """Publications carry the changed entries of their source's vector clock."""

    def __init__(self, me: i64) -> None:
        super().__init__(me)
        # Sources whose entry changed since this process last published, in the order of their first change.
        self._changed: vec[i64] = vec[i64]()
        self._is_changed: IntegerMap = IntegerMap()

    def stamp(self, sequence: i64, order: i64 = CAUSAL) -> vec[i64]:
        self.count_own(sequence)
        dependencies = vec[i64](capacity=len(self._changed))
        for source in self._changed:
            dependencies = append(dependencies, publication_key(source, self.past(source)))
        self._changed = vec[i64]()
        self._is_changed = IntegerMap()
        return dependencies

    def noticed(self, publication: Ordered) -> None:
        source = publication.source
        if self._is_changed.get(source, 0) == 0:
            self._is_changed.put(source, 1)
            self._changed = append(self._changed, source)
