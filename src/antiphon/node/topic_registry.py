"""Which topics exist, and who here wants which of them.

A node tells all others before it first publishes on a topic, and waits until they have answered. Who has a subscription
by a pattern that matches answers when it is a member. So a message on a topic that nobody had heard of still reaches
everybody who subscribed by a pattern before. A newcomer hears from each node on which topics that one publishes.

Where nobody knows everybody, names pass from neighbour to neighbour, all of them when two become neighbours, and nobody
waits: who subscribed by a pattern gets what is published from the moment it has heard of the topic and joined it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from antiphon.api.subscription import Subscription
from antiphon.api.topic_names import is_pattern
from antiphon.api.topic_state import LiveTopic, LiveTopicTable
from antiphon.api.topic_trie import TopicTrie
from antiphon.membership.membership import Membership
from antiphon.runtime.tasks import Tasks
from antiphon.transport.peer_messages import TopicAnnouncement, TopicAnnouncementAck

AddTo = Callable[[Subscription, LiveTopic], Awaitable[None]]
"""Lets a subscription have a topic; done when its messages come."""


class Catalogue:
    """The topics that one node has heard of, and the subscriptions of its application."""

    def __init__(
        self, topics: LiveTopicTable, cluster: Membership, settle: Callable[[], None], tasks: Tasks, add_to: AddTo
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._settle = settle
        self._tasks = tasks
        self._add_to = add_to
        self.names: set[str] = set()
        self._names_by_word: TopicTrie[str] = TopicTrie()
        self._announced: set[str] = set()
        self._unheard: dict[str, set[int]] = {}
        self._heard: dict[str, asyncio.Future[None]] = {}
        self._patterns: TopicTrie[Subscription] = TopicTrie()

    # Publishing.

    async def announce(self, topic: LiveTopic) -> None:
        """Tell all others that this node publishes on a topic; done when all have answered."""
        name = topic.name
        self.learn([name])
        self._announced.add(name)
        # Subscriptions by pattern of this node's own application want it too.
        for subscription in self._patterns.patterns_for(name):
            await self._add_to(subscription, topic)
        if not self._cluster.knows_everybody:
            self._cluster.spread(TopicAnnouncement([name], False))
            self._settle()
            return
        others = self._cluster.identifiers()
        if not others:
            return
        future = self._heard[name] = asyncio.get_running_loop().create_future()
        self._unheard[name] = others
        for identifier in sorted(others):
            self._cluster.tell(identifier, TopicAnnouncement([name], True))
        self._settle()
        await future

    def peer_joined(self, identifier: int) -> None:
        """Tell a newcomer what it could not hear before."""
        if self._announced:
            self._cluster.tell(identifier, TopicAnnouncement(sorted(self._announced), False))

    def peer_gone(self, identifier: int) -> None:
        """Do not wait for the answer of one who is not there any more."""
        for name in list(self._unheard):
            self.on_ack(identifier, name)

    def on_ack(self, identifier: int, name: str) -> None:
        """A peer has answered."""
        unheard = self._unheard.get(name)
        if unheard is None:
            return
        unheard.discard(identifier)
        if not unheard:
            del self._unheard[name]
            future = self._heard.pop(name)
            if not future.done():
                future.set_result(None)

    def learn(self, names: Iterable[str]) -> None:
        """Remember that topics exist."""
        for name in names:
            if name not in self.names:
                self.names.add(name)
                self._names_by_word.add(name, name)

    # Subscribing.

    def add(self, subscription: Subscription) -> list[LiveTopic]:
        """A new subscription: the topics it needs now."""
        if not is_pattern(subscription.pattern):
            return [self._topics.topic(subscription.pattern)]
        self._patterns.add(subscription.pattern, subscription)
        return [self._topics.topic(name) for name in sorted(self._names_by_word.names_for(subscription.pattern))]

    def remove(self, subscription: Subscription) -> None:
        """A subscription has ended."""
        self._patterns.remove(subscription.pattern, subscription)

    def peer_publishes(self, identifier: int, message: TopicAnnouncement) -> None:
        """A peer publishes on topics, some of which may be new here."""
        if not self._cluster.knows_everybody:
            fresh = [name for name in message.topics if name not in self.names]
            if fresh:
                self._cluster.spread(TopicAnnouncement(fresh, False), identifier)
        for name in message.topics:
            self.learn([name])
            wanting = self._patterns.patterns_for(name)
            if wanting:
                self._tasks.spawn(self._follow(identifier, name, wanting, message.wants_answer))
            elif message.wants_answer:
                self._cluster.tell(identifier, TopicAnnouncementAck(name))

    async def _follow(self, identifier: int, name: str, wanting: list[Subscription], wants_answer: bool) -> None:
        topic = self._topics.topic(name)
        for subscription in wanting:
            await self._add_to(subscription, topic)
        if wants_answer:
            self._cluster.tell(identifier, TopicAnnouncementAck(name))
            self._settle()
