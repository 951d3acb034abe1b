"""Where others connect: what strangers may cost, and for how long.

A newcomer is a stranger until it has said who it is, and costs a few kilobytes until then. There is a bound on
how many strangers there are at a time; when one more comes, the one that has been one for longest is cut off. An honest
one is no stranger for longer than a few packets take, so a flood of connections does not keep it out. A stranger that
does not say who it is is cut off after a while, and so is whoever does not finish a frame that it has begun
(:mod:`antiphon.transport.frame_budget`). The listener counts them and logs the reason, unless there are so many that
the log itself would be the damage.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from antiphon.kernel.errors import DeniedError, ProtocolError, UsageError
from antiphon.runtime.logging import logger
from antiphon.transport.frame_budget import FrameBudget, FrameConnection
from antiphon.transport.incoming import IncomingConnection
from antiphon.transport.links import limit_silence, split_address
from antiphon.transport.stream_protocol import StreamProtocol
from antiphon.transport.tls import check_trusted, reason_of

STRANGERS_AT_MOST: Final = 256
"""How many connections there are at a time that have not said who they are."""

LOOK_SECONDS: Final = 0.5
"""How often the listener looks who has taken too long."""

SILENT_SECONDS: Final = 30.0
"""After how long a connection ends whose other machine does not answer any more."""

LINES_PER_LOOK: Final = 5
"""So many refusals are logged between two looks; of the others the next line says how many they were."""

BACKLOG: Final = 1024
PAUSE_SECONDS: Final = 0.05
"""How long to wait when the system has no more files to give."""

OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logger("listener")


class Listener:
    """Accepts the connections of one node.

    ``connect`` makes the node's end of a connection, and ``incoming`` lists those that are open. A peer that
    connects has ``handshake_seconds`` to say who it is. A frame that has begun goes on within ``frame_seconds``.
    """

    def __init__(
        self,
        context: ssl.SSLContext | None,
        handshake_seconds: float,
        frame_seconds: float,
        connect: Callable[[Listener, str], IncomingConnection],
        incoming: Callable[[], Iterable[IncomingConnection]],
    ) -> None:
        self._context = context
        self._handshake_seconds = handshake_seconds
        self._connect = connect
        self._incoming = incoming
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        # Those who have not said who they are, with the time at which they came; the oldest first.
        self._strangers: dict[IncomingConnection, float] = {}
        self._opening: dict[IncomingConnection, asyncio.Task[None]] = {}
        self._frames = FrameBudget(frame_seconds, self._loop.time, self._cut_off_frame)
        self._looking: asyncio.TimerHandle | None = None
        self._lines = 0
        self._unlogged = 0
        self.refused_connections = 0
        self.when_refused: Callable[[str, BaseException], None] | None = None
        self.when_greeted: Callable[[IncomingConnection], None] | None = None

    async def open(self, address: str) -> int:
        """Listen; the port."""
        host, port = split_address(address)
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, *_, place in dict.fromkeys(found):
                bound = socket.create_server((place[0], port), family=family, backlog=BACKLOG)
                bound.setblocking(False)
                self._sockets.append(bound)
                port = bound.getsockname()[1]
        except OSError as error:
            self.close()
            raise UsageError(
                f"cannot listen at {address}: {error.strerror or error}; choose another address"
            ) from error
        for bound in self._sockets:
            self._listen(bound)
        self._looking = self._loop.call_later(LOOK_SECONDS, self._poll)
        return port

    def close(self) -> None:
        """Accept nobody any more."""
        if self._looking is not None:
            self._looking.cancel()
        for bound in self._sockets:
            self._loop.remove_reader(bound)
            bound.close()
        self._sockets.clear()
        for opening in tuple(self._opening.values()):
            opening.cancel()

    # Accepting.

    def _listen(self, bound: socket.socket) -> None:
        # Not after a pause in which the node was closed.
        if bound in self._sockets:
            self._loop.add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        """Somebody connects; no task waits for it, since nobody would close what was given to one that is cancelled."""
        try:
            accepted, place = bound.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.note_refusal("", error)
            self._loop.remove_reader(bound)
            self._loop.call_later(PAUSE_SECONDS, self._listen, bound)
            return
        accepted.setblocking(False)
        # uvloop does it by itself. Without it the system holds back short answers for 40 ms.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connect(self, f"{place[0]}:{place[1]}")
        while len(self._strangers) >= STRANGERS_AT_MOST:
            self._cut_off(next(iter(self._strangers)), "too many connect at once and do not say who they are")
        self._strangers[connection] = self._loop.time()
        task = self._loop.create_task(self._make(connection, accepted))
        self._opening[connection] = task
        task.add_done_callback(partial(self._made, connection, accepted))

    def _made(self, connection: IncomingConnection, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.pop(connection, None)
        if task.cancelled():
            # Perhaps before it had begun.
            accepted.close()

    async def _make(self, connection: IncomingConnection, accepted: socket.socket) -> None:
        seconds = self._handshake_seconds if self._context is not None else None
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                partial(StreamProtocol, connection), accepted, ssl=self._context, ssl_handshake_timeout=seconds
            )
            limit_silence(transport, SILENT_SECONDS)
        except OSError as error:
            self._strangers.pop(connection, None)
            accepted.close()
            self.note_refusal(connection.where_from, error)

    def greeted(self, connection: IncomingConnection) -> None:
        """Somebody has said who it is."""
        self._strangers.pop(connection, None)
        if self.when_greeted is not None:
            self.when_greeted(connection)

    def ended(self, connection: IncomingConnection) -> None:
        """A connection has ended."""
        self._strangers.pop(connection, None)
        self._frames.ended(connection)

    def buffer_changed(self, connection: IncomingConnection, size: int) -> None:
        """A connection has a long frame that is not finished, or has finished it."""
        self._frames.changed(connection, size if size > connection.buffer_bytes else 0)

    # Cutting off.

    def _poll(self) -> None:
        """Cut off who has taken too long."""
        now = self._loop.time()
        self._lines = 0
        patience = self._handshake_seconds
        for connection, came_at in list(self._strangers.items()):
            if now - came_at < patience:
                break
            self._cut_off(connection, f"it has not said who it is in {patience:g} seconds")
        for connection in self._incoming():
            # Most are idle: looking at all of them would cost idle nodes more than anything else.
            if connection.is_to_be_looked_at:
                self._frames.look(connection)
                self._look_at_certificate(connection)
                connection.end_if_left()
        self._frames.forget_finished()
        self._looking = self._loop.call_later(LOOK_SECONDS, self._poll)

    def _look_at_certificate(self, connection: IncomingConnection) -> None:
        try:
            self.check_certificate(connection)
        except (ProtocolError, DeniedError) as error:
            connection.refuse(error)

    def check_certificate(self, connection: IncomingConnection) -> None:
        """Refuse a connection whose certificate has expired or was revoked."""
        check_trusted(self._context, connection.identity)

    def _cut_off_frame(self, connection: FrameConnection, reason: str) -> None:
        assert isinstance(connection, IncomingConnection), "all frames come over incoming connections"
        self._cut_off(connection, reason)

    def _cut_off(self, connection: IncomingConnection, reason: str) -> None:
        self._strangers.pop(connection, None)
        opening = self._opening.get(connection)
        if opening is not None and connection.transport is None:
            opening.cancel()
            self.note_refusal(connection.where_from, ProtocolError(reason))
        else:
            connection.refuse(ProtocolError(reason))

    def note_refusal(self, where_from: str, error: BaseException) -> None:
        """Somebody has been cut off, for this reason."""
        self.refused_connections += 1
        if self.when_refused is not None:
            self.when_refused(where_from, error)
        self._lines += 1
        if self._lines > LINES_PER_LOOK:
            self._unlogged += 1
            return
        more = {"unlogged": self._unlogged} if self._unlogged else {}
        self._unlogged = 0
        log.warning("connection refused", peer=where_from, reason=reason_of(error), **more)
