"""Virtual time: what is to happen, in the order of time. A tick is a microsecond."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Event = Callable[[], None]


class VirtualClock:
    """Future events by time; those of one tick come in the order in which they were posted."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._queue: list[tuple[int, int, Event]] = []
        self._posted = 0

    def post(self, delay_us: int, event: Event) -> None:
        """Let something happen after a while."""
        assert delay_us >= 0, "nothing happens in the past"
        self._posted += 1
        heappush(self._queue, (self.now_us + delay_us, self._posted, event))

    def run_until(self, end_us: int) -> None:
        """Let everything happen up to some time."""
        queue = self._queue
        while queue and queue[0][0] <= end_us:
            self.now_us, _, event = heappop(queue)
            self.events += 1
            event()
        self.now_us = max(self.now_us, end_us)
