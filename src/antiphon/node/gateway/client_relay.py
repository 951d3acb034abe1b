"""Hands the batches of a subscription on to a client, no further ahead than the client can take."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from antiphon.api.batch import Batch
from antiphon.api.subscription import Subscription
from antiphon.kernel.errors import AntiphonError
from antiphon.membership.messages import Control
from antiphon.sessions.backlog import Backlog
from antiphon.sessions.client_messages import (
    AHEAD,
    AHEAD_BYTES,
    BatchesDropped,
    Delivery,
    MessagesMissed,
    SubscriptionReady,
    TopicStarted,
)


class RemoteClient(Protocol):
    """The client that a subscription is for, as its node sees it."""

    @property
    def backlog(self) -> Backlog:
        """The batches that the client has handed in and the node has not taken yet."""

    @property
    def may_write(self) -> asyncio.Event:
        """Set while the client reads what it is sent."""

    def send(self, control: Control) -> None:
        """Send something to the client when the node settles."""

    def settle(self) -> None:
        """Write what was sent."""

    def subscription_ended(self, number: int, error: AntiphonError | None, dropped: int) -> None:
        """Nothing more comes of a subscription."""


class Ahead:
    """What is on its way to a client, or waits in it."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the client must take something before it gets more."""
        return self._count >= AHEAD or self._bytes >= AHEAD_BYTES

    def sent(self, count: int, size: int) -> None:
        """A batch has been sent, of so many messages that it wants."""
        self._batches.append((count, size))
        self._count += count
        self._bytes += size

    def taken(self, count: int) -> None:
        """The client says that it has taken messages; it may say what it likes, and gains nothing by it."""
        while self._batches and count >= self._batches[0][0]:
            messages, size = self._batches.popleft()
            count -= messages
            self._count -= messages
            self._bytes -= size
        if self._batches and count > 0:
            messages, size = self._batches[0]
            self._batches[0] = (messages - count, size)
            self._count -= count


class RemoteSubscription:
    """Hands the batches of a subscription on to a client, no further ahead than it can take."""

    def __init__(self, session: RemoteClient, number: int, subscription: Subscription) -> None:
        self.subscription = subscription
        self._session = session
        self._number = number
        self._ahead = Ahead()
        self._room: asyncio.Event = asyncio.Event()

    def taken(self, count: int) -> None:
        """The client's application has taken messages."""
        self._ahead.taken(count)
        if not self._ahead.is_full:
            self._room.set()

    async def run(self) -> None:
        """From readiness to the end."""
        error: AntiphonError | None = None
        try:
            await self.subscription.ready()
            self._session.send(SubscriptionReady(self._number))
            self._session.settle()
            await self._hand_on()
        except AntiphonError as failure:
            error = failure
        self._session.subscription_ended(self._number, error, self.subscription.dropped)

    async def _hand_on(self) -> None:
        async for topic, batch, from_offset in self.subscription.raw_batches():
            if self.subscription.dropped_batches:
                self._tell_dropped()
            if isinstance(batch, Batch):
                self._send(batch, from_offset)
            elif batch.seen is None:
                self._session.send(MessagesMissed(self._number, topic.name))
            else:
                self._session.send(TopicStarted(self._number, topic.name, batch.seen))
            self._session.settle()
            if self._ahead.is_full:
                await self._until_taken()
            if not self._session.may_write.is_set():
                await self._session.may_write.wait()

    def _tell_dropped(self) -> None:
        """Before anything comes that follows what was dropped."""
        dropped, self.subscription.dropped_batches = self.subscription.dropped_batches, {}
        for topic, batches in (dropped or {}).items():
            self._session.send(BatchesDropped(self._number, topic.name, self.subscription.dropped, batches.ranges()))

    async def _until_taken(self) -> None:
        """Wait until the client says that it has taken something, and see to it that this is read."""
        self._room.clear()
        self._session.backlog.await_word()
        try:
            await self._room.wait()
        finally:
            self._session.backlog.word_came()

    def _send(self, batch: Batch, from_offset: int) -> None:
        self._ahead.sent(batch.count_from(from_offset), len(batch.payload))
        self._session.send(
            Delivery(
                self._number,
                batch.topic,
                batch.publisher,
                batch.order,
                batch.first_offset,
                from_offset,
                batch.payload,
                batch.sequence,
            )
        )
