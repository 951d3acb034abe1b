"""Subscribes for MQTT clients: rights, quotas, groups, and what is retained for whoever subscribes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from antiphon.api.subscription import LiveSubscription
from antiphon.kernel.errors import AntiphonError
from antiphon.mqtt.protocol.packets import SubscribePacket, TopicFilter
from antiphon.mqtt.protocol.reasons import Reason
from antiphon.mqtt.publishing import why_refused
from antiphon.mqtt.retained import RetainedMessage, RetainedTable
from antiphon.mqtt.server_topics import SERVER_TOPICS, server_messages
from antiphon.mqtt.session import MqttSession, MqttSubscription
from antiphon.mqtt.shares import Shares
from antiphon.mqtt.topics import shared_filter, topic_name, topic_patterns
from antiphon.node.node import LiveNode
from antiphon.runtime.logging import logger

QUEUE_LIMIT: Final = 10_000
"""So many messages may wait for one subscription of a client."""

log = logger("mqtt")

Retained = list[tuple[MqttSubscription, list[RetainedMessage]]]
"""Subscriptions, each with the retained messages that it is to get."""


class MqttSubscriber:
    """The way from a SUBSCRIBE to subscriptions of the node."""

    def __init__(
        self, live: LiveNode, table: RetainedTable, shares: Shares, figures: Callable[[], dict[str, int]]
    ) -> None:
        self._live = live
        self._table = table
        self._shares = shares
        self._figures = figures
        # Where there is a log, nobody waits for who is behind: it goes on with the log.
        self._policy = "drop_oldest" if live.store is None else "block"
        self.missed = 0

    def _note_missed(self, topic: str) -> None:
        self.missed += 1
        log.warning("messages may be missing for MQTT clients", topic=topic)

    async def subscribe(self, session: MqttSession, packet: SubscribePacket) -> tuple[list[int], Retained]:
        """Subscribe; a reason for each filter, and what is retained for those that want it."""
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else None
        begun = [self._begin_filter(session, each, identifier) for each in packet.filters]
        reasons: list[int] = []
        wanted: list[MqttSubscription] = []
        for topic_filter, outcome in zip(packet.filters, begun, strict=True):
            if isinstance(outcome, Reason):
                reasons.append(outcome)
                continue
            subscription, is_new, begun_now = outcome
            try:
                for live in begun_now:
                    await live.ready()
            except AntiphonError as error:
                session.end_subscription(topic_filter.pattern)
                reasons.append(why_refused(error))
                continue
            reasons.append(topic_filter.qos)
            handling = topic_filter.retain_handling
            if not subscription.is_shared and (handling == 0 or (handling == 1 and is_new)):
                wanted.append(subscription)
        return reasons, [(subscription, self._retained_for(session, subscription)) for subscription in wanted]

    def _begin_filter(
        self, session: MqttSession, topic_filter: TopicFilter, identifier: int | None
    ) -> tuple[MqttSubscription, bool, list[LiveSubscription]] | Reason:
        """Begin with one filter: the subscription, whether it is new, and what must be ready; or why there is none."""
        pattern = topic_filter.pattern
        found = session.subscriptions.get(pattern)
        try:
            patterns = self._permitted(session, shared_filter(pattern))
            if not patterns:
                return Reason.NOT_AUTHORIZED
            if found is not None:
                found.update(topic_filter, identifier)
                return found, False, []
            if len(session.subscriptions) >= self._live.settings.client_topics:
                return Reason.QUOTA_EXCEEDED
            session.account.subscribe(self._policy)
        except AntiphonError as error:
            log.debug("a subscription was refused", client=session.client_id, pattern=pattern, reason=str(error))
            return why_refused(error)
        subscription = session.subscriptions[pattern] = MqttSubscription(topic_filter, identifier)
        return subscription, True, self._feed(session, subscription, patterns)

    def _feed(
        self, session: MqttSession, subscription: MqttSubscription, patterns: tuple[str, ...]
    ) -> list[LiveSubscription]:
        """Let the node feed a subscription; the answer is what must be ready."""
        if subscription.pattern.startswith("$"):
            return []
        begin = partial(self._begin, patterns)
        if subscription.is_shared:
            return self._shares.join(session, subscription, patterns[0], begin)
        lives = begin()
        for live in lives:
            session.attach(subscription, live)
        return lives

    def _begin(self, patterns: tuple[str, ...]) -> list[LiveSubscription]:
        subscriptions = self._live.subscriptions
        return [
            subscriptions.add(each, policy=self._policy, limit=QUEUE_LIMIT, when_missed=self._note_missed)
            for each in patterns
        ]

    def _permitted(self, session: MqttSession, pattern: str) -> tuple[str, ...]:
        """The patterns of a filter, if the client has the right to what it matches.

        The parent that ``#`` matches too is left out where the client has only the right to what is below it.
        """
        patterns = topic_patterns(pattern)
        rights = session.holder.rights
        if pattern.startswith("$"):
            return patterns if pattern.startswith(SERVER_TOPICS) and rights.admin else ()
        permitted = tuple(each for each in patterns if rights.may_subscribe(each))
        return permitted if patterns[0] in permitted else ()

    def _retained_for(self, session: MqttSession, subscription: MqttSubscription) -> list[RetainedMessage]:
        pattern = subscription.filter.pattern
        if pattern.startswith(SERVER_TOPICS):
            return server_messages(pattern, self._figures())
        rights = session.holder.rights
        return [each for each in self._table.matching(pattern) if rights.may_subscribe(topic_name(each.topic))]
