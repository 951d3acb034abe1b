"""Publications of a topic that a member keeps for members that may lack them.

A publisher has at most a window of publications under way, counted from the first one that some member has not
acknowledged. So when number ``n`` of a source arrives, all members within reach have everything up to ``n`` minus the
window. A member keeps more than that, for members that were out of reach for a short time. Members that were away for
longer catch up from logs.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication, publication_key
from antiphon.orders.order import prefixes_of, singles_of, with_singles


@final
class RetransmitBuffer:
    """The last publications of each source on one topic, delivered or not: so many, and no more than so many bytes.

    The bound in bytes must be larger than what a source may have under way; its last publication is kept in any case.
    """

    def __init__(self, keep: i64, keep_bytes: i64) -> None:
        self._keep: Final[i64] = keep
        self._keep_bytes: Final[i64] = keep_bytes
        self._kept: Final[dict[i64, Publication]] = {}
        # By source, the bytes of its publications here.
        self._bytes: Final[dict[i64, i64]] = {}

    def add(self, publication: Publication) -> None:
        """Keep a publication, and drop the one that is so much older, or as many as are too large."""
        source, sequence = publication.source, publication.sequence
        key = publication_key(source, sequence)
        size = self._bytes.get(source, 0) + len(publication.payload) - self._size_of(key)
        self._kept[key] = publication
        if sequence > self._keep:
            size -= self._drop(publication_key(source, sequence - self._keep))
        number: i64 = max(1, sequence - self._keep + 1)
        while size > self._keep_bytes and number < sequence:
            size -= self._drop(publication_key(source, number))
            number += 1
        self._bytes[source] = size

    def _size_of(self, key: i64) -> i64:
        kept = self._kept.get(key)
        return 0 if kept is None else len(kept.payload)

    def _drop(self, key: i64) -> i64:
        """Drop a publication; gives its bytes."""
        dropped = self._kept.pop(key, None)
        return 0 if dropped is None else len(dropped.payload)

    def get(self, key: i64) -> Publication | None:
        """A publication, if it is kept."""
        return self._kept.get(key)

    def state(self) -> str:
        """The names of what is kept, to compare states."""
        return str(sorted(self._kept))


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
