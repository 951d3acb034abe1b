"""Which topics exist, and who here wants which of them.

A node tells all others before it first publishes on a topic, and waits until they have answered. A node with a
subscription by a matching pattern answers when it is a member. So a message on a topic that nobody had heard of still
reaches everybody who subscribed by a pattern before. A newcomer hears from each node on which topics that one
publishes.

All topics that are new in one turn of the loop are announced together.

Where nobody knows everybody, names pass from neighbour to neighbour, all of them when two become neighbours, and nobody
waits: who subscribed by a pattern gets what is published from the moment it has heard of the topic and joined it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol, final

from antiphon.api.subscription import LiveSubscription
from antiphon.api.topic_names import is_pattern
from antiphon.api.topic_state import LiveTopic, LiveTopicTable
from antiphon.api.topic_trie import TopicTrie
from antiphon.membership.membership import Membership
from antiphon.transport.peer_messages import TopicAnnouncement, TopicAnnouncementAck

NAMES_AT_ONCE: Final = 1000
"""So many topics are in one announcement at most: their names fit a frame, however long they are."""


class PatternFollowers(Protocol):
    """The subscriptions of a node, as the registry uses them."""

    def follow(self, wanting: list[LiveSubscription], topic: LiveTopic, done: Callable[[], None]) -> None:
        """Let subscriptions have a topic, and call ``done`` when its messages come."""

    def may_publish(self, topic: LiveTopic) -> None:
        """Everybody who must know that this node publishes on a topic knows it."""


@final
class UnansweredAnnouncement:
    """A topic of which not all have heard that this node publishes there."""

    def __init__(self, topic: LiveTopic, others: set[int]) -> None:
        self.topic = topic
        self.unheard = set(others)


class TopicRegistry:
    """The topics that one node has heard of, and the subscriptions of its application."""

    def __init__(
        self, topics: LiveTopicTable, cluster: Membership, settle: Callable[[], None], followers: PatternFollowers
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._settle = settle
        self._followers = followers
        self._loop = asyncio.get_running_loop()
        self._names: TopicTrie[str] = TopicTrie()
        self._patterns: TopicTrie[LiveSubscription] = TopicTrie()
        self._unanswered: dict[str, UnansweredAnnouncement] = {}
        # The topics of this turn that are to be announced.
        self._to_announce: list[LiveTopic] = []
        self._is_settling_soon = False

    @property
    def names(self) -> set[str]:
        """The names of all topics that this node has heard of."""
        return set(self._names.names_for(">"))

    # Publishing.

    def announce(self, topic: LiveTopic) -> None:
        """Tell all others that this node publishes on a topic; ``may_publish`` is called when all have answered."""
        name = topic.name
        self.learn([name])
        # Subscriptions by pattern of this node's own application want it too.
        own = self._patterns.patterns_for(name)
        if own:
            self._followers.follow(own, topic, lambda: self._announce_later(topic))
        else:
            self._announce_later(topic)

    def _announce_later(self, topic: LiveTopic) -> None:
        if not self._to_announce:
            self._loop.call_soon(self._announce_all)
        self._to_announce.append(topic)

    def _announce_all(self) -> None:
        """Announce all topics of a turn."""
        topics, self._to_announce = self._to_announce, []
        others = self._cluster.identifiers() if self._cluster.knows_everybody else set[int]()
        for first in range(0, len(topics), NAMES_AT_ONCE):
            names = [topic.name for topic in topics[first : first + NAMES_AT_ONCE]]
            if not self._cluster.knows_everybody:
                self._cluster.spread(TopicAnnouncement(names, False))
            for identifier in sorted(others):
                self._cluster.send_control(identifier, TopicAnnouncement(names, True))
        for topic in topics:
            if others:
                self._unanswered[topic.name] = UnansweredAnnouncement(topic, others)
            else:
                self._followers.may_publish(topic)
        self._settle()

    def peer_joined(self, identifier: int) -> None:
        """Tell a newcomer what it could not hear before."""
        names = sorted([name for name, topic in self._topics.by_name.items() if topic.outbox is not None])
        for first in range(0, len(names), NAMES_AT_ONCE):
            self._cluster.send_control(identifier, TopicAnnouncement(names[first : first + NAMES_AT_ONCE], False))

    def on_peer_lost(self, identifier: int) -> None:
        """Do not wait for the answer of one who is not there any more."""
        for name in list(self._unanswered):
            self.on_ack(identifier, name)

    def on_ack(self, identifier: int, name: str) -> None:
        """A peer has answered."""
        announcement = self._unanswered.get(name)
        if announcement is None:
            return
        announcement.unheard.discard(identifier)
        if not announcement.unheard:
            del self._unanswered[name]
            self._followers.may_publish(announcement.topic)
            self._settle_soon()

    def learn(self, names: Iterable[str]) -> list[str]:
        """Remember that topics exist; those that are news."""
        return [name for name in names if self._names.add(name, name)]

    # Subscribing.

    def add(self, subscription: LiveSubscription) -> list[LiveTopic]:
        """A new subscription: the topics it needs now."""
        if not is_pattern(subscription.pattern):
            return [self._topics.topic(subscription.pattern)]
        self._patterns.add(subscription.pattern, subscription)
        return [self._topics.topic(name) for name in sorted(self._names.names_for(subscription.pattern))]

    def remove(self, subscription: LiveSubscription) -> None:
        """A subscription has ended."""
        self._patterns.remove(subscription.pattern, subscription)

    def peer_publishes(self, identifier: int, message: TopicAnnouncement) -> None:
        """A peer publishes on topics, some of which may be new here."""
        fresh = self.learn(message.topics)
        if fresh and not self._cluster.knows_everybody:
            self._cluster.spread(TopicAnnouncement(fresh, False), identifier)
        for name in message.topics:
            wanting = self._patterns.patterns_for(name)
            if wanting:
                topic = self._topics.topic(name)
                self._followers.follow(wanting, topic, partial(self._followed, identifier, name, message.wants_answer))
            elif message.wants_answer:
                self._cluster.send_control(identifier, TopicAnnouncementAck(name))
        self._settle_soon()

    def _followed(self, identifier: int, name: str, wants_answer: bool) -> None:
        """Subscriptions by a pattern here get the messages that a peer publishes on a topic."""
        if wants_answer:
            self._cluster.send_control(identifier, TopicAnnouncementAck(name))
            self._settle_soon()

    def _settle_soon(self) -> None:
        """Settle once for all that happens in this turn."""
        if not self._is_settling_soon:
            self._is_settling_soon = True
            self._loop.call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._is_settling_soon = False
        self._settle()
