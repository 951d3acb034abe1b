"""Publishes what MQTT clients send: checks, retained messages, and when a client has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from antiphon.api.publisher import Publisher
from antiphon.kernel.errors import AntiphonError, DeniedError
from antiphon.mqtt.envelope import envelope_of, outline_of
from antiphon.mqtt.protocol.packets import PublishPacket, Will
from antiphon.mqtt.protocol.reasons import MqttError, Reason
from antiphon.mqtt.retained import RetainedTable
from antiphon.mqtt.retained_exchange import RetainedExchange
from antiphon.mqtt.session import MqttSession
from antiphon.mqtt.topics import NAMES_KEPT, topic_name
from antiphon.node.node import LiveNode
from antiphon.node.quotas import why_no_topic
from antiphon.runtime.errors import OverloadedError, QuotaError


class MqttPublisher:
    """The way from a PUBLISH to the publication of the node."""

    def __init__(self, live: LiveNode, table: RetainedTable) -> None:
        self._live = live
        self._publisher = Publisher(live)
        self._table = table
        self.exchange = RetainedExchange(table, self.publish_of_server)
        self._names: dict[str, str] = {}

    def publish_of_server(self, topic: str, value: bytes) -> Any:
        """Publish something that doors say to each other; the answer is as good as a future."""
        return self._publisher.publish(topic, value)

    def until_room(self, session: MqttSession, mqtt_name: str) -> Awaitable[Any] | None:
        """The awaitable for which a client waits before it may publish; None if it need not wait."""
        account = session.account
        if account.owes and (seconds := account.wait_seconds()) > 0:
            return asyncio.sleep(seconds)
        outbox = self._live.outboxes.get(self._names.get(mqtt_name, ""))
        if outbox is None or not outbox.is_full:
            return None
        room: Awaitable[Any] = outbox.until_room()
        return room

    def publish(self, session: MqttSession, packet: PublishPacket | Will) -> asyncio.Future[Any]:
        """Publish a message for a client; done when it is accepted. Raises why it cannot be published."""
        topic = self._checked_topic(session, packet.topic)
        outline = outline_of(packet, session.number)
        if packet.retain and not self._table.has_room_for(packet.topic):
            raise MqttError(Reason.QUOTA_EXCEEDED, "the node has as many retained messages as it may")
        # As good as a future.
        publishing: Any = self._publisher.publish(topic, packet.payload, **outline.arguments())
        if session.account.has_rates:
            session.account.charge(1, len(packet.payload))
        if not packet.retain:
            found: asyncio.Future[Any] = publishing
            return found
        envelope = envelope_of(outline.headers)
        retained = self._table.stamped(packet.topic, packet.payload, envelope, packet.properties.user)
        return asyncio.gather(publishing, self.exchange.tell(retained))

    def _checked_topic(self, session: MqttSession, mqtt_name: str) -> str:
        """The topic of a name, if the client may publish there."""
        topic = self._names.get(mqtt_name)
        if topic is None:
            if mqtt_name.startswith("$"):
                text = f"{mqtt_name[:64]!r} is a name of the server's own topics"
                raise MqttError(Reason.TOPIC_NAME_INVALID, text, is_silent_in_3=True)
            topic = topic_name(mqtt_name)
            if len(self._names) >= NAMES_KEPT:
                self._names.clear()
            self._names[mqtt_name] = topic
        if topic not in session.may_publish:
            if not session.holder.rights.may_publish(topic):
                raise DeniedError(f"client {session.holder.name!r} may not publish on {topic!r}")
            self._check_new_topic(session, topic)
            session.may_publish.add(topic)
        return topic

    def _check_new_topic(self, session: MqttSession, topic: str) -> None:
        session.account.use_topic(topic)
        live = self._live
        used = len(session.may_publish)
        why_not = why_no_topic(live.settings, live.topics, topic, used, "publish on so many topics")
        if why_not:
            raise QuotaError(why_not)
        if topic not in live.topics:
            session.account.begin_topic(len(live.topics), live.settings.maximum_topics)


def why_refused(error: BaseException) -> Reason:
    """The reason code for an error of the node."""
    if isinstance(error, MqttError):
        return error.reason
    if isinstance(error, DeniedError):
        return Reason.NOT_AUTHORIZED
    if isinstance(error, (QuotaError, OverloadedError)):
        return Reason.QUOTA_EXCEEDED
    if isinstance(error, AntiphonError):
        return Reason.IMPLEMENTATION_SPECIFIC
    return Reason.UNSPECIFIED_ERROR
