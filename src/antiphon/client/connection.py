"""The connections of a client to its nodes."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from antiphon.membership.messages import OLDEST_VERSION
from antiphon.transport.framing import FrameReader, FrameWriter

FAREWELL_SECONDS: Final = 1.0
"""How long a connection that was closed may take to end."""

LOOK_SECONDS: Final = 0.005
"""How often a client that closes, or waits for room, looks whether all has gone. It does so seldom, and a promise for
each batch would cost something with every message."""


class ReceivingClient(Protocol):
    """The client that hears what comes over a connection."""

    def frame_received(self, connection: ClientConnection, frame: memoryview) -> None:
        """A frame of a node, which may have been left meanwhile."""

    def settle(self) -> None:
        """Nothing more has come for now."""

    def cannot_understand(self, connection: ClientConnection, error: Exception) -> None:
        """A node has sent what no node sends."""

    def connection_lost(self, connection: ClientConnection, error: Exception | None) -> None:
        """A connection has ended."""


class ClientConnection(FrameReader):
    """One connection of a client to a node."""

    def __init__(self, client: ReceivingClient, address: str, open_ones: set[ClientConnection]) -> None:
        super().__init__()
        self._client = client
        self._open = open_ones
        self.address = address
        # The version of the frames that both ends understand.
        self.version = OLDEST_VERSION
        self.writer = FrameWriter()

    def abort(self) -> None:
        """End without taking leave."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open.add(self)
        assert self.transport is not None, "it was just made"
        self.writer.attach(self.transport)

    def frame_received(self, frame: memoryview) -> None:
        self._client.frame_received(self, frame)

    def input_ended(self) -> None:
        self._client.settle()

    def refuse(self, error: Exception) -> None:
        self._client.cannot_understand(self, error)
        super().refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._client.connection_lost(self, exc)


async def until_ended(connections: set[ClientConnection]) -> None:
    """Wait until nothing is left of connections that were closed; one with TLS takes leave before it ends."""
    loop = asyncio.get_running_loop()
    until = loop.time() + FAREWELL_SECONDS
    while connections and loop.time() < until:
        await asyncio.sleep(LOOK_SECONDS)
    for connection in connections:
        connection.abort()
