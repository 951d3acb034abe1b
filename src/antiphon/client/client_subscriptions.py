"""The subscriptions of a client, which continue when the client changes its node.

The client's end (:mod:`antiphon.sessions.client_end`) remembers what they have seen and where they resume. Here are the
applications' subscriptions, and how much of them the node is told to be taken.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Protocol

from antiphon.api.batch import Batch
from antiphon.api.outbox import set_if_waiting
from antiphon.api.subscription import Callback, Start, Subscription, WhenMissed
from antiphon.api.topic_names import checked_pattern
from antiphon.api.topic_state import LiveTopic
from antiphon.membership.messages import Control
from antiphon.runtime.errors import error_from
from antiphon.sessions.client_end import ClientEnd, ClientSubscription
from antiphon.sessions.client_messages import (
    AHEAD,
    AHEAD_BYTES,
    Delivery,
    MessagesConsumed,
    SubscriptionEnded,
)


class NodeConnection(Protocol):
    """The connection of a client to its node, whichever that is at the time."""

    def send(self, control: Control) -> None:
        """Queue something for the node; without one, it is forgotten."""

    def settle(self) -> None:
        """Write what was queued."""


class Ongoing:
    """One subscription of an application, and the client's memory of it."""

    def __init__(self, memory: ClientSubscription, subscription: Subscription, ready: asyncio.Future[None]) -> None:
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


class OngoingSubscriptions:
    """All of them; the host of subscriptions at a client."""

    def __init__(self, client: NodeConnection, end: ClientEnd) -> None:
        self._client = client
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._by_number: dict[int, Ongoing] = {}
        self._of: dict[Subscription, Ongoing] = {}
        self.duplicates = 0

    def add(
        self,
        topic: str,
        start: Start,
        callback: Callback | None,
        policy: str,
        limit: int,
        when_missed: WhenMissed | None,
    ) -> Subscription:
        """A new subscription."""
        # The node sends no more than this ahead of the application, so here nothing can overflow.
        room = max(limit, 4 * AHEAD)
        subscription = Subscription(self, checked_pattern(topic), start, callback, policy, room, when_missed)
        begin = int(start.timestamp() * 1_000_000) if isinstance(start, datetime) else start
        memory = ClientSubscription(
            self._end.next_number(), subscription.pattern, begin, isinstance(start, datetime), policy, limit
        )
        ongoing = Ongoing(memory, subscription, self._loop.create_future())
        self._by_number[memory.number] = ongoing
        self._of[subscription] = ongoing
        self._end.subscribe(memory)
        self._client.settle()
        return subscription

    def connection_lost(self) -> None:
        """Nothing that was said about what was taken counts any more."""
        for ongoing in self._by_number.values():
            ongoing.untold = ongoing.untold_bytes = 0

    # What the node says.

    def delivered(self, message: Delivery) -> None:
        """A batch for a subscription."""
        ongoing = self._by_number.get(message.number)
        if ongoing is None:
            return
        name = message.topic
        batch = Batch(
            name, message.publisher, message.order, message.first_offset, message.payload, sequence=message.sequence
        )
        if not ongoing.memory.take(name, batch.author, batch.number, batch.is_written):
            self.duplicates += 1
            self._count_taken(ongoing, batch, message.from_offset)
            return
        topic = ongoing.topic(name)
        ongoing.subscription.begin_at(topic, message.from_offset)
        ongoing.subscription.push(topic, batch)

    def ready(self, number: int) -> None:
        """A subscription is effective."""
        set_if_waiting(self._by_number[number].ready)

    def missed(self, number: int, topic: str) -> None:
        """Here messages of a subscription may be missing."""
        ongoing = self._by_number[number]
        ongoing.subscription.miss(ongoing.topic(topic))

    def ended(self, number: int, message: SubscriptionEnded) -> None:
        """The node has ended a subscription."""
        ongoing = self._by_number.pop(number)
        self._of.pop(ongoing.subscription, None)
        reason = message.error or "the node has ended the subscription"
        ongoing.subscription.dropped = ongoing.memory.dropped
        self._fail(ongoing, error_from(reason, message.is_denied, message.kind))

    def count_dropped(self, number: int) -> None:
        """The node has dropped messages of a subscription, as its policy says."""
        ongoing = self._by_number.get(number)
        if ongoing is not None:
            ongoing.subscription.dropped = ongoing.memory.dropped

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        for ongoing in list(self._by_number.values()):
            self._fail(ongoing, error)

    def _fail(self, ongoing: Ongoing, error: BaseException) -> None:
        if not ongoing.ready.done():
            ongoing.ready.set_exception(error)
            # An application that iterates without waiting for readiness gets the error there.
            ongoing.ready.exception()
        ongoing.subscription.fail(error)

    # What subscriptions ask for.

    async def subscription_ready(self, subscription: Subscription) -> None:
        """Wait until a subscription is effective."""
        ongoing = self._of.get(subscription)
        if ongoing is not None:
            await asyncio.shield(ongoing.ready)
        elif subscription.failure is not None:
            # The node has answered before the application asked.
            raise subscription.failure

    def subscription_closed(self, subscription: Subscription, topics: list[LiveTopic]) -> None:
        """The application has ended a subscription."""
        ongoing = self._of.pop(subscription, None)
        if ongoing is not None:
            self._by_number.pop(ongoing.memory.number, None)
            self._end.unsubscribe(ongoing.memory.number)
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

    def release_credit(self, topic: LiveTopic, subscription: Subscription) -> None:
        """The node is told how much has been taken."""
        topic.caught_up(subscription)

    def taken(self, subscription: Subscription, batch: Batch, from_offset: int) -> None:
        """The application has taken a batch."""
        ongoing = self._of.get(subscription)
        if ongoing is not None:
            self._count_taken(ongoing, batch, from_offset)

    def _count_taken(self, ongoing: Ongoing, batch: Batch, from_offset: int) -> None:
        """Tell the node, now and then."""
        ongoing.untold += batch.count_from(from_offset)
        ongoing.untold_bytes += len(batch.payload)
        is_much = ongoing.untold >= AHEAD // 4 or ongoing.untold_bytes >= AHEAD_BYTES // 4
        # A callback has always taken all; it would be told of every batch.
        has_emptied = ongoing.subscription.queued == 0 and not ongoing.subscription.has_callback
        if self._end.is_up and (is_much or has_emptied):
            self._client.send(MessagesConsumed(ongoing.memory.number, ongoing.untold))
            self._client.settle()
            ongoing.untold = ongoing.untold_bytes = 0
