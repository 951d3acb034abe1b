"""A thin client: publishes and subscribes through a node, with the same calls as a node.

A publication is accepted when the node says so; several can be in flight. When its node goes, the client looks for
another one by itself, takes its subscriptions there and hands in again what may have been lost
(:mod:`antiphon.sessions.node_end` says what the nodes do for that). Only if no node can be reached for a while,
whoever waits gets :class:`antiphon.runtime.errors.ClosedError`: what was not accepted then may or may not have been
published.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from antiphon.api.lifecycle import Starting, raise_refusals
from antiphon.api.outbox import BlockedOutboxes, Outbox
from antiphon.api.pubsub import PubSub
from antiphon.api.topic_names import checked_name, client_number
from antiphon.client.client_subscriptions import OngoingSubscriptions
from antiphon.client.connection import LOOK_SECONDS, ClientConnection, until_ended
from antiphon.client.publishing import HandingIn, set_exception
from antiphon.client.requests import Requests
from antiphon.client.server_pool import Pauses, Whereabouts
from antiphon.kernel.errors import AntiphonError, PeerError, ProtocolError, UsageError
from antiphon.membership.messages import PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.runtime.errors import ClosedError, DeniedError, error_from
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.client_messages import (
    CLIENT_CONTROLS,
    BatchesDropped,
    Delivery,
    DismissResponse,
    FollowResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    LogsResponse,
    MarksResponse,
    MessagesMissed,
    NodeAddresses,
    ProducerResponse,
    PublishResponse,
    RangeResponse,
    SafeUpTo,
    StatusRequest,
    StatusResponse,
    SubscriptionEnded,
    SubscriptionReady,
    TopicStarted,
)
from antiphon.transport.codec import Codec
from antiphon.transport.links import CONNECT_SECONDS, split_address
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.tls import Tls, check_meant, identity_of, is_loopback, reason_of, tls_from

RECONNECT_SECONDS: Final = 10.0
"""How long a client looks for another node, unless it is told otherwise."""

TRY_SECONDS: Final = 2.0
"""How long one node may take to answer a client that looks for another node."""

SAFE_SECONDS: Final = 10.0
"""How long a client that is closed waits until what it published would survive its node."""


log = logger("client")


class Client(PubSub):
    """Made by :func:`antiphon.connect`."""

    _subscriptions: OngoingSubscriptions

    def __init__(
        self,
        addresses: str | Sequence[str],
        cluster: str = "antiphon",
        order: str = "causal",
        reconnect_seconds: float = RECONNECT_SECONDS,
        on_reconnect: Callable[[str], None] | None = None,
        tls: Tls | None = None,
        token: str = "",
    ) -> None:
        super().__init__(order)
        self._context = None if tls is None else tls.client_context()
        self._token = token
        self.with_receipts = True
        self.reconnects = 0
        self.node_clock_us = 0
        self._whereabouts = Whereabouts(addresses)
        self.address = self._whereabouts.first()[0]
        self._cluster = cluster
        self._instance = secrets.token_hex(8)
        self._author = client_number(self._instance)
        self._reconnect_seconds = reconnect_seconds
        self._on_reconnect = on_reconnect
        self._loop = asyncio.get_running_loop()
        self._codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS))
        self._connection: ClientConnection | None = None
        # The connection to a node that is about to go, until the subscriptions are effective at another one.
        self._former: ClientConnection | None = None
        # Whether there is a node to talk to.
        self.is_up = False
        self._blocked = BlockedOutboxes()
        self._subscriptions = OngoingSubscriptions(self)
        self._handing_in = HandingIn(self, self._subscriptions.past_of)
        self._requests = Requests()
        self.next_number = self._requests.next_number
        # The first answer of a node that is being tried.
        self._opening: asyncio.Future[dict[str, Any]] | None = None
        self._failure: BaseException | None = None
        self._tasks = Tasks()
        # Connections that have not ended, also those that were given up.
        self._open_connections: set[ClientConnection] = set()

    # Connecting.

    async def start(self) -> Client:
        """Connect to the first of the given nodes that answers."""
        addresses = self._whereabouts.first()
        failures: list[str] = []
        for address in addresses:
            try:
                await self._open(address, CONNECT_SECONDS)
                self.is_up = True
                return self
            except DeniedError:
                # Others would say the same.
                raise
            except PeerError as error:
                failures.append(str(error))
        if len(failures) == 1:
            raise PeerError(failures[0])
        raise PeerError(f"none of {len(failures)} nodes answers: {'; '.join(failures)}")

    async def _open(self, address: str, seconds: float) -> None:
        """Connect to a node, and see that it is of the right kind; :class:`PeerError` if that is not to be."""
        host, port = split_address(address)
        try:
            async with asyncio.timeout(seconds):
                connection = ClientConnection(self, address, self._open_connections)
                self._connection = connection
                transport, _ = await self._loop.create_connection(lambda: connection, host, port, ssl=self._context)
                self._check_node(transport, host)
                self.send(Hello(PROTOCOL_VERSION, self._cluster, self._instance, "", "", self._token))
                number, self._opening = self._requests.ask_status()
                self.send(StatusRequest(number, False))
                connection.writer.flush()
                status = await self._opening
        except (OSError, TimeoutError) as error:
            self._let_go()
            reason = reason_of(error)
            what_to_do = "" if isinstance(error, ssl.SSLError) else "; check that one runs there (antiphon up)"
            raise PeerError(f"cannot connect to a node at {address}: {reason}{what_to_do}") from error
        except AntiphonError:
            self._let_go()
            raise
        self.address = address
        # A node of an earlier version does not say it; batches about one key suit every fabric.
        self.mixes_keys = bool(status.get("mixes_keys", False))
        # Where clients have names, the node knows better than the client under which number its messages are published.
        self._author = int(status.get("author", self._author))
        self._whereabouts.learn(peer["address"] for peer in status.get("peers", []))
        # Nodes of earlier versions know no heartbeats, and do not say after how long somebody is lost.
        if "lost_seconds" in status:
            connection.watch(float(status["lost_seconds"]))

    def request_heartbeat(self) -> None:
        """Ask the node for a sign of life."""
        self.send(HeartbeatRequest())
        self.write()

    def node_silent(self, connection: ClientConnection) -> None:
        """The process of the node stands still: what it has not answered is handed in at another node."""
        if connection is self._connection and self._failure is None:
            # Closed, it would wait until the node reads what was sent to it.
            connection.abort()
            self._look_elsewhere("the node is silent")

    def _check_node(self, transport: asyncio.BaseTransport, host: str) -> None:
        """Say nothing secret to anybody but a node."""
        if self._context is not None:
            check_meant(identity_of(transport), "")
        elif self._token and not is_loopback(host):
            raise UsageError("a token is not sent over a network without TLS; give tls= (--tls-authority), too")

    def _let_go(self) -> None:
        """End the connection, without a word about it."""
        connection, self._connection = self._connection, None
        self.is_up = False
        if connection is not None:
            connection.writer.close()

    def connection_lost(self, connection: ClientConnection, error: Exception | None) -> None:
        """A connection has ended; if it is the one in use, look for another node."""
        if connection is not self._connection or self._failure is not None:
            return
        if self.is_up:
            self._look_elsewhere("the connection has ended")
        else:
            hint = reason_of(error) if error is not None else ""
            if not hint and self._context is None:
                hint = "if it wants TLS, say so (tls=, --tls-authority)"
            reason = f"the node at {connection.address} closed the connection" + (f": {hint}" if hint else "")
            set_exception(self._opening, PeerError(reason))

    def cannot_understand(self, connection: ClientConnection, error: Exception) -> None:
        """A node has sent what no node sends: whoever waits for an answer of it is told so."""
        reason = PeerError(f"the node at {connection.address} cannot be understood: {error}")
        if connection is self._connection:
            self._requests.node_lost(reason)
            if not self.is_up:
                set_exception(self._opening, reason)

    def _look_elsewhere(self, reason: str, is_leaving: bool = False) -> None:
        """The node is lost, or is about to go: then it waits for a while, and others can ask it for what they lack."""
        lost = self.address
        if is_leaving:
            self._former, self._connection = self._connection, None
            if self._former is not None:
                self._former.unwatch()
        self._let_go()
        if self._reconnect_seconds <= 0:
            self._fail(ClosedError(f"the connection to the node at {lost} has ended; connect again, here or elsewhere"))
            return
        log.info("looking for another node", lost=lost, reason=reason)
        self._requests.node_lost(PeerError(f"the node at {lost} is gone, and with it the log that was asked for"))
        self._handing_in.connection_lost()
        self._subscriptions.connection_lost()
        self._tasks.spawn(self._reconnect(lost))

    async def _reconnect(self, lost: str) -> None:
        """Try all nodes, again and again with longer pauses, until one answers or the time is over."""
        give_up_at = self._loop.time() + self._reconnect_seconds
        pauses = Pauses()
        tried: dict[str, str] = {}
        while True:
            for address in self._whereabouts.others(lost):
                left = give_up_at - self._loop.time()
                if left <= 0:
                    break
                try:
                    await self._open(address, min(TRY_SECONDS, left))
                except PeerError as error:
                    tried[address] = str(error)
                    continue
                self._resume(lost)
                return
            if self._loop.time() >= give_up_at:
                break
            await asyncio.sleep(min(pauses.next(), max(0.0, give_up_at - self._loop.time())))
        said = "; ".join(tried.values())
        self._fail(
            ClosedError(
                f"the node at {lost} is gone, and no other was found in {self._reconnect_seconds:g} seconds: {said}"
            )
        )

    def _resume(self, lost: str) -> None:
        """Go on with another node."""
        self.is_up = True
        self.reconnects += 1
        log.info("reconnected", node=self.address, lost=lost, kept=len(self._handing_in))
        for number in self._requests.unanswered_status():
            self.send(StatusRequest(number))
        self._subscriptions.resume()
        self._leave_former()
        self._handing_in.resume()
        self.settle()
        if self._on_reconnect is not None:
            self._on_reconnect(self.address)

    def _leave_former(self) -> None:
        """Let a node go that is about to go, when it is not needed any more."""
        if self._former is not None and not self._subscriptions.are_resuming:
            self._former.writer.close()
            self._former = None

    async def abandon(self) -> None:
        """End the connection without waiting for anything."""
        self._fail(ClosedError("the client has been closed; connect again"))
        await until_ended(self._open_connections)

    async def close(self) -> None:
        """Wait for what is in flight and end the connection; raises, as :meth:`flush` does, what was not accepted."""
        if self._failure is None:
            await self._until_accepted()
            give_up_at = self._loop.time() + SAFE_SECONDS
            while len(self._handing_in) and self._loop.time() < give_up_at:
                await asyncio.sleep(LOOK_SECONDS)
        self._fail(ClosedError("the client has been closed; connect again"))
        await until_ended(self._open_connections)
        await raise_refusals(self.refusals)

    async def status(self) -> dict[str, Any]:
        """How the node is: its figures."""
        self.refuse_if_closed()
        number, answer = self._requests.ask_status()
        if self.is_up:
            self.send(StatusRequest(number))
            self.settle()
        return await answer

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        self.refuse_if_closed()
        name = checked_name(topic)
        room, send = partial(self._handing_in.room, name), partial(self._handing_in.send_segment, name)
        outbox = Outbox(
            name,
            self.default_order,
            self._loop,
            None,
            room,
            send,
            wall_clock_us,
            self._blocked,
            self.author_number,
            self.refusals,
        )
        self.outboxes[name] = outbox
        return outbox

    def author_number(self) -> int:
        return self._author

    async def _until_accepted(self) -> None:
        while self._handing_in.unaccepted() or any(len(outbox) for outbox in self.outboxes.values()):
            for outbox in self.outboxes.values():
                outbox.flush()
            self.settle()
            receipts = self._handing_in.unaccepted()
            if receipts:
                await asyncio.wait(receipts)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    @property
    def duplicates(self) -> int:
        """Batches that came twice because of a change of nodes, and were dropped."""
        return self._subscriptions.duplicates

    # What the node says.

    def frame_received(self, connection: ClientConnection, frame: memoryview) -> None:
        """A frame of a node, which may have been left meanwhile."""
        if connection is not self._connection:
            return
        message = self._codec.decode(frame)
        if isinstance(message, Delivery):
            self._subscriptions.delivered(message)
        elif isinstance(message, PublishResponse):
            if not self._handing_in.accepted(message):
                # A lane has written it.
                self._requests.answered(message)
        elif isinstance(message, SafeUpTo):
            self._handing_in.safe(message.topic, message.serial)
        elif isinstance(message, (SubscriptionReady, SubscriptionEnded, MessagesMissed, TopicStarted, BatchesDropped)):
            self._subscriptions.on_message(message)
            self._leave_former()
        elif isinstance(message, FollowResponse):
            self._handing_in.followed(message)
        elif isinstance(message, NodeAddresses):
            self._whereabouts.learn(message.addresses)
            if message.is_leaving:
                self._look_elsewhere("the node is about to go", is_leaving=True)
        else:
            self._answer(connection, message)

    def _answer(self, connection: ClientConnection, message: object) -> None:
        if isinstance(message, StatusResponse):
            # What the node's clock shows when this one shows nothing: no later than that, as the answer took time.
            self.node_clock_us = message.clock_us - monotonic_us()
            self._requests.status_came(message)
        elif isinstance(message, (LogsResponse, RangeResponse, MarksResponse, ProducerResponse, DismissResponse)):
            self._requests.answered(message)
        elif isinstance(message, HeartbeatRequest):
            self.send(HeartbeatResponse())
        elif isinstance(message, Refused):
            reason = f"the node at {connection.address} refused: {message.reason}"
            error = error_from(reason, message.is_denied)
            if self.is_up:
                self._fail(error)
            else:
                set_exception(self._opening, error)
        elif not isinstance(message, HeartbeatResponse):
            raise ProtocolError(f"the node at {connection.address} sent a {type(message).__name__} to a client")

    def request(self, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send something to this node that it answers; ``make`` gets the number that the answer is to have."""
        self.refuse_if_closed()
        number = self.next_number()
        if not self.is_up:
            raise PeerError(f"the node at {self.address} is gone")
        answer = self._requests.ask_node(number)
        self.send(make(number))
        self.write()
        return answer

    def settle(self) -> None:
        """Send what there is room for, and write."""
        if len(self._blocked) > 0 and self._handing_in.has_room:
            for outbox in self._blocked.take_due(len(self._blocked)):
                outbox.flush()
        connection = self._connection
        if connection is not None and connection.writer.queued_bytes:
            connection.writer.flush()

    def write(self) -> None:
        """Write what was queued for the node."""
        if self._connection is not None:
            self._connection.writer.flush()

    def send(self, control: Control) -> None:
        """Queue something for the node; without one, it is forgotten."""
        if self._connection is not None:
            self._connection.writer.send(self._codec.encode_control(control))

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._tasks.cancel()
        self._let_go()
        if self._former is not None:
            self._former.writer.close()
        for outbox in self.outboxes.values():
            outbox.fail(error)
        self.outboxes.clear()
        self._handing_in.fail(error)
        self._requests.fail(error)
        set_exception(self._opening, error)
        self._requests.node_lost(error)
        self._subscriptions.fail(error)

    def refuse_if_closed(self) -> None:
        """Raise the reason why nothing can be done any more, if there is one."""
        if self._failure is not None:
            raise self._failure


def connect(
    addresses: str | Sequence[str],
    *,
    cluster: str = "antiphon",
    order: str = "causal",
    reconnect_seconds: float = RECONNECT_SECONDS,
    on_reconnect: Callable[[str], None] | None = None,
    tls: Tls | Mapping[str, str] | None = None,
    token: str = "",
) -> Starting[Client]:
    """Connect to a node: ``async with antiphon.connect("127.0.0.1:7400") as client``.

    Several addresses, as a list or with commas, are tried in this order. If its node fails, the client looks for
    another one for ``reconnect_seconds``, among these addresses and all that its nodes have told it, and goes on there;
    ``on_reconnect`` is then called with the address. With 0 it does not look.

    ``tls`` names the files for nodes that want TLS, ``{"authority": "authority.pem"}``, ``certificate`` and ``key``
    among them if the client has any. ``token`` identifies the client to nodes that have given out tokens.
    """
    files = tls if tls is None or isinstance(tls, Tls) else tls_from(tls)

    async def begin() -> Client:
        client = Client(addresses, cluster, order, reconnect_seconds, on_reconnect, files, token)
        try:
            return await client.start()
        except BaseException:
            await client.abandon()
            raise

    return Starting(begin())
