"""A thin client: publishes and subscribes through a node, with the same calls as a node.

A publication is accepted when the node says so; several can be in flight. When its node goes, the client looks for
another one by itself, takes its subscriptions there and hands in again what may have been lost
(:mod:`antiphon.live.sessions` says what the nodes do for that). Only if no node can be reached for a while, whoever
waits gets :class:`antiphon.live.errors.ClosedError`: what was not accepted then may or may not have been published.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final

from antiphon.kernel.errors import AntiphonError, PeerError, ProtocolError, UsageError
from antiphon.live.client_messages import (
    CLIENT_CONTROLS,
    Accepted,
    AskStatus,
    Begins,
    Delivery,
    Dismissed,
    Dropped,
    Follow,
    Followed,
    LogsAre,
    MarksAre,
    Missed,
    NodesAre,
    Publish,
    RangeIs,
    Safe,
    StandingsAre,
    StatusIs,
    SubscriptionEnded,
    SubscriptionReady,
)
from antiphon.live.clocks import monotonic_us, wall_clock_us
from antiphon.live.closing import close_after, raise_refusals
from antiphon.live.columns import encode_columns
from antiphon.live.controls import PEER_CONTROLS, PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.live.errors import ClosedError, DeniedError, error_from
from antiphon.live.kept import Kept, KeptBatches
from antiphon.live.links import CONNECT_SECONDS, FrameReader, FrameWriter, split_address
from antiphon.live.logs import logger
from antiphon.live.names import checked_name, client_number
from antiphon.live.ongoing import OngoingSubscriptions
from antiphon.live.outbox import Outbox, Publisher, Segment
from antiphon.live.subscription import DEFAULT_LIMIT, Callback, Start, Subscription, WhenMissed
from antiphon.live.tasks import Tasks
from antiphon.live.tls import Tls, check_meant, identity_of, is_loopback, reason_of
from antiphon.live.whereabouts import Pauses, Whereabouts
from antiphon.live.wire import Codec

RECONNECT_SECONDS: Final = 10.0
"""How long a client looks for another node, unless it is told otherwise."""

TRY_SECONDS: Final = 2.0
"""How long one node may take to answer a client that looks for another node."""

SAFE_SECONDS: Final = 10.0
"""How long a client that is closed waits until what it published would survive its node."""

FAREWELL_SECONDS: Final = 1.0
"""How long a connection that was closed may take to end."""

LOOK_SECONDS: Final = 0.005

log = logger("client")


class ClientConnection(FrameReader):
    """One connection of a client to a node."""

    def __init__(self, client: Client, address: str) -> None:
        super().__init__()
        self._client = client
        self.address = address
        self.writer = FrameWriter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._client.connection_made(self)
        assert self.transport is not None, "it was just made"
        self.writer.attach(self.transport)

    def frame_received(self, frame: memoryview) -> None:
        self._client.frame_received(self, frame)

    def input_ended(self) -> None:
        self._client.settle()

    def refuse(self, error: Exception) -> None:
        self._client.cannot_understand(self, error)
        super().refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.connection_lost(self, exc)


class Client(Publisher):
    """Made by :func:`antiphon.connect`."""

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
        self._is_up = False
        self._number = 0
        self._serials: dict[str, int] = {}
        self._kept = KeptBatches()
        self._blocked: set[Outbox] = set()
        # The topics on which publications follow what was seen at earlier nodes, and those that are to.
        self._following: set[str] = set()
        self._follows: set[str] = set()
        self._subscriptions = OngoingSubscriptions(self)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        # What the log of the node was asked for, or a lane has written: another node has another log.
        self._requests: dict[int, asyncio.Future[Any]] = {}
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
                self._is_up = True
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
                connection = ClientConnection(self, address)
                self._connection = connection
                transport, _ = await self._loop.create_connection(lambda: connection, host, port, ssl=self._context)
                self._check_node(transport, host)
                self.send(Hello(PROTOCOL_VERSION, self._cluster, self._instance, "", "", self._token))
                number, self._opening = self._new_answer()
                self.send(AskStatus(number, False))
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
        self.mixes_keys = status.get("fabric") != "tree"
        # Where clients have names, the node knows better than the client under which number its messages are published.
        self._author = int(status.get("author", self._author))
        self._whereabouts.learn(peer["address"] for peer in status.get("peers", []))

    def _check_node(self, transport: asyncio.BaseTransport, host: str) -> None:
        """Say nothing secret to anybody but a node."""
        if self._context is not None:
            check_meant(identity_of(transport), "")
        elif self._token and not is_loopback(host):
            raise UsageError("a token is not sent over a network without TLS; give tls= (--tls-authority), too")

    def _let_go(self) -> None:
        """End the connection, without a word about it."""
        connection, self._connection = self._connection, None
        self._is_up = False
        if connection is not None:
            connection.writer.close()

    def connection_made(self, connection: ClientConnection) -> None:
        """There is a connection."""
        self._open_connections.add(connection)

    async def _until_ended(self) -> None:
        """Wait until nothing is left of connections that were closed; one with TLS takes leave before it ends."""
        until = self._loop.time() + FAREWELL_SECONDS
        while self._open_connections and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
        for connection in self._open_connections:
            if connection.transport is not None:
                connection.transport.abort()

    def connection_lost(self, connection: ClientConnection, error: Exception | None) -> None:
        """A connection has ended; if it is the one in use, look for another node."""
        self._open_connections.discard(connection)
        if connection is not self._connection or self._failure is not None:
            return
        if self._is_up:
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
            self._fail_requests(reason)
            if not self._is_up:
                set_exception(self._opening, reason)

    def _look_elsewhere(self, reason: str, is_leaving: bool = False) -> None:
        """The node is lost, or is about to go: then it waits for a while, and others can ask it for what they lack."""
        lost = self.address
        if is_leaving:
            self._former, self._connection = self._connection, None
        self._let_go()
        if self._reconnect_seconds <= 0:
            self._fail(ClosedError(f"the connection to the node at {lost} has ended; connect again, here or elsewhere"))
            return
        log.info("looking for another node", lost=lost, reason=reason)
        self._fail_requests(PeerError(f"the node at {lost} is gone, and with it the log that was asked for"))
        self._following.clear()
        self._follows.clear()
        self._kept.connection_lost()
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
        self._is_up = True
        self.reconnects += 1
        log.info("reconnected", node=self.address, lost=lost, kept=len(self._kept))
        for number, answer in self._answers.items():
            if not answer.done():
                self.send(AskStatus(number))
        self._subscriptions.resume()
        self._leave_former()
        for topic in self._kept.topics():
            self._follow(topic)
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
        await self._until_ended()

    async def close(self) -> None:
        """Wait for what is in flight and end the connection; raises, as :meth:`flush` does, what was not accepted."""
        if self._failure is None:
            await self._until_accepted()
            give_up_at = self._loop.time() + SAFE_SECONDS
            while len(self._kept) and self._loop.time() < give_up_at:
                await asyncio.sleep(LOOK_SECONDS)
        self._fail(ClosedError("the client has been closed; connect again"))
        await self._until_ended()
        await raise_refusals(self.refusals)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await close_after(self, error)

    async def status(self) -> dict[str, Any]:
        """How the node is: its figures."""
        self.refuse_if_closed()
        number, answer = self._new_answer()
        if self._is_up:
            self.send(AskStatus(number))
            self.settle()
        return await answer

    def _new_answer(self) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        number = self.next_number()
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._answers[number] = answer
        answer.add_done_callback(lambda _: self._answers.pop(number, None))
        return number, answer

    def next_number(self) -> int:
        """For something that the node is to answer."""
        self._number += 1
        return self._number

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        self.refuse_if_closed()
        name = checked_name(topic)
        room, send = partial(self._room, name), partial(self._send_segment, name)
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

    async def flush(self) -> None:
        """Wait until everything published so far is accepted.

        Raises what messages met that were published since the last flush and were not accepted, unless the application
        has awaited them itself: one error, which says how many there were and why.
        """
        await self._until_accepted()
        await raise_refusals(self.refusals)

    async def _until_accepted(self) -> None:
        while self._kept.unaccepted() or any(len(outbox) for outbox in self.outboxes.values()):
            for outbox in self.outboxes.values():
                outbox.flush()
            self.settle()
            receipts = self._kept.unaccepted()
            if receipts:
                await asyncio.wait(receipts)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _room(self, topic: str) -> int:
        if not self._is_up:
            return 0
        if self.reconnects and topic not in self._follows:
            self._follow(topic)
            return 0
        return 0 if self._kept.has_to_repeat(topic) else self._kept.room()

    def _send_segment(self, topic: str, segment: Segment) -> None:
        serial = self._serials[topic] = self._serials.get(topic, 0) + 1
        payload = encode_columns(segment.columns)
        kept = Kept(self.next_number(), topic, serial, segment.order, payload, segment.about, segment.receipt)
        self._kept.add(kept)
        self._hand_in(kept)
        self._write()

    def _hand_in(self, kept: Kept) -> None:
        self.send(Publish(kept.number, kept.topic, kept.order, kept.payload, kept.about, kept.serial))

    def _follow(self, topic: str) -> None:
        """See to it that what is published from now on follows what was seen at other nodes."""
        if topic not in self._following:
            self._following.add(topic)
            past = self._subscriptions.past_of(topic)
            # What it has published itself comes first too, though it may not have been shown to it.
            past[self._author] = max(past.get(self._author, 0), self._kept.done_up_to(topic))
            self.send(Follow(self.next_number(), topic, past))
            self._write()

    def _followed(self, message: Followed) -> None:
        self._following.discard(message.topic)
        self._follows.add(message.topic)
        if message.error:
            error = error_from(message.error, message.is_denied, message.kind)
            given_up = self._kept.give_up(message.topic)
            for kept in given_up:
                set_exception(kept.receipt, error)
            accepted = sum(kept.is_accepted for kept in given_up)
            log.error("what is not known to be safe is given up", topic=message.topic, accepted=accepted, cause=error)
        self._repeat()

    def _repeat(self) -> None:
        """Hand in again what may be lost, as much of it as may be on its way."""
        for topic in self._kept.topics_to_repeat():
            while topic in self._follows and (kept := self._kept.next_again(topic)) is not None:
                self._hand_in(kept)

    # Subscribing.

    def subscribe(
        self,
        topic: str,
        start: Start = "latest",
        *,
        callback: Callback | None = None,
        policy: str = "block",
        limit: int = DEFAULT_LIMIT,
        when_missed: WhenMissed | None = None,
    ) -> Subscription:
        """Subscribe to a topic or a pattern, as at a node, which also carries out the policy.

        If messages are missing, because the client has changed its node or because the node has missed them itself,
        ``when_missed`` is called with the name of the topic, or, without it, iterating raises
        :class:`MissedMessagesError`, once.
        """
        self.refuse_if_closed()
        return self._subscriptions.add(topic, start, callback, policy, limit, when_missed)

    @property
    def duplicates(self) -> int:
        """Batches that came twice because of a change of nodes, and were dropped."""
        return self._subscriptions.duplicates

    # What the node says.

    @property
    def is_up(self) -> bool:
        """Whether there is a node to talk to."""
        return self._is_up

    def frame_received(self, connection: ClientConnection, frame: memoryview) -> None:
        """A frame of a node, which may have been left meanwhile."""
        if connection is not self._connection:
            return
        message = self._codec.decode(frame)
        if isinstance(message, Delivery):
            self._subscriptions.delivered(message)
        elif isinstance(message, Accepted):
            self._accepted_batch(message)
        elif isinstance(message, Safe):
            self._kept.safe(message.topic, message.serial)
        elif isinstance(message, (SubscriptionReady, SubscriptionEnded, Missed, Begins, Dropped)):
            self._subscriptions.told(message)
            self._leave_former()
        elif isinstance(message, Followed):
            self._followed(message)
        elif isinstance(message, NodesAre):
            self._whereabouts.learn(message.addresses)
            if message.is_leaving:
                self._look_elsewhere("the node is about to go", is_leaving=True)
        else:
            self._answer(connection, message)

    def _answer(self, connection: ClientConnection, message: object) -> None:
        if isinstance(message, StatusIs):
            # What the node's clock shows when this one shows nothing: no later than that, as the answer took time.
            self.node_clock_us = message.clock_us - monotonic_us()
            answer = self._answers.get(message.number)
            if message.denied:
                set_exception(answer, DeniedError(message.denied))
            elif answer is not None and not answer.done():
                answer.set_result(message.status)
        elif isinstance(message, (LogsAre, RangeIs, MarksAre, StandingsAre, Dismissed)):
            asked = self._requests.get(message.number)
            if asked is not None and not asked.done():
                asked.set_result(message)
        elif isinstance(message, Refused):
            reason = f"the node at {connection.address} refused: {message.reason}"
            error = error_from(reason, message.is_denied)
            if self._is_up:
                self._fail(error)
            else:
                set_exception(self._opening, error)
        else:
            raise ProtocolError(f"the node at {connection.address} sent a {type(message).__name__} to a client")

    def request(self, make: Callable[[int], Control]) -> asyncio.Future[Any]:
        """Send something to this node that it answers; ``make`` gets the number that the answer is to have."""
        self.refuse_if_closed()
        number = self.next_number()
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self._is_up:
            raise PeerError(f"the node at {self.address} is gone")
        self._requests[number] = answer
        answer.add_done_callback(lambda _: self._requests.pop(number, None))
        self.send(make(number))
        self._write()
        return answer

    def _fail_requests(self, error: BaseException) -> None:
        for answer in tuple(self._requests.values()):
            set_exception(answer, error)

    def _accepted_batch(self, message: Accepted) -> None:
        kept = self._kept.answered(message.number)
        if kept is None:
            self._accepted_piece(message)
            return
        if message.error:
            self._kept.remove(kept)
            if kept.is_accepted:
                log.error("what had been accepted was refused later", topic=kept.topic, reason=message.error)
            set_exception(kept.receipt, error_from(message.error, message.is_denied, message.kind))
        else:
            self._kept.accepted(kept)
            if message.is_known:
                self._kept.done(kept)
            if not kept.receipt.done():
                kept.receipt.set_result(None)
        self._repeat()

    def _accepted_piece(self, message: Accepted) -> None:
        """What a lane has written, if somebody still waits for it."""
        answer = self._requests.get(message.number)
        if message.error:
            set_exception(answer, error_from(message.error, message.is_denied, message.kind))
        elif answer is not None and not answer.done():
            answer.set_result(message)

    def settle(self) -> None:
        """Send what there is room for, and write."""
        for outbox in tuple(self._blocked):
            outbox.flush()
        self._write()

    def _write(self) -> None:
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
        for future in (*self._kept.unaccepted(), *self._answers.values(), self._opening):
            set_exception(future, error)
        self._kept.clear()
        self._fail_requests(error)
        self._subscriptions.fail(error)

    def refuse_if_closed(self) -> None:
        """Raise the reason why nothing can be done any more, if there is one."""
        if self._failure is not None:
            raise self._failure


def set_exception(future: Any, error: BaseException) -> None:
    """Let something fail for which somebody may wait; not everybody waits for every one of them."""
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()
