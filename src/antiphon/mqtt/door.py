"""Where MQTT clients come in: the listener, who is let in, their sessions, wills and subscriptions."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from antiphon.api.lifecycle import Starting
from antiphon.api.subscription import LiveSubscription
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.mqtt.connection import TOPIC_ALIASES, MqttConnection, lasting_seconds
from antiphon.mqtt.moving import MOVES_TOPIC, MoveOffer, MoveOutline, SessionMoves
from antiphon.mqtt.moving import TOPIC as SESSIONS_TOPIC
from antiphon.mqtt.protocol.incoming import RECEIVE_MAXIMUM
from antiphon.mqtt.protocol.packets import (
    VERSION_3,
    ConnackPacket,
    ConnectPacket,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
)
from antiphon.mqtt.protocol.properties import Properties
from antiphon.mqtt.protocol.reasons import MqttError, Reason
from antiphon.mqtt.publishing import MqttPublisher
from antiphon.mqtt.retained import RetainedTable
from antiphon.mqtt.retained_exchange import TOPIC as RETAINED_TOPIC
from antiphon.mqtt.session import MqttSession
from antiphon.mqtt.settings import MqttSettings
from antiphon.mqtt.shares import DOOR_TOPIC, Shares
from antiphon.mqtt.shares import TOPIC as SHARES_TOPIC
from antiphon.mqtt.subscribing import MqttSubscriber, Retained
from antiphon.mqtt.websocket import WebSocketConnection
from antiphon.node.acl import ANYBODY, Holder
from antiphon.node.handle import Node
from antiphon.node.node import LiveNode
from antiphon.runtime.clocks import wall_clock_us
from antiphon.runtime.errors import QuotaError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.transport.links import split_address
from antiphon.transport.tls import check_trusted, identity_of

PACKET_BYTES_AT_MOST: Final = 11 << 20
"""The longest packet: the longest message, and what may be said beside it."""

NOTHING_RETAINED: Final = 2
"""The retain handling of a session that moves: the client has had what was retained."""

STRANGERS_AT_MOST: Final = 256
CLIENT_ID_CHARACTERS: Final = 256

log = logger("mqtt")


class MqttDoor:
    """The MQTT side of one node."""

    def __init__(self, live: LiveNode, settings: MqttSettings) -> None:
        self._live = live
        self._settings = settings
        self._servers: list[asyncio.Server] = []
        self._context: ssl.SSLContext | None = None
        self._sessions: dict[tuple[str, str], MqttSession] = {}
        # How many sessions each identity has.
        self._owned: Counter[str] = Counter()
        self._strangers: dict[MqttConnection, None] = {}
        self._tasks = Tasks()
        self._table = RetainedTable(live.identifier, wall_clock_us)
        self._publisher = MqttPublisher(live, self._table)
        # What other doors say.
        self._hearing: list[LiveSubscription] = []
        self._shares = Shares(
            live.identifier, wall_clock_us, live.settings.lost_seconds, self._publisher.publish_of_server
        )
        self._subscriber = MqttSubscriber(live, self._table, self._shares, self.figures)
        self.packet_bytes_at_most = PACKET_BYTES_AT_MOST
        self.connect_seconds = live.settings.handshake_seconds
        self._moves = SessionMoves(live.identifier, self, wall_clock_us, self._publisher.publish_of_server)
        self.address = ""
        self.websocket_address = ""
        self.messages_received = 0
        self.undeliverable = 0
        self.refused = 0

    # Opening and closing.

    async def open(self) -> MqttDoor:
        """Listen, and learn what is retained."""
        settings, live = self._settings, self._live
        for name, address in (("mqtt", settings.listen), ("mqtt_websocket", settings.websocket)):
            if address is not None:
                live.settings.check_address(name, address)
        self._context = None if live.certificates is None else live.certificates.server_context()
        heard = (
            (RETAINED_TOPIC, self._publisher.exchange.received),
            (SHARES_TOPIC, self._shares.received),
            (DOOR_TOPIC.format(live.identifier), self._shares.message_received),
            (SESSIONS_TOPIC, self._moves.told),
            (MOVES_TOPIC.format(live.identifier), self._moves.said),
        )
        self._hearing = [live.subscriptions.add(topic, callback=callback) for topic, callback in heard]
        for each in self._hearing:
            await each.ready()
        self._publisher.exchange.ask()
        self._shares.ask()
        self._moves.ask()
        try:
            if settings.listen is not None:
                self.address = await self._listen(settings.listen, lambda: MqttConnection(self))
            if settings.websocket is not None:
                self.websocket_address = await self._listen(settings.websocket, self._new_websocket)
        except BaseException:
            self._end_hearing()
            for server in self._servers:
                server.close()
            raise
        live.status.mqtt = self.figures
        log.info("MQTT clients are served", address=self.address, websocket=self.websocket_address)
        return self

    def _new_websocket(self) -> WebSocketConnection:
        return WebSocketConnection(
            lambda: MqttConnection(self), tuple(self._settings.origins), self.packet_bytes_at_most
        )

    async def _listen(self, address: str, new_connection: Callable[[], asyncio.Protocol]) -> str:
        """Listen at an address; the answer is the address with its port."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(new_connection, host, port, ssl=self._context)
        except OSError as error:
            raise UsageError(
                f"cannot listen for MQTT at {address}: {error.strerror or error}; choose another address"
            ) from error
        self._servers.append(server)
        return f"{host}:{server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Say goodbye to all clients, and listen no more."""
        for server in self._servers:
            server.close()
        for session in tuple(self._sessions.values()):
            if session.connection is not None:
                session.connection.disconnect(Reason.SERVER_SHUTTING_DOWN, "the node stops")
        if self._live.failure is None:
            lasting = [session for session in self._sessions.values() if session.is_lasting]
            await self._moves.give_away(lasting)
        for session in tuple(self._sessions.values()):
            session.end()
        for stranger in tuple(self._strangers):
            if stranger.transport is not None:
                stranger.transport.abort()
        self._sessions.clear()
        self._publisher.exchange.close()
        self._shares.close()
        self._moves.close()
        self._end_hearing()
        if self._live.status.mqtt == self.figures:
            self._live.status.mqtt = None
        self._tasks.cancel()

    def _end_hearing(self) -> None:
        for each in self._hearing:
            each.end()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return sum(session.connection is not None for session in self._sessions.values())

    # Connections.

    def opened(self, connection: MqttConnection) -> None:
        """Somebody has connected, who has a while to say who it is."""
        while len(self._strangers) >= STRANGERS_AT_MOST:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            if oldest.transport is not None:
                oldest.transport.abort()
        self._strangers[connection] = None

    def until_here(self, connection: MqttConnection, packet: ConnectPacket) -> Awaitable[Any] | None:
        """The awaitable for which a client waits whose session is at another door; None if it need not wait."""
        if packet.is_clean or not packet.client_id or packet.properties.authentication_method is not None:
            return None
        holder = self._holder(connection, packet)
        key = holder.name, packet.client_id
        if not self._moves.is_elsewhere(key):
            return None
        self._strangers.pop(connection, None)
        return self._moves.fetch(key, holder)

    def connect(self, connection: MqttConnection, packet: ConnectPacket) -> tuple[MqttSession, ConnackPacket]:
        """Let a client in; raises why it is not let in."""
        self._strangers.pop(connection, None)
        if packet.properties.authentication_method is not None:
            raise MqttError(Reason.BAD_AUTHENTICATION_METHOD, "there is no enhanced authentication here")
        if len(self._live.clients) >= self._live.settings.maximum_clients:
            raise MqttError(Reason.SERVER_BUSY, "this node has as many clients as it may; connect to another one")
        holder = self._holder(connection, packet)
        client_id = self._client_id(packet)
        account = self._live.ledger.account(holder.name, holder.rights.quotas)
        former = self._sessions.get((holder.name, client_id))
        if former is not None and former.connection is not None:
            former.connection.disconnect(Reason.SESSION_TAKEN_OVER, "another connection goes on with this session")
            former = self._sessions.get((holder.name, client_id))
        if former is not None and packet.is_clean:
            self._end(former)
            former = None
        if former is None:
            self._check_room(holder)
        try:
            account.connect()
        except QuotaError as error:
            raise MqttError(Reason.QUOTA_EXCEEDED, str(error)) from error
        session = former or MqttSession(
            client_id, secrets.randbits(48), holder, account, self._note_undeliverable, self._shares.leave
        )
        self._begin(session, holder, connection, packet)
        wanted = packet.properties.session_expiry_seconds or 0
        is_silent = packet.keep_alive_seconds > self._settings.keep_alive_seconds
        answer = Properties(
            session_expiry_seconds=session.expiry_seconds if wanted > session.expiry_seconds else None,
            receive_maximum=RECEIVE_MAXIMUM,
            maximum_packet_bytes=self.packet_bytes_at_most,
            assigned_client_id=None if packet.client_id else client_id,
            topic_alias_maximum=TOPIC_ALIASES,
            server_keep_alive_seconds=self._settings.keep_alive_seconds if is_silent else None,
        )
        return session, ConnackPacket(former is not None, Reason.SUCCESS, answer)

    def _begin(self, session: MqttSession, holder: Holder, connection: MqttConnection, packet: ConnectPacket) -> None:
        """A session has a connection from now on."""
        for timer in (session.ending, session.willing):
            if timer is not None:
                timer.cancel()
        session.ending = session.willing = None
        self._add(session)
        session.set_rights(holder)
        session.will = packet.will
        session.expiry_at_most = self._settings.session_seconds
        session.expiry_seconds = min(lasting_seconds(packet), self._settings.session_seconds)
        session.outgoing.take_at_most(packet.properties.receive_maximum)
        session.connection = connection
        self._live.clients.add(connection)
        self._shares.connection_changed(session)
        self._record(connection, session, "connected", by="MQTT")

    def _add(self, session: MqttSession) -> None:
        key = session.holder.name, session.client_id
        if key not in self._sessions:
            self._owned[session.holder.name] += 1
            self._moves.began(key)
        self._sessions[key] = session

    # Sessions that move (:class:`antiphon.mqtt.moving.SessionKeeper`).

    def session_of(self, key: tuple[str, str]) -> MqttSession | None:
        """A session that is here."""
        return self._sessions.get(key)

    def release(self, session: MqttSession) -> bool:
        """End the connection of a session that is asked for; whether the session is still there."""
        if session.connection is not None:
            session.connection.disconnect(Reason.SESSION_TAKEN_OVER, "the session goes on at another node")
        if session.willing is not None:
            # The client is back in time.
            session.willing.cancel()
            session.willing = session.will = None
        return self._sessions.get((session.holder.name, session.client_id)) is session

    def forget(self, session: MqttSession) -> None:
        """A session is elsewhere now, or has lost against one that is."""
        if session.connection is not None:
            session.connection.disconnect(Reason.SESSION_TAKEN_OVER, "the session goes on at another node")
        self._end(session)

    async def rebuild(self, key: tuple[str, str], holder: Holder, outline: MoveOutline) -> MqttSession:
        """The session with its subscriptions, when these are effective."""
        self._check_room(holder)
        account = self._live.ledger.account(holder.name, holder.rights.quotas)
        session = MqttSession(key[1], outline.number, holder, account, self._note_undeliverable, self._shares.leave)
        session.expiry_seconds = min(outline.expiry_seconds, self._settings.session_seconds)
        for each in outline.subscriptions:
            wanted = TopicFilter(each.pattern, each.qos, each.is_not_local, each.keeps_retain, NOTHING_RETAINED)
            properties = Properties(subscription_identifiers=each.identifiers)
            await self._subscriber.subscribe(session, SubscribePacket(1, (wanted,), properties))
        return session

    def adopt(self, session: MqttSession) -> None:
        """A session that has come is one of this door's, and waits for its client."""
        self._add(session)
        loop = asyncio.get_running_loop()
        session.ending = loop.call_later(session.expiry_seconds, self._end, session)

    async def offered(self, offer: MoveOffer) -> bool:
        """Take the session of a door that closes, if the client may have one here; whether it is here."""
        holder = self._live.rights.renewed(Holder(offer.client, offer.token_hash, ANYBODY.rights))
        if holder is None:
            return False
        key = offer.client, offer.client_id
        try:
            return await self._moves.fetch(key, holder) is not None
        except AntiphonError as error:
            log.warning("a session was not taken from a door that closes", client_id=key[1], reason=str(error))
            return False

    def peers(self) -> set[int] | None:
        """The other nodes that are there; None where a node does not know all of them."""
        if not FABRICS[self._live.settings.fabric].membership.is_full:
            return None
        return {peer.identifier for peer in self._live.cluster.peers() if peer.identifier is not None}

    def _holder(self, connection: MqttConnection, packet: ConnectPacket) -> Holder:
        """The identity of a client, by its certificate or by its user name and password."""
        assert connection.transport is not None, "it has sent a packet"
        token = "" if packet.password is None else packet.password.decode("utf-8", "replace")
        try:
            identity = identity_of(connection.transport)
            check_trusted(self._context, identity)
            holder = self._live.rights.holder(identity, token, self._context is not None)
        except AntiphonError as error:
            self._live.audit.refused("connect", packet.username or "", connection.where_from, error)
            reason = Reason.BAD_USER_NAME_OR_PASSWORD if token else Reason.NOT_AUTHORIZED
            raise MqttError(reason, str(error)) from error
        if holder.name and packet.username and packet.username != holder.name:
            raise MqttError(
                Reason.BAD_USER_NAME_OR_PASSWORD, "the token is that of another client than the user name says"
            )
        return holder

    def _check_room(self, holder: Holder) -> None:
        """Refuse a session more than the node, or one identity, may have; those without a connection count too."""
        most = self._settings.sessions
        if len(self._sessions) >= most:
            raise MqttError(Reason.SERVER_BUSY, f"this node has {most} sessions, as many as it may ([mqtt] sessions)")
        quota = holder.rights.quotas.connections
        if quota is not None and self._owned[holder.name] >= quota:
            raise MqttError(
                Reason.QUOTA_EXCEEDED,
                f"client {holder.name!r} has {quota} sessions, as many as it may (quota connections); end one",
            )

    def _client_id(self, packet: ConnectPacket) -> str:
        if packet.client_id:
            if len(packet.client_id) > CLIENT_ID_CHARACTERS:
                raise MqttError(
                    Reason.CLIENT_IDENTIFIER_NOT_VALID,
                    f"a client identifier has at most {CLIENT_ID_CHARACTERS} characters",
                )
            return packet.client_id
        if packet.version == VERSION_3 and not packet.is_clean:
            raise MqttError(
                Reason.CLIENT_IDENTIFIER_NOT_VALID, "a client without an identifier has no session that could be kept"
            )
        return f"auto-{secrets.token_hex(8)}"

    def renewed(self, holder: Holder) -> Holder | None:
        """A client with the rights that it has now; None if it would not be let in any more."""
        found = self._live.rights.renewed(holder)
        if found is not None:
            self._live.ledger.account(found.name, found.rights.quotas)
        return found

    def closed(self, connection: MqttConnection, session: MqttSession | None, is_will_wanted: bool) -> None:
        """A connection has ended: its will is published, and its session ends, now or later."""
        self._strangers.pop(connection, None)
        if session is None or session.connection is not connection:
            return
        session.connection = None
        session.incoming.connection_ended()
        session.account.connections -= 1
        self._live.clients.discard(connection)
        self._record(connection, session, "disconnected")
        self._shares.connection_changed(session)
        will, session.will = session.will, None
        loop = asyncio.get_running_loop()
        if will is not None and is_will_wanted:
            delay = min(will.properties.will_delay_seconds or 0, session.expiry_seconds)
            if delay:
                session.will = will
                session.willing = loop.call_later(delay, self._publish_will, session)
            else:
                session.will = will
                self._publish_will(session)
        if session.expiry_seconds:
            session.ending = loop.call_later(session.expiry_seconds, self._end, session)
        else:
            self._end(session)

    def _end(self, session: MqttSession) -> None:
        key = session.holder.name, session.client_id
        if self._sessions.get(key) is session:
            del self._sessions[key]
            self._owned[session.holder.name] -= 1
            self._moves.ended(key)
        if session.willing is not None:
            # The delay of a will ends with its session.
            self._publish_will(session)
        session.end()

    def _publish_will(self, session: MqttSession) -> None:
        if session.willing is not None:
            session.willing.cancel()
        session.willing = None
        will, session.will = session.will, None
        if will is None or self._live.failure is not None:
            return
        try:
            publishing = self._publisher.publish(session, will)
        except AntiphonError as error:
            log.warning("a will was not published", client=session.client_id, reason=str(error))
            return
        publishing.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _record(self, connection: MqttConnection, session: MqttSession, event: str, **values: object) -> None:
        self._live.audit.record(event, session.holder.name, connection.where_from, **values)

    def _note_undeliverable(self) -> None:
        self.undeliverable += 1

    # Publishing.

    def until_room(self, session: MqttSession, mqtt_name: str) -> Awaitable[Any] | None:
        """The awaitable for which a client waits before it may publish; None if it need not wait."""
        return self._publisher.until_room(session, mqtt_name)

    def publish(self, session: MqttSession, packet: PublishPacket) -> asyncio.Future[Any]:
        """Publish a message for a client; done when it is accepted."""
        self.messages_received += 1
        return self._publisher.publish(session, packet)

    # Subscribing.

    async def subscribe(self, session: MqttSession, packet: SubscribePacket) -> tuple[list[int], Retained]:
        """Subscribe; a reason for each filter, and what is retained for those that want it."""
        return await self._subscriber.subscribe(session, packet)

    def figures(self) -> dict[str, int]:
        """The figures of this door, by the names of metrics."""
        sessions = self._sessions.values()
        return {
            "connections": self.connections,
            "sessions": len(sessions),
            "subscriptions": sum(len(session.subscriptions) for session in sessions),
            "groups": self._shares.count,
            "retained": self._table.count,
            "received": self.messages_received,
            "dropped": sum(session.dropped for session in sessions),
            "undeliverable": self.undeliverable,
            "refused": self.refused,
            "missed": self._subscriber.missed,
        }


def serve(node: Node, address: str | None = "127.0.0.1:1883", **settings: Any) -> Starting[MqttDoor]:
    """Serve MQTT clients at a node: ``async with antiphon.mqtt.serve(node, "127.0.0.1:1883") as door``.

    ``settings`` are those of :class:`antiphon.mqtt.settings.MqttSettings`.
    """
    return Starting(MqttDoor(node._live, MqttSettings(listen=address, **settings).checked()).open())
