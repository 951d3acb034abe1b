"""Runs the membership of a live node: its sockets, its clock and its disk. It decides nothing.

The membership (:mod:`antiphon.membership.membership`) asks for links and timers; here they are TCP connections and
timers of the event loop. The host hands their events to the membership, and then the node settles.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable
from typing import Final

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.host import SECOND_US, Link, Timer
from antiphon.membership.membership import Membership
from antiphon.membership.messages import Control, Hello
from antiphon.node.loop import NodeLoop
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.errors import JoinError
from antiphon.runtime.logging import logger
from antiphon.storage.disk import Disk
from antiphon.transport.incoming import IncomingConnection
from antiphon.transport.links import OutgoingLink
from antiphon.transport.schema import SINCE, may_send
from antiphon.transport.tls import check_trusted

WRITTEN_SECONDS: Final = 0.005
"""How often a node that goes looks whether everything has been written. It goes once, and links that tell when their
buffers are empty would cost something with every message."""

CERTIFICATE_SECONDS: Final = 1.0
"""How often a node looks whether the files with certificates have changed, or one has expired."""


class MembershipHost:
    """The host of one membership, and where the connections of peers meet it."""

    # Set as soon as there is a membership that has this host.
    membership: Membership

    def __init__(self, loop: NodeLoop, disk: Disk, context: ssl.SSLContext | None, lost_seconds: float) -> None:
        self.facts = disk
        self.log = logger("membership")
        self._loop = loop
        self._context = context
        self._lost_seconds = lost_seconds
        self._event_loop = asyncio.get_running_loop()
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._polling: asyncio.TimerHandle | None = None
        # Connections that others have opened, and links that may not have ended.
        self._incoming: set[IncomingConnection] = set()
        self._outgoing: set[OutgoingLink] = set()
        self._is_closed = False
        self._is_in: asyncio.Future[None] = self._event_loop.create_future()

    # What the node does.

    async def join(self) -> None:
        """Get a place in the cluster; done when the node may be used."""
        self._loop.when_settled = self.membership.process_stepped
        self.membership.start()
        self._loop.settle()
        await self._is_in

    def check_certificates(self) -> None:
        """End the links to nodes whose certificates have expired or were revoked."""
        for link in tuple(self._outgoing):
            try:
                check_trusted(self._context, link.identity)
            except ProtocolError as error:
                if not link.has_ended:
                    self.log.warning("link ended", address=link.address, reason=str(error))
                    link.abort()

    def poll_certificates(self, poll: Callable[[], None]) -> None:
        """Poll the files of certificates from now on, and end the links to nodes that are not trusted any more."""
        poll()
        self.check_certificates()
        self._polling = self._event_loop.call_later(CERTIFICATE_SECONDS, self.poll_certificates, poll)

    def entered(self) -> None:
        """The membership is in its cluster."""
        self._loop.when_settled = bool
        if not self._is_in.done():
            self._is_in.set_result(None)

    def refused(self, reason: str) -> None:
        """The membership cannot join."""
        if not self._is_in.done():
            self._is_in.set_exception(JoinError(reason))

    async def leave(self) -> None:
        """Say goodbye; done when everything that was said is written. Others notice the end of the connections."""
        self.membership.leave()
        self._loop.settle()
        while any(isinstance(link, OutgoingLink) and link.unwritten_bytes() for link in self.membership.links_in_use()):
            await asyncio.sleep(WRITTEN_SECONDS)

    def close(self) -> None:
        """Close all connections; the membership hears of nothing any more."""
        self._is_closed = True
        self._is_in.cancel()
        if self._polling is not None:
            self._polling.cancel()
        for timer in self._timers.values():
            timer.cancel()
        for link in tuple(self._outgoing):
            link.close()
        for connection in tuple(self._incoming):
            connection.close()

    async def until_closed(self, seconds: float) -> None:
        """Wait until nothing is left of connections that were closed; end those that take too long."""
        until = self._event_loop.time() + seconds
        while self._incoming or not all(link.has_ended for link in self._outgoing):
            if self._event_loop.time() >= until:
                for connection in self._incoming:
                    connection.abort()
                for link in tuple(self._outgoing):
                    link.abort()
                return
            await asyncio.sleep(WRITTEN_SECONDS)

    # What the membership asks for.

    def now(self) -> int:
        """The clock, in microseconds."""
        return monotonic_us()

    def draw(self, below: int) -> int:
        """A random number below another one."""
        return secrets.randbelow(below)

    def open(
        self, address: str, hello: Hello, peer: int, patience_us: int = 0, expected_name: str = ""
    ) -> OutgoingLink:
        """Open a link."""
        link = OutgoingLink(
            address,
            hello.target,
            self._loop.codec.encode_control(hello),
            self._link_lost,
            self._link_refused,
            patience_us / SECOND_US,
            self._lost_seconds,
            self._link_opened,
            self._context,
            expected_name,
            peer,
        )
        if self._is_closed:
            link.close()
        else:
            self._outgoing.add(link)
            link.when_ended = self._outgoing.discard
            link.open()
        return link

    def send(self, link: Link, control: Control) -> None:
        """Send a message over a link when the node settles."""
        assert isinstance(link, OutgoingLink), "all links are opened here"
        if not SINCE or may_send(control, self.membership.version_of(link.peer)):
            self._loop.write(link, self._loop.codec.encode_control(control))

    def set_timer(self, timer: Timer, delay_us: int) -> None:
        """Call the membership after a while."""
        self.cancel_timer(timer)
        if not self._is_closed:
            self._timers[timer] = self._event_loop.call_later(delay_us / SECOND_US, self._expired, timer)

    def when_safe(self, timer: Timer) -> None:
        """Call the membership when what it has put on disk is there."""
        if self.facts.commit is None:
            self.set_timer(timer, 0)
        else:
            self.facts.commit.then(lambda: self._tell(lambda: self.membership.expired(timer)))

    def cancel_timer(self, timer: Timer) -> None:
        """Do not call it."""
        before = self._timers.pop(timer, None)
        if before is not None:
            before.cancel()

    # What happens.

    def _expired(self, timer: Timer) -> None:
        del self._timers[timer]
        failed = self._loop.unhandled_errors
        self._tell(lambda: self.membership.expired(timer))
        if self._loop.unhandled_errors > failed and timer not in self._timers:
            # What is done from time to time must not end because it failed once.
            self.set_timer(timer, SECOND_US)

    def _link_opened(self, link: OutgoingLink) -> None:
        self._tell(lambda: self.membership.link_opened(link))

    def _link_lost(self, link: OutgoingLink) -> None:
        self._tell(lambda: self.membership.link_lost(link))

    def _link_refused(self, link: OutgoingLink, reason: str, is_final: bool) -> None:
        self._tell(lambda: self.membership.link_refused(link, reason, is_final))

    def _tell(self, event: Callable[[], None]) -> None:
        """Hand an event to the membership, and bring the outside up to date."""
        if self._is_closed:
            return
        try:
            event()
        except Exception as error:
            self._loop.unhandled(error)
        self._loop.settle_everywhere()

    def connection_opened(self, connection: IncomingConnection) -> None:
        """A peer or a client has connected."""
        self._incoming.add(connection)
        if self._is_closed:
            # Accepted while the node was shut: the other end waits for an answer and must learn that nobody is there.
            connection.close()

    @property
    def links(self) -> dict[int, OutgoingLink]:
        """The links of the membership, by the identifiers of those to whom they lead."""
        return {peer: link for peer, link in self.membership.links.items() if isinstance(link, OutgoingLink)}

    def incoming(self) -> tuple[IncomingConnection, ...]:
        """The connections that others have opened."""
        return tuple(self._incoming)

    def connection_ended(self, connection: IncomingConnection) -> None:
        """A connection that a peer or a client opened has ended."""
        self._incoming.discard(connection)
        self._tell(lambda: self.membership.connection_ended(connection))

    def greeted(self, connection: IncomingConnection, hello: Hello) -> None:
        """A peer has said who it is."""
        self.membership.greeted(connection, hello)

    def control_received(self, connection: IncomingConnection, message: Control) -> None:
        """A peer has said something about membership."""
        self.membership.control_received(connection, message)

    def identifier_of(self, instance: str) -> int | None:
        """The identifier of a peer by its instance."""
        return self.membership.identifier_of(instance)
