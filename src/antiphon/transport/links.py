"""Links: one TCP connection from a node to each node it sends to, and the frames on it.

A connection is used in one direction, so what one node sends to another arrives in order, and no rule is needed for two
nodes that connect to each other at the same time. Frames queue until the end of the turn in which they were made and
leave in one write.

A frame that is too long, a version that does not match or bytes that are no message close the connection with a reason
in the log: a peer can lose its own connection, never a process.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from errno import ECONNRESET
from functools import partial
from typing import Final, cast

import msgspec

from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.runtime.errors import DeniedError
from antiphon.runtime.logging import logger
from antiphon.transport.schema import EXPELLED_TAG, FRAME_BYTES_AT_MOST, KEEP_ALIVE_TAG, LENGTH_BYTES
from antiphon.transport.tls import check_meant, identity_of, reason_of
from antiphon.transport.unreachable import UNREACHABLE

BUFFER_BYTES: Final = 256 << 10
"""What one read can bring; a longer frame gets a buffer of its own length while it is read."""

FIRST_BUFFER_BYTES: Final = 4096
"""The same for those who have not said who they are, or have nothing to say but why they go: they cost little."""

FIRST_FRAME_BYTES_AT_MOST: Final = 8192
"""The longest frame of such a one: a greeting or a refusal with the longest texts that they may have."""

SMALL_FRAME_BYTES: Final = 4096
"""Frames up to this size are cheaper to copy into one piece than to hand over one by one."""

CONNECT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.1

TCP_ESTABLISHED: Final = 1
"""The state of a connection whose ends are both open, first in ``tcp_info``."""

DATA_SEGMENTS_OUT: Final = slice(156, 160)
"""Where Linux keeps ``tcpi_data_segs_out`` in its ``tcp_info``."""

log = logger("links")


class FrameReader(asyncio.BufferedProtocol):
    """Cuts what arrives into frames. Subclasses say what a frame means."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, frame_bytes_at_most: int = FRAME_BYTES_AT_MOST) -> None:
        self.buffer_bytes = buffer_bytes
        self.frame_bytes_at_most = frame_bytes_at_most
        self._view = memoryview(bytearray(buffer_bytes))
        self._filled = 0
        self.transport: asyncio.Transport | None = None
        self.bytes_received = 0
        self.frames_received = 0

    def frame_received(self, frame: memoryview) -> None:
        """A whole frame has arrived; it is overwritten after the call."""
        raise NotImplementedError

    def input_ended(self) -> None:
        """All frames of one read have been handled."""

    def buffer_changed(self, size: int) -> None:
        """A frame that is longer than the usual buffer needs one of this size, or needs it no more."""

    @property
    def unfinished_bytes(self) -> int:
        """How much has come of a frame that has not come as a whole."""
        return self._filled

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_received += nbytes
        self._filled += nbytes
        try:
            try:
                self._cut()
            except (ProtocolError, DeniedError) as error:
                self.refuse(error)
            # What came before a refused frame counts.
            self.input_ended()
        except Exception as error:
            self.broken(error)

    def _cut(self) -> None:
        view, filled, start = self._view, self._filled, 0
        needed = LENGTH_BYTES
        while filled - start >= LENGTH_BYTES:
            length = int.from_bytes(view[start : start + LENGTH_BYTES], "little")
            if length > self.frame_bytes_at_most:
                raise ProtocolError(
                    f"a peer announced a frame of {length} bytes; at most {self.frame_bytes_at_most} are allowed: "
                    "is it an Antiphon node or client of this version?"
                )
            end = start + LENGTH_BYTES + length
            if end > filled:
                needed = LENGTH_BYTES + length
                break
            self.frames_received += 1
            self.frame_received(view[start + LENGTH_BYTES : end])
            start = end
        if start == self._filled and len(view) == self.buffer_bytes:
            self._filled = 0
        else:
            self._keep(start, needed)

    def _keep(self, start: int, needed: int) -> None:
        """Move the beginning of an unfinished frame to the front, into a larger buffer if it needs one.

        The buffer grows as the frame comes: who only announces a long one makes nobody reserve memory for it.
        """
        rest = self._filled - start
        size = max(self.buffer_bytes, min(needed, 2 * rest))
        if size != len(self._view):
            self.buffer_changed(size)
            larger = memoryview(bytearray(size))
            larger[:rest] = self._view[start : self._filled]
            self._view = larger
        elif start and rest:
            self._view[:rest] = bytes(self._view[start : self._filled])
        self._filled = rest

    def broken(self, error: Exception) -> None:
        """Something here that should not fail has failed."""
        raise error

    def refuse(self, error: Exception) -> None:
        """Close the connection because of what came over it."""
        peer = self.transport.get_extra_info("peername") if self.transport else None
        log.warning("connection refused", peer=str(peer), reason=str(error))
        self._filled = 0
        if self.transport is not None:
            self.transport.close()


