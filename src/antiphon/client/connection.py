"""The connections of a client to its nodes."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from antiphon.membership.heartbeats import Vigil
from antiphon.membership.messages import OLDEST_VERSION
from antiphon.transport.links import FrameReader, FrameWriter

FAREWELL_SECONDS: Final = 1.0
"""How long a connection that was closed may take to end."""

LOOK_SECONDS: Final = 0.005

HEARTBEAT_LOOKS: Final = 32
"""How often a client looks in ``lost_seconds`` whether its node is silent.

It looks more often than nodes do, so that it moves soon after the other nodes have given up its own. It looks regularly
because only then it knows for how long it was awake to hear, and because a timer for each frame costs more."""

NODE: Final = 0
"""The only node that a client listens for."""


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

    def request_heartbeat(self) -> None:
        """Ask the node for a sign of life."""

    def node_silent(self, connection: ClientConnection) -> None:
        """The process of the node stands still."""


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
        self._looking: asyncio.TimerHandle | None = None

    def watch(self, lost_seconds: float) -> None:
        """From now on say when the node has been silent for so long."""
        self._client.request_heartbeat()
        loop = asyncio.get_running_loop()
        vigil = Vigil(lost_seconds, loop.time(), HEARTBEAT_LOOKS)

        def poll() -> None:
            silent = vigil.poll(loop.time(), {NODE: self.bytes_received})
            if silent.lost:
                self._client.node_silent(self)
                return
            if silent.asked:
                self._client.request_heartbeat()
            self._looking = loop.call_later(vigil.look_seconds, poll)

        self._looking = loop.call_later(vigil.look_seconds, poll)

    def unwatch(self) -> None:
        """The client is about to leave this node."""
        if self._looking is not None:
            self._looking.cancel()

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
        self.unwatch()
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
