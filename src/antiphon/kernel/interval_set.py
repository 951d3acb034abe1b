"""A set of integers from 1 up that is nearly contiguous, such as the numbers of one source that have come.

The next number in sequence, which is nearly every one, costs a comparison and no memory. A gap costs two integers until
it is closed, however much lies beyond it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

ANY_GAPS: Final[i64] = 1 << 40
"""More gaps than anybody has memory for."""


@final
@mypyc_attr(acyclic=True)
class IntervalSet:
    """All integers up to ``complete``, and intervals beyond; no integer below 1 is ever missing.

    If there would be more than ``most_gaps`` gaps, the lowest one is closed: what would have filled it counts as
    contained. So the memory is bounded, and the newest numbers are exact.
    """

    def __init__(self, complete: i64 = 0, most_gaps: i64 = ANY_GAPS) -> None:
        self.complete: i64 = complete
        self._most_gaps: Final[i64] = most_gaps
        # Where intervals beyond ``complete`` begin and end by turns, ascending; an end is the first integer outside.
        self._bounds: list[i64] = []

    def __reduce__(self) -> tuple[object, tuple[int, int, list[int]]]:
        # A compiled class that mypyc makes serializable would have no constructor for callers that are not compiled.
        return restored, (int(self.complete), int(self._most_gaps), [int(bound) for bound in self._bounds])

    def has(self, number: i64) -> bool:
        """Whether an integer is in the set."""
        if number <= self.complete:
            return True
        bounds = self._bounds
        if len(bounds) == 0 or number >= bounds[-1]:
            return False
        return bisect_right(bounds, number) % 2 == 1

    def add(self, number: i64) -> bool:
        """Add an integer; whether it is new."""
        if number == self.complete + 1:
            self.complete = number
            if len(self._bounds) > 0:
                self._close_gap()
            return True
        return number > self.complete and self._add_beyond(number)

    def _add_beyond(self, number: i64) -> bool:
        """Add an integer above the lowest gap; whether it is new."""
        bounds = self._bounds
        place = len(bounds)
        if place > 0 and number < bounds[place - 1]:
            place = bisect_right(bounds, number)
            if place % 2 == 1:
                return False
        touches_lower = place > 0 and bounds[place - 1] == number
        touches_higher = place < len(bounds) and bounds[place] == number + 1
        if touches_lower and touches_higher:
            del bounds[place - 1 : place + 1]
        elif touches_lower:
            bounds[place - 1] = number + 1
        elif touches_higher:
            bounds[place] = number
        else:
            bounds.insert(place, number + 1)
            bounds.insert(place, number)
            self._bound_gaps()
        return True

    def add_range(self, first: i64, last: i64) -> None:
        """Add all integers from ``first`` to ``last``."""
        if first <= self.complete + 1:
            self.complete_to(last)
        elif first <= last:
            self._insert(first, last + 1)
            self._bound_gaps()

    def update(self, other: IntervalSet) -> None:
        """Add all integers of another set."""
        self.complete_to(other.complete)
        bounds = other._bounds
        for position in range(0, len(bounds), 2):
            if bounds[position] <= self.complete + 1:
                self.complete_to(bounds[position + 1] - 1)
            else:
                self._insert(bounds[position], bounds[position + 1])
        # Not earlier: what follows may close gaps.
        self._bound_gaps()

    def complete_to(self, last: i64) -> None:
        """Add all integers up to ``last``."""
        if last <= self.complete:
            return
        self.complete = last
        if len(self._bounds) > 0:
            self._close_gap()

    def _close_gap(self) -> None:
        """Drop intervals that ``complete`` has reached, and go on to the end of one that it touches."""
        bounds = self._bounds
        reached = bisect_right(bounds, self.complete + 1)
        if reached % 2 == 1:
            self.complete = bounds[reached] - 1
            reached += 1
        del bounds[:reached]

    def _insert(self, first: i64, end: i64) -> None:
        """Add an interval above the lowest gap; those that it touches become part of it."""
        bounds = self._bounds
        low = bisect_left(bounds, first)
        high = bisect_right(bounds, end)
        # A bound inside or at the end of another interval is none any more.
        kept: list[i64] = []
        if low % 2 == 0:
            kept.append(first)
        if high % 2 == 0:
            kept.append(end)
        bounds[low:high] = kept

    def _bound_gaps(self) -> None:
        bounds = self._bounds
        excess = len(bounds) - 2 * self._most_gaps
        if excess > 0:
            self.complete = bounds[excess - 1] - 1
            del bounds[:excess]

    def highest(self) -> i64:
        """The highest integer in the set; 0 if it is empty."""
        return self._bounds[-1] - 1 if len(self._bounds) > 0 else self.complete

    def has_gaps(self) -> bool:
        """Whether an integer below the highest one is missing."""
        return len(self._bounds) > 0

    def inside(self, first: i64, last: i64) -> list[tuple[i64, i64]]:
        """The intervals of the set between two integers, ascending, each with its first and its last integer."""
        found: list[tuple[i64, i64]] = []
        if first <= min(self.complete, last):
            found.append((first, min(self.complete, last)))
        bounds = self._bounds
        position = bisect_right(bounds, first) // 2 * 2
        while position < len(bounds) and bounds[position] <= last:
            found.append((max(bounds[position], first), min(bounds[position + 1] - 1, last)))
            position += 2
        return found

    def outside(self, first: i64, last: i64) -> list[tuple[i64, i64]]:
        """The gaps of the set between two integers, ascending, each with its first and its last integer."""
        found: list[tuple[i64, i64]] = []
        begin = first
        for low, high in self.inside(first, last):
            if begin < low:
                found.append((begin, low - 1))
            begin = high + 1
        if begin <= last:
            found.append((begin, last))
        return found

    def beyond(self) -> list[i64]:
        """The integers above the lowest gap, ascending."""
        return [
            number
            for first, last in self.inside(self.complete + 1, self.highest())
            for number in range(first, last + 1)
        ]


def restored(complete: i64, most_gaps: i64, bounds: list[int]) -> IntervalSet:
    """A set that was sent from another process."""
    found = IntervalSet(complete, most_gaps)
    for place in range(0, len(bounds), 2):
        found.add_range(bounds[place], bounds[place + 1] - 1)
    return found
