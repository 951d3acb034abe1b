"""Hands the batches of a subscription on to a client, no further ahead than the client can take."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from antiphon.api.batch import Batch
from antiphon.api.subscription import LiveSubscription
from antiphon.kernel.errors import AntiphonError, PeerError
from antiphon.membership.messages import Control
from antiphon.node.gateway.accounts import Account
from antiphon.runtime.errors import QuotaError
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

AHEAD_AT_MOST: int = AHEAD
"""How many messages are on their way to a client, or wait in it, before the node sends it no more."""


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


class MessagesInFlight:
    """The messages on their way to a client, or waiting in it."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the client must take something before it gets more."""
        return self._count >= AHEAD_AT_MOST or self._bytes >= AHEAD_BYTES

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

    def __init__(
        self, session: RemoteClient, number: int, subscription: LiveSubscription, account: Account, has_log: bool
    ) -> None:
        self.subscription = subscription
        self._account = account
        # Where there is a log, a subscription that falls behind reads from it later and holds nobody up.
        self._holds_up = subscription.policy == "block" and not has_log
        self._session = session
        self._number = number
        self._ahead = MessagesInFlight()
        self._is_handing_on = False
        self._awaits_word = False
        self._has_ended = False
        # Runs while the client takes nothing and holds others up.
        self._patience: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Wait until the subscription is effective, and hand on what comes from then on."""
        try:
            await self.subscription.ready()
        except AntiphonError as error:
            self._session.subscription_ended(self._number, error, self.subscription.dropped)
            return
        self._session.send(SubscriptionReady(self._number))
        self.subscription.when_arrived = self.hand_on
        self.hand_on()

    def taken(self, count: int) -> None:
        """The client's application has taken messages."""
        self._ahead.taken(count)
        if self._awaits_word:
            self.hand_on()

    def close(self) -> None:
        """The client is gone, or wants nothing more of it."""
        self._has_ended = True
        self._await_word(False)
        self._stop_patience()
        self.subscription.when_arrived = None
        self.subscription.end()

    def hand_on(self) -> None:
        """Send what has come, as far as the client can take it now."""
        if self._is_handing_on:
            # What is taken may let others publish, and then more comes; the outer call sends it.
            return
        subscription, ahead, may_write = self.subscription, self._ahead, self._session.may_write
        self._is_handing_on = True
        try:
            while not subscription.is_empty and not ahead.is_full and may_write.is_set():
                self._send_next()
                if self._patience is not None:
                    self._stop_patience()
        finally:
            self._is_handing_on = False
        self._session.settle()
        if subscription.is_closed and subscription.is_empty and not self._has_ended:
            self._has_ended = True
            # Whatever ends it now has finished by then.
            asyncio.get_running_loop().call_soon(self._tell_end)
        is_full = ahead.is_full
        self._await_word(is_full and not self._has_ended)
        if self._has_ended or (not is_full and may_write.is_set()):
            if self._patience is not None:
                self._stop_patience()
        elif self._holds_up and self._patience is None:
            self._start_patience()

    def _start_patience(self) -> None:
        """Wait for the client, no longer than its identity may hold others up."""
        seconds = self._account.quotas.block_seconds
        if seconds is not None:
            self._patience = asyncio.get_running_loop().call_later(seconds, self._lose_patience, seconds)

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self, seconds: float) -> None:
        self._account.hits["block_seconds"] += 1
        error = QuotaError(
            f"the subscription to {self.subscription.pattern!r} was ended: its client took nothing for "
            f"{seconds:g} seconds (quota block_seconds); take messages faster, or choose another policy"
        )
        self._session.subscription_ended(self._number, error, self.subscription.dropped)

    def _send_next(self) -> None:
        topic, batch, from_offset = self.subscription.take_raw()
        if self.subscription.dropped_batches:
            self._tell_dropped()
        if isinstance(batch, Batch):
            self._send(batch, from_offset)
        elif batch.seen is None:
            self._session.send(MessagesMissed(self._number, topic.name))
        else:
            self._session.send(TopicStarted(self._number, topic.name, batch.seen, batch.past))

    def _await_word(self, is_awaited: bool) -> None:
        """Wait for the client to say that it has taken something, and see to it that this is read; or wait no more."""
        if is_awaited != self._awaits_word:
            self._awaits_word = is_awaited
            if is_awaited:
                self._session.backlog.await_word()
            else:
                self._session.backlog.on_word_taken()

    def _tell_end(self) -> None:
        failure = self.subscription.failure
        if failure is not None and not isinstance(failure, AntiphonError):
            failure = PeerError(f"the node has failed: {failure}")
        self._session.subscription_ended(self._number, failure, self.subscription.dropped)

    def _tell_dropped(self) -> None:
        """Before anything comes that follows what was dropped."""
        dropped, self.subscription.dropped_batches = self.subscription.dropped_batches, {}
        for topic, batches in (dropped or {}).items():
            self._session.send(BatchesDropped(self._number, topic.name, self.subscription.dropped, batches.ranges()))

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
