"""Proxies between live nodes: each direction of each pair of nodes can be cut, blocked or slowed down.

Every node is behind a *door*: a proxy port that the node advertises (``--advertise``) and that forwards to the port
where the node listens. The first frame of a connection names the door of the connecting node, and nodes use a
connection in one direction only. So a door knows the origin of each connection, and each ordered pair of nodes is a
*way* of its own: one can be cut while the opposite way is open. Clients have no door; their connections are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import Hello
from antiphon.transport.codec import Codec
from antiphon.transport.framing import FIRST_FRAME_BYTES_AT_MOST
from antiphon.transport.links import split_address
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import LENGTH_BYTES

LOOK_SECONDS: Final = 0.02
READ_BYTES: Final = 1 << 16
PIECES_ON_THE_WAY: Final = 256
"""The most pieces in transit on a slow way before its writer has to wait, as on any network."""

Pair = tuple[int, int]
"""The places of two nodes: from, to."""


@dataclass
class Way:
    """The state of one way, and its connections."""

    is_cut: bool = False
    delay_seconds: float = 0.0
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while the way blocks everything silently."""

    open_connections: set[asyncio.StreamWriter] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.flows.set()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self.is_cut = True
        for writer in self.open_connections:
            writer.transport.abort()

    def mend(self) -> None:
        """Let everything through without delay."""
        self.is_cut = False
        self.delay_seconds = 0.0
        self.flows.set()


class ProxyNetwork:
    """The doors of all nodes and the ways between them."""

    def __init__(self, addresses: Sequence[str], targets: Sequence[str]) -> None:
        self.doors = list(addresses)
        self._targets = [split_address(target) for target in targets]
        self._places = {address: place for place, address in enumerate(addresses)}
        self._ways = {
            (source, target): Way()
            for source in range(len(addresses))
            for target in range(len(addresses))
            if source != target
        }
        self._servers: dict[int, asyncio.Server] = {}
        self._codec = Codec(PEER_CONTROLS)
        self._streams: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, place: int) -> None:
        """Open the door of a node that is about to listen; earlier connections wait for it."""
        host, port = split_address(self.doors[place])
        if place not in self._servers:
            self._servers[place] = await asyncio.start_server(self._door(place), host, port)

    def shut(self, place: int) -> None:
        """Shut the door of a node that is down, so that connections are refused."""
        server = self._servers.pop(place, None)
        if server is not None:
            server.close()

    async def close(self) -> None:
        """Close all doors, and end all connections."""
        for place in list(self._servers):
            self.shut(place)
        for writer in tuple(self._streams):
            writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Faults of ways.

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Break these ways: connections end, and new ones are refused."""
        for pair in pairs:
            self._ways[pair].cut()

    def hold(self, pairs: Iterable[Pair]) -> None:
        """Block these ways silently: nothing passes, and connections stay open."""
        for pair in pairs:
            self._ways[pair].flows.clear()

    def delay(self, delays: dict[Pair, float]) -> None:
        """Delay everything on these ways by so many seconds."""
        for pair, seconds in delays.items():
            self._ways[pair].delay_seconds = seconds

    def mend(self, pairs: Iterable[Pair]) -> None:
        """Remove all faults of these ways."""
        for pair in pairs:
            self._ways[pair].mend()

    # Forwarding.

    def _door(self, place: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        return lambda reader, writer: self._spawn(self._connected(place, reader, writer))

    async def _connected(self, place: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Identify the origin of a connection, and forward in both directions until one end closes."""
        self._streams.add(writer)
        far_writer: asyncio.StreamWriter | None = None
        way = Way()
        try:
            with suppress(OSError, EOFError, ProtocolError):
                greeting, source = await self._greeting(reader)
                way = self._ways.get((source, place), way)
                await way.flows.wait()
                if way.is_cut:
                    return
                way.open_connections.add(writer)
                far_reader, far_writer = await self._reach(place)
                self._streams.add(far_writer)
                await self._carry(way, greeting, reader, writer, far_reader, far_writer)
        finally:
            way.open_connections.discard(writer)
            for each in (writer, far_writer):
                if each is not None:
                    self._streams.discard(each)
                    each.transport.abort()

    async def _reach(self, place: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a node, as soon as it listens."""
        while True:
            try:
                return await asyncio.open_connection(*self._targets[place])
            except ConnectionRefusedError:
                if place not in self._servers:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    async def _greeting(self, reader: asyncio.StreamReader) -> tuple[bytes, int]:
        """The first frame, and the place of the node that sent it; -1 for other senders."""
        head = await reader.readexactly(LENGTH_BYTES)
        length = int.from_bytes(head, "little")
        if length > FIRST_FRAME_BYTES_AT_MOST:
            raise ProtocolError(f"a connection begins with a frame of {length} bytes")
        frame = await reader.readexactly(length)
        hello = self._codec.decode(frame)
        return head + frame, self._places.get(hello.address, -1) if isinstance(hello, Hello) else -1

    async def _carry(
        self,
        way: Way,
        greeting: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        far_writer.write(greeting)
        there = asyncio.ensure_future(self._slowly(way, reader, far_writer))
        # Between nodes, the receiving end sends nothing but a reason for refusal; towards a client it sends everything.
        back = asyncio.ensure_future(self._slowly(way, far_reader, writer))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            for each in (writer, far_writer):
                with suppress(OSError):
                    each.close()
                    # Data that was sent before the end must still arrive.
                    await each.wait_closed()

    async def _slowly(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward data, each piece after the delay that the way had when it arrived; returns at the end of the data."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_ON_THE_WAY)

        async def read() -> None:
            data = b"more"
            while data:
                try:
                    data = await reader.read(READ_BYTES)
                except OSError:
                    data = b""
                await pieces.put((loop.time() + way.delay_seconds, data))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, data = await pieces.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await way.flows.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()


def between(one: Iterable[int], others: Iterable[int]) -> list[Pair]:
    """All ways from the first nodes to the others, and back."""
    there = [(source, target) for source in one for target in others]
    return there + [(target, source) for source, target in there]
