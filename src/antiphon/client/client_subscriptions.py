"""The subscriptions of a client, which continue when the client changes its node.

The client's end (:mod:`antiphon.sessions.client_end`) remembers what they have seen and where they resume. Here are the
applications' subscriptions, and how much of them the node is told to be taken.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final, Protocol

from antiphon.api.batch import Batch
from antiphon.api.iteration import Callback
from antiphon.api.outbox import set_if_waiting
from antiphon.api.subscription import LiveSubscription, Start, WhenMissed
from antiphon.api.topic_names import checked_pattern
from antiphon.api.topic_state import LiveTopic
from antiphon.membership.messages import Control
from antiphon.runtime.errors import error_from
from antiphon.sessions.client_end import ClientEnd
from antiphon.sessions.client_messages import (
    AHEAD,
    AHEAD_BYTES,
    Delivery,
    MessagesConsumed,
    SubscriptionEnded,
)
from antiphon.sessions.client_subscription import ClientSubscription

TELL_SECONDS: Final = 0.004
"""So soon after an application has taken all that had come, its node is told: no program waits for that word."""


class NodeConnection(Protocol):
    """The connection of a client to its node, whichever that is at the time."""

    def send(self, control: Control) -> None:
        """Queue something for the node; without one, it is forgotten."""

    def settle(self) -> None:
        """Write what was queued."""


class OpenSubscription:
    """One subscription of an application, and the client's memory of it."""

    def __init__(self, memory: ClientSubscription, subscription: LiveSubscription, ready: asyncio.Future[None]) -> None:
        self.memory = memory
        self.subscription = subscription
        self.ready = ready
        self.untold = 0
        self.untold_bytes = 0
        self._topics: dict[str, LiveTopic] = {}

    def topic(self, name: str) -> LiveTopic:
        """One of its topics, from now on if not before."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = LiveTopic(name)
        return topic


class ClientSubscriptions:
    """All of them; the host of subscriptions at a client."""

    def __init__(self, client: NodeConnection, end: ClientEnd) -> None:
        self._client = client
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._by_number: dict[int, OpenSubscription] = {}
        self._of: dict[LiveSubscription, OpenSubscription] = {}
        self.duplicates = 0
        self._is_telling_later = False

    def add(
        self,
        topic: str,
        start: Start,
        callback: Callback | None,
        policy: str,
        limit: int,
        when_missed: WhenMissed | None,
    ) -> LiveSubscription:
        """A new subscription."""
        # The node sends no more than this ahead of the application, so here nothing can overflow.
        room = max(limit, 4 * AHEAD)
        subscription = LiveSubscription(self, checked_pattern(topic), start, callback, policy, room, when_missed)
        begin = int(start.timestamp() * 1_000_000) if isinstance(start, datetime) else start
        memory = ClientSubscription(
            self._end.next_number(), subscription.pattern, begin, isinstance(start, datetime), policy, limit
        )
        opened = OpenSubscription(memory, subscription, self._loop.create_future())
        self._by_number[memory.number] = opened
        self._of[subscription] = opened
        self._end.subscribe(memory)
        self._client.settle()
        return subscription

    def connection_lost(self) -> None:
        """Nothing that was said about what was taken counts any more."""
        for opened in self._by_number.values():
            opened.untold = opened.untold_bytes = 0

    # What the node says.

    def delivered(self, message: Delivery) -> None:
        """A batch for a subscription."""
        opened = self._by_number.get(message.number)
        if opened is None:
            return
        name = message.topic
        batch = Batch(
            name, message.publisher, message.order, message.first_offset, message.payload, sequence=message.sequence
        )
        publication = (message.publisher, message.sequence)
        if not self._end.take(opened.memory, name, batch, publication):
            self.duplicates += 1
            self._count_taken(opened, batch, message.from_offset)
            return
        topic = opened.topic(name)
        opened.subscription.begin_at(topic, message.from_offset)
        opened.subscription.push(topic, batch)

    def ready(self, number: int) -> None:
        """A subscription is effective."""
        set_if_waiting(self._by_number[number].ready)

    def missed(self, number: int, topic: str) -> None:
        """Here messages of a subscription may be missing."""
        opened = self._by_number[number]
        opened.subscription.miss(opened.topic(topic))

    def ended(self, number: int, message: SubscriptionEnded) -> None:
        """The node has ended a subscription."""
        opened = self._by_number.pop(number)
        self._of.pop(opened.subscription, None)
        reason = message.error or "the node has ended the subscription"
        opened.subscription.dropped = opened.memory.dropped
        self._fail(opened, error_from(reason, message.is_denied, message.kind))

    def count_dropped(self, number: int) -> None:
        """The node has dropped messages of a subscription, as its policy says."""
        opened = self._by_number.get(number)
        if opened is not None:
            opened.subscription.dropped = opened.memory.dropped

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        for opened in list(self._by_number.values()):
            self._fail(opened, error)

    def _fail(self, opened: OpenSubscription, error: BaseException) -> None:
        if not opened.ready.done():
            opened.ready.set_exception(error)
            # An application that iterates without waiting for readiness gets the error there.
            opened.ready.exception()
        opened.subscription.fail(error)

    # What subscriptions ask for.

    async def subscription_ready(self, subscription: LiveSubscription) -> None:
        """Wait until a subscription is effective."""
        opened = self._of.get(subscription)
        if opened is not None:
            await asyncio.shield(opened.ready)
        elif subscription.failure is not None:
            # The node has answered before the application asked.
            raise subscription.failure

    def subscription_closed(self, subscription: LiveSubscription, topics: list[LiveTopic]) -> None:
        """The application has ended a subscription."""
        opened = self._of.pop(subscription, None)
        if opened is not None:
            self._by_number.pop(opened.memory.number, None)
            self._end.unsubscribe(opened.memory.number)
            self._client.settle()

    @property
    def has_log(self) -> bool:
        """The node has it, if there is one."""
        return False

    def first_offset(self, topic: LiveTopic, start: Start) -> int:
        """The node decides."""
        return 0

    def read_log(self, topic: LiveTopic, offset: int, max_bytes: int) -> list[Batch]:
        """The node reads it."""
        return []

    def release_credit(self, topic: LiveTopic, subscription: LiveSubscription) -> None:
        """The node is told how much has been taken."""
        topic.caught_up(subscription)

    def taken(self, subscription: LiveSubscription, batch: Batch, from_offset: int) -> None:
        """The application has taken a batch."""
        opened = self._of.get(subscription)
        if opened is not None:
            self._count_taken(opened, batch, from_offset)

    def _count_taken(self, opened: OpenSubscription, batch: Batch, from_offset: int) -> None:
        """Tell the node, now and then, and soon after the application has taken all."""
        opened.untold += batch.count_from(from_offset)
        opened.untold_bytes += len(batch.payload)
        if opened.untold >= AHEAD // 4 or opened.untold_bytes >= AHEAD_BYTES // 4:
            self._tell_taken(opened)
            self._client.settle()
        elif not self._is_telling_later and opened.subscription.queued == 0 and not opened.subscription.has_callback:
            # A callback has always taken all.
            self._is_telling_later = True
            self._loop.call_later(TELL_SECONDS, self._tell_all_taken)

    def _tell_taken(self, opened: OpenSubscription) -> None:
        if self._end.is_up:
            self._client.send(MessagesConsumed(opened.memory.number, opened.untold))
            opened.untold = opened.untold_bytes = 0

    def _tell_all_taken(self) -> None:
        self._is_telling_later = False
        for opened in self._of.values():
            if opened.untold > 0:
                self._tell_taken(opened)
        self._client.settle()
