"""The queue of a subscription: what waits for the application, and how much memory that takes.

A batch costs its payload and the objects around it, so an empty message costs memory, too. A subscription of a client
also counts towards the memory of the client's identity (:class:`Meter`).
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol, final

from antiphon.api.batch import Batch
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import AntiphonError
from antiphon.sessions.dedup import Ranges

QUEUE_BYTES_AT_MOST: int = 64 << 20
"""How many bytes may wait in one subscription, however many messages they are."""

ENTRY_BYTES: Final = 512
"""The objects of a batch that waits, beside its payload."""

NUMBER_BYTES: Final = 64
"""The memory of one number in a mark."""


class Mark:
    """Stands between the batches of a subscription.

    Either messages of the topic may be missing here, or from here on comes whatever is not among ``seen``: what its
    node had shown before. ``past`` are the publications of that, and those that had come before its node was a member.
    """

    def __init__(self, seen: dict[int, Ranges] | None = None, past: dict[int, Ranges] | None = None) -> None:
        self.seen, self.past = seen, past or {}

    @property
    def is_gap(self) -> bool:
        """Whether messages may be missing here."""
        return self.seen is None

    @property
    def size_bytes(self) -> int:
        """How much memory it takes."""
        numbers = sum(1 + len(ranges) for of in (self.seen or {}, self.past) for ranges in of.values())
        return ENTRY_BYTES + NUMBER_BYTES * numbers


class Meter(Protocol):
    """Counts the memory that waits in all subscriptions of an identity."""

    def add(self, size_bytes: int) -> None:
        """So much more waits, or less."""

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much more may wait."""

    def memory_used_up(self, what: str) -> AntiphonError:
        """The error for something for which there is no room."""


@final
class WaitingBatches:
    """The batches and marks that wait in one subscription, which holds ``limit`` messages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Only the methods of this class change them.
        self.entries: deque[tuple[LiveTopic, Batch | Mark]] = deque()
        self.messages = 0
        self.bytes = 0
        self.meter: Meter | None = None
        # By topic, the gap behind which no batch of the topic waits: another one there would say nothing new.
        self._last_gaps: dict[LiveTopic, Mark] = {}

    def add(self, topic: LiveTopic, batch: Batch) -> bool:
        """One more batch waits; whether as much waits as may."""
        size = ENTRY_BYTES + len(batch.payload)
        if self._last_gaps:
            self._last_gaps.pop(topic, None)
        self.entries.append((topic, batch))
        self.messages += batch.count
        self.bytes += size
        if self.meter is not None:
            self.meter.add(size)
        return self.messages >= self._limit or self.bytes >= QUEUE_BYTES_AT_MOST

    def add_mark(self, topic: LiveTopic, mark: Mark) -> None:
        """A mark stands behind what waits. Gaps of a topic with nothing of it between them are one gap."""
        if not mark.is_gap:
            self._last_gaps.pop(topic, None)
        elif topic in self._last_gaps:
            return
        else:
            self._last_gaps[topic] = mark
        self.entries.append((topic, mark))
        self._count(mark.size_bytes)

    def put_back(self, marks: list[tuple[LiveTopic, Mark]]) -> None:
        """Marks stand in front of what waits, where batches between them were dropped."""
        kept: list[tuple[LiveTopic, Mark]] = []
        after_gap: set[LiveTopic] = set()
        for topic, mark in marks:
            if not mark.is_gap:
                after_gap.discard(topic)
            elif topic in after_gap:
                continue
            else:
                after_gap.add(topic)
            kept.append((topic, mark))
        for topic, mark in reversed(kept):
            self.entries.appendleft((topic, mark))
            self._count(mark.size_bytes)

    def take(self) -> tuple[LiveTopic, Batch | Mark]:
        """The first of what waits."""
        topic, first = self.entries.popleft()
        if isinstance(first, Batch):
            size = ENTRY_BYTES + len(first.payload)
            self.messages -= first.count
        else:
            size = first.size_bytes
            if self._last_gaps.get(topic) is first:
                del self._last_gaps[topic]
        self.bytes -= size
        if self.meter is not None:
            self.meter.add(-size)
        return topic, first

    def clear(self) -> None:
        """Nothing waits any more."""
        self._count(-self.bytes)
        self.entries.clear()
        self._last_gaps.clear()
        self.messages = 0

    def _count(self, size_bytes: int) -> None:
        self.bytes += size_bytes
        if self.meter is not None:
            self.meter.add(size_bytes)

    def has_room_for(self, batch: Batch) -> bool:
        """Whether one more batch may wait. One always may, unless the identity has no memory left."""
        size = ENTRY_BYTES + len(batch.payload)
        if self.entries and (self.bytes + size > QUEUE_BYTES_AT_MOST or self.messages + batch.count > self._limit):
            return False
        return self.meter is None or self.meter.has_room_for(size)

    def refuses(self, batch: Batch) -> bool:
        """Whether the identity has no memory left for one more batch."""
        return self.meter is not None and not self.meter.has_room_for(ENTRY_BYTES + len(batch.payload))

    @property
    def is_half_empty(self) -> bool:
        """Whether there is room again."""
        return self.messages * 2 <= self._limit and self.bytes * 2 <= QUEUE_BYTES_AT_MOST

    def may_read(self, size_bytes: int) -> bool:
        """Whether so much of a log may be read. It may if nothing waits, because then nobody would say that it may."""
        if not self.entries:
            return True
        return self.is_half_empty and (self.meter is None or self.meter.has_room_for(size_bytes))
