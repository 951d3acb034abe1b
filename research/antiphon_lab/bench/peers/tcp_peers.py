"""Bare TCP, without topics, brokers and orders. It is the ceiling, not a rival.

Frames are prefixed with their length; the writer joins the messages of one turn of the loop, at most 64 KiB, into one
write; the reader slices payloads out of the data it has read. Nothing is parsed, acknowledged or ordered.
"""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from antiphon_lab.bench.peers.contender import HOST, Arrived, Contender, Place, Side

LENGTH = struct.Struct("<I")
JOINED_BYTES = 64 * 1024
BUFFERED_BYTES = 1024 * 1024
CONNECT_SECONDS = 10.0
RETRY_SECONDS = 0.05


class BareTcp(Contender):
    """asyncio protocols, on uvloop where it is installed."""

    name = "tcp"
    title = "bare TCP (the ceiling)"
    published = "the message is joined to others; at each 64 KiB the publisher waits while a socket is full"
    settings = "asyncio protocols on uvloop, frames joined into writes of 64 KiB"

    def side(self, place: Place) -> Side:
        return TcpSide(place)

    def client_version(self) -> str:
        return "Python's asyncio"


class Link(asyncio.Protocol):
    """One connection; its writer knows when the socket is full, its reader cuts frames."""

    def __init__(self, arrived: Arrived | None, links: set[Link]) -> None:
        self._arrived = arrived
        self._links = links
        self._rest = b""
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are not subclasses of those of asyncio.
        self.transport = cast(asyncio.Transport, transport)
        # Room for several writes: the loop does other work while the kernel takes one.
        self.transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        self._links.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._links.discard(self)
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self._arrived is None:
            return
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        while position + 4 <= end:
            begin = position + 4
            position = begin + LENGTH.unpack_from(data, position)[0]
            if position > end:
                position = begin - 4
                break
            self._arrived(data[begin:position])
        self._rest = data[position:]


class TcpSide(Side):
    """A publisher listens, a subscriber connects to all publishers."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._links: set[Link] = set()
        self._server: asyncio.Server | None = None
        self._connecting: list[asyncio.Task[None]] = []
        self._queued: list[bytes] = []
        self._queued_bytes = 0
        self._flush_is_due = False

    async def open(self, arrived: Arrived) -> None:
        loop = asyncio.get_running_loop()
        if self._place.publishes:
            self._server = await loop.create_server(lambda: Link(None, self._links), HOST, self._place.own_port)
        if self._place.receives:
            # In the background, because publishers that open later do not listen yet.
            ports = self._place.publisher_ports
            self._connecting = [asyncio.create_task(self._connect(port, arrived)) for port in ports]

    async def _connect(self, port: int, arrived: Arrived) -> None:
        """Connect as soon as the other side listens."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            while True:
                try:
                    await loop.create_connection(lambda: Link(arrived, set()), HOST, port)
                    return
                except ConnectionRefusedError:
                    await asyncio.sleep(RETRY_SECONDS)

    async def publish(self, payload: bytes, count: int) -> None:
        for _ in range(count):
            await self._publish(payload)

    async def _publish(self, payload: bytes) -> None:
        self._queued += (LENGTH.pack(len(payload)), payload)
        self._queued_bytes += len(payload)
        if self._queued_bytes >= JOINED_BYTES:
            self._flush()
            for link in list(self._links):
                await link.writable.wait()
            # A socket that accepts everything must not keep the loop from reading.
            await asyncio.sleep(0)
        elif not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        joined = b"".join(self._queued)
        self._queued.clear()
        self._queued_bytes = 0
        for link in self._links:
            if joined and link.transport is not None:
                link.transport.write(joined)

    async def close(self) -> None:
        for task in self._connecting:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            if link.transport is not None:
                link.transport.abort()