class FrameWriter:
    """Collects frames and writes them at the end of a turn. Bytes that wait are counted."""

    def __init__(self) -> None:
        self._queue: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.queued_bytes = 0
        self.bytes_sent = 0
        self.frames_sent = 0
        self.writes = 0
        self.is_closed = False

    def attach(self, transport: asyncio.Transport) -> None:
        """There is a connection: what has queued leaves."""
        self._transport = transport
        self.flush()

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        self._queue.append(len(frame).to_bytes(LENGTH_BYTES, "little"))
        self._queue.append(frame)
        self.queued_bytes += LENGTH_BYTES + len(frame)
        self.frames_sent += 1

    def flush(self) -> None:
        """Write what has queued, if there is a connection."""
        transport = self._transport
        if transport is None or not self._queue or transport.is_closing():
            return
        queue = self._queue
        self._queue = []
        self.bytes_sent += self.queued_bytes
        self.writes += 1
        if self.queued_bytes <= SMALL_FRAME_BYTES * 2:
            transport.write(b"".join(queue))
        else:
            transport.writelines(queue)
        self.queued_bytes = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None

    @property
    def queued_frames(self) -> int:
        """How many frames wait for the next write."""
        return len(self._queue) // 2

    def segments_sent(self) -> int:
        """How many TCP segments with data have left over this connection; -1 where the system does not say."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None or not hasattr(socket, "TCP_INFO"):
            return -1
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGMENTS_OUT.stop)
        return int.from_bytes(info[DATA_SEGMENTS_OUT], sys.byteorder) if len(info) == DATA_SEGMENTS_OUT.stop else -1

    def unwritten_bytes(self) -> int:
        """What has been sent and is not in the hands of the operating system yet."""
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self.queued_bytes + waiting

    def close(self) -> None:
        """Write what is left and close."""
        self.flush()
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()


class OutgoingProtocol(FrameReader):
    """The reading side of a connection that this node opened to a peer: signs of life come here, and the end."""

    def __init__(self, when_refused: Callable[[str, bool], None]) -> None:
        super().__init__(FIRST_BUFFER_BYTES, FIRST_FRAME_BYTES_AT_MOST)
        self.when_lost: Callable[[], None] | None = None
        self.has_ended = False
        self._when_refused = when_refused

    def frame_received(self, frame: memoryview) -> None:
        # The other end writes nothing here but signs of life, which count when they are read, and why it closes.
        try:
            content = msgspec.msgpack.decode(frame)
            if content == [KEEP_ALIVE_TAG]:
                return
            tag, reason, *_ = content
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise ProtocolError("a peer answered on a connection that is used in the other direction only") from error
        log.warning("a peer refused the connection", reason=reason)
        self._when_refused(str(reason), tag == EXPELLED_TAG)

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
        if self.when_lost is not None:
            self.when_lost()


class OutgoingLink(FrameWriter):
    """The connection to one peer. It is opened when the first frame is sent, or before.

    ``connect_seconds`` is how long to try where nobody listens yet. ``silent_seconds`` is how long the other end may
    leave unanswered what was sent, its machine's signs of life included, before the connection counts as broken.
    With ``context`` it speaks TLS; ``expected_name`` is then the name in the certificate that is to be there, where no
    instance tells it.
    """

    def __init__(
        self,
        address: str,
        instance: str,
        hello: bytes,
        when_lost: Callable[[OutgoingLink], None],
        when_refused: Callable[[OutgoingLink, str, bool], None],
        connect_seconds: float = 0.0,
        silent_seconds: float | None = None,
        when_opened: Callable[[OutgoingLink], None] | None = None,
        context: ssl.SSLContext | None = None,
        expected_name: str = "",
    ) -> None:
        super().__init__()
        self.address = address
        self.instance = instance
        # The name in the certificate of whoever listens there.
        self.peer_name = ""
        self._context = context
        self._expected_name = expected_name
        self._hello = hello
        self._when_lost = when_lost
        self._when_refused = when_refused
        self._connect_seconds = connect_seconds
        self._silent_seconds = silent_seconds
        self._when_opened = when_opened
        self._connecting: asyncio.Task[None] | None = None
        self._protocol: OutgoingProtocol | None = None

    def send(self, frame: bytes) -> None:
        if self._transport is None:
            self.open()
        super().send(frame)

    def leads_to(self, instance: str) -> bool:
        """Whether a life of a node can be at the other end, as far as is known."""
        is_its_name = not self.peer_name or instance.partition("/")[0] == self.peer_name
        return self.instance in ("", instance) and is_its_name

    def open(self) -> None:
        """Connect, if that has not begun."""
        if self._transport is None and self._connecting is None and not self.is_closed:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._connect_seconds
        while True:
            try:
                transport = await self._try()
                break
            except (OSError, TimeoutError, ProtocolError) as error:
                if loop.time() >= give_up_at:
                    UNREACHABLE.failed(self.address, reason_of(error), loop.time())
                    self._lost()
                    return
            await asyncio.sleep(RETRY_SECONDS)
        if self.is_closed:
            transport.close()
            return
        if self._silent_seconds is not None:
            limit_silence(transport, self._silent_seconds)
        transport.write(len(self._hello).to_bytes(LENGTH_BYTES, "little") + self._hello)
        self.attach(transport)
        UNREACHABLE.reached(self.address)
        if self._when_opened is not None:
            self._when_opened(self)

    async def _try(self) -> asyncio.Transport:
        host, port = split_address(self.address)
        async with asyncio.timeout(min(CONNECT_SECONDS, self._silent_seconds or CONNECT_SECONDS)):
            transport, self._protocol = await asyncio.get_running_loop().create_connection(
                lambda: OutgoingProtocol(partial(self._when_refused, self)), host, port, ssl=self._context
            )
        if self._context is not None:
            identity = identity_of(transport)
            try:
                check_meant(identity, self.instance or self._expected_name)
            except ProtocolError:
                transport.abort()
                raise
            self.peer_name = "" if identity is None else identity.name
        self._protocol.when_lost = self._lost
        if transport.is_closing():
            raise ConnectionResetError(ECONNRESET, "the other end closed the connection")
        return transport

    def _lost(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._transport = None
            self._queue.clear()
            self._when_lost(self)

    def close(self) -> None:
        if self._connecting is not None and self._transport is None:
            self._connecting.cancel()
        super().close()

    @property
    def bytes_heard(self) -> int:
        """How much the other end has said on this connection."""
        return 0 if self._protocol is None else self._protocol.bytes_received

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left of the connection; one with TLS takes leave before it ends."""
        return self._protocol is None or self._protocol.has_ended

    def abort(self) -> None:
        """End the connection without taking leave."""
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.abort()


def has_closed(transport: asyncio.Transport) -> bool:
    """Whether the other end of a connection has closed it, or is gone, where the system can tell without reading."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return False
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED)


def limit_silence(transport: asyncio.Transport, seconds: float) -> None:
    """Let a connection break when the machine at its other end has not answered for so long, where the system can."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds / 3)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(seconds / 3)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` as a pair; an IPv6 host stands in brackets."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{address!r} is no address; write host:port, for example 127.0.0.1:7400")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
