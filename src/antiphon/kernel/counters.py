"""A count per source: dense where most sources have one, sparse where few do.

A node looks up the past of a source once per dependency of every arriving publication, at random, in tables that do
not fit a cache. Eight bytes per source in one array are the least that such a look-up can touch. But a node of a huge
system that hears of a few sources must not pay for all; so the table starts as a map and becomes an array when it is
full enough. The lowest sources are in the array from the start: in a small system they are all that there are, and a
node has such a table for each of its topics.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK

SPARSE_AT_MOST: Final = 32
"""So many sources are kept in the map whatever their numbers."""

DENSE_FROM_START: Final[i64] = 16
"""Sources below this number are in the array whatever their number."""

ROOM_PER_COUNT: Final = 8
"""The array may have this many entries per source that has a count; about what the map would need in bytes."""


@final
@mypyc_attr(acyclic=True)
class Counters:
    """From sources, integers from 0 up, to counts from 0 up. A source that was never counted has 0."""

    def __init__(self) -> None:
        self._dense: vec[i64] = vec[i64]()
        self._sparse: IntegerMap | None = None
        self._counted: i64 = 0
        self._denser_at: i64 = SPARSE_AT_MOST

    def get(self, source: i64) -> i64:
        """The count of a source."""
        if source < len(self._dense):
            return self._dense[source]
        sparse = self._sparse
        return 0 if sparse is None else sparse.get(source, 0)

    def first_behind(self, keys: vec[i64], start: i64) -> i64:
        """The position, from ``start`` on, of the first publication key whose source has not got that far; or -1.

        A publication may name many others: one loop here costs a third of a call of ``get`` for each.
        """
        dense = self._dense
        sparse = self._sparse
        size = len(dense)
        end = len(keys)
        position = start
        while position < end:
            key = keys[position]
            source = key & SOURCE_MASK
            count: i64 = 0
            if source < size:
                count = dense[source]
            elif sparse is not None:
                count = sparse.get(source, 0)
            if count < key >> SOURCE_BITS:
                return position
            position += 1
        return -1

    def put(self, source: i64, count: i64) -> None:
        """Set the count of a source, above 0."""
        assert source >= 0 and count > 0, "sources are not negative, and counts are above 0"
        if source < len(self._dense):
            if self._dense[source] == 0:
                self._counted += 1
            self._dense[source] = count
            return
        if source < DENSE_FROM_START:
            # What is in the map lies beyond the array, also now.
            dense = self._dense
            while len(dense) < source:
                dense = append(dense, 0)
            self._dense = append(dense, count)
            self._counted += 1
            return
        sparse = self._sparse
        if sparse is None:
            sparse = self._sparse = IntegerMap()
        before = sparse.count
        sparse.put(source, count)
        if sparse.count > before:
            self._counted += 1
            if sparse.count > self._denser_at:
                self._become_denser(sparse)

    def forget(self, source: i64) -> None:
        """A source counts nothing again."""
        if self.get(source) == 0:
            return
        self._counted -= 1
        sparse = self._sparse
        if source < len(self._dense):
            self._dense[source] = 0
        elif sparse is not None:
            sparse.remove(source)

    def raise_to(self, source: i64, count: i64) -> None:
        """Set the count of a source unless it is higher already."""
        if count > self.get(source):
            self.put(source, count)

    def sorted_items(self) -> list[tuple[i64, i64]]:
        """All sources that have a count, with it, by source."""
        items: list[tuple[i64, i64]] = []
        source: i64 = 0
        while source < len(self._dense):
            if self._dense[source] > 0:
                items.append((source, self._dense[source]))
            source += 1
        # What is in the map lies beyond the array.
        if self._sparse is not None:
            items.extend(self._sparse.sorted_items())
        return items

    def __len__(self) -> int:
        return int(self._counted)

    def _become_denser(self, sparse: IntegerMap) -> None:
        """Move as many sources into the array as it may have room for; the map keeps the rest."""
        items = sparse.sorted_items()
        room = self._counted * ROOM_PER_COUNT
        rest = IntegerMap()
        dense = self._dense
        for source, count in items:
            if source < room:
                while len(dense) < source:
                    dense = append(dense, 0)
                dense = append(dense, count)
            else:
                rest.put(source, count)
        self._dense = dense
        self._sparse = rest
        # Each attempt sorts the map: the next one comes when the map has grown by as much again.
        self._denser_at = 2 * rest.count + SPARSE_AT_MOST
