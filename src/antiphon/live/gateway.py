"""The node's side of a client: what a thin client publishes and subscribes to, done for it by the node.

A client's messages are published by the node, so they are ordered like the node's own, after what the node has
delivered and hence after whatever the client has seen. Batches stay whole in both directions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from antiphon.kernel.errors import AntiphonError, ProtocolError, UsageError
from antiphon.live.batch import Batch
from antiphon.live.client_messages import (
    CLIENT_CONTROLS,
    Accepted,
    AskStatus,
    Begins,
    Delivery,
    Follow,
    Followed,
    Missed,
    Publish,
    StatusIs,
    SubscribeTo,
    SubscriptionEnded,
    SubscriptionReady,
    Taken,
    Unsubscribe,
)
from antiphon.live.clocks import monotonic_us
from antiphon.live.columns import NO_AUTHOR, Columns, decode_columns
from antiphon.live.controls import Control
from antiphon.live.errors import DeniedError
from antiphon.live.links import FrameWriter
from antiphon.live.logs import logger
from antiphon.live.membership import FrameClient
from antiphon.live.names import checked_name, checked_pattern
from antiphon.live.rights import Holder
from antiphon.live.seen import Seen
from antiphon.live.status import status_of, whereabouts_of
from antiphon.live.subscription import Resumption, Start, Subscription
from antiphon.live.tasks import Tasks
from antiphon.live.wire import BATCH_BYTES_AT_MOST

if TYPE_CHECKING:
    from antiphon.live.node import Node

__all__ = ["CLIENT_CONTROLS", "ClientSession"]

AHEAD: Final = 16_384
"""How many messages of a subscription are on their way to a client, or wait in it, before it must have taken some."""

log = logger("gateway")


class ClientSession(FrameClient):
    """One connected client."""

    def __init__(
        self, node: Node, writer: FrameWriter, client: int, holder: Holder, refuse: Callable[[Exception], None]
    ) -> None:
        self.client = client
        self._holder = holder
        self._refuse = refuse
        # Where it may publish, as far as it has tried.
        self._may_publish: set[str] = set()
        self.is_sent_away = False
        self._is_counted = False
        self._node = node
        self._writer = writer
        # What other nodes had delivered of this client's batches when it came, by topic.
        self._known: dict[str, list[Seen]] = {}
        self._subscriptions: dict[int, RemoteSubscription] = {}
        self._tasks = Tasks()
        node.clients.add(self)
        node.sessions.came(self)

    def frame_received(self, frame: memoryview) -> None:
        message = self._node.codec.decode(frame)
        if isinstance(message, Publish):
            # What a client had sent before it heard that it is to go, it hands in elsewhere.
            if not self.is_sent_away:
                self._tasks.spawn(self._publish(message))
        elif isinstance(message, Taken):
            found = self._subscriptions.get(message.number)
            if found is not None:
                found.taken(message.count)
        elif isinstance(message, SubscribeTo):
            self._subscribe(message)
        elif isinstance(message, Unsubscribe):
            found = self._subscriptions.pop(message.number, None)
            if found is not None:
                self._tasks.spawn(found.subscription.close())
        elif isinstance(message, Follow):
            self._tasks.spawn(self._follow(message))
        elif isinstance(message, AskStatus):
            self._tell_status(message)
        else:
            raise ProtocolError(f"a client sent a {type(message).__name__}, which clients do not send")

    def send(self, control: Control) -> None:
        """Send something to the client."""
        self._node.write(self._writer, self._node.codec.encode_control(control))

    def _tell_status(self, message: AskStatus) -> None:
        denied = ""
        if message.wants_all and not self._holder.rights.admin:
            denied = f"client {self._holder.name!r} may not look into nodes; have admin = true added to its rights"
        status = status_of if message.wants_all and not denied else whereabouts_of
        self.send(StatusIs(message.number, status(self._node), monotonic_us(), denied))

    # Rights.

    def _check_publishing(self, topic: str) -> None:
        if topic in self._may_publish:
            return
        if not self._holder.rights.may_publish(checked_name(topic)):
            raise DeniedError(f"client {self._holder.name!r} may not publish on {topic!r}; have it added to its rights")
        self._may_publish.add(topic)

    def _check_subscribing(self, pattern: str) -> None:
        if not self._holder.rights.may_subscribe(checked_pattern(pattern)):
            raise DeniedError(
                f"client {self._holder.name!r} may not subscribe to {pattern!r}; have it added to its rights"
            )

    def rights_changed(self) -> None:
        renewed = self._node.rights.renewed(self._holder)
        if renewed is None:
            self._refuse(DeniedError("the rights have changed: this client is not let in any more"))
            return
        self._holder = renewed
        self._may_publish.clear()
        for remote in self._subscriptions.values():
            try:
                self._check_subscribing(remote.subscription.pattern)
            except DeniedError as error:
                remote.subscription.revoke(error)

    async def _publish(self, message: Publish) -> None:
        """Publish a client's batch. The tasks of one client run in the order in which its batches came."""
        error = ""
        is_denied = False
        is_known = self._is_known(message)
        try:
            if not is_known:
                self._check_publishing(message.topic)
                columns = self._columns_of(message)
                author = (self.client, message.serial) if message.serial else NO_AUTHOR
                receipt = self._node.publish_columns(message.topic, message.order, message.about, columns, author)
                if receipt is not None:
                    await receipt
        except AntiphonError as failure:
            error, is_denied = str(failure), isinstance(failure, DeniedError)
        # A client that is told nothing hands it in again at another node.
        if not error or not self._node.is_closing:
            self.send(Accepted(message.number, error, is_known, is_denied))
            self._node.settle()

    def _is_known(self, message: Publish) -> bool:
        """Whether a batch that a client hands in has been delivered already, here or elsewhere."""
        topic = self._node.topics.get(message.topic)
        if topic is not None and topic.seen.has(self.client, message.serial):
            return True
        return any(seen.has(message.serial) for seen in self._known.get(message.topic, ()))

    def _comes_from_elsewhere(self) -> None:
        """Count a client that goes on here with what it began at another node; once."""
        if not self._is_counted:
            self._is_counted = True
            self._node.sessions.resumed += 1

    async def _follow(self, message: Follow) -> None:
        error = ""
        is_denied = False
        self._comes_from_elsewhere()
        try:
            self._check_publishing(message.topic)
            self._known[message.topic] = await self._node.sessions.follow(self.client, message)
        except AntiphonError as failure:
            error, is_denied = str(failure), isinstance(failure, DeniedError)
        self.send(Followed(message.number, message.topic, error, is_denied))
        self._node.settle()

    def _columns_of(self, message: Publish) -> Columns:
        # Whatever is wrong must end here: the node answers for what it publishes.
        if len(message.payload) > BATCH_BYTES_AT_MOST:
            raise UsageError(f"a batch of {len(message.payload)} bytes is too long; at most {BATCH_BYTES_AT_MOST} fit")
        columns = decode_columns(message.payload)
        if not columns.values:
            raise UsageError("a batch holds at least one message")
        return columns

    def _subscribe(self, message: SubscribeTo) -> None:
        start: Start = message.start
        try:
            self._check_subscribing(message.pattern)
            if message.is_time and isinstance(start, int):
                start = time_of(start)
            resumption = None
            if message.resume is not None:
                self._comes_from_elsewhere()
                resumption = Resumption(self.client, message.resume.since_us, message.resume.seen)
            subscription = self._node.subscribe(
                message.pattern, start, policy=message.policy, limit=message.limit, resumption=resumption
            )
        except AntiphonError as error:
            self.send(SubscriptionEnded(message.number, str(error), 0, isinstance(error, DeniedError)))
            return
        subscription.marks_beginnings = start == "latest"
        remote = RemoteSubscription(self, message.number, subscription)
        self._subscriptions[message.number] = remote
        self._tasks.spawn(remote.run())

    def subscription_ended(self, number: int, error: AntiphonError | None, dropped: int) -> None:
        """Tell the client, unless it ended because the node goes: then the client takes it to another node."""
        ended = self._subscriptions.pop(number, None)
        if ended is not None:
            self._tasks.spawn(ended.subscription.close())
        if not self._node.is_closing:
            reason = "" if error is None else str(error)
            self.send(SubscriptionEnded(number, reason, dropped, isinstance(error, DeniedError)))
            self._node.settle()

    def ended(self) -> None:
        self._node.clients.discard(self)
        self._node.sessions.went(self)
        self._tasks.cancel()
        for remote in self._subscriptions.values():
            self._node.spawn(remote.subscription.close())

    def settle(self) -> None:
        """Write what was sent."""
        self._node.settle()


