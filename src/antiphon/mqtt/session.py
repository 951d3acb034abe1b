"""A session is what outlives the connections of a client: its subscriptions, and the messages under way both ways."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from antiphon.api.batch import Message
from antiphon.api.subscription import LiveSubscription
from antiphon.api.topic_names import matches
from antiphon.kernel.errors import DeniedError
from antiphon.mqtt.envelope import MqttEnvelope, all_user_properties, described, envelope_of, properties_of_message
from antiphon.mqtt.protocol.incoming import IncomingMessages
from antiphon.mqtt.protocol.outgoing import OutgoingMessages
from antiphon.mqtt.protocol.packets import VERSION_3, Packet, PublishPacket, TopicFilter, Will
from antiphon.mqtt.protocol.properties import NOTHING, Properties
from antiphon.mqtt.protocol.reasons import Reason
from antiphon.mqtt.retained import RetainedMessage
from antiphon.mqtt.topics import SHARED, filter_matches, mqtt_name, shared_filter, topic_name
from antiphon.node.acl import Holder
from antiphon.node.gateway.accounts import Account

NEVER_EXPIRES: Final = 0xFFFF_FFFF
"""The session expiry of a session that is kept for as long as the node runs."""


SERIES_KEPT: Final = 10_000
"""Of so many publishers and topics a session remembers how far it has come."""

TOPICS_KEPT: Final = 1_000
"""Of so many topics a session remembers which of its subscriptions match."""

OVERLAPPING_KEPT: Final = 10_000
"""So many messages that several subscriptions match a session remembers, until all of these have come with them."""


class SessionConnection(Protocol):
    """The connection that a session has now."""

    version: int

    @property
    def may_write(self) -> bool:
        """Whether the client reads what it is sent."""

    def send(self, packet: Packet) -> int:
        """Send a packet; its size in bytes, or 0 if it is longer than the client takes."""

    def send_message(self, packet: PublishPacket) -> int:
        """Send a message, if it pays under an alias; the answer is that of ``send``."""

    def disconnect(self, reason: Reason, text: str) -> None:
        """Say why, and close the connection."""


class MessageSource(Protocol):
    """Feeds a subscription: a subscription of the node, or what a group hands to one of its members."""

    pattern: str
    dropped: int
    when_arrived: Callable[[], None] | None

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""

    @property
    def failure(self) -> BaseException | None:
        """The error with which it ended, if it did."""

    def take_messages(self) -> Sequence[Any] | None:
        """Some of the messages that wait."""

    def end(self) -> None:
        """Nothing more is wanted."""


class MqttSubscription:
    """One topic filter of a session, and what feeds it."""

    def __init__(self, topic_filter: TopicFilter, identifier: int | None) -> None:
        self.live: list[MessageSource] = []
        self.is_shared = topic_filter.pattern.startswith(SHARED)
        # The filter without the name of the group, if it is a shared one.
        self.pattern = shared_filter(topic_filter.pattern)
        self.update(topic_filter, identifier)

    def may_see(self, topic: str, name: str) -> bool:
        """Whether the messages of a topic, which has this name in MQTT, are for it."""
        if name.startswith("$") and not filter_matches(self.pattern, name):
            # Wildcards at the beginning do not stand for such names, but those of the node do.
            return False
        return any(matches(live.pattern, topic) for live in self.live)

    def update(self, topic_filter: TopicFilter, identifier: int | None) -> None:
        """The client asks for the same filter with other options; nothing is missed between the two."""
        self.filter = topic_filter
        self.identifiers = () if identifier is None else (identifier,)


class MqttSession:
    """The state of one client identifier of one identity."""

    def __init__(
        self,
        client_id: str,
        number: int,
        holder: Holder,
        account: Account,
        when_undeliverable: Callable[[], None],
        when_left: Callable[[MqttSession, str, list[Any]], None],
    ) -> None:
        self.client_id = client_id
        self.number = number
        self.holder = holder
        self.account = account
        self.expiry_seconds = 0
        self.expiry_at_most = 0
        self.will: Will | None = None
        self.connection: SessionConnection | None = None
        self.outgoing = OutgoingMessages()
        self.incoming = IncomingMessages()
        self.subscriptions: dict[str, MqttSubscription] = {}
        # The topics on which it may publish, as far as it has tried.
        self.may_publish: set[str] = set()
        self.ending: asyncio.TimerHandle | None = None
        self.willing: asyncio.TimerHandle | None = None
        self._when_undeliverable = when_undeliverable
        # Called with the filter of a group that the session has left, and what it has not sent.
        self.when_left = when_left
        # Where something has come, the longest ago first; and what was taken from there and is not sent yet.
        self._arrived: dict[MessageSource, MqttSubscription] = {}
        self._taken: deque[tuple[MqttSubscription, Any]] = deque()
        self._is_handing_on = False
        self._overlaps = Overlaps(self.subscriptions)
        # The last number of each publisher on each topic, here and at the door where the session was before.
        self.heard: dict[tuple[str, int], int] = {}
        self._heard_before: dict[tuple[str, int], int] = {}

    def set_rights(self, holder: Holder) -> None:
        """The client may do other things now: what it has no right to any more ends."""
        self.holder = holder
        self.may_publish.clear()
        for pattern in tuple(self.subscriptions):
            if not all(holder.rights.may_subscribe(live.pattern) for live in self.subscriptions[pattern].live):
                self.end_subscription(pattern)

    @property
    def is_lasting(self) -> bool:
        """Whether it outlives its connection."""
        return self.expiry_seconds > 0

    @property
    def dropped(self) -> int:
        """How many messages were dropped because the client was behind."""
        return sum(live.dropped for each in self.subscriptions.values() for live in each.live)

    # Subscriptions.

    def attach(self, subscription: MqttSubscription, live: MessageSource) -> None:
        """Messages from here are for one subscription of the client."""
        if isinstance(live, LiveSubscription):
            live.owner = f"MQTT client {self.client_id!r}"
            live.count_memory(self.account)
        subscription.live.append(live)
        self._overlaps.changed()
        live.when_arrived = lambda: self._on_arrival(subscription, live)

    def end_subscription(self, pattern: str) -> bool:
        """End a subscription; whether there was one."""
        found = self.subscriptions.pop(pattern, None)
        if found is None:
            return False
        for live in found.live:
            live.when_arrived = None
            self._arrived.pop(live, None)
            live.end()
        self._overlaps.changed()
        self.account.subscriptions -= 1
        unsent = [message for subscription, message in self._taken if subscription is found]
        if unsent:
            self._taken = deque(each for each in map(self._for_others, self._taken) if each[0] is not found)
        if found.is_shared:
            self.when_left(self, pattern, unsent)
        return True

    def _for_others(self, taken: tuple[MqttSubscription, Any]) -> tuple[MqttSubscription, Any]:
        """A message that was taken, for a subscription that there still is, if one matches."""
        subscription, message = taken
        if subscription.filter.pattern in self.subscriptions or not isinstance(message, Message):
            return taken
        others = () if subscription.is_shared else self._overlaps.of(message.topic)
        return (others[0], message) if others else taken

    def end(self) -> None:
        """Nothing of the session is needed any more."""
        for timer in (self.ending, self.willing):
            if timer is not None:
                timer.cancel()
        self.ending = self.willing = None
        for pattern in tuple(self.subscriptions):
            self.end_subscription(pattern)

    # Handing on.

    def _on_arrival(self, subscription: MqttSubscription, live: MessageSource) -> None:
        self._arrived[live] = subscription
        self.hand_on()

    def hand_on_retained(self, subscription: MqttSubscription, messages: list[RetainedMessage]) -> None:
        """Send what was retained when the client subscribed."""
        self._taken.extend((subscription, message) for message in messages)
        self.hand_on()

    def resume(self) -> None:
        """A connection begins: first what the client may not have got."""
        connection = self.connection
        assert connection is not None, "a connection has begun"
        for packet in self.outgoing.resumed():
            if isinstance(packet, PublishPacket):
                connection.send_message(packet)
            else:
                connection.send(packet)
        self.hand_on()

    def hand_on(self) -> None:
        """Send what has come, as far as the client takes it."""
        connection = self.connection
        if self._is_handing_on or connection is None:
            # What is taken may let others publish, and then more comes; the outer call sends it.
            return
        self._is_handing_on = True
        try:
            while connection.may_write and self.connection is connection and (self._taken or self._take_more()):
                subscription, message = self._taken[0]
                packet = self._packet_for(subscription, message, connection.version)
                if packet is not None and packet.qos and not self.outgoing.has_room:
                    return
                self._taken.popleft()
                if packet is not None:
                    self._send(connection, packet)
        finally:
            self._is_handing_on = False

    def _send(self, connection: SessionConnection, packet: PublishPacket) -> None:
        numbered = self.outgoing.begin(packet) if packet.qos else packet
        if not connection.send_message(numbered):
            self.outgoing.forget(numbered.packet_id)
            self._when_undeliverable()

    def _take_more(self) -> bool:
        """Take a batch from the next subscription that has one; whether there was something."""
        while self._arrived:
            live = next(iter(self._arrived))
            subscription = self._arrived.pop(live)
            if live.is_closed and live.is_empty:
                self._on_end(live)
                continue
            messages = live.take_messages()
            if not live.is_empty or live.is_closed:
                # The others come first.
                self._arrived[live] = subscription
            if messages:
                is_new = self._is_new
                self._taken.extend((subscription, each) for each in messages if is_new(subscription, each))
                if self._taken:
                    return True
        return False

    def _is_new(self, subscription: MqttSubscription, message: Any) -> bool:
        """Whether a message that a subscription brings has not come by another one, or at another door."""
        if subscription.is_shared:
            return True
        if not self._overlaps.is_first(subscription, message):
            return False
        if not self.is_lasting and not self._heard_before:
            return True
        series: tuple[str, int] = message.topic, message.publisher
        number: int = message.sequence
        if self.is_lasting:
            self.heard.pop(series, None)
            self.heard[series] = number
            if len(self.heard) > SERIES_KEPT:
                del self.heard[next(iter(self.heard))]
        return number > self._heard_before.get(series, 0)

    # Going to another door.

    def taken_out(self) -> list[tuple[str, tuple[Any, ...]]]:
        """All that waits for the client, with the filters by which it came."""
        while self._take_more():
            pass
        found: list[tuple[str, tuple[Any, ...]]] = []
        for subscription, message in self._taken:
            if isinstance(message, Message):
                envelope = envelope_of(message.headers)
                user = all_user_properties(message, envelope)
                parts = mqtt_name(message.topic), message.timestamp_us, message.value, envelope, user, False
            else:
                stamp_us, is_retained = message.stamp_us, message.is_retained
                parts = message.topic, stamp_us, message.payload, message.envelope, message.user, is_retained
            found.append((subscription.filter.pattern, parts))
        self._taken.clear()
        return found

    def put_in(self, waiting: list[tuple[str, Any]], heard: dict[tuple[str, int], int]) -> None:
        """Take over the messages that waited for the client at another door, and how far that door had come."""
        self._heard_before = heard
        self.heard = dict(heard)
        for pattern, message in waiting:
            subscription = self.subscriptions.get(pattern)
            if subscription is not None:
                self._taken.append((subscription, message))

    def _on_end(self, live: MessageSource) -> None:
        """The node has ended a subscription: the rights have changed, or its disk has failed."""
        failure = live.failure
        if failure is None or self.connection is None:
            return
        reason = Reason.NOT_AUTHORIZED if isinstance(failure, DeniedError) else Reason.UNSPECIFIED_ERROR
        self.connection.disconnect(reason, str(failure))

    def _packet_for(self, subscription: MqttSubscription, message: Any, version: int) -> PublishPacket | None:
        """The packet for a message; None if the client does not want it."""
        if not isinstance(message, Message):
            return self._plain_packet(subscription, message)
        name = mqtt_name(message.topic)
        matching = (subscription,) if subscription.is_shared else self._overlaps.of(message.topic)
        envelope: MqttEnvelope = envelope_of(message.headers)
        if envelope.sender == self.number:
            matching = tuple(each for each in matching if not each.filter.is_not_local)
        if not matching:
            return None
        properties = NOTHING
        if version != VERSION_3:
            age_seconds = max(0.0, time.time() - message.timestamp_us / 1_000_000)
            properties = with_identifiers(properties_of_message(message, envelope, age_seconds), matching)
        qos = min(envelope.qos, max(each.filter.qos for each in matching))
        retain = envelope.retain and any(each.filter.keeps_retain for each in matching)
        return PublishPacket(name, message.value, qos, retain, properties=properties)

    def _plain_packet(self, subscription: MqttSubscription, message: Any) -> PublishPacket | None:
        """The packet for a retained message, or for one that another door gave to this member of a group."""
        is_retained: bool = message.is_retained
        envelope: MqttEnvelope = message.envelope
        age_seconds = max(0.0, time.time() - message.stamp_us / 1_000_000)
        if envelope.message_expiry_seconds and age_seconds > envelope.message_expiry_seconds:
            return None
        matching: tuple[MqttSubscription, ...] = (subscription,)
        if not is_retained and not subscription.is_shared:
            matching = self._overlaps.of(topic_name(message.topic)) or matching
        properties = with_identifiers(described(envelope, message.user, age_seconds), matching)
        qos = min(envelope.qos, max(each.filter.qos for each in matching))
        retain = is_retained or (envelope.retain and any(each.filter.keeps_retain for each in matching))
        return PublishPacket(message.topic, message.payload, qos, retain, properties=properties)


class Overlaps:
    """The subscriptions of a session that match the same message: it is sent once, for all of them.

    Each of them gets the message; the first one that hands it on speaks for the others.
    """

    def __init__(self, subscriptions: dict[str, MqttSubscription]) -> None:
        self._subscriptions = subscriptions
        self._matching: dict[str, tuple[MqttSubscription, ...]] = {}
        # By message: the subscriptions that have still to come with it.
        self._sent: dict[tuple[str, int, int], set[MqttSubscription]] = {}

    def changed(self) -> None:
        """There are other subscriptions now."""
        self._matching.clear()

    def of(self, topic: str) -> tuple[MqttSubscription, ...]:
        """The subscriptions that match a topic, without shared ones."""
        found = self._matching.get(topic)
        if found is None:
            name = mqtt_name(topic)
            found = tuple(
                each for each in self._subscriptions.values() if not each.is_shared and each.may_see(topic, name)
            )
            if len(self._matching) >= TOPICS_KEPT:
                self._matching.clear()
            self._matching[topic] = found
        return found

    def is_first(self, subscription: MqttSubscription, message: Any) -> bool:
        """Whether a message that a subscription, which is not a shared one, brings has come by no other one."""
        matching = self.of(message.topic)
        if len(matching) < 2:
            return True
        key = message.topic, message.publisher, message.sequence
        waiting = self._sent.get(key)
        if waiting is None:
            if len(self._sent) >= OVERLAPPING_KEPT:
                del self._sent[next(iter(self._sent))]
            self._sent[key] = {each for each in matching if each is not subscription}
            return True
        waiting.discard(subscription)
        if not waiting:
            del self._sent[key]
        return False


def with_identifiers(properties: Properties, subscriptions: tuple[MqttSubscription, ...]) -> Properties:
    """The same properties, with the identifiers of the subscriptions for which a message is sent."""
    identifiers = tuple(identifier for each in subscriptions for identifier in each.identifiers)
    return replace(properties, subscription_identifiers=identifiers) if identifiers else properties
