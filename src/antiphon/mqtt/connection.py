"""One connection of an MQTT client: its packets in both directions, and why it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, cast

from antiphon.kernel.errors import AntiphonError
from antiphon.mqtt.protocol import packets as kinds
from antiphon.mqtt.protocol.decoding import decode
from antiphon.mqtt.protocol.encoding import encode
from antiphon.mqtt.protocol.framing import PacketStream
from antiphon.mqtt.protocol.incoming import IncomingMessage
from antiphon.mqtt.protocol.packets import (
    VERSION_3,
    VERSION_5,
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingPacket,
    PublishAckPacket,
    PublishPacket,
    SubscribeAckPacket,
    SubscribePacket,
    UnsubscribePacket,
)
from antiphon.mqtt.protocol.properties import NOTHING, Properties
from antiphon.mqtt.protocol.reasons import (
    CONNECT_REFUSALS,
    FIRST_FAILURE,
    SUBSCRIBE_FAILURE,
    MqttError,
    Reason,
    broken,
)
from antiphon.mqtt.publishing import why_refused
from antiphon.mqtt.retained import RetainedMessage
from antiphon.mqtt.session import NEVER_EXPIRES, MqttSession, MqttSubscription
from antiphon.node.acl import Holder
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks

PACKETS_PER_TURN: Final = 256
"""After so many packets of one client the others have their turn."""

TOPIC_ALIASES: Final = 64
"""So many names a client may abbreviate; a CONNACK says so."""

PATIENCE: Final = 1.5
"""A client that is silent for so many of its keep-alive times is gone, as MQTT says."""

log = logger("mqtt")


class Sessions(Protocol):
    """The parts of a door that a connection uses."""

    packet_bytes_at_most: int
    connect_seconds: float
    refused: int

    def opened(self, connection: MqttConnection) -> None:
        """Somebody has connected."""

    def until_here(self, connection: MqttConnection, packet: ConnectPacket) -> Awaitable[Any] | None:
        """The awaitable for which a client waits whose session is at another door."""

    def connect(self, connection: MqttConnection, packet: ConnectPacket) -> tuple[MqttSession, ConnackPacket]:
        """A client says who it is; its session, and the answer."""

    def renewed(self, holder: Holder) -> Holder | None:
        """A client with the rights that it has now; None if it would not be let in any more."""

    def closed(self, connection: MqttConnection, session: MqttSession | None, is_will_wanted: bool) -> None:
        """A connection has ended."""

    def until_room(self, session: MqttSession, mqtt_name: str) -> Awaitable[Any] | None:
        """The awaitable for which a client waits before it may publish."""

    def publish(self, session: MqttSession, packet: PublishPacket) -> asyncio.Future[Any]:
        """Publish a message."""

    async def subscribe(
        self, session: MqttSession, packet: SubscribePacket
    ) -> tuple[list[int], Sequence[tuple[MqttSubscription, list[RetainedMessage]]]]:
        """Subscribe; a reason for each filter, and what is retained for those that want it."""


class MqttConnection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, door: Sessions) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._stream = PacketStream(door.packet_bytes_at_most)
        self._out: list[bytes] = []
        self._is_flushing = False
        self._tasks = Tasks()
        self._aliases: dict[int, str] = {}
        # The aliases under which the client is sent topics, and how many it knows.
        self._aliases_sent: dict[str, int] = {}
        self._aliases_at_most = 0
        self._is_blocked = False
        self._is_processing = False
        self._is_ended = False
        self._is_will_wanted = True
        self._keep_alive_seconds = 0
        self._heard_at = 0.0
        self._watching: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.session: MqttSession | None = None
        self.where_from = ""
        self.version = VERSION_5
        self.packet_bytes_at_most = kinds.PACKET_BYTES_AT_MOST
        self.may_write = True

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername")[:2]
        self.where_from = f"{host}:{port}"
        self._watching = self._loop.call_later(self._door.connect_seconds, self._end_stranger)
        self._door.opened(self)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._stream.add(data)
        self._process()

    def eof_received(self) -> None:
        """The client says nothing more: the connection ends."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True
        if self.session is not None:
            self.session.hand_on()

    # Packets that come.

    def _process(self) -> None:
        """Handle what has come, until something has to be waited for."""
        if self._is_processing:
            return
        self._is_processing = True
        try:
            for _ in range(PACKETS_PER_TURN):
                found = None if self._is_blocked or self._is_ended else self._stream.next_packet()
                if found is None:
                    break
                self._on_packet(decode(*found, self.version if self.session is not None else VERSION_5))
            else:
                self._loop.call_soon(self._process)
        except MqttError as error:
            self._refuse(error)
        finally:
            self._is_processing = False
        self._regulate()

    def _regulate(self) -> None:
        """Read no more than one packet ahead."""
        transport = self.transport
        if transport is None or self._is_ended:
            return
        is_behind = self._is_blocked and self._stream.waiting_bytes > 0
        if is_behind and transport.is_reading():
            transport.pause_reading()
        elif not is_behind and not transport.is_reading():
            transport.resume_reading()

    def _on_packet(self, packet: Packet) -> None:
        session = self.session
        if session is None:
            if not isinstance(packet, ConnectPacket):
                raise broken("the first packet of a connection is a CONNECT")
            self._on_connect(packet)
            return
        match packet:
            case PublishPacket():
                self._on_publish(session, packet)
            case PublishAckPacket():
                self._on_publish_ack(session, packet)
            case SubscribePacket():
                # What comes behind it counts after it.
                self._is_blocked = True
                self._tasks.spawn(self._subscribe(session, packet))
            case UnsubscribePacket():
                self._unsubscribe(session, packet)
            case PingPacket(kind=kinds.PINGREQ):
                self.send(PingPacket(kinds.PINGRESP))
            case DisconnectPacket():
                self._on_disconnect(session, packet)
            case AuthPacket():
                raise broken("there is no enhanced authentication here")
            case _:
                raise broken(f"a client sent a {type(packet).__name__}, which clients do not send now")

    def _on_connect(self, packet: ConnectPacket) -> None:
        self.version = packet.version
        assert self._watching is not None, "it was set when the connection was made"
        self._watching.cancel()
        if packet.properties.maximum_packet_bytes is not None:
            self.packet_bytes_at_most = packet.properties.maximum_packet_bytes
        self._aliases_at_most = min(packet.properties.topic_alias_maximum or 0, TOPIC_ALIASES)
        coming = self._door.until_here(self, packet)
        if coming is None:
            self._enter(packet)
        else:
            self._is_blocked = True
            self._tasks.spawn(self._enter_when(coming, packet))

    async def _enter_when(self, coming: Awaitable[Any], packet: ConnectPacket) -> None:
        """Go on when the session has come from another node."""
        try:
            await coming
            self._is_blocked = False
            self._enter(packet)
        except MqttError as error:
            self._refuse(error)
            return
        self._process()

    def _enter(self, packet: ConnectPacket) -> None:
        self.session, answer = self._door.connect(self, packet)
        if not self.send(answer):
            # The client takes no packet as long as the answer.
            self._close()
            return
        seconds = packet.keep_alive_seconds
        if seconds:
            told = answer.properties.server_keep_alive_seconds
            self._keep_alive_seconds = seconds if told is None or self.version == VERSION_3 else told
            self._watch()
        self.session.resume()

    # Publishing.

    def _on_publish(self, session: MqttSession, packet: PublishPacket) -> None:
        packet = self._unabbreviated(packet)
        message = session.incoming.begin(packet) if packet.qos else None
        if packet.qos and message is None:
            self._acknowledge(session)
            return
        room = self._door.until_room(session, packet.topic)
        if room is None:
            self._publish(session, packet, message)
        else:
            self._is_blocked = True
            self._tasks.spawn(self._publish_when(room, session, packet, message))

    async def _publish_when(
        self, room: Awaitable[Any], session: MqttSession, packet: PublishPacket, message: IncomingMessage | None
    ) -> None:
        while True:
            await room
            again = self._door.until_room(session, packet.topic)
            if again is None:
                break
            room = again
        self._is_blocked = False
        try:
            self._publish(session, packet, message)
        except MqttError as error:
            self._refuse(error)
            return
        self._process()

    def _unabbreviated(self, packet: PublishPacket) -> PublishPacket:
        """The packet with its topic, if that was abbreviated."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet
        if alias > TOPIC_ALIASES:
            raise MqttError(Reason.TOPIC_ALIAS_INVALID, f"the topic alias {alias} is more than {TOPIC_ALIASES}")
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet
        topic = self._aliases.get(alias)
        if topic is None:
            raise broken(f"no topic has the alias {alias}")
        return replace(packet, topic=topic)

    def _publish(self, session: MqttSession, packet: PublishPacket, message: IncomingMessage | None) -> None:
        if packet.properties.subscription_identifiers:
            raise broken("a client does not send subscription identifiers")
        try:
            publishing = self._door.publish(session, packet)
        except AntiphonError as error:
            self._on_refused(session, message, error)
        else:
            publishing.add_done_callback(partial(self._on_published, session, message))

    def _on_published(self, session: MqttSession, message: IncomingMessage | None, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._on_refused(session, message, error)
        elif message is not None:
            message.reason = Reason.SUCCESS
            self._acknowledge(session)

    def _on_refused(self, session: MqttSession, message: IncomingMessage | None, error: BaseException) -> None:
        """A message was not accepted: say so, if the version and QoS of the client allow it."""
        reason = why_refused(error)
        log.debug("a message was refused", client=session.client_id, reason=str(error))
        if message is not None:
            message.reason = reason
        if message is not None and self.version == VERSION_5:
            self._acknowledge(session)
        elif message is not None and isinstance(error, MqttError) and error.is_silent_in_3:
            # MQTT 3.1.1 has no word for it: such a message is acknowledged, and goes nowhere.
            self._acknowledge(session)
        elif message is not None or reason is not Reason.QUOTA_EXCEEDED:
            # With QoS 0 only what is too much is dropped without a word.
            self.disconnect(reason, str(error))

    def _acknowledge(self, session: MqttSession) -> None:
        if session.connection is self:
            for each in session.incoming.acknowledgements():
                self.send(each)

    def _on_publish_ack(self, session: MqttSession, packet: PublishAckPacket) -> None:
        if packet.kind == kinds.PUBREL:
            self.send(session.incoming.on_pubrel(packet))
            return
        if packet.kind == kinds.PUBACK:
            session.outgoing.on_puback(packet)
        elif packet.kind == kinds.PUBREC:
            answer = session.outgoing.on_pubrec(packet)
            if answer is not None:
                self.send(answer)
        else:
            session.outgoing.on_pubcomp(packet)
        session.hand_on()

    # Subscribing.

    async def _subscribe(self, session: MqttSession, packet: SubscribePacket) -> None:
        reasons, retained = await self._door.subscribe(session, packet)
        self._is_blocked = False
        if session.connection is not self:
            return
        if self.version == VERSION_3:
            reasons = [SUBSCRIBE_FAILURE if reason >= FIRST_FAILURE else reason for reason in reasons]
        self.send(SubscribeAckPacket(kinds.SUBACK, packet.packet_id, tuple(reasons)))
        for subscription, messages in retained:
            session.hand_on_retained(subscription, messages)
        self._process()

    def _unsubscribe(self, session: MqttSession, packet: UnsubscribePacket) -> None:
        reasons = tuple(
            Reason.SUCCESS if session.end_subscription(pattern) else Reason.NO_SUBSCRIPTION_EXISTED
            for pattern in packet.patterns
        )
        self.send(SubscribeAckPacket(kinds.UNSUBACK, packet.packet_id, reasons))

    # Ending.

    def rights_changed(self) -> None:
        """The rights of clients are others now."""
        session = self.session
        if session is None:
            return
        holder = self._door.renewed(session.holder)
        if holder is None:
            self.disconnect(Reason.NOT_AUTHORIZED, "the rights have changed: this client is not let in any more")
            return
        count = len(session.subscriptions)
        session.set_rights(holder)
        if len(session.subscriptions) < count:
            self.disconnect(Reason.NOT_AUTHORIZED, "the rights have changed: the client may not see all any more")

    def _on_disconnect(self, session: MqttSession, packet: DisconnectPacket) -> None:
        expiry = packet.properties.session_expiry_seconds
        if expiry is not None:
            if expiry and not session.expiry_seconds:
                raise broken("a session that ends with its connection cannot be kept at the last moment")
            session.expiry_seconds = min(expiry, session.expiry_at_most)
        self._is_will_wanted = packet.reason == Reason.DISCONNECT_WITH_WILL
        self._close()

    def _refuse(self, error: MqttError) -> None:
        """The client did what MQTT does not allow, or is not let in."""
        log.info("connection refused", peer=self.where_from, reason=str(error))
        self._door.refused += 1
        if self.session is None:
            self._refuse_connect(error)
        else:
            self.disconnect(error.reason, str(error))

    def _refuse_connect(self, error: MqttError) -> None:
        if self.version == VERSION_5:
            is_before = error.reason in (Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)
            if not is_before or self._watching is None or self._watching.cancelled():
                self.send(ConnackPacket(False, error.reason, Properties(reason_string=str(error)[:200])))
        elif error.reason in CONNECT_REFUSALS:
            self.send(ConnackPacket(False, CONNECT_REFUSALS[error.reason]))
        self._close()

    def disconnect(self, reason: Reason, text: str) -> None:
        """Say why, where the version can, and close the connection."""
        if self.version == VERSION_5:
            explained = DisconnectPacket(reason, Properties(reason_string=text[:200]) if text else NOTHING)
            if not self.send(explained):
                self.send(DisconnectPacket(reason))
        self._close()

    def _end_stranger(self) -> None:
        """The client has not said who it is."""
        self._close()

    def _watch(self) -> None:
        """End the connection of a client that was silent for too long."""
        silent = self._loop.time() - self._heard_at
        left = PATIENCE * self._keep_alive_seconds - silent
        if left <= 0:
            self.disconnect(Reason.KEEP_ALIVE_TIMEOUT, "the client was silent for too long")
        else:
            self._watching = self._loop.call_later(left, self._watch)

    def _close(self) -> None:
        """Write what is left, and close."""
        self._flush()
        if self.transport is not None:
            self.transport.close()
        self._end()

    def _end(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        if self._watching is not None:
            self._watching.cancel()
        self._tasks.cancel()
        self._door.closed(self, self.session, self._is_will_wanted)

    # Packets that go.

    def send(self, packet: Packet) -> int:
        """Send a packet when the turn ends; 0 if it is longer than the client takes."""
        data = encode(packet, self.version)
        if len(data) > self.packet_bytes_at_most:
            return 0
        self._out.append(data)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        return len(data)

    def send_message(self, packet: PublishPacket) -> int:
        """Send a message, with an alias for its topic if the client knows aliases."""
        if not self._aliases_at_most:
            return self.send(packet)
        topic = packet.topic
        alias = self._aliases_sent.get(topic)
        if alias is None and len(self._aliases_sent) >= self._aliases_at_most:
            return self.send(packet)
        number = alias or len(self._aliases_sent) + 1
        properties = replace(packet.properties, topic_alias=number)
        size = self.send(replace(packet, topic="" if alias else topic, properties=properties))
        if not size:
            # With the alias it may be too long.
            return self.send(packet)
        self._aliases_sent[topic] = number
        return size

    def _flush(self) -> None:
        self._is_flushing = False
        out, self._out = self._out, []
        if out and self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(out))


def lasting_seconds(packet: ConnectPacket) -> int:
    """For how long a client wants its session to be kept."""
    if packet.version == VERSION_3:
        return 0 if packet.is_clean else NEVER_EXPIRES
    return packet.properties.session_expiry_seconds or 0