class RemoteSubscription:
    """Hands the batches of a subscription on to a client, no further ahead than it can take."""

    def __init__(self, session: ClientSession, number: int, subscription: Subscription) -> None:
        self.subscription = subscription
        self._session = session
        self._number = number
        self._ahead = 0
        self._room: asyncio.Event = asyncio.Event()

    def taken(self, count: int) -> None:
        """The client's application has taken messages."""
        self._ahead -= count
        if self._ahead < AHEAD:
            self._room.set()

    async def run(self) -> None:
        """From readiness to the end."""
        error: AntiphonError | None = None
        try:
            await self.subscription.ready()
            self._session.send(SubscriptionReady(self._number))
            self._session.settle()
            await self._hand_on()
        except AntiphonError as failure:
            error = failure
        self._session.subscription_ended(self._number, error, self.subscription.dropped)

    async def _hand_on(self) -> None:
        async for topic, batch, from_offset in self.subscription.raw_batches():
            if isinstance(batch, Batch):
                self._send(batch, from_offset)
            elif batch.seen is None:
                self._session.send(Missed(self._number, topic.name))
            else:
                self._session.send(Begins(self._number, topic.name, batch.seen))
            self._session.settle()
            if self._ahead >= AHEAD:
                self._room.clear()
                await self._room.wait()

    def _send(self, batch: Batch, from_offset: int) -> None:
        self._ahead += batch.end_offset - max(batch.first_offset, from_offset)
        self._session.send(
            Delivery(
                self._number,
                batch.topic,
                batch.publisher,
                batch.order,
                batch.first_offset,
                from_offset,
                batch.payload,
                batch.sequence,
            )
        )


def time_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a time."""
    try:
        return datetime.fromtimestamp(time_us / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise UsageError(f"{time_us} microseconds since 1970 is no time to start from") from error
