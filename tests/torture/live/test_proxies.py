"""Ways between nodes: each direction of each pair can be cut and held up, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.node.local_cluster import free_addresses
from antiphon.torture.live.proxies import ProxyNetwork, between
from antiphon.transport.codec import Codec
from antiphon.transport.links import split_address
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import LENGTH_BYTES
from tests.node.support import running

CODEC = Codec(PEER_CONTROLS)


class Listening:
    """Nodes that write down what comes to them."""

    def __init__(self, count: int) -> None:
        self.targets = free_addresses(count)
        self.heard: list[asyncio.Queue[bytes]] = [asyncio.Queue() for _ in range(count)]
        self.network = ProxyNetwork(free_addresses(count), self.targets)

    async def listen(self, place: int) -> asyncio.Server:
        async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                self.heard[place].put_nowait(data)
                writer.write(b"heard")
            writer.close()

        return await asyncio.start_server(came, *split_address(self.targets[place]))

    async def speak(self, source: int, target: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as one node to another, or as a client if there is no such node; the greeting has been sent."""
        reader, writer = await asyncio.open_connection(*split_address(self.network.doors[target]))
        address = self.network.doors[source] if source >= 0 else ""
        greeting = CODEC.encode_control(Hello(PROTOCOL_VERSION, "antiphon", f"life {source}", address))
        writer.write(len(greeting).to_bytes(LENGTH_BYTES, "little") + greeting)
        return reader, writer

    async def passes(self, source: int, target: int) -> bool:
        """Whether a greeting comes through and is answered."""
        reader, writer = await self.speak(source, target)
        try:
            return await reader.read(5) == b"heard"
        except ConnectionError:
            return False
        finally:
            writer.close()


@asynccontextmanager
async def listening(count: int) -> AsyncIterator[Listening]:
    found = Listening(count)
    servers = [await found.listen(place) for place in range(count)]
    for place in range(count):
        await found.network.open(place)
    try:
        yield found
    finally:
        await found.network.close()
        for server in servers:
            server.close()


def test_one_direction_is_cut_and_the_others_are_not() -> None:
    async def test() -> None:
        async with listening(3) as nodes:
            nodes.network.cut([(0, 1)])
            assert not await nodes.passes(0, 1)
            assert [await nodes.passes(*pair) for pair in ((1, 0), (0, 2), (2, 1), (-1, 1))] == [True] * 4
            nodes.network.mend([(0, 1)])
            assert await nodes.passes(0, 1)

    running(test)


def test_a_cut_ends_the_connections_that_there_are() -> None:
    async def test() -> None:
        async with listening(2) as nodes:
            reader, writer = await nodes.speak(0, 1)
            assert await reader.read(5) == b"heard"
            nodes.network.cut(between([0], [1]))
            # It ends with an error or without one, as systems like it.
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    running(test)


def test_what_is_held_comes_later_and_no_connection_breaks() -> None:
    async def test() -> None:
        async with listening(2) as nodes:
            reader, writer = await nodes.speak(0, 1)
            assert await reader.read(5) == b"heard" and not nodes.heard[1].get_nowait().startswith(b"more")
            nodes.network.hold([(0, 1)])
            writer.write(b"more")
            # Somebody else gets through meanwhile, so what is held has had its time.
            assert await nodes.passes(-1, 1) and not nodes.heard[1].get_nowait().startswith(b"more")
            assert nodes.heard[1].empty()
            nodes.network.mend([(0, 1)])
            assert await nodes.heard[1].get() == b"more" and await reader.read(5) == b"heard"
            writer.close()

    running(test)


def test_what_takes_longer_comes_whole_and_in_order() -> None:
    async def test() -> None:
        async with listening(2) as nodes:
            reader, writer = await nodes.speak(0, 1)
            assert await reader.read(5) == b"heard"
            nodes.heard[1].get_nowait()
            nodes.network.delay({(0, 1): 0.02})
            sent = [b"%04d" % number for number in range(100)]
            for piece in sent:
                writer.write(piece)
                await writer.drain()
            writer.close()
            received = b""
            while len(received) < 400:
                received += await nodes.heard[1].get()
            assert received == b"".join(sent)

    running(test)


def test_a_door_that_is_shut_refuses_and_one_that_opens_early_waits_for_its_node() -> None:
    async def test() -> None:
        nodes = Listening(2)
        with pytest.raises(ConnectionRefusedError):
            await nodes.speak(0, 1)
        await nodes.network.open(1)
        waiting = asyncio.ensure_future(nodes.passes(0, 1))
        await asyncio.sleep(0)
        server = await nodes.listen(1)
        assert await waiting
        nodes.network.shut(1)
        with pytest.raises(ConnectionRefusedError):
            await nodes.speak(0, 1)
        await nodes.network.close()
        server.close()

    running(test)
