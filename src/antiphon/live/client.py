"""A thin client: publishes and subscribes through a node, with the same calls as a node.

A publication is accepted when the node says so; several can be in flight. If the connection ends, whoever waits gets
:class:`antiphon.live.errors.ClosedError`: what was not accepted may or may not have been published.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final

from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.live.batch import Batch
from antiphon.live.client_messages import (
    CLIENT_CONTROLS,
    Accepted,
    AskStatus,
    Delivery,
    Publish,
    StatusIs,
    SubscribeTo,
    SubscriptionEnded,
    SubscriptionReady,
    Taken,
    Unsubscribe,
)
from antiphon.live.clocks import wall_clock_us
from antiphon.live.columns import encode_columns
from antiphon.live.controls import PEER_CONTROLS, PROTOCOL_VERSION, Control, Hello, Refused
from antiphon.live.errors import ClosedError
from antiphon.live.gateway import AHEAD
from antiphon.live.links import CONNECT_SECONDS, FrameReader, FrameWriter, split_address
from antiphon.live.names import checked_name, checked_pattern
from antiphon.live.outbox import ORDERS, TREE_ORDERS, Outbox, Publisher, Segment, set_if_waiting
from antiphon.live.subscription import DEFAULT_LIMIT, Callback, Start, Subscription
from antiphon.live.topics import LiveTopic
from antiphon.live.wire import Codec

WINDOW: Final = 64
"""Batches that may be on their way to the node before publishers wait."""


class ClientConnection(FrameReader):
    """The connection of a client to its node."""

    def __init__(
        self, received: Callable[[memoryview], None], settled: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        super().__init__()
        self._received = received
        self._settled = settled
        self._lost = lost

    def frame_received(self, frame: memoryview) -> None:
        self._received(frame)

    def input_ended(self) -> None:
        self._settled()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


class Client(Publisher):
    """Made by :func:`antiphon.connect`."""

    def __init__(self, address: str, cluster: str = "antiphon", order: str = "causal") -> None:
        super().__init__(order)
        self.address = address
        self.with_receipts = True
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS))
        self._writer = FrameWriter()
        self._number = 0
        self._in_flight = 0
        self._receipts: dict[int, Any] = {}
        self._blocked: set[Outbox] = set()
        self._topics: dict[str, LiveTopic] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._ready: dict[Subscription, tuple[int, asyncio.Future[None]]] = {}
        self._untold: dict[int, int] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._failure: BaseException | None = None

    async def start(self) -> Client:
        """Connect, and see that there is a node of the right kind."""
        host, port = split_address(self.address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                transport, _ = await self._loop.create_connection(
                    lambda: ClientConnection(self._frame, self._settle, self._connection_lost), host, port
                )
                self._writer.attach(transport)
                self._send(Hello(PROTOCOL_VERSION, self._cluster, secrets.token_hex(8), ""))
                status = await self.status()
                self.orders = TREE_ORDERS if status.get("fabric") == "tree" else ORDERS
        except (OSError, TimeoutError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise PeerError(
                f"cannot connect to a node at {self.address}: {reason}; check that one runs there (antiphon up)"
            ) from error
        return self

    async def abandon(self) -> None:
        """End the connection without waiting for anything."""
        self._fail(ClosedError("the client has been closed; connect again"))
        self._writer.close()

    async def close(self) -> None:
        """Wait for what is in flight and end the connection."""
        if self._failure is None:
            await self.flush()
            self._fail(ClosedError("the client has been closed; connect again"))
        self._writer.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def status(self) -> dict[str, Any]:
        """How the node is: its figures."""
        self._refuse_if_closed()
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._answers[self._number] = answer
        self._send(AskStatus(self._number))
        self._writer.flush()
        return await answer

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        self._refuse_if_closed()
        name = checked_name(topic)
        send = partial(self._send_segment, name)
        outbox = Outbox(name, self.default_order, self._loop, None, self._room, send, wall_clock_us, self._blocked)
        self.outboxes[name] = outbox
        return outbox

    async def flush(self) -> None:
        """Wait until everything published so far is accepted."""
        while self._receipts or any(len(outbox) for outbox in self.outboxes.values()):
            for outbox in self.outboxes.values():
                outbox.flush()
            self._settle()
            if self._receipts:
                await asyncio.wait(list(self._receipts.values()))

    def _room(self) -> int:
        return WINDOW - self._in_flight

    def _send_segment(self, topic: str, segment: Segment) -> None:
        self._number += 1
        self._in_flight += 1
        self._receipts[self._number] = segment.receipt
        payload = encode_columns(segment.columns)
        self._send(Publish(self._number, topic, segment.order, payload, segment.about))
        self._writer.flush()

    # Subscribing.

    def subscribe(
        self,
        topic: str,
        start: Start = "latest",
        *,
        callback: Callback | None = None,
        policy: str = "block",
        limit: int = DEFAULT_LIMIT,
    ) -> Subscription:
        """Subscribe to a topic or a pattern, as at a node, which also carries out the policy."""
        self._refuse_if_closed()
        # The node sends no more than this ahead of the application, so here nothing can overflow.
        subscription = Subscription(self, checked_pattern(topic), start, callback, policy, max(limit, 4 * AHEAD))
        self._number += 1
        self._subscriptions[self._number] = subscription
        self._ready[subscription] = (self._number, self._loop.create_future())
        is_time = isinstance(start, datetime)
        begin = int(start.timestamp() * 1_000_000) if isinstance(start, datetime) else start
        self._send(SubscribeTo(self._number, subscription.pattern, begin, is_time, policy, limit))
        self._writer.flush()
        return subscription

    async def subscription_ready(self, subscription: Subscription) -> None:
        """Wait until a subscription is effective."""
        entry = self._ready.get(subscription)
        if entry is not None:
            await asyncio.shield(entry[1])

    def subscription_closed(self, subscription: Subscription, topics: list[LiveTopic]) -> None:
        """The application has ended a subscription."""
        entry = self._ready.pop(subscription, None)
        if entry is not None and self._subscriptions.pop(entry[0], None) is not None and self._failure is None:
            self._send(Unsubscribe(entry[0]))
            self._writer.flush()

    @property
    def has_log(self) -> bool:
        """The node has it, if there is one."""
        return False

    def first_offset(self, topic: LiveTopic, start: Start) -> int:
        """The node decides."""
        return 0

    def read_log(self, topic: LiveTopic, offset: int, max_bytes: int) -> list[Batch]:
        """The node reads it."""
        return []

    def release_credit(self, topic: LiveTopic, subscription: Subscription) -> None:
        """The node is told how much has been taken."""
        topic.caught_up(subscription)

    def taken(self, subscription: Subscription, batch: Batch, from_offset: int) -> None:
        """The application has taken a batch: tell the node, now and then."""
        entry = self._ready.get(subscription)
        if entry is None:
            return
        number = entry[0]
        untold = self._untold.get(number, 0) + batch.end_offset - max(batch.first_offset, from_offset)
        if untold >= AHEAD // 4 or subscription.queued == 0:
            self._send(Taken(number, untold))
            self._writer.flush()
            untold = 0
        self._untold[number] = untold

    # What the node says.

    def _frame(self, frame: memoryview) -> None:
        message = self._codec.decode(frame)
        if isinstance(message, Delivery):
            self._delivered(message)
        elif isinstance(message, Accepted):
            self._accepted_batch(message)
        elif isinstance(message, SubscriptionReady):
            found = self._subscriptions.get(message.number)
            if found is not None:
                set_if_waiting(self._ready[found][1])
        elif isinstance(message, SubscriptionEnded):
            self._subscription_ended(message)
        elif isinstance(message, StatusIs):
            answer = self._answers.pop(message.number, None)
            if answer is not None and not answer.done():
                answer.set_result(message.status)
        elif isinstance(message, Refused):
            self._fail(PeerError(f"the node at {self.address} refused: {message.reason}"))
        else:
            raise ProtocolError(f"the node at {self.address} sent a {type(message).__name__} to a client")

    def _delivered(self, message: Delivery) -> None:
        subscription = self._subscriptions.get(message.number)
        if subscription is None:
            return
        topic = self._topics.get(message.topic)
        if topic is None:
            topic = self._topics[message.topic] = LiveTopic(message.topic)
        subscription.begin_at(topic, message.from_offset)
        batch = Batch(message.topic, message.publisher, message.order, message.first_offset, message.payload)
        subscription.push(topic, batch)

    def _accepted_batch(self, message: Accepted) -> None:
        receipt = self._receipts.pop(message.number, None)
        self._in_flight -= 1
        if receipt is None or receipt.done():
            return
        if message.error:
            receipt.set_exception(PeerError(message.error))
        else:
            receipt.set_result(None)

    def _subscription_ended(self, message: SubscriptionEnded) -> None:
        subscription = self._subscriptions.pop(message.number, None)
        if subscription is None:
            return
        error = PeerError(message.error or "the node has ended the subscription")
        _, ready = self._ready.pop(subscription)
        if not ready.done():
            ready.set_exception(error)
            # Whoever iterates without waiting for readiness gets the error there.
            ready.exception()
        subscription.dropped = message.dropped
        subscription.fail(error)

    def _settle(self) -> None:
        for outbox in tuple(self._blocked):
            outbox.flush()
        self._writer.flush()

    def _send(self, control: Control) -> None:
        self._writer.send(self._codec.encode_control(control))

    def _connection_lost(self) -> None:
        self._fail(
            ClosedError(f"the connection to the node at {self.address} has ended; connect again, here or elsewhere")
        )

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        for outbox in self.outboxes.values():
            outbox.fail(error)
        self.outboxes.clear()
        waiting = [*self._receipts.values(), *self._answers.values(), *(ready for _, ready in self._ready.values())]
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)
                # Not everybody waits for every one of them.
                future.exception()
        self._receipts.clear()
        self._answers.clear()
        for subscription in self._subscriptions.values():
            subscription.fail(error)

    def _refuse_if_closed(self) -> None:
        if self._failure is not None:
            raise self._failure
