"""The subscriptions of a client, which go on when the client changes its node.

A node gives a client its own order of delivery. Two nodes agree on all that the orders of messages promise, so the
client may take what one node showed and then, of what the other shows, whatever it has not seen: each message at most
once, and in order. For that it remembers the batches that it has seen, by author and number.
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
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.errors import error_from
from antiphon.sessions.client_messages import (
    AHEAD,
    AHEAD_BYTES,
    BatchesDropped,
    Delivery,
    MessagesConsumed,
    MessagesMissed,
    Resume,
    SubscribeRequest,
    SubscriptionEnded,
    SubscriptionReady,
    TopicStarted,
    UnsubscribeRequest,
)
from antiphon.sessions.dedup import SeenOfAll


class NodeConnection(Protocol):
    """The connection of a client to its node, whichever that is at the time."""

    @property
    def is_up(self) -> bool:
        """Whether there is a node to talk to."""

    @property
    def node_clock_us(self) -> int:
        """What the clock of the node shows when that of the client shows nothing."""

    def next_number(self) -> int:
        """A number for something that the node is to answer."""

    def send(self, control: Control) -> None:
        """Queue something for the node; without one, it is forgotten."""

    def settle(self) -> None:
        """Write what was queued."""


class Ongoing:
    """One subscription as the client knows it."""

    def __init__(self, number: int, subscription: Subscription, limit: int, ready: asyncio.Future[None]) -> None:
        self.number = number
        self.subscription = subscription
        self.limit = limit
        self.ready = ready
        self.ready_at_us: int | None = None
        self.untold = 0
        self.untold_bytes = 0
        # What was dropped at earlier nodes: each node counts for itself.
        self.dropped_before = 0
        self.topics: dict[str, LiveTopic] = {}
        self.seen: dict[str, SeenOfAll] = {}

    def topic(self, name: str) -> LiveTopic:
        """One of its topics, from now on if not before."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = LiveTopic(name)
            self.seen[name] = SeenOfAll()
        return topic

    def request(self, is_again: bool, node_clock_us: int = 0) -> SubscribeRequest:
        """What the node is asked for: to begin, or to go on."""
        subscription = self.subscription
        start, resume = subscription.start, None
        if is_again and self.ready_at_us is not None and (start == "latest" or isinstance(start, int)):
            # An offset means something at its node only; what comes from the log of another is all of it.
            start = "latest"
            seen = {topic: seen.ranges() for topic, seen in self.seen.items()}
            resume = Resume(self.ready_at_us + node_clock_us, seen)
        is_time = isinstance(start, datetime)
        begin = int(start.timestamp() * 1_000_000) if isinstance(start, datetime) else start
        return SubscribeRequest(
            self.number, subscription.pattern, begin, is_time, subscription.policy, self.limit, resume
        )


class OngoingSubscriptions:
    """All of them; the host of subscriptions at a client."""

    def __init__(self, client: NodeConnection) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._by_number: dict[int, Ongoing] = {}
        self._of: dict[Subscription, Ongoing] = {}
        # Those that are not effective yet at the node of which they were asked last.
        self._resuming: set[int] = set()
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
        ongoing = Ongoing(self._client.next_number(), subscription, limit, self._loop.create_future())
        self._by_number[ongoing.number] = ongoing
        self._of[subscription] = ongoing
        if self._client.is_up:
            self._client.send(ongoing.request(False))
            self._client.settle()
        return subscription

    # Another node.

    def connection_lost(self) -> None:
        """Nothing that was said about what was taken counts any more."""
        for ongoing in self._by_number.values():
            ongoing.untold = ongoing.untold_bytes = 0

    def resume(self) -> None:
        """There is another node: go on there."""
        for ongoing in list(self._by_number.values()):
            if isinstance(ongoing.subscription.start, int) and ongoing.ready_at_us is not None:
                for topic in ongoing.topics.values():
                    ongoing.subscription.miss(topic)
            self._resuming.add(ongoing.number)
            ongoing.dropped_before = ongoing.subscription.dropped
            self._client.send(ongoing.request(True, self._client.node_clock_us))

    @property
    def are_resuming(self) -> bool:
        """Whether some are not effective yet at another node."""
        return bool(self._resuming)

    def past_of(self, topic: str) -> dict[int, int]:
        """The last batch of each author that was seen on a topic."""
        past: dict[int, int] = {}
        for ongoing in self._by_number.values():
            seen = ongoing.seen.get(topic)
            if seen is not None:
                for author, ranges in seen.ranges().items():
                    past[author] = max(past.get(author, 0), ranges[0])
        return past

    # What the node says.

    def delivered(self, message: Delivery) -> None:
        """A batch for a subscription."""
        ongoing = self._by_number.get(message.number)
        if ongoing is None:
            return
        name = message.topic
        topic = ongoing.topic(name)
        batch = Batch(
            name, message.publisher, message.order, message.first_offset, message.payload, sequence=message.sequence
        )
        if not ongoing.seen[name].add(batch.author, batch.number, batch.is_written):
            self.duplicates += 1
            self._count_taken(ongoing, batch, message.from_offset)
            return
        ongoing.subscription.begin_at(topic, message.from_offset)
        ongoing.subscription.push(topic, batch)

    def on_message(
        self, message: SubscriptionReady | SubscriptionEnded | MessagesMissed | TopicStarted | BatchesDropped
    ) -> None:
        """Something about a subscription."""
        ongoing = self._by_number.get(message.number)
        if ongoing is None:
            return
        if isinstance(message, SubscriptionReady):
            self._resuming.discard(message.number)
            if ongoing.ready_at_us is None:
                ongoing.ready_at_us = monotonic_us()
            set_if_waiting(ongoing.ready)
        elif isinstance(message, MessagesMissed):
            ongoing.subscription.miss(ongoing.topic(message.topic))
        elif isinstance(message, TopicStarted):
            ongoing.topic(message.topic)
            ongoing.seen[message.topic].merge(message.seen)
        elif isinstance(message, BatchesDropped):
            ongoing.topic(message.topic)
            ongoing.seen[message.topic].merge(message.batches)
            ongoing.subscription.dropped = ongoing.dropped_before + message.count
        else:
            self._forget(ongoing)
            reason = message.error or "the node has ended the subscription"
            error = error_from(reason, message.is_denied, message.kind)
            ongoing.subscription.dropped = ongoing.dropped_before + message.dropped
            self._fail(ongoing, error)

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        for ongoing in list(self._by_number.values()):
            self._fail(ongoing, error)

    def _fail(self, ongoing: Ongoing, error: BaseException) -> None:
        if not ongoing.ready.done():
            ongoing.ready.set_exception(error)
            # Whoever iterates without waiting for readiness gets the error there.
            ongoing.ready.exception()
        ongoing.subscription.fail(error)

    def _forget(self, ongoing: Ongoing) -> None:
        self._resuming.discard(ongoing.number)
        self._by_number.pop(ongoing.number, None)
        self._of.pop(ongoing.subscription, None)

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
        ongoing = self._of.get(subscription)
        if ongoing is not None:
            self._forget(ongoing)
            if self._client.is_up:
                self._client.send(UnsubscribeRequest(ongoing.number))
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
        if self._client.is_up and (is_much or has_emptied):
            self._client.send(MessagesConsumed(ongoing.number, ongoing.untold))
            self._client.settle()
            ongoing.untold = ongoing.untold_bytes = 0
