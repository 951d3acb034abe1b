"""A thin client: publishes and subscribes through a node, with the same calls as a node.

A publication is accepted when the node says so; several can be in flight. When its node is gone, the client continues
at another one. :mod:`antiphon.sessions.client_end` decides everything about that. Here are its connections, timers and
futures. If no node can be reached for a while, callers that wait get :class:`antiphon.runtime.errors.ClosedError`:
what was not accepted then may or may not have been published.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Follows
from antiphon.api.lifecycle import raise_refusals
from antiphon.api.outbox import BlockedOutboxes, Outbox, OutboxOwner
from antiphon.api.pubsub import PubSubHost
from antiphon.api.receipts import Publishing
from antiphon.api.segment import Segment
from antiphon.api.topic_names import checked_name, client_number
from antiphon.client.client_streams import ClientStreams
from antiphon.client.client_subscriptions import ClientSubscriptions
from antiphon.client.connection import LOOK_SECONDS, ClientConnection, until_ended
from antiphon.client.requests import Requests, set_exception
from antiphon.client.server_pool import addresses_of, introduction_from
from antiphon.kernel.errors import AntiphonError, DeniedError, PeerError, ProtocolError, UsageError
from antiphon.membership.messages import OLDEST_VERSION, PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.runtime.errors import ClosedError, error_from
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.client_end import ClientEnd, Introduction
from antiphon.sessions.client_messages import (
    CLIENT_CONTROLS,
    Delivery,
    DismissResponse,
    FollowResponse,
    LogsResponse,
    MarksResponse,
    ProducerResponse,
    PublishResponse,
    RangeResponse,
    StatusRequest,
    StatusResponse,
    StreamResponse,
    SubscriptionEnded,
)
from antiphon.sessions.server_pool import ServerPool
from antiphon.sessions.steps import Promise
from antiphon.transport.codec import Codec
from antiphon.transport.links import CONNECT_SECONDS, split_address
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import SINCE, may_send
from antiphon.transport.stream_protocol import StreamProtocol
from antiphon.transport.tls import Tls, check_meant, identity_of, is_loopback, reason_of

RECONNECT_SECONDS: Final = 10.0
"""How long a client looks for another node, unless it is told otherwise."""

SAFE_SECONDS: Final = 10.0
"""How long a client that is closed waits until what it published would survive its node."""

OPENING: Final = 0
"""The number of the first request of a connection; other requests have higher ones."""

ANSWERS: Final = (PublishResponse, LogsResponse, RangeResponse, MarksResponse, ProducerResponse, DismissResponse)
"""Answers to requests of this client; a lane waits for those to what it has written."""

log = logger("client")


class LiveClient(PubSubHost):
    """A connected client. Applications hold it as :class:`antiphon.client.handle.Client`."""

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
        self._cluster = cluster
        self._instance = secrets.token_hex(8)
        self._on_reconnect = on_reconnect
        self._loop = asyncio.get_running_loop()
        self._codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS))
        self._connection: ClientConnection | None = None
        # The connection to a node that is about to go, until the subscriptions are effective at another one.
        self._former: ClientConnection | None = None
        self._blocked = BlockedOutboxes()
        self._end = ClientEnd(self, ServerPool(addresses_of(addresses)), round(reconnect_seconds * 1_000_000))
        room, send, author = self._end.room, self._send_segment, self.author_number
        self._outbox_owner = OutboxOwner(
            self._loop, None, room, send, wall_clock_us, self._blocked, author, self.refusals
        )
        self._subscriptions = ClientSubscriptions(self, self._end)
        self._requests = Requests(self._end.next_number)
        self.streams = ClientStreams(self, self._requests, partial(self._connect_to, tls))
        # The first answer of a node that is being tried.
        self._opening: asyncio.Future[StatusResponse] | None = None
        self._failure: BaseException | None = None
        self._tasks = Tasks()
        # Connections that have not ended, also those that were given up.
        self._open_connections: set[ClientConnection] = set()

    @property
    def subscriptions(self) -> ClientSubscriptions:
        return self._subscriptions

    @property
    def address(self) -> str:
        """The address of the node that the client has, or had last."""
        return self._end.address

    @property
    def is_up(self) -> bool:
        """Whether there is a node to talk to."""
        return self._end.is_up

    @property
    def reconnects(self) -> int:
        """How often the client has continued at another node."""
        return self._end.reconnects

    # Connecting.

    async def start(self) -> LiveClient:
        """Connect to the first of the given nodes that answers."""
        failures: list[str] = []
        for address in self._end.pool.given:
            try:
                self._end.connected(await self._open(address, CONNECT_SECONDS))
                self.write()
                return self
            except DeniedError:
                # Others would say the same.
                raise
            except PeerError as error:
                failures.append(str(error))
        if len(failures) == 1:
            raise PeerError(failures[0])
        raise PeerError(f"none of {len(failures)} nodes answers: {'; '.join(failures)}")

    async def _open(self, address: str, seconds: float) -> Introduction:
        """Connect to a node, and hear who it is; :class:`PeerError` if that is not to be."""
        host, port = split_address(address)
        try:
            async with asyncio.timeout(seconds):
                connection = ClientConnection(self, address, self._open_connections)
                self._connection = connection
                transport, _ = await self._loop.create_connection(
                    partial(StreamProtocol, connection), host, port, ssl=self._context
                )
                self._check_node(transport, host)
                self.send(
                    Hello(PROTOCOL_VERSION, self._cluster, self._instance, "", "", self._token, oldest=OLDEST_VERSION)
                )
                self._opening = self._loop.create_future()
                self.send(StatusRequest(OPENING, False))
                connection.writer.flush()
                answer = await self._opening
        except (OSError, TimeoutError) as error:
            self.leave(False, False)
            reason = reason_of(error)
            what_to_do = "" if isinstance(error, ssl.SSLError) else "; check that one runs there (antiphon up)"
            raise PeerError(f"cannot connect to a node at {address}: {reason}{what_to_do}") from error
        except AntiphonError:
            self.leave(False, False)
            raise
        status = answer.status
        connection.version = min(int(status.get("protocol", OLDEST_VERSION)), PROTOCOL_VERSION)
        # A node of an earlier version does not say it; batches about one key suit every fabric.
        self.mixes_keys = bool(status.get("mixes_keys", False))
        return introduction_from(address, status, client_number(self._instance), answer.clock_us - monotonic_us())

    def _check_node(self, transport: asyncio.BaseTransport, host: str) -> None:
        """Say nothing secret to anybody but a node."""
        if self._context is not None:
            check_meant(identity_of(transport), "")
        elif self._token and not is_loopback(host):
            raise UsageError("a token is not sent over a network without TLS; give tls= (--tls-authority), too")

    def connection_lost(self, connection: ClientConnection, error: Exception | None) -> None:
        """A connection has ended."""
        if connection is not self._connection or self._failure is not None:
            return
        if self._end.is_up:
            self._end.connection_lost()
        else:
            hint = reason_of(error) if error is not None else ""
            if not hint and self._context is None:
                hint = "if it wants TLS, say so (tls=, --tls-authority)"
            reason = f"the node at {connection.address} closed the connection" + (f": {hint}" if hint else "")
            set_exception(self._opening, PeerError(reason))

    def cannot_understand(self, connection: ClientConnection, error: Exception) -> None:
        """A node has sent what no node sends: callers that wait for its answer are told so."""
        reason = PeerError(f"the node at {connection.address} cannot be understood: {error}")
        if connection is self._connection:
            self._requests.node_lost(reason)
            if not self._end.is_up:
                set_exception(self._opening, reason)

    # What the client's end asks for.

    def now_us(self) -> int:
        """The clock."""
        return monotonic_us()

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Call something after a while, unless the client has ended by then."""
        self._loop.call_later(delay_us / 1_000_000, self._call, call)

    def _call(self, call: Callable[[], None]) -> None:
        if self._failure is None:
            call()
            self.settle()

    def draw(self, below: int) -> int:
        """A random number below another one."""
        return secrets.randbelow(below)

    def open(self, address: str, patience_us: int) -> Promise[Introduction]:
        """Connect to a node and hear who it is."""
        promise: Promise[Introduction] = Promise()
        self._tasks.spawn(self._try(address, patience_us, promise))
        return promise

    async def _try(self, address: str, patience_us: int, promise: Promise[Introduction]) -> None:
        try:
            node = await self._open(address, patience_us / 1_000_000)
        except PeerError as error:
            promise.fail(error)
        else:
            promise.resolve(node)
            self.settle()

    def leave(self, is_aborted: bool, waits_until_resumed: bool) -> None:
        """End the connection, at once, in order, or when the subscriptions are effective elsewhere."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if waits_until_resumed:
            self._former = connection
        elif is_aborted:
            connection.abort()
        else:
            connection.writer.close()

    def bytes_received(self) -> int:
        """How much has come from the node over this connection."""
        return 0 if self._connection is None else self._connection.bytes_received

    def disconnected(self, lost: str, reason: str) -> None:
        """The node is lost: what only it could answer is not answered."""
        log.info("looking for another node", lost=lost, reason=reason)
        self._requests.node_lost(PeerError(f"the node at {lost} is gone, and with it the log that was asked for"))
        self._subscriptions.connection_lost()

    def reconnected(self, lost: str) -> None:
        """The client continues at another node."""
        log.info("reconnected", node=self.address, lost=lost, kept=len(self._end.unacked))
        for number in self._requests.unanswered_status():
            self.send(StatusRequest(number))
        self.settle()
        if self._on_reconnect is not None:
            self._on_reconnect(self.address)

    def resumed(self) -> None:
        """All subscriptions are effective: a node that is about to go is not needed any more."""
        if self._former is not None:
            self._former.writer.close()
            self._former = None

    def failed(self, reason: str) -> None:
        """No node was found."""
        self._fail(ClosedError(reason))

    def accepted(self, receipt: Any) -> None:
        """A batch is accepted."""
        if not receipt.done():
            receipt.set_result(None)

    def refused(self, receipt: Any, answer: PublishResponse | FollowResponse) -> None:
        """A batch is not accepted."""
        error = error_from(answer.error, answer.is_denied, answer.kind)
        if isinstance(answer, FollowResponse):
            log.warning("messages published next may not follow messages seen before", topic=answer.topic, cause=error)
        elif receipt.done():
            log.error("messages that were accepted have been refused later", reason=answer.error)
        set_exception(receipt, error)

    def subscription_ready(self, number: int) -> None:
        """A subscription is effective."""
        self._subscriptions.ready(number)

    def subscription_missed(self, number: int, topic: str) -> None:
        """Here messages of a subscription may be missing."""
        self._subscriptions.missed(number, topic)

    def subscription_dropped(self, number: int) -> None:
        """The node has dropped messages of a subscription, as its policy says."""
        self._subscriptions.count_dropped(number)

    def subscription_ended(self, number: int, message: SubscriptionEnded) -> None:
        """Nothing more comes of a subscription."""
        self._subscriptions.ended(number, message)

    # Ending.

    async def _connect_to(self, tls: Tls | None, address: str) -> ClientStreams:
        """A connection to a node that leads a stream."""
        other = LiveClient([address], self._cluster, self.default_order, 0.0, None, tls, self._token)
        try:
            return (await other.start()).streams
        except BaseException:
            await other.abandon()
            raise

    def settle_publishing(self, publishing: Publishing, acks: str) -> Awaitable[Any]:
        return self.streams.api.settle(publishing, acks)

    async def abandon(self) -> None:
        """End the connection without waiting for anything."""
        await self.streams.close()
        self._fail(ClosedError("the client has been closed; connect again"))
        await until_ended(self._open_connections)

    async def close(self) -> None:
        """Wait for what is in flight and end the connection; raises, as :meth:`flush` does, what was not accepted."""
        if self._failure is None:
            await self.until_accepted()
            give_up_at = self._loop.time() + SAFE_SECONDS
            while len(self._end.unacked) and self._loop.time() < give_up_at:
                await asyncio.sleep(LOOK_SECONDS)
        await self.streams.close()
        self._fail(ClosedError("the client has been closed; connect again"))
        await until_ended(self._open_connections)
        await raise_refusals(self.refusals)

    async def status(self) -> dict[str, Any]:
        """How the node is: its figures."""
        self.refuse_if_closed()
        number, answer = self._requests.ask_status()
        if self._end.is_up:
            self.send(StatusRequest(number))
            self.settle()
        return await answer

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        self.refuse_if_closed()
        name = checked_name(topic)
        outbox = Outbox(name, self.default_order, self._outbox_owner, name)
        self.outboxes[name] = outbox
        return outbox

    def _send_segment(self, topic: str, segment: Segment) -> None:
        """Hand a batch in at the node."""
        follows = segment.columns.follows
        if follows is not None and segment.receipt is not None:
            segment.receipt.add_done_callback(partial(self._give_back, topic, follows))
        self._end.publish(topic, segment.order, encode_columns(segment.columns), segment.about, segment.receipt)
        self.write()

    def _give_back(self, topic: str, follows: list[Follows | None], receipt: asyncio.Future[None]) -> None:
        """If a batch was refused, what comes next follows what it would have followed."""
        if receipt.cancelled() or receipt.exception() is not None:
            for each in follows:
                self.heard.give_back(topic, each)

    def author_number(self) -> int:
        return self._end.author

    async def until_accepted(self) -> None:
        while self._end.unacked.unaccepted() or any(len(outbox) for outbox in self.outboxes.values()):
            for outbox in self.outboxes.values():
                outbox.flush()
            self.settle()
            receipts = self._end.unacked.unaccepted()
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
        elif not self._end.on_message(message):
            self._answer(connection, message)

    def _answer(self, connection: ClientConnection, message: object) -> None:
        if isinstance(message, StatusResponse) and message.number == OPENING:
            if self._opening is not None and not self._opening.done():
                self._opening.set_result(message)
        elif isinstance(message, StatusResponse):
            self._requests.on_status(message)
        elif isinstance(message, StreamResponse):
            self.streams.on_response(message)
        elif isinstance(message, ANSWERS):
            self._requests.on_response(message)
        elif isinstance(message, Refused):
            reason = f"the node at {connection.address} refused: {message.reason}"
            error = error_from(reason, message.is_denied)
            if self._end.is_up:
                self._fail(error)
            else:
                set_exception(self._opening, error)
        else:
            raise ProtocolError(f"the node at {connection.address} sent a {type(message).__name__} to a client")

    def request(self, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send something to this node that it answers; ``make`` gets the number that the answer is to have."""
        self.refuse_if_closed()
        number = self._end.next_number()
        if not self._end.is_up:
            raise PeerError(f"the node at {self.address} is gone")
        answer = self._requests.ask_node(number)
        self.send(make(number))
        self.write()
        return answer

    def settle(self) -> None:
        """Send what there is room for, and write."""
        turns = len(self._blocked.ring)
        while turns > 0 and self._end.has_room:
            # All topics share the room: once it is used up, the others need not be tried.
            turns -= 1
            for outbox in self._blocked.take_due(1):
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
        connection = self._connection
        if connection is not None and (not SINCE or may_send(control, connection.version)):
            connection.writer.send(self._codec.encode_control(control))

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._end.close()
        self._tasks.cancel()
        self.leave(False, False)
        self.resumed()
        for outbox in self.outboxes.values():
            outbox.fail(error)
        self.outboxes.clear()
        for receipt in self._end.unacked.unaccepted():
            set_exception(receipt, error)
        self._end.unacked.clear()
        self._requests.fail(error)
        set_exception(self._opening, error)
        self._requests.node_lost(error)
        self._subscriptions.fail(error)

    def refuse_if_closed(self) -> None:
        """Raise the reason why nothing can be done any more, if there is one."""
        if self._failure is not None:
            raise self._failure
