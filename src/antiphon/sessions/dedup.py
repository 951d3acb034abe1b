"""Deduplicates batches by author and number, in bounded memory.

A batch has an *author*: the client that published it, or the node, if its own application did. Authors number their
batches of a topic from 1, without gaps. A client that changes its node hands in again what it does not know to be
safe, so the same batch may be published by two nodes; author and number stay the same, and tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from antiphon.kernel.interval_set import IntervalSet
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK

GAPS_AT_MOST: Final = 2048
"""Of one author. There is one where a batch was lost with its node, or has been overtaken by others without order. When
there are more, the oldest is closed: what would have filled it counts as having come, and is lost if it comes. So there
is room for several times what a client may have under way (``KEPT_AT_MOST``), or the ``window`` of a node."""

AUTHORS_AT_MOST: Final = 8192
"""When more authors are known, the one that was silent longest is forgotten: a repetition of its batches would not be
recognised."""

Ranges = list[int]
"""The numbers of one author as they are sent: the highest, then the first and last of each gap."""


def numbers_from(ranges: Ranges) -> IntervalSet:
    """The numbers of one author that have come, from the form in which they are sent."""
    numbers = IntervalSet(0, GAPS_AT_MOST)
    first = 1
    for gap_first, gap_last in zip(ranges[1::2], ranges[2::2], strict=False):
        numbers.add_range(first, gap_first - 1)
        first = gap_last + 1
    numbers.add_range(first, ranges[0])
    return numbers


def ranges_of(numbers: IntervalSet) -> Ranges:
    """The numbers of one author that have come, in the form in which they are sent."""
    highest = numbers.highest()
    if not numbers.has_gaps():
        return [highest]
    return [highest, *(bound for gap in numbers.outside(1, highest) for bound in gap)]


class SeenOfAll:
    """The batches of all authors that have come on one topic."""

    def __init__(self, known: dict[int, Ranges] | None = None) -> None:
        self._of = {author: numbers_from(ranges) for author, ranges in (known or {}).items()}

    def add(self, author: int, number: int, only_grows: bool = False) -> bool:
        """A batch comes; whether it is new. The numbers of writers only grow, and leave no gaps to be filled."""
        seen = self._of.pop(author, None)
        if seen is None:
            seen = IntervalSet(0, GAPS_AT_MOST)
            if len(self._of) >= AUTHORS_AT_MOST:
                del self._of[next(iter(self._of))]
        # The author heard from last stands last.
        self._of[author] = seen
        if not only_grows:
            return seen.add(number)
        highest = seen.highest()
        seen.add_range(highest + 1, number)
        return number > highest

    def merge(self, known: dict[int, Ranges]) -> None:
        """Add all that somebody else has seen."""
        for author, ranges in known.items():
            seen = self._of.get(author)
            if seen is not None:
                seen.update(numbers_from(ranges))
            elif len(self._of) < AUTHORS_AT_MOST:
                self._of[author] = numbers_from(ranges)

    def has(self, author: int, number: int) -> bool:
        """Whether a batch has come."""
        seen = self._of.get(author)
        return seen is not None and seen.has(number)

    def highest(self, author: int) -> int:
        """The highest number of an author that has come; 0 if none has."""
        seen = self._of.get(author)
        return 0 if seen is None else seen.highest()

    def ranges_of(self, author: int) -> Ranges:
        """The numbers of one author that have come, to be sent."""
        seen = self._of.get(author)
        return [0] if seen is None else ranges_of(seen)

    def ranges(self, authors_at_most: int = AUTHORS_AT_MOST) -> dict[int, Ranges]:
        """The numbers of all authors, or of those heard last, to be sent."""
        heard_last = islice(reversed(self._of.items()), authors_at_most)
        # The last of them stands last, as here.
        return {author: ranges_of(seen) for author, seen in reversed(list(heard_last))}


class Logged:
    """Which publications of a topic the log of a node has ever held, by source and number."""

    def __init__(self) -> None:
        # Whether all that was appended before is known here.
        self.is_known = True
        self._of: dict[int, IntervalSet] = {}

    def add(self, source: int, sequence: int) -> None:
        """A publication is appended."""
        seen = self._of.get(source)
        if seen is None:
            seen = self._of[source] = IntervalSet(0, GAPS_AT_MOST)
        seen.add(sequence)

    def has(self, source: int, sequence: int) -> bool:
        """Whether the log has held a publication, or may have."""
        seen = self._of.get(source)
        return not self.is_known or (seen is not None and seen.has(sequence))

    def unlike(self, keys: Iterable[int]) -> dict[int, Ranges]:
        """Where this differs from a set of publications, given by its keys: the numbers of those sources."""
        counts = counts_in(keys)
        found = {source: [0] for source in counts if source not in self._of}
        for source, seen in self._of.items():
            ranges = ranges_of(seen)
            if ranges != [counts.get(source, 0)]:
                found[source] = ranges
        return found

    def restore(self, keys: Iterable[int], unlike: dict[int, Ranges], is_known: bool) -> None:
        """Begin with a set of publications, except for some sources."""
        ranges = {source: [count] for source, count in counts_in(keys).items()} | unlike
        self._of = {source: numbers_from(one) for source, one in ranges.items()}
        self.is_known = is_known


def counts_in(keys: Iterable[int]) -> dict[int, int]:
    """By source up to which number a set of publications holds all, from its keys."""
    return {key & SOURCE_MASK: key >> SOURCE_BITS for key in keys if key >= 0}
