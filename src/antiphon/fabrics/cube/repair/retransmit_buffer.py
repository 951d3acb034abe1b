"""The retransmit buffer: the publications of a topic that a member keeps for others.

A publisher has at most a window of publications under way, counted from the first that somebody has not acknowledged.
So when number ``n`` of a source arrives, all members that were within reach have everything up to ``n`` minus the
window. The buffer keeps more than that for members that were out of reach for a short time; others catch up from logs.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Publication, publication_key
from antiphon.orders.order import prefixes_of, singles_of, with_singles


@final
class RetransmitBuffer:
    """The last publications of each source on one topic, as many as are kept, delivered or not."""

    def __init__(self, keep: i64) -> None:
        self._keep: Final[i64] = keep
        self._kept: Final[dict[i64, Publication]] = {}

    def add(self, publication: Publication) -> None:
        """Keep a publication, and one less that is so much older."""
        source, sequence = publication.source, publication.sequence
        self._kept[publication_key(source, sequence)] = publication
        if sequence > self._keep:
            self._kept.pop(publication_key(source, sequence - self._keep), None)

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
