"""Deduplicates batches by author and number, in bounded memory.

A batch has an *author*: the client that published it, or the node, if its own application did. Authors number their
batches of a topic from 1, without gaps. A client that changes its node hands in again what it does not know to be
safe, so the same batch may be published by two nodes; author and number stay the same, and tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, final

from mypy_extensions import mypyc_attr

from antiphon.kernel.interval_set import IntervalSet
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK

GAPS_AT_MOST: Final = 2048
"""Of one author. There is one where a batch was lost with its node, or has been overtaken by others without order. When
there are more, the oldest is closed: what would have filled it counts as having come, and is lost if it comes. So there
is room for several times what a client may have under way (``KEPT_AT_MOST``), or the ``window`` of a node."""

AUTHORS_AT_MOST: int = 8192
"""When more authors are known, the one that was silent longest is forgotten: a repetition of its batches would not be
recognised."""

NOTHING: Final = IntervalSet()

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


@mypyc_attr(acyclic=True)
class DedupTable:
    """The batches of all authors that have come on one topic.

    Most topics have one author, whose batches come without a gap: two numbers say it all. A table begins with the
    second author, or with the first gap.
    """

    def __init__(self, known: dict[int, Ranges] | None = None) -> None:
        self._only: int = 0
        # Up to which number its batches have come; 0 if there is no author, or the table has them.
        self._complete: int = 0
        self._table: dict[int, IntervalSet] | None = None
        if known and len(known) > 1:
            self._table = {author: numbers_from(ranges) for author, ranges in known.items()}
        elif known:
            self.merge(known)

    def _of(self) -> dict[int, IntervalSet]:
        """The table of all authors, which begins now if there is none."""
        table = self._table
        if table is None:
            table = self._table = {}
            if self._complete > 0:
                table[self._only] = IntervalSet(self._complete, GAPS_AT_MOST)
                self._complete = 0
        return table

    def _numbers(self, author: int) -> IntervalSet:
        """The batches of an author that have come, to be looked at."""
        if self._table is not None:
            return self._table.get(author, NOTHING)
        return IntervalSet(self._complete) if author == self._only else NOTHING

    def _heard(self, author: int) -> IntervalSet:
        """The batches of an author, which is heard from now and stands last."""
        table = self._of()
        seen = table.pop(author, None)
        if seen is None:
            seen = IntervalSet(0, GAPS_AT_MOST)
            if len(table) >= AUTHORS_AT_MOST:
                self._forget(next(iter(table)))
        table[author] = seen
        return seen

    def _forget(self, author: int) -> None:
        del self._of()[author]

    def add(self, author: int, number: int, only_grows: bool = False) -> bool:
        """A batch comes; whether it is new. The numbers of writers only grow, and leave no gaps to be filled."""
        # The next batch of the only author needs no table.
        if self._table is None and number == self._complete + 1 and (number == 1 or author == self._only):
            self._only, self._complete = author, number
            return True
        seen = self._heard(author)
        if not only_grows:
            return seen.add(number)
        highest = seen.highest()
        seen.add_range(highest + 1, number)
        return number > highest

    def merge(self, known: dict[int, Ranges]) -> None:
        """Add all that somebody else has seen."""
        for author, ranges in known.items():
            if self._table is None and len(ranges) == 1 and (self._complete == 0 or author == self._only):
                self._only, self._complete = author, max(self._complete, ranges[0])
                continue
            table = self._of()
            seen = table.get(author)
            if seen is not None:
                seen.update(numbers_from(ranges))
            elif len(table) < AUTHORS_AT_MOST:
                table[author] = numbers_from(ranges)

    def has(self, author: int, number: int) -> bool:
        """Whether a batch has come."""
        if self._table is None:
            return author == self._only and self._complete > 0 and number <= self._complete
        seen = self._table.get(author)
        return seen is not None and seen.has(number)

    def has_all(self, known: dict[int, Ranges]) -> bool:
        """Whether everything has come that somebody else has seen."""
        for author, ranges in known.items():
            wanted, seen = numbers_from(ranges), self._numbers(author)
            for first, last in wanted.inside(1, wanted.highest()):
                if seen.outside(first, last):
                    return False
        return True

    def has_range(self, author: int, first: int, last: int) -> bool:
        """Whether all batches of an author from one number to another have come."""
        return not self._numbers(author).outside(first, last)

    def without(self, known: dict[int, Ranges]) -> DedupTable:
        """All of these but what somebody else has seen."""
        others = DedupTable(known)
        return self._choose(lambda author, first, last: others._numbers(author).outside(first, last))

    def in_common(self, known: dict[int, Ranges]) -> DedupTable:
        """All of these that somebody else has seen too."""
        others = DedupTable(known)
        return self._choose(lambda author, first, last: others._numbers(author).inside(first, last))

    def _choose(self, part: Callable[[int, int, int], list[tuple[int, int]]]) -> DedupTable:
        """A part of each interval of each author."""
        found = DedupTable()
        if self._table is not None:
            items = list(self._table.items())
        else:
            items = [(self._only, IntervalSet(self._complete))] if self._complete > 0 else []
        for author, numbers in items:
            chosen = IntervalSet(0, GAPS_AT_MOST)
            for interval in numbers.inside(1, numbers.highest()):
                for first, last in part(author, *interval):
                    chosen.add_range(first, last)
            if chosen.highest() > 0:
                found._of()[author] = chosen
        return found

    def highest(self, author: int) -> int:
        """The highest number of an author that has come; 0 if none has."""
        if self._table is None:
            return self._complete if author == self._only else 0
        seen = self._table.get(author)
        return 0 if seen is None else seen.highest()

    def ranges_of(self, author: int) -> Ranges:
        """The numbers of one author that have come, to be sent."""
        return ranges_of(self._numbers(author))

    def ranges(self, authors_at_most: int = AUTHORS_AT_MOST) -> dict[int, Ranges]:
        """The numbers of all authors, or of those heard last, to be sent."""
        if self._table is None:
            return {self._only: [self._complete]} if self._complete > 0 and authors_at_most > 0 else {}
        heard_last = islice(reversed(self._table.items()), authors_at_most)
        # The last of them stands last, as here.
        return {author: ranges_of(seen) for author, seen in reversed(list(heard_last))}


NO_LAST: Final[dict[int, int]] = {}
"""Shared by all topics of whose authors no batch was missing: it stays empty."""


@final
@mypyc_attr(acyclic=True)
class Arrivals(DedupTable):
    """The batches of all authors that have come on one topic to a place where they are shown.

    A client may hand in the same ordered batches at two nodes. The second node may refuse one of them that the first
    node, which was only paused, publishes much later. So an ordered batch that comes behind a later ordered batch of
    its author is too late, and is not shown.
    """

    def __init__(self) -> None:
        super().__init__()
        # The last ordered batch, and the last total one, of each author of which an earlier batch was missing then.
        self._ordered: dict[int, int] = NO_LAST
        self._total: dict[int, int] = NO_LAST

    def take(self, author: int, number: int, order: str, is_strict: bool) -> bool:
        """A batch comes; whether it is new, and not too late.

        Unless sessions are strict, an ordered batch does not wait for earlier total ones of its author.
        """
        if self._table is None and number == self._complete + 1 and (number == 1 or author == self._only):
            self._only, self._complete = author, number
            return True
        seen = self._heard(author)
        had_gaps = seen.has_gaps()
        if not seen.add(number):
            return False
        is_in_sequence = not had_gaps and not seen.has_gaps()
        return is_in_sequence or order == "none" or self._is_next(author, number, order == "total", is_strict)

    def take_at_node(self, author: int, number: int, order: str, is_strict: bool, logged: DedupTable | None) -> bool:
        """A batch is delivered at a node; whether it is new, and an earlier life of the node has not logged it."""
        is_new = self.take(author, number, order, is_strict)
        return is_new and (logged is None or not logged.has(author, number))

    def _is_next(self, author: int, number: int, is_total: bool, is_strict: bool) -> bool:
        """Whether no later ordered batch of the author has come."""
        last = self._ordered.get(author, 0)
        if number > last:
            if not self._ordered:
                self._ordered = {}
            self._ordered[author] = number
        if is_total:
            if not is_strict:
                last = self._total.get(author, 0)
            if not self._total:
                self._total = {}
            self._total[author] = max(number, self._total.get(author, 0))
        return number > last

    def _forget(self, author: int) -> None:
        super()._forget(author)
        self._ordered.pop(author, None)
        self._total.pop(author, None)


def publications_in(keys: Iterable[int]) -> DedupTable:
    """A set of publications by publisher and number, from its keys as processes write them."""
    found = DedupTable()
    singles = []
    for key in keys:
        if key >= 0:
            found.add(key & SOURCE_MASK, key >> SOURCE_BITS, only_grows=True)
        else:
            singles.append(~key)
    for key in singles:
        found.add(key & SOURCE_MASK, key >> SOURCE_BITS)
    return found


@final
@mypyc_attr(acyclic=True)
class LoggedPublications:
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
