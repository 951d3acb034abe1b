"""Timers on a heap, for a host that reads a clock and waits for input in one place."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class HostTimers:
    """Calls that are due later, in microseconds of a clock."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.now = clock
        self._heap: list[tuple[int, int]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._last = 0

    def after(self, delay_us: int, call: Callable[[], None]) -> int:
        """Schedule a call after a delay; returns a handle."""
        return self.at(self.now() + delay_us, call)

    def at(self, due_us: int, call: Callable[[], None]) -> int:
        """Schedule a call at a time."""
        self._last += 1
        self._calls[self._last] = call
        heappush(self._heap, (due_us, self._last))
        return self._last

    def cancel(self, handle: int) -> None:
        """Cancel a call; a call that was made or cancelled before is ignored."""
        self._calls.pop(handle, None)

    def next_us(self) -> int | None:
        """The time of the next call; None if there is none."""
        while self._heap and self._heap[0][1] not in self._calls:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        """Make all calls that are due, in the order of their times."""
        now = self.now()
        while self._heap and self._heap[0][0] <= now:
            call = self._calls.pop(heappop(self._heap)[1], None)
            if call is not None:
                call()
