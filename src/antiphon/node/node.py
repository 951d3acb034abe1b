"""A live node: starting and stopping it, publishing and subscribing, and what peers and clients make it do.

A node is made of parts. The loop (:mod:`antiphon.node.loop`) drives its process. The membership knows the other nodes,
the gateway serves clients, and the disk keeps what was delivered. Each part gets the others that it uses, and none of
them the node.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.api.columns import Author, Columns
from antiphon.api.lifecycle import Lifecycle, raise_refusals
from antiphon.api.outbox import Outbox, OutboxOwner
from antiphon.api.publisher import check_order
from antiphon.api.pubsub import PubSubHost
from antiphon.api.receipts import Publishing
from antiphon.api.streams.stream_api import StreamCalls
from antiphon.api.topic_names import checked_name, topic_number
from antiphon.api.topic_state import LiveTopic
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import NoMajorityError, ProtocolError
from antiphon.kernel.message import TOTAL
from antiphon.kernel.process import Process
from antiphon.membership.messages import Hello
from antiphon.node.acl import Rights
from antiphon.node.audit_log import AuditLog
from antiphon.node.gateway.accounts import Ledger
from antiphon.node.gateway.client_requests import RequestServices
from antiphon.node.gateway.client_session import ClientServices
from antiphon.node.gateway.gateway import Gateway
from antiphon.node.gateway.session_host import future_of
from antiphon.node.loop import ORDER_NUMBERS, NodeLoop
from antiphon.node.members import Foundation, ProcessMaker
from antiphon.node.settings import Settings
from antiphon.node.spaces import check_total
from antiphon.node.status import NodeStatus, StatusServer
from antiphon.node.streams.relay import StreamRelay
from antiphon.node.streams.stream_host import StreamHost, letters_of
from antiphon.node.subscriptions import Subscriptions
from antiphon.node.tentative import TentativeBatch, early_of
from antiphon.runtime.clocks import wall_clock_us
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.backlog import Backlogs
from antiphon.sessions.steps import start as start_steps
from antiphon.storage.disk import Disk
from antiphon.storage.log import DurableLog
from antiphon.storage.log_server import LogServer
from antiphon.storage.log_topics import LogRetention
from antiphon.streams.service.stream_gateway import StreamAccess
from antiphon.transport.framing import FrameWriter
from antiphon.transport.incoming import ConnectionGreeting, FrameClient, IncomingConnection, ServedClient
from antiphon.transport.links import split_address
from antiphon.transport.listener import Listener
from antiphon.transport.tls import CertifiedIdentity, instance_of

FAREWELL_SECONDS: Final = 1.0
"""How long connections with TLS may take to end in an orderly way."""

LIFE_BITS: Final = 32
"""So many messages of a topic have numbers in one life of a node, in powers of two."""

log = logger("node")


class LiveNode(PubSubHost):
    """A running node. Applications hold it as :class:`antiphon.node.handle.Node`."""

    def __init__(self, settings: Settings, maker: ProcessMaker | None = None) -> None:
        super().__init__(settings.order)
        self.settings = settings
        self._maker = maker or ProcessMaker()
        self._event_loop = asyncio.get_running_loop()
        self.mixes_keys = FABRICS[settings.fabric].mixes_keys
        self.with_receipts = settings.durability == "disk"
        self.tls = settings.tls()
        # With a certificate, nobody else can say to be this node.
        life = secrets.token_hex(8)
        self.certificates = settings.watch_certificates()
        self.instance = life if self.certificates is None else instance_of(self.certificates.name, life)
        self._outgoing_context = None if self.certificates is None else self.certificates.client_context()
        self.rights = Rights(settings.rights)
        self.audit = AuditLog(settings.audit, settings.audit_bytes)
        self.address = ""
        """Where others find this node: the address for ``join`` and ``antiphon.connect``."""
        self._lifecycle = Lifecycle()
        self._tasks = Tasks()
        self.disk = Disk()
        self.loop = NodeLoop(settings, self._lifecycle, self.fail)
        self.asks_majority = self.loop.traits.asks_majority
        self.clients: set[ServedClient] = set()
        self.backlogs = Backlogs(settings.backlog_bytes)
        self.ledger = Ledger(self._event_loop.time)
        self._server: Listener | None = None
        self._status_server: StatusServer | None = None
        self._outbox_owner = OutboxOwner(
            self._event_loop,
            self.loop.topics.done,
            self.loop.room,
            self.loop.publish_segment,
            wall_clock_us,
            self.loop.blocked,
            self.author_number,
            self.refusals,
        )
        self._draining: list[Outbox] = []
        # Whether there are those of its parts that know the others.
        self._is_composed = False
        self._streams = StreamAccess(FABRICS[settings.fabric].membership.is_full)
        self._closing: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    # Starting.

    async def start(self) -> LiveNode:
        """Open the log, listen, and join the cluster."""
        settings = self.settings
        try:
            if settings.data is not None:
                self._open_disk(settings.data)
            listener = await self._listen()
            if settings.trace is not None:
                # Columns and their libraries take time and memory that a node without a trace has no use for.
                from antiphon.node.tracing import LiveTrace

                self.loop.trace = LiveTrace(settings.trace, settings.fabric, self.loop.traits.is_strict)
            self._compose(listener)
            await self.host.join()
            self._open_streams()
            for pattern in settings.keep:
                await self.subscriptions.keep(pattern)
            if settings.rights is not None:
                self._gateway.poll_rights()
            if self.certificates is not None:
                self.host.poll_certificates(self.certificates.poll)
            if settings.metrics is not None:
                self._status_server = await StatusServer(self.status, self.certificates).start(settings.metrics)
        except BaseException:
            await self._shut()
            raise
        log.info("in the cluster", node=self.identifier, address=self.address, others=len(self.cluster.peers()))
        return self

    def _open_disk(self, data: str) -> None:
        settings = self.settings
        retention = LogRetention(settings.retention_bytes, settings.retention_seconds)
        self.disk.open_log(data, retention, self.loop.committed, self.fail, self.with_receipts)
        if self.loop.traits.has_journal:
            self.disk.keep_journal(self.loop.codec, self.fail)
        self.loop.open(self.disk)
        self.disk.trim()

    async def _listen(self) -> Listener:
        settings = self.settings
        host, _ = split_address(settings.listen)
        context = None if self.certificates is None else self.certificates.server_context()
        waits = (settings.handshake_seconds, settings.frame_seconds)
        self._server = Listener(context, *waits, self._incoming, lambda: self.host.incoming())  # noqa: PLW0108 (made later)
        self._server.when_refused = self.audit.connection_refused
        self._server.when_greeted = self.audit.connection_greeted
        port = await self._server.open(settings.listen)
        self.address = settings.advertise or f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        return self._server

    def _incoming(self, listener: Listener | None, where_from: str) -> IncomingConnection:
        return IncomingConnection(self.loop, self, self.host, listener, where_from)

    def _compose(self, listener: Listener) -> None:
        """Make the parts of the node that know the others, now that the node can say where it listens."""
        settings, loop, disk, lifecycle = self.settings, self.loop, self.disk, self._lifecycle
        foundation = Foundation(settings, self.instance, self._outgoing_context, loop, disk, self._tasks, lifecycle)
        members = self._members = self._maker.new_members(foundation, self.address, self._publish_on)
        self.host, self.cluster, self.sessions = members.host, members.cluster, members.sessions
        members.relay = StreamRelay(self.address, self._streams, members.cluster, loop.settle, lifecycle)
        self.topic_registry = members.subscriptions.topic_registry
        self.log_server = LogServer(loop.codec, members)
        if disk.store is not None:
            self.log_server.open(disk.store)
        self.status = NodeStatus(
            settings,
            self.address,
            loop,
            members,
            self.rights,
            listener,
            lifecycle,
            self.clients,
            self.backlogs,
            self.ledger,
            self.certificates,
            self.audit,
        )
        services = ClientServices(
            loop,
            loop.topics.by_name,
            loop.writers,
            self,
            members.subscriptions,
            members.sessions,
            members.producer_states,
            members.session_host,
            RequestServices(self.status, self.log_server, members.cluster),
            disk,
            lifecycle,
            settings,
            self.rights,
            self.clients,
            self.backlogs,
            self.ledger,
            self.audit,
            self._streams,
        )
        self._gateway = Gateway(services, self.tls is not None, settings.lost_seconds)
        self._is_composed = True

    @property
    def streams(self) -> StreamCalls:
        """The calls of this program about topics with a history."""
        return self._members.relay.calls

    def settle_publishing(self, publishing: Publishing, acks: str) -> Awaitable[Any]:
        return self.streams.settle(publishing, acks)

    def _open_streams(self) -> None:
        """Keep streams, if there is a disk for them and every node is connected to every other one."""
        settings = self.settings
        if settings.data is None or not FABRICS[settings.fabric].membership.is_full:
            return
        members, place = self._members, Path(settings.data) / "streams"
        self._stream_host = StreamHost(place, self.loop, members.cluster, members.subscriptions, letters_of(self))
        members.streams = self._stream_host.new_service(self._streams)
        members.streams.start(is_first=self.identifier == 0 and self.cluster.incarnation <= 1)

    # Stopping.

    async def close(self) -> None:
        """Leave the cluster in an orderly way: what was accepted is sent, and others take over what they need.

        When the node has left it raises, as :meth:`flush` does, what messages met that were not accepted.
        """
        await self._end_by(self._close)
        await raise_refusals(self.refusals)

    async def _end_by(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._closing is None:
            self._lifecycle.is_closing = True
            self._closing = self._event_loop.create_task(ending())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self.settings.leave_seconds):
                await self._leave()
        except TimeoutError:
            log.warning("left before its process had finished", seconds=self.settings.leave_seconds)
        finally:
            await self._shut()

    async def abandon(self) -> None:
        """End at once, without leaving the cluster: the others find out as they do after a crash."""
        await self._end_by(self._shut)

    async def until_stopped(self) -> None:
        """Wait until the node runs no more; raises what stopped it, if it did not stop because it was closed."""
        await self._stopped.wait()
        if self.failure is not None:
            raise self.failure

    async def _leave(self) -> None:
        """Let clients go, send what waits, unsubscribe, say goodbye, and answer until nobody needs this node."""
        process = self.process
        if process is None or self.failure is not None:
            return
        leaving = start_steps(self.sessions.send_away())
        self.loop.settle()
        await future_of(leaving)
        self._stop_taking()
        await self.until_accepted()
        await self.subscriptions.end_all()
        await self._finished(process)
        process.leave()
        await self.host.leave()
        await self._finished(process)

    async def _finished(self, process: Process) -> None:
        # A node leaves once, and processes do not tell when the last of what they had to do is done.
        while process.unfinished() > 0:
            await asyncio.sleep(0.005)

    async def _shut(self) -> None:
        """Close everything, in an order in which nothing that is closed is used."""
        self._tell_the_end(self.failure or ClosedError("the node has been closed"))
        self.disk.stop_trimming()
        if self._is_composed:
            self._gateway.close()
        if self._status_server is not None:
            await self._status_server.close()
        if self._server is not None:
            self._server.close()
        if self._is_composed:
            self._members.displaced()
            self.host.close()
            if self.tls is not None:
                await self.host.until_closed(FAREWELL_SECONDS)
            self.log_server.close()
        if self.loop.trace is not None:
            self.loop.trace.close(self.failure is not None)
        if self._is_composed and self._members.streams is not None:
            self._members.streams.close()
            self._stream_host.close()
        try:
            await self.disk.close()
        finally:
            self.audit.close()
            self._lifecycle.is_shut = True
            self._stopped.set()

    def _tell_the_end(self, error: BaseException) -> None:
        """Fail everything that waits."""
        self._lifecycle.has_told_end = True
        self._stop_taking()
        for outbox in self._draining:
            outbox.fail(error)
        self.loop.receipts.fail(error)
        if self._is_composed:
            self.subscriptions.fail(error)
        self._tasks.cancel()

    def _stop_taking(self) -> None:
        """Refuse publications from now on."""
        self._draining += self.outboxes.values()
        self.outboxes.clear()

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good: stop, and say why to whoever waits."""
        if self._lifecycle.failure is None:
            self._lifecycle.failure = error
            log.error("the node stops", cause=error)
            self._tasks.spawn(self._end_by(self._close))

    def refuse_if_closed(self) -> None:
        self._lifecycle.check_open()

    # What there is to see.

    @property
    def identifier(self) -> int:
        """The number of this node in its cluster; -1 before it has one."""
        return self.loop.identifier

    @property
    def process(self) -> Process | None:
        """The process of this node, from the moment it has its place."""
        return self.loop.process

    @property
    def store(self) -> DurableLog | None:
        """The log of this node, if it has a data directory."""
        return self.disk.store

    @property
    def topics(self) -> dict[str, LiveTopic]:
        """The topics that somebody here has used, by their names."""
        return self.loop.topics.by_name

    def topic(self, name: str) -> LiveTopic:
        """The state of a topic, made now if it is new."""
        return self.loop.topics.topic(name)

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped this node, if one did."""
        return self._lifecycle.failure

    @property
    def metrics_address(self) -> str:
        """Where metrics are served; empty if they are not."""
        return "" if self._status_server is None else self._status_server.address

    @property
    def refused_connections(self) -> int:
        """How many who connected have been cut off."""
        return 0 if self._server is None else self._server.refused_connections

    @property
    def greeting(self) -> ConnectionGreeting:
        """The facts with which the first frame of a connection is compared."""
        has_tls = self._outgoing_context is not None
        return ConnectionGreeting(self.settings.cluster, self.instance, has_tls, self.settings.maximum_connections())

    def settle(self) -> None:
        """Bring the outside up to date with the process."""
        self.loop.settle()

    # Subscribing.

    @property
    def subscriptions(self) -> Subscriptions:
        return self._members.subscriptions

    def tentative(self, topic: str) -> list[TentativeBatch]:
        """See :meth:`antiphon.node.handle.Node.tentative`."""
        found = self.topics.get(checked_name(topic))
        return [] if found is None else early_of(self.process, found)

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        self.refuse_if_closed()
        live = self.loop.topics.topic(checked_name(topic))
        outbox = Outbox(live.name, self.default_order, self._outbox_owner, live)
        # A broker that returns has the identifier of its earlier lives, and must not use their numbers again.
        outbox.begin_at((self.cluster.incarnation << LIFE_BITS) + 1)
        live.outbox = outbox
        self.outboxes[live.name] = outbox
        self.subscriptions.publish_on(live)
        return outbox

    def publish_columns(self, topic: str, order: str, about: tuple[int, ...], columns: Columns, author: Author) -> Any:
        """Publish a whole batch of a client, for gateways; the answer is to be awaited, if it is one."""
        outbox = self.outboxes.get(topic)
        if outbox is None:
            outbox = self.open_outbox(topic)
        check_order(order)
        if order == "total" or self.asks_majority:
            self.check_majority(topic, order)
        return outbox.post_columns(order, about, columns, self.with_receipts, author)

    def check_majority(self, topic: str, order: str) -> None:
        check_total(self.settings.spaces, topic, order)
        # What is no order is refused later, with a better word.
        number, process = ORDER_NUMBERS.get(order, TOTAL), self.process
        if process is not None and (reason := process.refusal(number, topic_number(topic))) is not None:
            raise NoMajorityError(reason)

    def _publish_on(self, topic: str) -> None:
        """Be a publisher of a topic."""
        if topic not in self.outboxes:
            self.open_outbox(topic)

    def author_number(self) -> int:
        return self.loop.identifier

    async def until_accepted(self) -> None:
        while any(len(outbox) for outbox in self._open_outboxes()):
            for outbox in self._open_outboxes():
                if not outbox.flush():
                    await outbox.until_room()
            await asyncio.sleep(0)
        await self.disk.until_shown()

    def _open_outboxes(self) -> list[Outbox]:
        return [*self.outboxes.values(), *self._draining]

    # What peers and clients do.

    def client_connected(
        self, writer: FrameWriter, hello: Hello, identity: CertifiedIdentity | None, connection: IncomingConnection
    ) -> FrameClient:
        """A client has opened a connection."""
        if self._lifecycle.is_closing:
            raise ProtocolError("this node is about to go; connect to another one")
        if self.process is None:
            raise ProtocolError("this node has no place in its cluster yet; connect to another one, or try again")
        return self._gateway.client_connected(writer, hello, identity, connection)

    def control_received(self, sender: int, message: msgspec.Struct) -> None:
        """A peer's host has something to say."""
        self._members.control_received(sender, message)

    def read_rights_again(self) -> None:
        """Somebody says that the rights have changed."""
        self._gateway.read_rights_again()

    def read_again(self) -> None:
        """An operator says that the rights or the certificates have changed."""
        self.read_rights_again()
        if self.certificates is not None:
            self.certificates.read_again()
            self.host.check_certificates()
