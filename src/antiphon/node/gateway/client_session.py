"""The node's side of a client: what a thin client publishes and subscribes to, done for it by the node.

A client's messages are published by the node, so they are ordered like the node's own, after what the node has
delivered and hence after whatever the client has seen. Batches stay whole in both directions.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Protocol

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import decode_columns
from antiphon.api.columns import NO_AUTHOR, Author, Columns
from antiphon.api.lifecycle import Lifecycle
from antiphon.api.outbox import Outbox
from antiphon.api.subscription import Start
from antiphon.api.topic_names import checked_name, checked_pattern, is_pattern
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import AntiphonError, DeniedError, PeerError, ProtocolError, UsageError
from antiphon.membership.messages import Control
from antiphon.node.acl import Holder, Rights
from antiphon.node.audit_log import AuditLog
from antiphon.node.gateway.accounts import Account, Ledger
from antiphon.node.gateway.client_relay import RemoteSubscription
from antiphon.node.gateway.client_requests import ClientRequests, RequestServices
from antiphon.node.gateway.request_limits import COUNTED_BYTES, RequestLimits
from antiphon.node.gateway.session_host import SessionHost
from antiphon.node.gateway.writer_numbers import lane_number, writer_number
from antiphon.node.loop import NodeLoop
from antiphon.node.quotas import TopicLimits, why_no_topic
from antiphon.node.subscriptions import Subscriptions
from antiphon.runtime.clocks import datetime_of
from antiphon.runtime.errors import kind_of
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.backlog import Backlog, Backlogs
from antiphon.sessions.client_messages import (
    LOG_REQUESTS,
    DismissRequest,
    FollowRequest,
    FollowResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MessagesConsumed,
    ProducerRequest,
    ProducerResponse,
    PublishRequest,
    PublishResponse,
    StatusRequest,
    StreamRequest,
    StreamResponse,
    SubscribeRequest,
    SubscriptionEnded,
    UnsubscribeRequest,
)
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.producer_state import ProducerStates
from antiphon.sessions.replay_buffer import Resumption
from antiphon.sessions.resume import ClientPublishing
from antiphon.sessions.seen_lists import SeenElsewhere
from antiphon.sessions.steps import Promise, Scope, Steps, start
from antiphon.sessions.writers import Writers
from antiphon.storage.disk import Disk
from antiphon.streams.service.stream_gateway import StreamAccess
from antiphon.transport.framing import FrameWriter
from antiphon.transport.incoming import UNWRITTEN_BYTES_AT_MOST, IncomingConnection, ServedClient
from antiphon.transport.schema import BATCH_BYTES_AT_MOST, SINCE, may_send

PROOF_SECONDS: Final = 1.0
"""How long a client has to answer whose session another connection claims."""

log = logger("gateway")


class BatchPublisher(Protocol):
    """Publishes what clients hand in."""

    outboxes: dict[str, Outbox]

    def publish_columns(self, topic: str, order: str, about: tuple[int, ...], columns: Columns, author: Author) -> Any:
        """Publish a whole batch; the answer is to be awaited, if it is one."""


class GatewayLimits(TopicLimits, Protocol):
    """The settings of a node that say how much its clients may use."""

    @property
    def maximum_clients(self) -> int:
        """How many clients the node may have."""


@dataclass(frozen=True)
class ClientServices:
    """The parts of a node that work for its clients."""

    sender: NodeLoop
    topics: dict[str, LiveTopic]
    writers: Writers
    publishing: BatchPublisher
    subscriptions: Subscriptions
    sessions: NodeEnd[Batch]
    producer_states: ProducerStates
    host: SessionHost
    requests: RequestServices
    disk: Disk
    lifecycle: Lifecycle
    limits: GatewayLimits
    rights: Rights
    clients: set[ServedClient]
    backlogs: Backlogs
    ledger: Ledger
    audit: AuditLog
    streams: StreamAccess


class ClientSession:
    """One connected client."""

    def __init__(
        self,
        services: ClientServices,
        writer: FrameWriter,
        client: int,
        holder: Holder,
        connection: IncomingConnection,
        account: Account,
    ) -> None:
        self.client = client
        self.holder = holder
        self._account = account
        self._connection = connection
        # Where it may publish, as far as it has tried; and where it has, or has tried to.
        self._may_publish: set[str] = set()
        self._published: set[str] = set()
        self.backlog = Backlog(services.backlogs, connection, self, holder.name)
        # Whether it is of a version that knows heartbeats.
        self._has_heartbeats = False
        self._scope = Scope()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_sent_away = False
        self._is_counted = False
        self._services = services
        self._sender = services.sender
        self._codec = services.sender.codec
        self._writer = writer
        self._publishing: ClientPublishing[Batch] = ClientPublishing(
            services.sessions, client, self, self.backlog, self._scope
        )
        self._subscriptions: dict[int, RemoteSubscription] = {}
        self._limits = RequestLimits(account, connection)
        self._tasks = Tasks()
        self._requests = ClientRequests(self, services.requests, self._tasks)
        services.clients.add(self)
        services.sessions.on_connect(self)
        self._record("connected", by="token" if holder.token_hash else "certificate" if holder.name else "")

    def _record(self, event: str, **values: object) -> None:
        self._services.audit.record(event, self.holder.name, self._connection.where_from, **values)

    def _record_refusal(self, action: str, error: AntiphonError, topic: str) -> None:
        self._services.audit.refused(action, self.holder.name, self._connection.where_from, error, topic=topic)

    def frame_received(self, frame: memoryview) -> None:
        if len(frame) > COUNTED_BYTES:
            self._limits.check(frame)
        message = self._codec.decode(frame)
        if isinstance(message, PublishRequest):
            # What a client had sent before it heard that it is to go, it hands in elsewhere.
            if not self.is_sent_away:
                self._publishing.on_publish(message)
        elif isinstance(message, MessagesConsumed):
            found = self._subscriptions.get(message.number)
            if found is not None:
                found.taken(message.count)
        elif isinstance(message, SubscribeRequest):
            self._subscribe(message)
        elif isinstance(message, UnsubscribeRequest):
            found = self._subscriptions.pop(message.number, None)
            if found is not None:
                self._end_subscription(found)
        else:
            self._on_request(message)

    def _on_request(self, message: object) -> None:
        """Handle what clients send less often than batches."""
        if isinstance(message, FollowRequest):
            self._comes_from_elsewhere()
            self._publishing.on_follow(message)
        elif isinstance(message, ProducerRequest):
            self.backlog.add(0)
            start(self._send_lane_states(message), self._scope)
        elif isinstance(message, (StatusRequest, DismissRequest, *LOG_REQUESTS)):
            self._requests.on_message(message)
        elif isinstance(message, StreamRequest):
            self._on_stream_request(message)
        elif isinstance(message, HeartbeatRequest):
            self._has_heartbeats = True
            self.send_heartbeat()
        elif not isinstance(message, HeartbeatResponse):
            raise ProtocolError(f"a client sent a {type(message).__name__}, which clients do not send")

    def send(self, control: Control) -> None:
        """Send something to the client."""
        if not SINCE or may_send(control, self._connection.version):
            self._sender.write(self._writer, self._codec.encode_control(control))

    def _on_stream_request(self, message: StreamRequest) -> None:
        others = self._services.host.addresses()
        self._services.streams.on_request(self, message.number, message.payload, others)

    def answer(self, number: int, payload: bytes) -> None:
        """Answer a request about streams."""
        self.send(StreamResponse(number, payload))

    def charge_command(self) -> None:
        """It asks for something that all replicas of a history write."""
        self._limits.charge_command()

    @property
    def is_connected(self) -> bool:
        """Whether the client is still there."""
        return self in self._services.clients

    @property
    def has_room(self) -> bool:
        """Whether the client reads what it is sent."""
        return self.may_write.is_set() and self._writer.unwritten_bytes() < UNWRITTEN_BYTES_AT_MOST

    def check_kept(self, quota: str, used: int, more: int = 1) -> None:
        """Refuse the client more of what the cluster keeps than its identity may have."""
        self._account.check_kept(quota, used, more)

    def writing_paused(self) -> None:
        self.may_write.clear()
        self.backlog.await_word()

    def writing_resumed(self) -> None:
        self.may_write.set()
        self.backlog.on_word_taken()
        for remote in tuple(self._subscriptions.values()):
            remote.hand_on()

    # Heartbeats.

    def bytes_received(self) -> int:
        """The bytes that came from the client; if the node waits for it to read, the bytes that it has read."""
        if self.may_write.is_set():
            return self._connection.bytes_received
        return self._writer.bytes_sent + self._writer.queued_bytes - self._writer.unwritten_bytes()

    def request_heartbeat(self) -> None:
        """Ask the client for a sign of life."""
        self._send_if_read(HeartbeatRequest())

    def send_heartbeat(self) -> None:
        """Tell the client that this node runs."""
        self._send_if_read(HeartbeatResponse())

    def _send_if_read(self, heartbeat: Control) -> None:
        """Send a heartbeat to a client that knows them, and not behind so much that it would only make that more."""
        if self._has_heartbeats and self.may_write.is_set():
            self.send(heartbeat)

    def prove_life(self) -> None:
        """Another connection claims this session: end this one, unless its client answers."""
        heard = self._connection.bytes_received
        self.request_heartbeat()
        self._sender.settle()

        def poll() -> None:
            if self._connection.bytes_received == heard:
                self.give_up()

        asyncio.get_running_loop().call_later(PROOF_SECONDS if self._has_heartbeats else 0.0, poll)

    def give_up(self) -> None:
        """The client stands still and holds others up."""
        log.warning("a client was silent and was disconnected", client=self.holder.name or self._connection.where_from)
        self._connection.abort()

    # Rights.

    def _use_topic(self, name: str, used: int, what: str) -> None:
        """Refuse more topics than a client, its identity or all of them may use."""
        limits, topics = self._services.limits, self._services.topics
        self._account.use_topic(name)
        if why_not := why_no_topic(limits, topics, name, used, what):
            raise PeerError(why_not)
        if name not in topics and not is_pattern(name):
            self._account.begin_topic(len(topics), limits.maximum_topics)

    def _check_subscribing(self, pattern: str) -> None:
        if not self.holder.rights.may_subscribe(checked_pattern(pattern)):
            raise DeniedError(
                f"client {self.holder.name!r} may not subscribe to {pattern!r}; have it added to its rights"
            )

    def rights_changed(self) -> None:
        renewed = self._services.rights.renewed(self.holder)
        if renewed is None:
            self._connection.refuse(DeniedError("the rights have changed: this client is not let in any more"))
            return
        self.holder = renewed
        self._account.renew(renewed.rights.quotas)
        self._may_publish.clear()
        for remote in self._subscriptions.values():
            try:
                self._check_subscribing(remote.subscription.pattern)
            except DeniedError as error:
                remote.subscription.revoke(error)
        self._services.streams.rights_changed(self)
        self._sender.settle()

    # What publishing needs.

    def is_open(self, topic: str) -> bool:
        """Whether a batch can be handed over at once."""
        if topic not in self._may_publish or (self._account.owes and self._account.wait_seconds() > 0):
            return False
        outbox = self._services.publishing.outboxes.get(topic)
        return outbox is not None and not outbox.is_full

    def check_publishing(self, topic: str) -> None:
        """Raise the reason why the client may not publish on a topic, if there is one."""
        if topic in self._may_publish:
            return
        if not self.holder.rights.may_publish(checked_name(topic)):
            raise DeniedError(f"client {self.holder.name!r} may not publish on {topic!r}; have it added to its rights")
        if topic not in self._published:
            self._use_topic(topic, len(self._published), "publish on so many topics")
            self._published.add(topic)
        self._may_publish.add(topic)

    def until_room(self, topic: str) -> Promise[None] | None:
        """Kept when a batch may be handed over on a topic; nothing if it may now."""
        if self._account.owes and (seconds := self._account.wait_seconds()) > 0:
            fits: Promise[None] = Promise()
            self._record("limited", action="publish", topic=topic, reason=f"its rate is used up for {seconds:.3f} s")
            self._services.host.after(round(seconds * 1_000_000), lambda: fits.resolve(None))
            return fits
        outbox = self._services.publishing.outboxes.get(topic)
        if outbox is None or not outbox.is_full:
            return None
        return self._services.host.promise_of(outbox.until_room())

    def hand_over(self, message: PublishRequest, order: str) -> Promise[None] | None:
        """Publish a batch for the client; a promise that it is accepted, unless it is now."""
        columns, author = self._columns_of(message), self._author_of(message)
        receipt = self._services.publishing.publish_columns(message.topic, order, message.about, columns, author)
        if self._account.has_rates:
            self._account.charge(len(columns.values), len(message.payload))
        return None if receipt is None else self._services.host.promise_of(receipt)

    def respond(
        self,
        message: PublishRequest,
        failure: AntiphonError | None = None,
        is_known: bool = False,
        is_stale: bool = False,
    ) -> None:
        """Tell the client whether its batch is accepted."""
        if failure is None:
            self.send(PublishResponse(message.number, "", is_known, is_stale=is_stale))
        elif not self._services.lifecycle.is_closing:
            # A client that is told nothing hands it in again at another node.
            is_denied = isinstance(failure, DeniedError)
            self._record_refusal("publish", failure, message.topic)
            self.send(PublishResponse(message.number, str(failure), False, is_denied, kind_of(failure)))

    def check_list(self, size_bytes: int) -> None:
        """Refuse the client a list of what it has seen elsewhere for which it has no room."""
        self._limits.check_kept(size_bytes)

    def keep_list(self, size_bytes: int) -> None:
        """A list of what the client has seen elsewhere is kept from now on, or, if negative, no more."""
        self._limits.keep(size_bytes)

    def followed(self, message: SeenElsewhere, failure: AntiphonError | None) -> None:
        """Tell the client that what it publishes follows what it has seen, or why not."""
        error = "" if failure is None else str(failure)
        is_denied = isinstance(failure, DeniedError)
        self.send(FollowResponse(message.number, message.topic, error, is_denied, kind_of(failure)))

    def _comes_from_elsewhere(self) -> None:
        """Count a client that goes on here with what it began at another node; once."""
        if not self._is_counted:
            self._is_counted = True
            self._services.sessions.resumed += 1

    def _author_of(self, message: PublishRequest) -> Author:
        """Whose batch a client hands in: its own, or that of a lane of a writer."""
        lane = message.lane
        if lane is None:
            return Author(self.client, message.serial) if message.serial else NO_AUTHOR
        if message.serial == 0 or message.order == "none":
            raise UsageError("a writer numbers its batches and publishes in order: use fifo, causal or total")
        holder = self.holder.name
        client, writer = lane_number(holder, lane.writer, lane.lane), writer_number(holder, lane.writer)
        author = Author(client, message.serial, writer, lane.lane, lane.digest, lane.previous)
        writers = self._services.writers
        if not writers.knows(message.topic, author):
            self._account.use_series(message.topic, client, writers.count_of(writer))
        writers.check(message.topic, author)
        return author

    def _send_lane_states(self, message: ProducerRequest) -> Steps[None]:
        """How far a writer has come; names belong to their holders, so a client asks for its own writers only.

        The answer names the members of a topic to clients that may publish on it.
        """
        writer = writer_number(self.holder.name, message.writer)
        topics = [topic for topic in message.topics if self.holder.rights.may_publish(topic)]
        nodes = yield from self._services.producer_states.ask(writer, message.lane, topics)
        self.backlog.remove(0)
        self.send(ProducerResponse(message.number, nodes))

    def _columns_of(self, message: PublishRequest) -> Columns:
        # Whatever is wrong must end here.
        if len(message.payload) > BATCH_BYTES_AT_MOST:
            raise UsageError(f"a batch of {len(message.payload)} bytes is too long; at most {BATCH_BYTES_AT_MOST} fit")
        columns = decode_columns(message.payload)
        if not columns.values:
            raise UsageError("a batch holds at least one message")
        return columns

    def _subscribe(self, message: SubscribeRequest) -> None:
        start: Start = message.start
        try:
            self._check_subscribing(message.pattern)
            if message.number in self._subscriptions:
                raise UsageError(f"there is a subscription with the number {message.number} already; choose another")
            self._use_topic(message.pattern, len(self._subscriptions), "have so many subscriptions")
            if message.is_time and isinstance(start, int):
                start = datetime_of(start)
            resumption: Resumption[Batch] | None = None
            if (resume := message.resume) is not None:
                self._comes_from_elsewhere()
                resumption = Resumption(self.client, resume.since_us, resume.seen, resume.past)
                self._limits.check_kept(resumption.size_bytes)
            policy = self._account.subscribe(message.policy)
            try:
                subscription = self._services.subscriptions.add(
                    message.pattern, start, policy=policy, limit=message.limit, resumption=resumption
                )
            except AntiphonError:
                self._account.subscriptions -= 1
                raise
        except AntiphonError as error:
            is_denied = isinstance(error, DeniedError)
            self.send(SubscriptionEnded(message.number, str(error), 0, is_denied, kind_of(error)))
            self._record_refusal("subscribe", error, message.pattern)
            return
        self._record("subscribed", topic=message.pattern, policy=policy)
        subscription.owner = f"client {self.holder.name or self._connection.where_from}"
        subscription.reads_messages = False
        subscription.marks_beginnings = start == "latest"
        subscription.dropped_batches = {}
        subscription.count_memory(self._account)
        self._limits.keep(0 if resumption is None else resumption.size_bytes)
        has_log = self._services.disk.store is not None
        remote = RemoteSubscription(self, message.number, subscription, self._account, has_log)
        self._subscriptions[message.number] = remote
        self._tasks.spawn(remote.run())

    def subscription_ended(self, number: int, error: AntiphonError | None, dropped: int) -> None:
        """Tell the client, unless it ended because the node goes: then the client takes it to another node."""
        ended = self._subscriptions.pop(number, None)
        if ended is not None:
            self._end_subscription(ended)
        if not self._services.lifecycle.is_closing:
            reason = "" if error is None else str(error)
            self.send(SubscriptionEnded(number, reason, dropped, isinstance(error, DeniedError), kind_of(error)))
            self._sender.settle()

    def ended(self) -> None:
        self._record("disconnected")
        self._services.clients.discard(self)
        self._services.sessions.on_disconnect(self)
        self.backlog.end()
        self._scope.end()
        self._tasks.cancel()
        for remote in self._subscriptions.values():
            self._end_subscription(remote)
        self._subscriptions.clear()
        self._account.connections -= 1
        self._services.streams.client_ended(self)

    def _end_subscription(self, remote: RemoteSubscription) -> None:
        self._account.subscriptions -= 1
        resumption = remote.subscription.resumption
        self._limits.keep(0 if resumption is None else -resumption.size_bytes)
        remote.close()

    def settle(self) -> None:
        """Write what was sent."""
        self._sender.settle()
