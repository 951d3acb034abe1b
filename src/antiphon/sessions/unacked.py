"""Batches that a client has handed in and does not know to be safe: it hands them in again at the next node.

A batch is kept until the node has said that it is safe, or has refused it. How much is kept is bounded; publishers
wait at the bound. Answers are about the connection over which a batch was sent last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

WINDOW: Final = 64
"""Batches that may be on their way to the node before publishers wait."""

WINDOW_BYTES: Final = 16 << 20
"""The same in bytes, with one more batch: less than what a node takes from a client before it stops to read from it, as
it must not stop to read what the subscriptions of the client have taken."""

KEPT_AT_MOST: Final = 512
KEPT_BYTES_AT_MOST: Final = 128 << 20
"""Batches that may be kept, and bytes of them, before publishers wait."""

ABOVE_ALL: Final = 1 << 62
"""Higher than the number of any batch."""


class UnackedBatch:
    """One batch."""

    __slots__ = ("about", "is_accepted", "number", "order", "payload", "receipt", "serial", "topic")

    def __init__(
        self, number: int, topic: str, serial: int, order: str, payload: bytes, about: tuple[int, ...], receipt: Any
    ) -> None:
        self.number = number
        self.topic = topic
        self.serial = serial
        self.order = order
        self.payload = payload
        self.about = about
        self.receipt = receipt
        self.is_accepted = False


class UnackedBatches:
    """All of them, by topic and in their order."""

    def __init__(self) -> None:
        self._of_topic: dict[str, dict[int, UnackedBatch]] = {}
        self._by_number: dict[int, UnackedBatch] = {}
        self._bytes = 0
        # By number, how many bytes each batch has that is on its way.
        self._in_flight: dict[int, int] = {}
        self._bytes_in_flight = 0
        # Batches that must still be handed in again, by topic.
        self._again: dict[str, deque[UnackedBatch]] = {}
        # Topics of which the node has refused a batch: those behind it come back before anything else is sent.
        self._returning: set[str] = set()
        # Up to which serial number the node has said that batches are safe, by topic.
        self._safe: dict[str, int] = {}
        # The last batch of each topic that is not kept because it need not be handed in again.
        self._done: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[UnackedBatch]:
        return iter(self._by_number.values())

    def room(self) -> int:
        """How many more batches may be sent now."""
        if self._bytes_in_flight >= WINDOW_BYTES or self._bytes >= KEPT_BYTES_AT_MOST:
            return 0
        return min(WINDOW - len(self._in_flight), KEPT_AT_MOST - len(self._by_number))

    def _sent(self, kept: UnackedBatch) -> None:
        self._in_flight[kept.number] = len(kept.payload)
        self._bytes_in_flight += len(kept.payload)

    def _not_in_flight(self, number: int) -> None:
        self._bytes_in_flight -= self._in_flight.pop(number, 0)

    def add(self, kept: UnackedBatch) -> None:
        """A batch is sent for the first time."""
        self._of_topic.setdefault(kept.topic, {})[kept.serial] = kept
        self._by_number[kept.number] = kept
        self._bytes += len(kept.payload)
        self._sent(kept)

    def unaccepted(self) -> list[Any]:
        """The receipts that publishers wait for."""
        return [kept.receipt for kept in self._by_number.values() if not kept.is_accepted]

    def on_ack(self, number: int) -> UnackedBatch | None:
        """The node has answered a batch; the batch, if it is kept."""
        self._not_in_flight(number)
        kept = self._by_number.get(number)
        if kept is not None and kept.topic in self._returning and not self._is_in_flight(kept.topic):
            self._returning.discard(kept.topic)
        return kept

    def _is_in_flight(self, topic: str) -> bool:
        return any(number in self._in_flight for number in (kept.number for kept in self._of_topic[topic].values()))

    def refused(self, kept: UnackedBatch) -> None:
        """The node has refused a batch, and sends those back that it had been sent behind it."""
        if self._is_in_flight(kept.topic):
            self._returning.add(kept.topic)
        self.remove(kept)

    def on_returned(self, kept: UnackedBatch) -> None:
        """A batch was sent behind one that the node has refused."""
        self._again.setdefault(kept.topic, deque()).append(kept)

    def done_up_to(self, topic: str) -> int:
        """The last batch that others have, whatever becomes of the node; 0 if there is none."""
        return self._done.get(topic, 0)

    def last_not_kept(self, topic: str) -> int:
        """The last batch before the first that is kept; without one, a number above all."""
        return next(iter(self._of_topic.get(topic, ())), ABOVE_ALL) - 1

    def done(self, kept: UnackedBatch) -> None:
        """Others have a batch: it is never handed in again."""
        self._done[kept.topic] = max(kept.serial, self._done.get(kept.topic, 0))
        self.remove(kept)

    def remove(self, kept: UnackedBatch) -> None:
        """A batch was refused, or nobody waits for it any more; two answers may say so."""
        if self._by_number.pop(kept.number, None) is None:
            return
        self._bytes -= len(kept.payload)
        of_topic = self._of_topic[kept.topic]
        of_topic.pop(kept.serial, None)
        if not of_topic:
            del self._of_topic[kept.topic]

    def accepted(self, kept: UnackedBatch) -> None:
        """The node has taken a batch."""
        kept.is_accepted = True
        if kept.serial <= self._safe.get(kept.topic, 0):
            self.done(kept)

    def safe(self, topic: str, serial: int) -> None:
        """All up to this one need not be kept, if they are accepted; a disk may take longer than the network."""
        self._safe[topic] = serial
        for kept in list(self._of_topic.get(topic, {}).values()):
            if kept.serial > serial:
                break
            if kept.is_accepted and kept.number not in self._in_flight:
                self.done(kept)

    # Another node.

    def topics(self) -> list[str]:
        """The topics of which something is kept."""
        return list(self._of_topic)

    def connection_lost(self) -> None:
        """Nothing is on its way any more, and all that is kept has to be handed in again."""
        self._in_flight.clear()
        self._bytes_in_flight = 0
        self._safe.clear()
        self._returning.clear()
        self._again = {topic: deque(kept.values()) for topic, kept in self._of_topic.items()}

    def has_to_repeat(self, topic: str) -> bool:
        """Whether something of a topic has still to be handed in again, before anything else of it."""
        return topic in self._again or topic in self._returning

    def topics_to_repeat(self) -> list[str]:
        """The topics of which something has still to be handed in again."""
        return list(self._again)

    def has_any(self, topic: str) -> bool:
        """Whether a batch of a topic is kept."""
        return topic in self._of_topic

    def first_again(self, topic: str) -> UnackedBatch | None:
        """The next batch to be handed in again, which may have to wait."""
        again = self._again.get(topic)
        return again[0] if again else None

    def next_again(self, topic: str) -> UnackedBatch | None:
        """The next batch to be handed in again, if it may be sent now."""
        again = None if topic in self._returning else self._again.get(topic)
        if again is None or len(self._in_flight) >= WINDOW or self._bytes_in_flight >= WINDOW_BYTES:
            return None
        kept = again.popleft()
        if not again:
            del self._again[topic]
        self._sent(kept)
        return kept

    def give_up_unaccepted(self, topic: str) -> list[UnackedBatch]:
        """Forget the batches of a topic that no node has accepted; the others are still to be handed in again."""
        lost = [kept for kept in self._of_topic.get(topic, {}).values() if not kept.is_accepted]
        for kept in lost:
            self._not_in_flight(kept.number)
            self.remove(kept)
        left = deque(kept for kept in self._again.pop(topic, ()) if kept.is_accepted)
        if left:
            self._again[topic] = left
        return lost

    def give_up(self, topic: str) -> list[UnackedBatch]:
        """Forget all batches of a topic."""
        self._again.pop(topic, None)
        lost = list(self._of_topic.get(topic, {}).values())
        for kept in lost:
            self._not_in_flight(kept.number)
            self.remove(kept)
        return lost

    def clear(self) -> None:
        """Forget everything."""
        for topic in list(self._of_topic):
            self.give_up(topic)
