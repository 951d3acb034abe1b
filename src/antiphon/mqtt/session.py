"""A session is what outlives the connections of a client: its subscriptions, and the messages under way both ways."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from antiphon.api.batch import Message
from antiphon.api.subscription import LiveSubscription
from antiphon.kernel.errors import DeniedError
from antiphon.mqtt.envelope import MqttEnvelope, described, envelope_of, properties_of_message
from antiphon.mqtt.protocol.incoming import IncomingMessages
from antiphon.mqtt.protocol.outgoing import OutgoingMessages
from antiphon.mqtt.protocol.packets import VERSION_3, Packet, PublishPacket, TopicFilter, Will
from antiphon.mqtt.protocol.properties import NOTHING, with_identifiers
from antiphon.mqtt.protocol.reasons import Reason
from antiphon.mqtt.retained import RetainedMessage
from antiphon.mqtt.topics import filter_matches, mqtt_name
from antiphon.node.acl import Holder
from antiphon.node.quotas import Account

NEVER_EXPIRES: Final = 0xFFFF_FFFF
"""The session expiry of a session that is kept for as long as the node runs."""


class SessionConnection(Protocol):
    """The connection that a session has now."""

    version: int

    @property
    def may_write(self) -> bool:
        """Whether the client reads what it is sent."""

    def send(self, packet: Packet) -> int:
        """Send a packet; its size in bytes, or 0 if it is longer than the client takes."""

    def disconnect(self, reason: Reason, text: str) -> None:
        """Say why, and close the connection."""


class MqttSubscription:
    """One topic filter of a session, and the subscriptions of the node that feed it."""

    def __init__(self, topic_filter: TopicFilter, identifier: int | None) -> None:
        self.live: list[LiveSubscription] = []
        self.update(topic_filter, identifier)

    def update(self, topic_filter: TopicFilter, identifier: int | None) -> None:
        """The client asks for the same filter with other options; nothing is missed between the two."""
        self.filter = topic_filter
        self.identifiers = () if identifier is None else (identifier,)


class MqttSession:
    """The state of one client identifier of one identity."""

    def __init__(
        self, client_id: str, number: int, holder: Holder, account: Account, when_undeliverable: Callable[[], None]
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
        # Where something has come, the longest ago first; and what was taken from there and is not sent yet.
        self._arrived: dict[LiveSubscription, MqttSubscription] = {}
        self._taken: deque[tuple[MqttSubscription, Message | RetainedMessage]] = deque()
        self._is_handing_on = False

    def set_rights(self, holder: Holder) -> None:
        """The client may do other things now: what it has no right to any more ends."""
        self.holder = holder
        self.may_publish.clear()
        for pattern in tuple(self.subscriptions):
            if not all(holder.rights.may_subscribe(live.pattern) for live in self.subscriptions[pattern].live):
                self.end_subscription(pattern)

    @property
    def dropped(self) -> int:
        """How many messages were dropped because the client was behind."""
        return sum(live.dropped for each in self.subscriptions.values() for live in each.live)

    # Subscriptions.

    def attach(self, subscription: MqttSubscription, live: LiveSubscription) -> None:
        """A subscription of the node feeds one of the client."""
        live.owner = f"MQTT client {self.client_id!r}"
        live.count_memory(self.account)
        subscription.live.append(live)
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
        self.account.subscriptions -= 1
        self._taken = deque(each for each in self._taken if each[0] is not found)
        return True

    def end(self) -> None:
        """Nothing of the session is needed any more."""
        for timer in (self.ending, self.willing):
            if timer is not None:
                timer.cancel()
        self.ending = self.willing = None
        for pattern in tuple(self.subscriptions):
            self.end_subscription(pattern)

    # Handing on.

    def _on_arrival(self, subscription: MqttSubscription, live: LiveSubscription) -> None:
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
        if not connection.send(numbered):
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
                self._taken.extend((subscription, message) for message in messages)
                return True
        return False

    def _on_end(self, live: LiveSubscription) -> None:
        """The node has ended a subscription: the rights have changed, or its disk has failed."""
        failure = live.failure
        if failure is None or self.connection is None:
            return
        reason = Reason.NOT_AUTHORIZED if isinstance(failure, DeniedError) else Reason.UNSPECIFIED_ERROR
        self.connection.disconnect(reason, str(failure))

    def _packet_for(
        self, subscription: MqttSubscription, message: Message | RetainedMessage, version: int
    ) -> PublishPacket | None:
        """The packet for a message; None if the client does not want it."""
        wanted = subscription.filter
        if isinstance(message, RetainedMessage):
            return self._retained_packet(subscription, message)
        envelope: MqttEnvelope = envelope_of(message.headers)
        if wanted.is_not_local and envelope.sender == self.number:
            return None
        name = mqtt_name(message.topic)
        if name.startswith("$") and not filter_matches(wanted.pattern, name):
            # Wildcards at the beginning do not stand for such names, but those of the node do.
            return None
        properties = NOTHING
        if version != VERSION_3:
            age_seconds = max(0.0, time.time() - message.timestamp_us / 1_000_000)
            properties = properties_of_message(message, envelope, age_seconds)
            if subscription.identifiers:
                properties = with_identifiers(properties, subscription.identifiers)
        retain = envelope.retain and wanted.keeps_retain
        return PublishPacket(name, message.value, min(envelope.qos, wanted.qos), retain, properties=properties)

    def _retained_packet(self, subscription: MqttSubscription, message: RetainedMessage) -> PublishPacket:
        age_seconds = max(0.0, time.time() - message.stamp_us / 1_000_000)
        properties = described(message.envelope, message.user, age_seconds)
        if subscription.identifiers:
            properties = with_identifiers(properties, subscription.identifiers)
        qos = min(message.envelope.qos, subscription.filter.qos)
        return PublishPacket(message.topic, message.payload, qos, True, properties=properties)
