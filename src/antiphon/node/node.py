"""A live node: starting and stopping it, publishing and subscribing, and what peers and clients make it do.

A node is made of parts. The loop (:mod:`antiphon.node.loop`) drives its process. The membership knows the other nodes,
the gateway serves clients, and the disk keeps what was delivered. Each part gets the others that it uses, and none of
them the node.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import Any, Final

import msgspec

from antiphon.api.batch_codec import Author, Columns
from antiphon.api.lifecycle import Lifecycle, Starting, raise_refusals
from antiphon.api.outbox import Outbox
from antiphon.api.publisher import check_order
from antiphon.api.pubsub import PubSub
from antiphon.api.topic_names import checked_name, topic_number
from antiphon.api.topic_state import LiveTopic
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import NoMajorityError, ProtocolError
from antiphon.kernel.message import TOTAL
from antiphon.kernel.process import Process
from antiphon.membership.messages import Hello
from antiphon.node.acl import Rights
from antiphon.node.gateway.client_requests import RequestServices
from antiphon.node.gateway.client_session import ClientServices
from antiphon.node.gateway.gateway import Gateway
from antiphon.node.gateway.session_host import future_of
from antiphon.node.loop import ORDER_NUMBERS, NodeLoop
from antiphon.node.members import Foundation, ProcessMaker
from antiphon.node.settings import Settings, settings_from
from antiphon.node.status import NodeStatus, StatusServer
from antiphon.node.subscriptions import Subscriptions
from antiphon.node.tentative import Early, early_of
from antiphon.runtime.clocks import wall_clock_us
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.backlog import Backlogs
from antiphon.sessions.steps import start as start_steps
from antiphon.storage.disk import Disk
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.journals import LiveJournal
from antiphon.storage.log import DurableLog
from antiphon.storage.log_server import LogServer
from antiphon.storage.log_topics import Retention
from antiphon.transport.incoming import ConnectionGreeting, FrameClient, IncomingConnection
from antiphon.transport.links import FrameWriter, split_address
from antiphon.transport.listener import Listener
from antiphon.transport.tls import CertifiedIdentity, instance_of, own_node_name

FAREWELL_SECONDS: Final = 1.0
"""How long connections with TLS may take to end in an orderly way."""

LIFE_BITS: Final = 32
"""So many messages of a topic have numbers in one life of a node, in powers of two."""

log = logger("node")


class Node(PubSub):
    """A peer of a cluster, embedded in this program. Made by :func:`antiphon.start`."""

    _subscriptions: Subscriptions

    def __init__(self, settings: Settings, maker: ProcessMaker | None = None) -> None:
        super().__init__(settings.order)
        self.settings = settings
        self._maker = maker or ProcessMaker()
        self.loop = asyncio.get_running_loop()
        self.mixes_keys = FABRICS[settings.fabric].mixes_keys
        self.with_receipts = settings.durability == "disk"
        self.tls = settings.tls()
        # With a certificate, nobody else can say to be this node.
        life = secrets.token_hex(8)
        self.instance = life if self.tls is None else instance_of(own_node_name(settings.tls_certificate), life)
        self._outgoing_context = None if self.tls is None else self.tls.client_context()
        self.rights = Rights(settings.rights)
        self.address = ""
        """Where others find this node: the address for ``join`` and ``antiphon.connect``."""
        self._lifecycle = Lifecycle()
        self._tasks = Tasks()
        self.disk = Disk()
        self.core = NodeLoop(settings, self._lifecycle, self.fail)
        self.asks_majority = self.core.traits.asks_majority
        self.clients: set[FrameClient] = set()
        self.backlogs = Backlogs(settings.backlog_bytes)
        self._server: Listener | None = None
        self._status_server: StatusServer | None = None
        self._accepted: asyncio.Future[None] = self.loop.create_future()
        self._accepted.set_result(None)
        self._draining: list[Outbox] = []
        # Whether there are those of its parts that know the others.
        self._is_composed = False
        self._closing: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    # Starting.

    async def start(self) -> Node:
        """Open the log, listen, and join the cluster."""
        settings = self.settings
        try:
            if settings.data is not None:
                self._open_disk(settings.data)
            listener = await self._listen()
            if settings.trace is not None:
                # Columns and their libraries take time and memory that a node without a trace has no use for.
                from antiphon.node.tracing import LiveTrace

                self.core.trace = LiveTrace(settings.trace, settings.fabric)
            self._compose(listener)
            await self.host.join()
            for pattern in settings.keep:
                await self._subscriptions.keep(pattern)
            if settings.rights is not None:
                self._gateway.poll_rights()
            if settings.metrics is not None:
                self._status_server = await StatusServer(self.status, self.tls).start(settings.metrics)
        except BaseException:
            await self._shut()
            raise
        log.info("in the cluster", node=self.identifier, address=self.address, others=len(self.cluster.peers()))
        return self

    def _open_disk(self, data: str) -> None:
        settings = self.settings
        retention = Retention(settings.retention_bytes, settings.retention_seconds)
        # What has been delivered cannot be refused; publishers wait before there is too much of it.
        store = DurableLog.open(data, retention=retention, pending_limit_bytes=None)
        self.disk.open(store, GroupCommit(store, self.core.committed, self.fail), self.with_receipts)
        if self.core.traits.has_journal:
            self.disk.journal = LiveJournal(store, self.core.codec, self.fail)
        self.core.open(self.disk)
        self.disk.trim()

    async def _listen(self) -> Listener:
        settings = self.settings
        host, _ = split_address(settings.listen)
        context = None if self.tls is None else self.tls.server_context()
        self._server = Listener(context, settings.handshake_seconds, self._incoming, self._connections)
        port = await self._server.open(settings.listen)
        self.address = settings.advertise or f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        return self._server

    def _incoming(self, listener: Listener | None, where_from: str) -> IncomingConnection:
        return IncomingConnection(self.core, self, self.host, listener, where_from)

    def _connections(self) -> tuple[IncomingConnection, ...]:
        return self.host.incoming()

    def _compose(self, listener: Listener) -> None:
        """Make the parts of the node that know the others, now that the node can say where it listens."""
        settings, core, disk, lifecycle = self.settings, self.core, self.disk, self._lifecycle
        foundation = Foundation(settings, self.instance, self._outgoing_context, core, disk, self._tasks, lifecycle)
        members = self._members = self._maker.new_members(foundation, self.address, self._publish_on)
        self.host, self.cluster, self.sessions = members.host, members.cluster, members.sessions
        self._subscriptions = members.subscriptions
        self.catalogue = members.subscriptions.catalogue
        self.log_server = LogServer(core.codec, members)
        if disk.store is not None:
            self.log_server.open(disk.store)
        self.status = NodeStatus(
            settings, self.address, core, members, self.rights, listener, lifecycle, self.clients, self.backlogs
        )
        services = ClientServices(
            core,
            core.topics.by_name,
            core.writers,
            self,
            members.subscriptions,
            members.sessions,
            members.standings,
            members.session_host,
            RequestServices(self.status, self.log_server, members.cluster),
            disk,
            lifecycle,
            settings,
            self.rights,
            self.clients,
            self.backlogs,
        )
        self._gateway = Gateway(services, self.tls is not None, settings.lost_seconds)
        self._is_composed = True

    # Stopping.

    async def close(self) -> None:
        """Leave the cluster in an orderly way: what was accepted is sent, and others take over what they need.

        When the node has left it raises, as :meth:`flush` does, what messages met that were not accepted.
        """
        await self._until_closed()
        await raise_refusals(self.refusals)

    async def _until_closed(self) -> None:
        if self._closing is None:
            self._lifecycle.is_closing = True
            self._closing = self.loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self.settings.leave_seconds):
                await self._leave()
        except TimeoutError:
            log.warning("left before its process had finished", seconds=self.settings.leave_seconds)
        finally:
            await self._shut()

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
        self.core.settle()
        await future_of(leaving)
        self._stop_taking()
        await self._until_accepted()
        await self._subscriptions.end_all()
        await self._finished(process)
        process.leave()
        await self.host.leave()
        await self._finished(process)

    async def _finished(self, process: Process) -> None:
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
        if self.core.trace is not None:
            self.core.trace.close(self.failure is not None)
        if self._is_composed:
            self.log_server.close()
        try:
            await self.disk.close()
        finally:
            self._lifecycle.is_shut = True
            self._stopped.set()

    def _tell_the_end(self, error: BaseException) -> None:
        """Whoever waits for something waits in vain."""
        self._lifecycle.has_told_end = True
        self._stop_taking()
        for outbox in self._draining:
            outbox.fail(error)
        for receipt in tuple(self.core.receipts):
            if not receipt.done():
                receipt.set_exception(error)
        if self._is_composed:
            self._subscriptions.fail(error)
        self._tasks.cancel()

    def _stop_taking(self) -> None:
        """Whoever publishes from now on is told that it is too late."""
        self._draining += self.outboxes.values()
        self.outboxes.clear()

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good: stop, and say why to whoever waits."""
        if self._lifecycle.failure is None:
            self._lifecycle.failure = error
            log.error("the node stops", cause=error)
            self._tasks.spawn(self._until_closed())

    def refuse_if_closed(self) -> None:
        self._lifecycle.check_open()

    # What there is to see.

    @property
    def identifier(self) -> int:
        """The number of this node in its cluster; -1 before it has one."""
        return self.core.identifier

    @property
    def process(self) -> Process | None:
        """The process of this node, from the moment it has its place."""
        return self.core.process

    @property
    def store(self) -> DurableLog | None:
        """The log of this node, if it has a data directory."""
        return self.disk.store

    @property
    def topics(self) -> dict[str, LiveTopic]:
        """The topics that somebody here has used, by their names."""
        return self.core.topics.by_name

    def topic(self, name: str) -> LiveTopic:
        """What this node knows about a topic, from now on if not before."""
        return self.core.topics.topic(name)

    @property
    def failure(self) -> BaseException | None:
        """What stopped this node, if something did."""
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
        """What the first frame of a connection is compared with."""
        has_tls = self._outgoing_context is not None
        return ConnectionGreeting(self.settings.cluster, self.instance, has_tls, self.settings.maximum_connections())

    def settle(self) -> None:
        """Bring the outside up to date with the process."""
        self.core.settle()

    # Subscribing.

    def tentative(self, topic: str) -> list[Early]:
        """What has come on a topic in total order and may not be delivered yet, in the order as far as it is known.

        Each with the probabilities that all nodes know it, and that nothing can come before it. Who uses something
        early takes it back, or lives with it, if something else comes before it. Only in gossip there is such.
        """
        found = self.topics.get(checked_name(topic))
        return [] if found is None else early_of(self.process, found)

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        self.refuse_if_closed()
        core = self.core
        live = core.topics.topic(checked_name(topic))
        room, send = partial(core.room, live), partial(core.publish_segment, live)
        outbox = Outbox(
            live.name,
            self.default_order,
            self.loop,
            self._accepted,
            room,
            send,
            wall_clock_us,
            core.blocked,
            self.author_number,
            self.refusals,
        )
        # A broker that returns has the identifier of its earlier lives, and must not use their numbers again.
        outbox.begin_at((self.cluster.incarnation << LIFE_BITS) + 1)
        live.outbox = outbox
        self.outboxes[live.name] = outbox
        self._subscriptions.join_topic(live)
        live.announced = self.loop.create_task(self.catalogue.announce(live))
        live.announced.add_done_callback(lambda _: self._may_publish_on(live))
        return outbox

    def _may_publish_on(self, topic: LiveTopic) -> None:
        self.core.room_may_be_on(topic)
        self.core.settle()

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
        process = self.process
        # What is no order is refused later, with a better word.
        reason = None if process is None else process.refusal(ORDER_NUMBERS.get(order, TOTAL), topic_number(topic))
        if reason is not None:
            raise NoMajorityError(reason)

    def _publish_on(self, topic: str) -> None:
        """Be a publisher of a topic."""
        if topic not in self.outboxes:
            self.open_outbox(topic)

    def author_number(self) -> int:
        return self.core.identifier

    async def _until_accepted(self) -> None:
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


def start(settings: Settings | None = None, **values: Any) -> Starting[Node]:
    """Start a node in this program: ``async with antiphon.start(join=["127.0.0.1:7400"]) as node``.

    The arguments are the settings of a node, by name: ``listen``, ``join``, ``data``, ``fabric`` and all others.
    """
    chosen = settings.checked() if settings is not None else settings_from(values, "antiphon.start")

    async def begin() -> Node:
        return await Node(chosen).start()

    return Starting(begin())
