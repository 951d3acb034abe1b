"""A subscription as its client remembers it: what it has seen, and with which request it continues at another node.

It names what it has seen twice. Batches have an author and a number, which stay the same when a client hands a batch in
at a second node. Publications have a publisher, which is a node, and a number there. Processes know publications only.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from antiphon.sessions.client_messages import Resume, SubscribeRequest
from antiphon.sessions.dedup import Arrivals, DedupTable
from antiphon.sessions.seen_lists import NUMBERS_AT_MOST, cut_lists


class ArrivingBatch(Protocol):
    """A batch as a client reads it."""

    @property
    def author(self) -> int:
        """The client or node that published it."""

    @property
    def number(self) -> int:
        """Its number among the batches of its author."""

    @property
    def order(self) -> str:
        """Its order."""

    @property
    def is_written(self) -> bool:
        """Whether an exactly-once writer published it."""


class ClientSubscription:
    """One subscription as the client remembers it. ``start`` and ``is_time`` are those of the request."""

    def __init__(self, number: int, pattern: str, start: str | int, is_time: bool, policy: str, limit: int) -> None:
        self.number = number
        self._pattern = pattern
        self._start = start
        self._is_time = is_time
        self._policy = policy
        self._limit = limit
        self._ready_at_us: int | None = None
        self.seen: dict[str, Arrivals] = {}
        # By topic, the publications that were shown or came before, by publisher and number.
        self.past: defaultdict[str, DedupTable] = defaultdict(DedupTable)
        # Messages dropped at this node and at earlier ones: each node counts for itself.
        self.dropped = 0
        self._dropped_before = 0

    @property
    def has_been_ready(self) -> bool:
        """Whether it was effective at some node."""
        return self._ready_at_us is not None

    @property
    def is_from_offset(self) -> bool:
        """Whether it began at an offset, which means something at its node only."""
        return isinstance(self._start, int) and not self._is_time

    def ready(self, now_us: int) -> None:
        """It is effective at a node."""
        if self._ready_at_us is None:
            self._ready_at_us = now_us

    def take(self, topic: str, batch: ArrivingBatch, publication: tuple[int, int], is_strict: bool) -> bool:
        """A batch has come, as the publication of a node, with its number there; whether it is to be shown.

        A node that became a member later than an earlier one may show what was past there when the subscription began.
        """
        is_past = self.past[topic].has(*publication)
        self.past[topic].add(*publication)
        seen = self.seen_on(topic)
        if batch.is_written:
            is_new = seen.add(batch.author, batch.number, only_grows=True)
        else:
            is_new = seen.take(batch.author, batch.number, batch.order, is_strict)
        return is_new and not is_past

    def seen_on(self, topic: str) -> Arrivals:
        """The batches that it has seen on a topic."""
        seen = self.seen.get(topic)
        if seen is None:
            seen = self.seen[topic] = Arrivals()
        return seen

    def count_dropped(self, count: int) -> None:
        """The node has dropped so many messages of it, as its policy says."""
        self.dropped = self._dropped_before + count

    def request(self) -> SubscribeRequest:
        """The request to its first node."""
        return self._request(None)

    def request_again(self, node_clock_us: int, numbers_at_most: int = NUMBERS_AT_MOST) -> SubscribeRequest:
        """The request to the next node: to continue, if it was effective. Its lists have so many numbers at most."""
        self._dropped_before = self.dropped
        if self._ready_at_us is None or self._is_time or self._start == "earliest":
            # The log of another node sends all of it, and batches that were seen are dropped here.
            return self._request(None)
        seen = cut_lists({topic: each.ranges() for topic, each in self.seen.items()}, numbers_at_most // 2)
        past = cut_lists({topic: each.ranges() for topic, each in self.past.items()}, numbers_at_most // 2)
        return self._request(Resume(self._ready_at_us + node_clock_us, seen, past))

    def _request(self, resume: Resume | None) -> SubscribeRequest:
        start = self._start if resume is None else "latest"
        return SubscribeRequest(self.number, self._pattern, start, self._is_time, self._policy, self._limit, resume)
