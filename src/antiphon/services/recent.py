"""The operations that a replica has applied lately, and their results, in memory."""

from __future__ import annotations

from collections import deque
from typing import Final

from antiphon.kernel.interval_set import IntervalSet
from antiphon.services.applied import Ranges, numbers_of
from antiphon.services.frames import Answer

RESULTS_AT_MOST: Final = 65_536
OPERATIONS_AT_MOST: Final = 65_536
BYTES_AT_MOST: Final = 32 << 20
"""Of results, and of operations."""

Operation = tuple[int, int, bytes]
"""Its author, the author's number for it, and its message."""


class RecentResults:
    """The results of the last calls, for callers whose replica is gone; and which of them wait for a result here."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], bytes] = {}
        self._wanted: dict[tuple[int, int], None] = {}
        self._bytes = 0

    def add(self, answer: Answer) -> bool:
        """A call has its result; whether its caller has asked for it here."""
        name = (answer.caller, answer.number)
        if name in self._results:
            return False
        self._results[name] = answer.payload
        self._bytes += len(answer.payload)
        while len(self._results) > RESULTS_AT_MOST or (self._bytes > BYTES_AT_MOST and len(self._results) > 1):
            oldest = next(iter(self._results))
            self._bytes -= len(self._results.pop(oldest))
        if name in self._wanted:
            del self._wanted[name]
            return True
        return False

    def ask(self, caller: int, numbers: list[int]) -> list[tuple[int, bytes]]:
        """The results that there are; the others are sent from here when there are some."""
        found: list[tuple[int, bytes]] = []
        for number in numbers:
            payload = self._results.get((caller, number))
            if payload is not None:
                found.append((number, payload))
                continue
            self._wanted[caller, number] = None
            if len(self._wanted) > RESULTS_AT_MOST:
                del self._wanted[next(iter(self._wanted))]
        return found


class RecentOperations:
    """The last operations in the order in which they were applied, for replicas that were away for a short time.

    ``base`` is what was applied before the first of them, or in a way that is not known.
    """

    def __init__(self, base: dict[int, Ranges]) -> None:
        self._base: dict[int, IntervalSet] = {author: numbers_of(ranges) for author, ranges in base.items()}
        self._kept: deque[Operation] = deque()
        self._bytes = 0

    def add(self, operation: Operation) -> None:
        """An operation was applied."""
        self._kept.append(operation)
        self._bytes += len(operation[2])
        while len(self._kept) > OPERATIONS_AT_MOST or (self._bytes > BYTES_AT_MOST and len(self._kept) > 1):
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
