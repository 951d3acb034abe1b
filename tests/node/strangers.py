"""Those who connect to a node and say what they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import antiphon
from antiphon import Node
from antiphon.transport.links import split_address

REFUSED = 101


def frames(*messages: msgspec.Struct) -> bytes:
    """Messages as they are on a link."""
    encoded = [msgspec.msgpack.encode(message) for message in messages]
    return b"".join(len(each).to_bytes(4, "little") + each for each in encoded)


class Attacker:
    """A connection to a node, and what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> list[Any]:
        """The next frame of the node."""
        head = await self.reader.readexactly(4)
        decoded = msgspec.msgpack.decode(await self.reader.readexactly(int.from_bytes(head, "little")))
        assert isinstance(decoded, list)
        return decoded

    async def refusal(self) -> str:
        """Why the node has closed the connection."""
        while (frame := await self.frame())[0] != REFUSED:
            pass
        assert await self.reader.read() == b"", "after a refusal nothing comes"
        return str(frame[1])


@asynccontextmanager
async def attacking(node: Node, tls: antiphon.Tls | None = None) -> AsyncIterator[Attacker]:
    """Somebody who connects to a node."""
    context = None if tls is None else tls.client_context()
    reader, writer = await asyncio.open_connection(*split_address(node.address), ssl=context)
    try:
        yield Attacker(reader, writer)
    finally:
        writer.transport.abort()
