"""The subscriptions of a node, for its applications and those of its clients: the topics they need, and the log.

A node is a member of a topic as long as somebody here publishes or subscribes on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from antiphon.api.batch import Batch
from antiphon.api.iteration import Callback
from antiphon.api.lifecycle import Lifecycle
from antiphon.api.subscription import DEFAULT_LIMIT, EmptySubscription, LiveSubscription, Start, WhenMissed
from antiphon.api.topic_names import checked_pattern
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.node.gateway.session_host import future_of
from antiphon.node.loop import NodeLoop
from antiphon.node.topic_registry import TopicRegistry
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.replay_buffer import Resumption
from antiphon.sessions.steps import start


class Subscriptions:
    """All subscriptions at one node: the host of each of them."""

    def __init__(self, loop: NodeLoop, sessions: NodeEnd[Batch], lifecycle: Lifecycle, tasks: Tasks) -> None:
        self._loop = loop
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._ready: dict[LiveSubscription, asyncio.Task[None]] = {}
        self._tasks = tasks
        self.topic_registry = TopicRegistry(loop.topics, loop.cluster, loop.settle, self)
        self.release_credit = loop.release_credit

    # Subscribing.

    def add(
        self,
        topic: str,
        start: Start = "latest",
        callback: Callback | None = None,
        policy: str = "block",
        limit: int = DEFAULT_LIMIT,
        when_missed: WhenMissed | None = None,
        resumption: Resumption[Batch] | None = None,
    ) -> LiveSubscription:
        """A new subscription; a ``resumption`` is for clients that come from another node."""
        self._lifecycle.check_open()
        subscription = LiveSubscription(self, checked_pattern(topic), start, callback, policy, limit, when_missed)
        subscription.resumption = resumption
        if subscription.start != "latest" and self._loop.store is None:
            raise UsageError("this node keeps no log to start from; start it with a data directory (data=..., --data)")
        return self._begin(subscription)

    async def keep(self, pattern: str) -> None:
        """Be a member of topics for the sake of others; done when this node is one of those that it knows."""
        await self._begin(EmptySubscription(self, pattern)).ready()

    def _begin(self, subscription: LiveSubscription) -> LiveSubscription:
        topics = self.topic_registry.add(subscription)
        self._ready[subscription] = asyncio.get_running_loop().create_task(self._add_all(subscription, topics))
        return subscription

    async def _add_all(self, subscription: LiveSubscription, topics: list[LiveTopic]) -> None:
        for topic in topics:
            topic.beginners += 1
            self.join_topic(topic)
        try:
            for topic in topics:
                await self.add_to(subscription, topic)
        finally:
            for topic in topics:
                topic.beginners -= 1
                self._leave_if_unwanted(topic)

    async def add_to(self, subscription: LiveSubscription, topic: LiveTopic) -> None:
        """Let a subscription have a topic; done when its messages come."""
        if subscription.is_closed or self._lifecycle.is_closing:
            # Nobody would end this membership.
            return
        topic.beginners += 1
        try:
            joined = self.join_topic(topic)
            if not joined.done():
                await asyncio.shield(joined)
            if subscription.resumption is not None:
                await future_of(start(self._sessions.fetch(topic, subscription.resumption)))
            subscription.begin(topic)
        finally:
            topic.beginners -= 1
            self._leave_if_unwanted(topic)

    def follow(self, wanting: list[LiveSubscription], topic: LiveTopic, done: Callable[[], None]) -> None:
        """Let subscriptions have a topic, and call ``done`` when its messages come. A task for each would cost more."""
        if any(subscription.resumption is not None for subscription in wanting):
            self._tasks.spawn(self._follow_after_fetching(wanting, topic, done))
            return
        if self._lifecycle.is_closing or all(subscription.is_closed for subscription in wanting):
            # Nobody would end this membership.
            done()
            return
        topic.beginners += 1
        joined = self._join(topic)
        if joined.done():
            self._followed(wanting, topic, done, joined)
        else:
            joined.add_done_callback(partial(self._followed, wanting, topic, done))

    def _followed(
        self, wanting: list[LiveSubscription], topic: LiveTopic, done: Callable[[], None], joined: asyncio.Future[None]
    ) -> None:
        topic.beginners -= 1
        if joined.cancelled():
            return
        for subscription in wanting:
            if not self._lifecycle.is_closing:
                subscription.begin(topic)
        self._leave_if_unwanted(topic)
        done()

    async def _follow_after_fetching(
        self, wanting: list[LiveSubscription], topic: LiveTopic, done: Callable[[], None]
    ) -> None:
        for subscription in wanting:
            await self.add_to(subscription, topic)
        done()

    def may_publish(self, topic: LiveTopic) -> None:
        """Everybody who must know that this node publishes on a topic knows it."""
        topic.is_announced = True
        self._loop.room_may_be_on(topic)

    async def subscription_ready(self, subscription: LiveSubscription) -> None:
        """Wait until a subscription has all its topics."""
        task = self._ready.get(subscription)
        if task is None:
            return
        await asyncio.wait([task])
        if task.cancelled():
            ended = ClosedError("the subscription was ended before it was ready")
            raise self._lifecycle.failure or subscription.failure or ended
        task.result()

    def subscription_closed(self, subscription: LiveSubscription, topics: list[LiveTopic]) -> None:
        """A subscription has ended; so has the membership of a topic that nobody here wants any more."""
        task = self._ready.pop(subscription, None)
        if task is not None:
            task.cancel()
        self.topic_registry.remove(subscription)
        # It has ended everywhere before anything is done that may show or publish something.
        released = [topic for topic in topics if topic.remove_sink(subscription)]
        if self._lifecycle.has_told_end:
            return
        for topic in topics:
            self._leave_if_unwanted(topic)
        for topic in released:
            self._loop.send_held_credit(topic)
        self._loop.settle()

    def first_offset(self, topic: LiveTopic, start: Start) -> int:
        """The offset at which a subscription begins."""
        if isinstance(start, int):
            return start
        store = self._loop.store
        if start == "latest" or store is None:
            return topic.visible_offset
        if isinstance(start, datetime):
            return store.offset_at(topic.name, int(start.timestamp() * 1_000_000))
        return store.earliest(topic.name)

    @property
    def has_log(self) -> bool:
        """Whether what was delivered can be read again."""
        return self._loop.store is not None

    def read_log(self, topic: LiveTopic, offset: int, max_bytes: int) -> list[Batch]:
        """Batches from the log, beginning with the one that holds an offset, up to what subscribers may see."""
        store = self._loop.store
        assert store is not None, "only nodes with a log are asked"
        batches = []
        for entry in store.read(topic.name, offset, max_bytes):
            if entry.first_offset >= topic.visible_offset:
                break
            publication = self._loop.codec.decode_publication(entry.batch)
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

    # Ending.

    async def end_all(self) -> None:
        """End the subscriptions of this node, then its memberships, also those for its publications."""
        while self._ready:
            next(iter(self._ready)).end()
        for topic in self._loop.topics.by_name.values():
            if topic.joined is not None:
                topic.outbox = None
                self._leave_topic(topic)

    def fail(self, error: BaseException) -> None:
        """Let whoever waits know that nothing more comes; also those that read the log, or have no topic yet."""
        for subscription, ready in self._ready.items():
            subscription.fail(error)
            ready.cancel()
        self._ready.clear()

    # Topics.

    def join_topic(self, topic: LiveTopic) -> asyncio.Future[None]:
        """Become a member of a topic, if this node is not one; the answer is done when it is."""
        joined = self._join(topic)
        self._loop.settle()
        return joined

    def publish_on(self, topic: LiveTopic) -> None:
        """Become a member of a topic to publish there, and let the others know when this turn of the loop ends."""
        self._join(topic)
        self.topic_registry.announce(topic)

    def _join(self, topic: LiveTopic) -> asyncio.Future[None]:
        """Become a member of a topic; the caller settles, or will."""
        joined = topic.joined
        if joined is None:
            joined = topic.joined = asyncio.get_running_loop().create_future()
            process = self._loop.process
            assert process is not None, "a node that is in the cluster has a process"
            process.subscribe(topic.number)
        return joined

    def _leave_if_unwanted(self, topic: LiveTopic) -> None:
        """End a membership that nobody here needs any more; one that is not effective yet, when it is."""
        joined = topic.joined
        if joined is None or topic.is_wanted() or self._lifecycle.is_closing:
            return
        if joined.done():
            self._leave_topic(topic)
        else:
            joined.add_done_callback(lambda _: self._leave_if_unwanted(topic))

    def _leave_topic(self, topic: LiveTopic) -> None:
        loop = self._loop
        assert loop.process is not None, "who joined a topic has a process"
        topic.joined = None
        if loop.trace is not None:
            loop.trace.leaving(loop.identifier, topic)
        loop.process.unsubscribe(topic.number)
        self._loop.settle()

    def taken(self, subscription: LiveSubscription, batch: Batch, from_offset: int) -> None:
        """The application has taken a batch: nothing to do here, clients tell their node."""
