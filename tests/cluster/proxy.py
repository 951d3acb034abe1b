"""A way to a node that can be cut: a port that hands everything on to another, or to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import antiphon
from antiphon import Node
from antiphon.node.local_cluster import free_addresses


class Proxy:
    """Listens at a free port and hands on to an address while it is open."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.address = ""
        # What whoever connected has sent.
        self.recorded = b""

    async def start(self) -> Proxy:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def cut(self) -> None:
        """Break all connections, and let nobody through."""
        self._is_cut = True
        for writer in tuple(self._open):
            writer.transport.abort()

    def mend(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    async def close(self) -> None:
        """Stop."""
        self.cut()
        assert self._server is not None
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = {writer}
        try:
            with suppress(OSError):
                if not self._is_cut:
                    far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
                    pair.add(far_writer)
                    self._open |= pair
                    await asyncio.gather(self._copy(reader, far_writer, True), self._copy(far_reader, writer))
        finally:
            # Also if nobody listens there any more.
            self._open -= pair
            for each in pair:
                each.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_recorded: bool = False
    ) -> None:
        while data := await reader.read(65536):
            if is_recorded:
                self.recorded += data
            if writer.transport.is_closing():
                # It was cut while this was on its way.
                break
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def behind_proxies(count: int, **settings: Any) -> AsyncIterator[tuple[list[Node], list[Proxy]]]:
    """Nodes that others reach through proxies only; all joined through the first."""
    async with AsyncExitStack() as stack:
        places = free_addresses(count)
        proxies = [await Proxy(place).start() for place in places]
        for proxy in proxies:
            stack.push_async_callback(proxy.close)
        nodes: list[Node] = []
        for place, proxy in zip(places, proxies, strict=True):
            join = [proxies[0].address] if nodes else []
            starting = antiphon.start(listen=place, advertise=proxy.address, join=join, **settings)
            nodes.append(await stack.enter_async_context(starting))
        yield nodes, proxies
