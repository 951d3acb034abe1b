"""What a node shows to its applications and to those of its clients: subscriptions, the topics they need, the log.

A node is a member of a topic as long as somebody here publishes or subscribes on it.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.live.batch import Batch
from antiphon.live.catalogue import Catalogue
from antiphon.live.core import NodeCore
from antiphon.live.errors import ClosedError
from antiphon.live.names import checked_name, checked_pattern
from antiphon.live.outlook import Early, early_of
from antiphon.live.settings import Settings
from antiphon.live.subscription import (
    DEFAULT_LIMIT,
    Callback,
    Resumption,
    Start,
    Subscription,
    WhenMissed,
)
from antiphon.live.topics import LiveTopic


class SubscribingNode(NodeCore):
    """The part of a node that serves subscriptions."""

    catalogue: Catalogue

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.failure: BaseException | None = None
        self._ready: dict[Subscription, asyncio.Task[None]] = {}
        # Whether everybody who waits has been told that the node goes: from then on its parts are being closed.
        self._has_told_end = False

    @property
    def is_closing(self) -> bool:
        """Whether the node is about to go, or gone."""
        raise NotImplementedError

    # Subscribing.

    def subscribe(
        self,
        topic: str,
        start: Start = "latest",
        *,
        callback: Callback | None = None,
        policy: str = "block",
        limit: int = DEFAULT_LIMIT,
        when_missed: WhenMissed | None = None,
        resumption: Resumption | None = None,
    ) -> Subscription:
        """Subscribe to a topic, or to all topics that match a pattern (``orders.*``, ``orders.>``).

        Iterate over the answer, or give a callback, which is called with each message. ``await subscription.ready()``
        returns when whatever is published from then on will come. Where messages are missing because nobody has kept
        them, ``when_missed`` is called with the name of the topic, or, without it, iterating raises
        :class:`MissedMessagesError`, once. A ``resumption`` is for clients that come from another node.
        """
        if self.is_closing:
            raise self.failure or ClosedError("the node has been closed; start another one")
        subscription = Subscription(self, checked_pattern(topic), start, callback, policy, limit, when_missed)
        subscription.resumption = resumption
        if subscription.start != "latest" and self.store is None:
            raise UsageError("this node keeps no log to start from; start it with a data directory (data=..., --data)")
        return self._begin(subscription)

    def outlook(self, topic: str) -> list[Early]:
        """What has come on a topic in total order and may not be delivered yet, in the order as far as it is known.

        Each with the probabilities that all nodes know it, and that nothing can come before it. Who uses something
        early takes it back, or lives with it, if something else comes before it. Only in gossip there is such.
        """
        found = self.topics.get(checked_name(topic))
        return [] if found is None else early_of(self.process, found)

    def _begin(self, subscription: Subscription) -> Subscription:
        topics = self.catalogue.add(subscription)
        self._ready[subscription] = self.loop.create_task(self._add_all(subscription, topics))
        return subscription

    async def _add_all(self, subscription: Subscription, topics: list[LiveTopic]) -> None:
        for topic in topics:
            topic.beginners += 1
            self._join_topic(topic)
        try:
            for topic in topics:
                await self.add_to(subscription, topic)
        finally:
            for topic in topics:
                topic.beginners -= 1
                self._leave_if_unwanted(topic)

    async def add_to(self, subscription: Subscription, topic: LiveTopic) -> None:
        """Let a subscription have a topic; done when its messages come."""
        if subscription.is_closed or self.is_closing:
            # Nobody would end this membership.
            return
        topic.beginners += 1
        try:
            joined = self._join_topic(topic)
            if not joined.done():
                await asyncio.shield(joined)
            if subscription.resumption is not None:
                await self.sessions.fetch(topic, subscription.resumption)
            subscription.begin(topic)
        finally:
            topic.beginners -= 1
            self._leave_if_unwanted(topic)

    async def subscription_ready(self, subscription: Subscription) -> None:
        """Wait until a subscription has all its topics."""
        task = self._ready.get(subscription)
        if task is None:
            return
        await asyncio.wait([task])
        if task.cancelled():
            raise self.failure or ClosedError("the subscription was ended before it was ready")
        task.result()

    def subscription_closed(self, subscription: Subscription, topics: list[LiveTopic]) -> None:
        """A subscription has ended; so has the membership of a topic that nobody here wants any more."""
        task = self._ready.pop(subscription, None)
        if task is not None:
            task.cancel()
        self.catalogue.remove(subscription)
        # It has ended everywhere before anything is done that may show or publish something.
        released = [topic for topic in topics if topic.remove_sink(subscription)]
        if self._has_told_end:
            return
        for topic in topics:
            self._leave_if_unwanted(topic)
        for topic in released:
            self._send_held(self._held_credit.pop(topic, []))
        self.settle()

    def first_offset(self, topic: LiveTopic, start: Start) -> int:
        """The offset at which a subscription begins."""
        if isinstance(start, int):
            return start
        store = self.store
        if start == "latest" or store is None:
            return topic.visible_offset
        if isinstance(start, datetime):
            return store.offset_at(topic.name, int(start.timestamp() * 1_000_000))
        return store.earliest(topic.name)

    @property
    def has_log(self) -> bool:
        """Whether what was delivered can be read again."""
        return self.store is not None

    def read_log(self, topic: LiveTopic, offset: int, max_bytes: int) -> list[Batch]:
        """Batches from the log, beginning with the one that holds an offset, up to what subscribers may see."""
        assert self.store is not None, "only nodes with a log are asked"
        batches = []
        for entry in self.store.read(topic.name, offset, max_bytes):
            if entry.first_offset >= topic.visible_offset:
                break
            publication = self.codec.decode_publication(entry.batch)
            order = ORDER_NAMES[publication.order]
            batches.append(
                Batch(
                    topic.name,
                    publication.source,
                    order,
                    entry.first_offset,
                    publication.payload,
                    sequence=publication.sequence,
                )
            )
        return batches

    # Topics.

    def _join_topic(self, topic: LiveTopic) -> asyncio.Future[None]:
        if topic.joined is None:
            topic.joined = self.loop.create_future()
            assert self.process is not None, "a node that is in the cluster has a process"
            self.process.subscribe(topic.number)
            self.settle()
        return topic.joined

    def _leave_if_unwanted(self, topic: LiveTopic) -> None:
        """End a membership that nobody here needs any more; one that is not effective yet, when it is."""
        joined = topic.joined
        if joined is None or topic.is_wanted() or self.is_closing:
            return
        if joined.done():
            self._leave_topic(topic)
        else:
            joined.add_done_callback(lambda _: self._leave_if_unwanted(topic))

    def _leave_topic(self, topic: LiveTopic) -> None:
        assert self.process is not None, "who joined a topic has a process"
        topic.joined = None
        if self._trace is not None:
            self._trace.leaving(self.identifier, topic)
        self.process.unsubscribe(topic.number)
        self.settle()

    def taken(self, subscription: Subscription, batch: Batch, from_offset: int) -> None:
        """The application has taken a batch: nothing to do here, clients tell their node."""
