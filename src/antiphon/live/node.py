"""A live node: starting and stopping it, publishing and subscribing, and what peers and clients make it do.

What happens between something entering and everything having settled is in :mod:`antiphon.live.core`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import TOTAL
from antiphon.kernel.process import Environment, Process
from antiphon.live.backlog import Backlogs
from antiphon.live.catalogue import Catalogue
from antiphon.live.clocks import wall_clock_us
from antiphon.live.closing import close_after, raise_refusals
from antiphon.live.columns import Author, Columns
from antiphon.live.commit import GroupCommit
from antiphon.live.controls import (
    AskPast,
    AskRecent,
    AskSeen,
    AskWriter,
    CreditWanted,
    Hello,
    PastIs,
    Publishes,
    PublishesHeard,
    RecentIs,
    SeenIs,
    WriterIs,
)
from antiphon.live.core import ORDER_NUMBERS
from antiphon.live.environment import LiveEnvironment
from antiphon.live.errors import ClosedError, NoMajorityError
from antiphon.live.fabrics import new_membership, new_process
from antiphon.live.gateway import ClientSession
from antiphon.live.journals import LiveJournal
from antiphon.live.links import FrameWriter, split_address
from antiphon.live.listener import Listener
from antiphon.live.log import DurableLog, Retention
from antiphon.live.log_desk import LogDesk
from antiphon.live.logs import logger
from antiphon.live.membership import FrameClient, IncomingConnection
from antiphon.live.names import checked_name, client_number, topic_number
from antiphon.live.outbox import Outbox, check_order, set_if_waiting
from antiphon.live.recollection import topics_in
from antiphon.live.rights import Rights
from antiphon.live.sessions import Sessions
from antiphon.live.settings import Settings
from antiphon.live.standings import Standings
from antiphon.live.status import StatusServer
from antiphon.live.subscribing import SubscribingNode
from antiphon.live.subscription import EmptySubscription
from antiphon.live.tasks import Tasks
from antiphon.live.tls import NODE, Identity, instance_of, own_identity
from antiphon.live.tree_table import TreeTable

TRIM_SECONDS: Final = 30.0
FAREWELL_SECONDS: Final = 1.0
"""How long connections with TLS may take to end in an orderly way."""

RIGHTS_SECONDS: Final = 1.0
"""How often a node looks whether the file of rights has changed."""

LIFE_BITS: Final = 32
"""So many messages of a topic have numbers in one life of a node, in powers of two."""

log = logger("node")


def node_name(settings: Settings) -> str:
    """The name in the certificate of a node."""
    assert settings.tls_certificate is not None, "only nodes with TLS are asked"
    identity = own_identity(settings.tls_certificate)
    if identity.role != NODE:
        raise UsageError(f"{settings.tls_certificate} is for a {identity.role}; a node needs one of a node")
    return identity.name


def check_foreign_name(name: str, sender: int) -> None:
    """Refuse names that no application could have given."""
    try:
        checked_name(name)
    except UsageError as error:
        raise ProtocolError(f"node {sender} names a topic that cannot be: {error}") from error


class Node(SubscribingNode):
    """A peer of a cluster, embedded in this program. Made by :func:`antiphon.start`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.tls = settings.tls()
        # With a certificate, nobody else can say to be this node.
        life = secrets.token_hex(8)
        self.instance = life if self.tls is None else instance_of(node_name(settings), life)
        self.outgoing_context = None if self.tls is None else self.tls.client_context()
        self.rights = Rights(settings.rights)
        self._looking: asyncio.TimerHandle | None = None
        self.address = ""
        self.catalogue = Catalogue(self)
        self.sessions = Sessions(self)
        self.standings = Standings(self)
        self.log_desk = LogDesk(self)
        self.backlogs = Backlogs(settings.backlog_bytes)
        self.clients: set[FrameClient] = set()
        self.started_at = time.monotonic()
        self.environment: LiveEnvironment | None = None
        self._server: Listener | None = None
        self._status: StatusServer | None = None
        self._accepted: asyncio.Future[None] = self.loop.create_future()
        self._accepted.set_result(None)
        self._draining: list[Outbox] = []
        self._tasks = Tasks()
        self._closing: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._trimming: asyncio.TimerHandle | None = None

    # Starting and stopping.

    async def start(self) -> Node:
        """Open the log, listen, and join the cluster."""
        settings = self.settings
        try:
            if settings.data is not None:
                retention = Retention(settings.retention_bytes, settings.retention_seconds)
                # What has been delivered cannot be refused; publishers wait before there is too much of it.
                self.store = DurableLog.open(settings.data, retention=retention, pending_limit_bytes=None)
                self.commit = GroupCommit(self.store, self.committed, self.fail)
                self.disk_first = self.commit if self.with_receipts else None
                has_quorum = isinstance(settings.tree, TreeTable) and settings.tree.quorum
                if has_quorum or (settings.fabric == "cube" and not settings.aggregate):
                    self.journal = LiveJournal(self)
                self.writers.load(self.store)
                self.catalogue.names.update(topics_in(self.store))
                self.log_desk.open(self.store)
                self._trim()
            await self._listen()
            if settings.trace is not None:
                # Columns and their libraries take time and memory that a node without a trace has no use for.
                from antiphon.live.tracing import LiveTrace

                self._trace = LiveTrace(settings.trace, settings.fabric)
            highest = int(self.fact("highest identifier", "-1"))
            self.cluster = new_membership(self, highest)
            await self.cluster.join(settings.join)
            self.cluster.look_out()
            for pattern in settings.keep:
                await self._begin(EmptySubscription(self, pattern)).ready()
            if settings.rights is not None:
                self._look_at_rights()
            if settings.metrics is not None:
                self._status = await StatusServer(self).start(settings.metrics)
        except BaseException:
            await self._shut()
            raise
        log.info("in the cluster", node=self.identifier, address=self.address, others=len(self.cluster.peers()))
        return self

    async def _listen(self) -> None:
        host, _ = split_address(self.settings.listen)
        self._server = Listener(self, None if self.tls is None else self.tls.server_context())
        port = await self._server.open(self.settings.listen)
        self.address = self.settings.advertise or f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"

    async def close(self) -> None:
        """Leave the cluster in an orderly way: what was accepted is sent, and others take over what they need.

        When the node has left it raises, as :meth:`flush` does, what messages met that were not accepted.
        """
        await self._until_closed()
        await raise_refusals(self.refusals)

    async def _until_closed(self) -> None:
        if self._closing is None:
            self._closing = self.loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self.settings.leave_seconds):
                await self._leave()
        except TimeoutError:
            waited = self.cluster.awaited()
            log.warning("left without a farewell", waited_for=", ".join(waited) or "the process to finish")
        finally:
            await self._shut()

    async def until_stopped(self) -> None:
        """Wait until the node runs no more; raises what stopped it, if it did not stop because it was closed."""
        await self._stopped.wait()
        if self.failure is not None:
            raise self.failure

    @property
    def is_closing(self) -> bool:
        """Whether the node is about to go."""
        return self._closing is not None

    @property
    def is_shut(self) -> bool:
        """Whether the node runs no more."""
        return self._stopped.is_set()

    @property
    def metrics_address(self) -> str:
        """Where metrics are served; empty if they are not."""
        return "" if self._status is None else self._status.address

    @property
    def refused_connections(self) -> int:
        """How many who connected have been cut off."""
        return 0 if self._server is None else self._server.refused_connections

    async def _leave(self) -> None:
        """Let clients go, send what waits, unsubscribe, say goodbye, and answer until nobody needs this node."""
        process = self.process
        if process is None or self.failure is not None:
            return
        await self.sessions.send_away()
        self._stop_taking()
        await self._until_sent()
        while self._ready:
            await next(iter(self._ready)).close()
        for topic in self.topics.values():
            if topic.joined is not None:
                topic.outbox = None
                self._leave_topic(topic)
        await self._finished(process)
        process.leave()
        await self.cluster.leave()
        await self._finished(process)

    async def _finished(self, process: Process) -> None:
        while process.unfinished() > 0:
            await asyncio.sleep(0.005)

    async def _shut(self) -> None:
        """Close everything, in an order in which nothing that is closed is used."""
        self._tell_the_end(self.failure or ClosedError("the node has been closed"))
        for timer in (self._trimming, self._looking):
            if timer is not None:
                timer.cancel()
        if self._status is not None:
            await self._status.close()
        if self._server is not None:
            self._server.close()
        if self.environment is not None:
            self.environment.cancel_all_timers()
        if hasattr(self, "cluster"):
            self.cluster.close()
            if self.tls is not None:
                await self.cluster.until_closed(FAREWELL_SECONDS)
        if self._trace is not None:
            self._trace.close(self.failure is not None)
        self.log_desk.close()
        try:
            if self.commit is not None:
                await self.commit.close()
        finally:
            self._stopped.set()

    def _tell_the_end(self, error: BaseException) -> None:
        """Whoever waits for something waits in vain."""
        self._has_told_end = True
        self._stop_taking()
        for outbox in self._draining:
            outbox.fail(error)
        for receipt in tuple(self._receipts):
            if not receipt.done():
                receipt.set_exception(error)
        # Also those that read the log, or have no topic yet.
        for subscription, ready in self._ready.items():
            subscription.fail(error)
            ready.cancel()
        self._ready.clear()
        self._tasks.cancel()

    def _stop_taking(self) -> None:
        """Whoever publishes from now on is told that it is too late."""
        self._draining += self.outboxes.values()
        self.outboxes.clear()

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await close_after(self, error)

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no later step can make good: stop, and say why to whoever waits."""
        if self.failure is None:
            self.failure = error
            log.error("the node stops", cause=error)
            self.spawn(self._until_closed())

    def fact(self, name: str, default: str) -> str:
        """Something that an earlier life of this node has kept on its disk."""
        kept = None if self.store is None else self.store.get(name)
        return default if kept is None else kept.decode()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside everything else; it ends with the node."""
        self._tasks.spawn(work)

    # Publishing.

    def open_outbox(self, topic: str) -> Outbox:
        if self._closing is not None:
            raise self.failure or ClosedError("the node has been closed; start another one")
        live = self.topic(checked_name(topic))
        room, send = partial(self._room, live), partial(self.publish_segment, live)
        outbox = Outbox(
            live.name,
            self.default_order,
            self.loop,
            self._accepted,
            room,
            send,
            wall_clock_us,
            self._blocked,
            self.author_number,
            self.refusals,
        )
        # A broker that returns has the identifier of its earlier lives, and must not use their numbers again.
        outbox.begin_at((self.cluster.incarnation << LIFE_BITS) + 1)
        live.outbox = outbox
        self.outboxes[live.name] = outbox
        self._join_topic(live)
        live.announced = self.loop.create_task(self.catalogue.announce(live))
        live.announced.add_done_callback(lambda _: self.settle())
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
        process = self.process
        # What is no order is refused later, with a better word.
        reason = None if process is None else process.refusal(ORDER_NUMBERS.get(order, TOTAL), topic_number(topic))
        if reason is not None:
            raise NoMajorityError(reason)

    async def flush(self) -> None:
        """Wait until everything published so far is accepted and has left for the subscribers' nodes.

        Raises what messages of this program met that were published since the last flush and were not accepted, unless
        it has awaited them itself.
        """
        await self._until_sent()
        await raise_refusals(self.refusals)

    async def _until_sent(self) -> None:
        while any(len(outbox) for outbox in self._open_outboxes()):
            for outbox in self._open_outboxes():
                if not outbox.flush():
                    await outbox.until_room()
            await asyncio.sleep(0)
        await self.until_on_disk()

    async def until_on_disk(self) -> None:
        """Wait until what was delivered so far is seen by subscribers, if it has to be on disk for that."""
        if self.disk_first is not None:
            committed = self.loop.create_future()
            self.disk_first.then(partial(set_if_waiting, committed))
            await committed

    def _open_outboxes(self) -> list[Outbox]:
        return [*self.outboxes.values(), *self._draining]

    # What peers, clients and admission do.

    def placed(self, identifier: int, members: list[int]) -> None:
        """This node has its place: there is a process from now on."""
        self.identifier = identifier
        if self.journal is not None and not self.cluster.is_returning:
            # What an earlier life has written was said under another identifier.
            self.journal.rewrite([])
        self.environment = LiveEnvironment(identifier, self, secrets.randbits(62))
        self.process = self.new_process(self.environment, members)
        self.process.start()
        self.keep_highest()

    def new_process(self, environment: Environment, members: list[int]) -> Process:
        """The process of this node, which has its place beside these others."""
        return new_process(self.settings, environment, members)

    def peer_joined(self, identifier: int) -> None:
        """Another node is in the cluster."""
        assert self.process is not None, "who is told has a place"
        self.process.joined(identifier)
        self.catalogue.peer_joined(identifier)
        self.sessions.tell_nodes()
        self.keep_highest()

    def peer_left(self, identifier: int) -> None:
        """Another node leaves; it still answers."""
        assert self.process is not None, "who is told has a place"
        self.process.left(identifier)
        self._peer_gone(identifier)

    def peer_lost(self, identifier: int) -> None:
        """Another node is gone without a word."""
        self._peer_gone(identifier)

    def _peer_gone(self, identifier: int) -> None:
        self.catalogue.peer_gone(identifier)
        self.sessions.peer_gone(identifier)
        self.standings.peer_gone(identifier)

    def link_lost(self, identifier: int) -> None:
        """A peer that the process watches is lost."""
        assert self.process is not None, "only a process watches"
        try:
            self.process.peer_lost(identifier)
        except Exception as error:
            # As for messages: better no node than a wrong one.
            self.fail(error)
            return
        self.settle()

    def link_found(self, identifier: int) -> None:
        """A peer that the process watches, and that was lost, can be reached again."""
        assert self.process is not None, "only a process watches"
        try:
            self.process.peer_found(identifier)
        except Exception as error:
            self.fail(error)
            return
        self.settle()

    def keep_highest(self) -> None:
        """Remember which identifiers there were."""
        if self.store is not None and self.commit is not None:
            self.store.put("highest identifier", str(self.cluster.highest_identifier()).encode())
            self.commit.soon()

    def client_connected(
        self, writer: FrameWriter, hello: Hello, identity: Identity | None, connection: IncomingConnection
    ) -> FrameClient:
        """A client has opened a connection."""
        if self._closing is not None:
            raise ProtocolError("this node is about to go; connect to another one")
        if self.process is None:
            raise ProtocolError("this node has no place in its cluster yet; connect to another one, or try again")
        if len(self.clients) >= self.settings.maximum_clients:
            raise ProtocolError(f"this node has {len(self.clients)} clients, as many as it may; connect to another one")
        holder = self.rights.holder(identity, hello.token, self.tls is not None)
        # Nobody hands in batches under the number of another client.
        instance = instance_of(holder.name, hello.instance) if holder.name else hello.instance
        return ClientSession(self, writer, client_number(instance), holder, connection)

    def control_received(self, sender: int, message: msgspec.Struct) -> None:
        """A peer's host has something to say."""
        if isinstance(message, Publishes):
            for name in message.topics:
                check_foreign_name(name, sender)
            self.catalogue.peer_publishes(sender, message)
        elif isinstance(message, PublishesHeard):
            self.catalogue.heard(sender, message.topic)
        elif isinstance(message, CreditWanted):
            self.credit_wanted(message.topic)
        elif isinstance(message, (AskSeen, SeenIs, AskRecent, RecentIs, AskPast, PastIs)):
            self.sessions.told(sender, message)
        elif isinstance(message, (AskWriter, WriterIs)):
            self.standings.told(sender, message)
        else:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__}, which only clients send")

    def _look_at_rights(self) -> None:
        """See from time to time whether the rights have changed."""
        if self.rights.look():
            self._rights_changed()
        self._looking = self.loop.call_later(RIGHTS_SECONDS, self._look_at_rights)

    def read_rights_again(self) -> None:
        """Somebody says that the rights have changed."""
        if self.rights.read_again():
            self._rights_changed()

    def _rights_changed(self) -> None:
        for client in tuple(self.clients):
            client.rights_changed()

    def _trim(self) -> None:
        """Remove from the log what is not to be kept; from time to time."""
        assert self.commit is not None, "only nodes with a log trim it"
        self.commit.trim(wall_clock_us())
        self._trimming = self.loop.call_later(TRIM_SECONDS, self._trim)
