"""What has come already, by author and number, in bounded memory: so that nothing comes twice.

A batch has an *author*: the client that published it, or the node, if its own application did. Authors number their
batches of a topic from 1, without gaps. A client that changes its node hands in again what it does not know to be
safe, so the same batch may be published by two nodes; author and number stay the same, and tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import Final

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


class Seen:
    """The numbers of one author that have come: all up to the highest, except for some gaps."""

    __slots__ = ("_gaps", "highest", "sent_ranges")

    def __init__(self, ranges: Ranges | None = None) -> None:
        ranges = ranges or [0]
        self.highest = ranges[0]
        self._gaps = list(zip(ranges[1::2], ranges[2::2], strict=False))
        # As they were sent last: whoever subscribes is told of all authors, of which few have come since.
        self.sent_ranges: Ranges | None = None

    def has(self, number: int) -> bool:
        """Whether a number has come."""
        return number <= self.highest and self._gap_with(number) is None

    def reach(self, number: int) -> bool:
        """A number comes of an author whose numbers only grow: whatever is below it counts as having come."""
        if number <= self.highest:
            return False
        self.sent_ranges = None
        self.highest = number
        return True

    def add(self, number: int) -> bool:
        """A number comes; whether it is new."""
        self.sent_ranges = None
        if number == self.highest + 1:
            self.highest = number
            return True
        if number > self.highest:
            self._gaps.append((self.highest + 1, number - 1))
            self.highest = number
            del self._gaps[:-GAPS_AT_MOST]
            return True
        place = self._gap_with(number)
        if place is None:
            return False
        first, last = self._gaps[place]
        rest = [(low, high) for low, high in ((first, number - 1), (number + 1, last)) if low <= high]
        self._gaps[place : place + 1] = rest
        del self._gaps[:-GAPS_AT_MOST]
        return True

    def merge(self, ranges: Ranges) -> None:
        """Add all that somebody else has seen."""
        self.sent_ranges = None
        other = Seen(ranges)
        highest = max(self.highest, other.highest)
        self._gaps = overlaps(self._missing_up_to(highest), other._missing_up_to(highest))[-GAPS_AT_MOST:]
        self.highest = highest

    def _missing_up_to(self, highest: int) -> list[tuple[int, int]]:
        return self._gaps if self.highest == highest else [*self._gaps, (self.highest + 1, highest)]

    def _gap_with(self, number: int) -> int | None:
        place = bisect_right(self._gaps, number, key=first_of) - 1
        return place if place >= 0 and number <= self._gaps[place][1] else None

    def ranges(self) -> Ranges:
        """The same, to be sent."""
        if self.sent_ranges is None:
            self.sent_ranges = [self.highest, *(bound for gap in self._gaps for bound in gap)]
        return self.sent_ranges


def first_of(gap: tuple[int, int]) -> int:
    """Where a gap begins."""
    return gap[0]


def overlaps(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is in both of two lists of ranges, which are in order and do not overlap within a list."""
    found: list[tuple[int, int]] = []
    left, right = 0, 0
    while left < len(one) and right < len(other):
        low, high = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if low <= high:
            found.append((low, high))
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return found


class SeenOfAll:
    """What has come of all authors on one topic."""

    def __init__(self, known: dict[int, Ranges] | None = None) -> None:
        self._of = {author: Seen(ranges) for author, ranges in (known or {}).items()}

    def add(self, author: int, number: int, only_grows: bool = False) -> bool:
        """A batch comes; whether it is new. The numbers of writers only grow, and leave no gaps to be filled."""
        seen = self._of.pop(author, None)
        if seen is None:
            seen = Seen()
            if len(self._of) >= AUTHORS_AT_MOST:
                del self._of[next(iter(self._of))]
        # The author heard from last stands last.
        self._of[author] = seen
        if number == seen.highest + 1:
            seen.highest = number
            seen.sent_ranges = None
            return True
        return seen.reach(number) if only_grows else seen.add(number)

    def merge(self, known: dict[int, Ranges]) -> None:
        """Add all that somebody else has seen."""
        for author, ranges in known.items():
            seen = self._of.get(author)
            if seen is not None:
                seen.merge(ranges)
            elif len(self._of) < AUTHORS_AT_MOST:
                self._of[author] = Seen(ranges)

    def has(self, author: int, number: int) -> bool:
        """Whether a batch has come."""
        seen = self._of.get(author)
        return seen is not None and seen.has(number)

    def highest(self, author: int) -> int:
        """The highest number of an author that has come; 0 if none has."""
        seen = self._of.get(author)
        return 0 if seen is None else seen.highest

    def ranges_of(self, author: int) -> Ranges:
        """What has come of one author, to be sent."""
        seen = self._of.get(author)
        return [0] if seen is None else seen.ranges()

    def ranges(self, authors_at_most: int = AUTHORS_AT_MOST) -> dict[int, Ranges]:
        """What has come of everybody, or of those who were heard last, to be sent."""
        heard_last = islice(reversed(self._of.items()), authors_at_most)
        # The last of them stands last, as here.
        return {author: seen.ranges() for author, seen in reversed(list(heard_last))}


class Logged:
    """Which publications of a topic the log of a node has ever held, by source and number."""

    def __init__(self) -> None:
        # Whether all that was appended before is known here.
        self.is_known = True
        self._of: dict[int, Seen] = {}

    def add(self, source: int, sequence: int) -> None:
        """A publication is appended."""
        seen = self._of.get(source)
        if seen is None:
            seen = self._of[source] = Seen()
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
            ranges = seen.ranges()
            if ranges != [counts.get(source, 0)]:
                found[source] = ranges
        return found

    def restore(self, keys: Iterable[int], unlike: dict[int, Ranges], is_known: bool) -> None:
        """Begin with a set of publications, except for some sources."""
        ranges = {source: [count] for source, count in counts_in(keys).items()} | unlike
        self._of = {source: Seen(one) for source, one in ranges.items()}
        self.is_known = is_known


def counts_in(keys: Iterable[int]) -> dict[int, int]:
    """By source up to which number a set of publications holds all, from its keys."""
    return {key & SOURCE_MASK: key >> SOURCE_BITS for key in keys if key >= 0}
