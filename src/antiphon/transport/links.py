"""Links: one TCP connection from a node to each node it sends to.

A connection is used in one direction, so what one node sends to another arrives in order, and no rule is needed for two
nodes that connect to each other at the same time. :mod:`antiphon.transport.framing` has the frames on it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from errno import ECONNRESET
from functools import partial
from typing import Final

import msgspec

from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.membership.messages import EXPELLED_TAG, KEEP_ALIVE_TAG
from antiphon.runtime.logging import logger
from antiphon.transport.framing import FIRST_BUFFER_BYTES, FIRST_FRAME_BYTES_AT_MOST, LENGTH, FrameReader, FrameWriter
from antiphon.transport.stream_protocol import StreamProtocol
from antiphon.transport.tls import CertifiedIdentity, check_meant, check_trusted, identity_of, reason_of
from antiphon.transport.unreachable import UNREACHABLE

CONNECT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.1

TCP_ESTABLISHED: Final = 1
"""The state of a connection whose ends are both open, first in ``tcp_info``."""

LEAST_ROUND_TRIP: Final = struct.Struct("=148xI")
"""Where ``tcp_info`` of Linux has the least round trip of the last minutes, in microseconds, and nothing behind it."""

NOT_MEASURED: Final = 0xFFFFFFFF

log = logger("links")


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
    """The connection to one peer. Frames that are sent before it is open wait.

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
        peer: int = -1,
    ) -> None:
        super().__init__()
        self.address = address
        # Who it is for, as its owner says.
        self.peer = peer
        self.instance = instance
        # The name in the certificate of whoever listens there.
        self.peer_name = ""
        self.identity: CertifiedIdentity | None = None
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
        # Called when nothing is left of it.
        self.when_ended: Callable[[OutgoingLink], None] | None = None

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
        transport.write(LENGTH.pack(len(self._hello)) + self._hello)
        self.attach(transport)
        UNREACHABLE.reached(self.address)
        if self._when_opened is not None:
            self._when_opened(self)

    async def _try(self) -> asyncio.Transport:
        host, port = split_address(self.address)
        async with asyncio.timeout(min(CONNECT_SECONDS, self._silent_seconds or CONNECT_SECONDS)):
            reader = OutgoingProtocol(partial(self._when_refused, self))
            transport, _ = await asyncio.get_running_loop().create_connection(
                partial(StreamProtocol, reader), host, port, ssl=self._context
            )
        if self._context is not None:
            identity = identity_of(transport)
            try:
                check_meant(identity, self.instance or self._expected_name)
                check_trusted(self._context, identity)
            except ProtocolError:
                transport.abort()
                raise
            self.identity = identity
            self.peer_name = "" if identity is None else identity.name
        self._protocol = reader
        reader.when_lost = self._lost
        if transport.is_closing():
            raise ConnectionResetError(ECONNRESET, "the other end closed the connection")
        return transport

    def _lost(self) -> None:
        self._end()
        if not self.is_closed:
            self.is_closed = True
            self._transport = None
            self._queue.clear()
            self._when_lost(self)

    def close(self) -> None:
        if self._transport is None:
            if self._connecting is not None:
                self._connecting.cancel()
            self._end()
        super().close()

    def _end(self) -> None:
        if self.when_ended is not None:
            self.when_ended(self)

    @property
    def bytes_received(self) -> int:
        """How much the other end has said on this connection."""
        return 0 if self._protocol is None else self._protocol.bytes_received

    @property
    def round_trip_us(self) -> int:
        """The least round trip of what was sent lately, as the system has measured it; -1 if it cannot tell."""
        return -1 if self._transport is None else least_round_trip_us(self._transport)

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


def least_round_trip_us(transport: asyncio.Transport) -> int:
    """The least time from sending something to its acknowledgement, which costs no message; -1 if unknown."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return -1
    facts = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LEAST_ROUND_TRIP.size)
    if len(facts) < LEAST_ROUND_TRIP.size:
        return -1
    (least,) = LEAST_ROUND_TRIP.unpack(facts)
    return -1 if least == NOT_MEASURED else int(least)


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
