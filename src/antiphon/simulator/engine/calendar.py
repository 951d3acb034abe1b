"""The queue of future events: buckets of integer time instead of a heap of tuples.

All events of one tick share a bucket, a flat list of triples (target, sender, event) in the order in which they were
scheduled. Near buckets are slots of a ring, found by masking the time; far ones are in a dictionary. A heap holds the
*distinct* times of non-empty buckets, so it is touched once per tick and not once per event, and empty stretches of
time cost nothing. No object is allocated per event.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

RING_SIZE: Final = 1 << 14
RING_MASK: Final = RING_SIZE - 1
STRIDE: Final = 3


class Calendar:
    """Future events by time. ``now`` is the time of the current bucket."""

    def __init__(self) -> None:
        self.now: i64 = 0
        # All empty buckets are the same list, which is never changed: thousands of lists would cost a small run more
        # than all of its events.
        self._empty: Final[list[object]] = []
        self._ring: list[list[object]] = [self._empty] * RING_SIZE
        self._far: dict[i64, list[object]] = {}
        self._times: list[int] = []

    def schedule(self, time: i64, target: object, sender: object, what: object) -> None:
        """Add an event. Events of equal time come out in the order in which they were added."""
        assert time >= self.now, "an event cannot be scheduled in the past"
        if time - self.now < RING_SIZE:
            bucket = self._ring[time & RING_MASK]
            if len(bucket) == 0:
                bucket = []
                self._ring[time & RING_MASK] = bucket
                heappush(self._times, time)
        else:
            bucket = self._far_bucket(time)
        bucket.append(target)
        bucket.append(sender)
        bucket.append(what)

    def _far_bucket(self, time: i64) -> list[object]:
        far = self._far.get(time)
        if far is None:
            far = []
            self._far[time] = far
            heappush(self._times, time)
        return far

    def next_time(self) -> i64:
        """The time of the earliest event, or -1 if there is none."""
        while len(self._times) > 0:
            time: i64 = self._times[0]
            if time in self._far or (time - self.now < RING_SIZE and len(self._ring[time & RING_MASK]) > 0):
                return time
            heappop(self._times)
        return -1

    def advance(self, time: i64) -> list[object]:
        """Make ``time``, a result of ``next_time``, the present. Its bucket may grow while its events are handled."""
        self.now = time
        bucket = self._ring[time & RING_MASK]
        far = self._far.pop(time, None)
        if far is not None:
            # Events in the far bucket were scheduled earlier than any in the ring's bucket.
            far.extend(bucket)
            bucket = far
            self._ring[time & RING_MASK] = bucket
        return bucket

    def clear_bucket(self, time: i64) -> None:
        """Drop the bucket of the present after its events were handled."""
        self._ring[time & RING_MASK] = self._empty
