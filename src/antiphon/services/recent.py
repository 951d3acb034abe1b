"""The operations that a replica has applied lately, in memory, for replicas that were away for a short time."""

from __future__ import annotations

from collections import deque
from typing import Final

from antiphon.kernel.interval_set import IntervalSet
from antiphon.services.applied import Ranges, numbers_of

OPERATIONS_AT_MOST: Final = 65_536
BYTES_AT_MOST: Final = 32 << 20

Operation = tuple[int, int, bytes]
"""Its author, the author's number for it, and its message."""


class RecentOperations:
    """The last operations in the order in which they were applied.

    ``base`` is what was applied before the first of them, or in a way that is not known.
    """

    def __init__(self, base: dict[int, Ranges], most: int = OPERATIONS_AT_MOST) -> None:
        self.most = most
        self._base: dict[int, IntervalSet] = {author: numbers_of(ranges) for author, ranges in base.items()}
        self._kept: deque[Operation] = deque()
        self._bytes = 0

    def add(self, operation: Operation) -> None:
        """An operation was applied."""
        self._kept.append(operation)
        self._bytes += len(operation[2])
        while len(self._kept) > self.most or (self._bytes > BYTES_AT_MOST and len(self._kept) > 1):
            author, number, value = self._kept.popleft()
            self._bytes -= len(value)
            numbers = self._base.get(author)
            if numbers is None:
                numbers = self._base[author] = numbers_of([0])
            numbers.add(number)

    def since(self, applied: dict[int, Ranges]) -> list[Operation] | None:
        """The operations that are not among those applied elsewhere; None if some of these are not kept any more."""
        known = {author: numbers_of(ranges) for author, ranges in applied.items()}
        nothing = numbers_of([0])
        for author, numbers in self._base.items():
            there = known.get(author, nothing)
            if any(there.outside(first, last) for first, last in numbers.inside(1, numbers.highest())):
                return None
        return [each for each in self._kept if not known.get(each[0], nothing).has(each[1])]
