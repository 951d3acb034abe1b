"""Causal order by vector clocks, sent as differences.

A publication depends on everything that its source had delivered before (Birman, Schiper and Stephenson 1991; used in
chapter 4 of the thesis). Only the entries that changed since the source's previous publication are sent (Birman's
compression). That is enough: the previous publication of the same source must be delivered first, and with it the
older entries were checked.
"""

from __future__ import annotations

from typing import final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import CAUSAL, Publication, publication_key
from antiphon.kernel.publication_set import PublicationSet
from antiphon.orders.causal import CausalOrder, DependencyTracker


@final
@mypyc_attr(acyclic=True)
class ChangedEntries(DependencyTracker):
    """The entries of a vector clock that changed since its process last published."""

    def __init__(self) -> None:
        # Sources, in the order of their first change.
        self._changed: vec[i64] = vec[i64]()
        self._is_changed: IntegerMap = IntegerMap()

    def delivered(self, publication: Publication) -> None:
        source = publication.source
        if self._is_changed.get(source, 0) == 0:
            self._is_changed.put(source, 1)
            self._changed = append(self._changed, source)

    def delivered_beyond_gap(self, source: i64, sequence: i64) -> None:
        raise AssertionError("a vector clock cannot name what lies beyond a gap; publish in causal order only")

    def take(self, past: PublicationSet) -> vec[i64]:
        dependencies = vec[i64](capacity=len(self._changed))
        for source in self._changed:
            dependencies = append(dependencies, publication_key(source, past.counts.get(source)))
        self._changed = vec[i64]()
        self._is_changed = IntegerMap()
        return dependencies


@final
@mypyc_attr(acyclic=True)
class CausalVectors(CausalOrder):
    """All publications are causal, and carry the changed entries of their source's vector clock."""

    def __init__(self, me: i64) -> None:
        super().__init__(me, ChangedEntries(), False, CAUSAL)
