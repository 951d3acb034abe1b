"""Publications of a topic that a member keeps for members that may lack them.

A publisher has at most a window of publications under way, counted from the first one that some member has not
acknowledged. So when number ``n`` of a source arrives, all members within reach have everything up to ``n`` minus the
window. A member keeps more than that, for members that were out of reach for a short time. Members that were away for
longer catch up from logs.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication, publication_key
from antiphon.orders.order import prefixes_of, singles_of, with_singles


@final
@mypyc_attr(acyclic=True)
class RetransmitBuffer:
    """The last publications of each source on one topic, delivered or not: so many, and no more than so many bytes.

    The bound in bytes must be larger than what a source may have under way; its last publication is kept in any case.
    """

    def __init__(self, keep: i64, keep_bytes: i64) -> None:
        self._keep: Final[i64] = keep
        self._keep_bytes: Final[i64] = keep_bytes
        # A topic at rest mostly keeps one publication, which needs no table.
        self._only: Publication | None = None
        self._kept: dict[i64, Publication] | None = None
        # The bytes of all of them, and by source, as soon as these may be too many.
        self._size: i64 = 0
        self._bytes: dict[i64, i64] | None = None

    def add(self, publication: Publication) -> None:
        """Keep a publication, and drop the one that is so much older, or as many as are too large."""
        source, sequence = publication.source, publication.sequence
        kept = self._kept
        if kept is None:
            only = self._only
            if only is None:
                self._only = publication
                self._size = len(publication.payload)
                return
            kept = self._kept = {publication_key(only.source, only.sequence): only}
            self._only = None
        key = publication_key(source, sequence)
        if key in kept:
            self._drop(kept, key)
        kept[key] = publication
        self._size += len(publication.payload)
        if self._bytes is not None:
            self._bytes[source] = self._bytes.get(source, 0) + len(publication.payload)
        if sequence > self._keep:
            self._drop(kept, key - (self._keep << SOURCE_BITS))
        if self._size > self._keep_bytes:
            self._drop_largest(kept, source, sequence)

    def _drop_largest(self, kept: dict[i64, Publication], source: i64, last: i64) -> None:
        """Drop the oldest of a source, if they are too large together, but not the last."""
        sizes = self._bytes
        if sizes is None:
            sizes = self._bytes = {}
            for publication in kept.values():
                sizes[publication.source] = sizes.get(publication.source, 0) + len(publication.payload)
        number: i64 = max(1, last - self._keep + 1)
        while sizes[source] > self._keep_bytes and number < last:
            self._drop(kept, publication_key(source, number))
            number += 1

    def _drop(self, kept: dict[i64, Publication], key: i64) -> None:
        dropped = kept.pop(key, None)
        if dropped is not None:
            self._size -= len(dropped.payload)
            if self._bytes is not None:
                self._bytes[dropped.source] -= len(dropped.payload)

    def get(self, key: i64) -> Publication | None:
        """A publication, if it is kept."""
        kept = self._kept
        if kept is not None:
            return kept.get(key)
        only = self._only
        return only if only is not None and publication_key(only.source, only.sequence) == key else None

    def all(self) -> list[Publication]:
        """Everything that is kept, the oldest first."""
        if self._only is not None:
            return [self._only]
        kept = self._kept
        return [] if kept is None else [kept[key] for key in sorted(kept)]

    def state(self) -> str:
        """The names of what is kept, to compare states."""
        only = self._only
        return str(sorted(self._kept or {}) if only is None else [publication_key(only.source, only.sequence)])


@final
class Holdings:
    """The set of publications that a node has, for questions about single ones."""

    def __init__(self, keys: vec[i64]) -> None:
        self.counts: Final[dict[i64, i64]] = {key & SOURCE_MASK: key >> SOURCE_BITS for key in prefixes_of(keys)}
        self.singles: Final[set[i64]] = singles_of(keys)

    def holds(self, source: i64, sequence: i64) -> bool:
        """Whether a publication is in it."""
        return sequence <= self.counts.get(source, 0) or publication_key(source, sequence) in self.singles

    def covers(self, other: Holdings) -> bool:
        """Whether everything in another is in this."""
        for source, last in other.counts.items():
            if self.counts.get(source, 0) < last:
                return False
        return all(self.holds(key & SOURCE_MASK, key >> SOURCE_BITS) for key in other.singles)

    def beyond(self, other: Holdings) -> list[tuple[i64, i64, i64]]:
        """Where this has more than another: source, the last number up to which the other has all, and the last here.

        Not everything between the two need be here, or lacking there.
        """
        highest = dict(self.counts)
        for key in self.singles:
            source, sequence = key & SOURCE_MASK, key >> SOURCE_BITS
            if sequence > highest.get(source, 0):
                highest[source] = sequence
        found: list[tuple[i64, i64, i64]] = []
        for source, last in sorted(highest.items()):
            reached = other.counts.get(source, 0)
            if last > reached:
                found.append((source, reached, last))
        return found


def with_held(have: vec[i64], held: list[i64]) -> vec[i64]:
    """A set of publications and single ones that are not delivered, by their keys."""
    return with_singles(prefixes_of(have), singles_of(have) | set(held))
