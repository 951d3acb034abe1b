"""NATS: nats-server and nats-py.

The client buffers published messages and writes them when its loop gets a turn; ``publish`` waits when the buffer has
two megabytes. Server and client disconnect or drop for a slow subscriber beyond a limit; the limits are raised here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon_lab.bench.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side

PENDING_BYTES = 4 * 2**30


class Nats(Contender):
    """nats-py against one nats-server."""

    name = "nats"
    title = "NATS (nats-py)"
    modules = ("nats",)
    distribution = "nats-py"
    program = "nats-server"
    published = "the message is in the client's buffer, which is written when the loop gets a turn"
    settings = "uvloop, callbacks, limits for slow subscribers raised at server and client"

    def server_command(self, port: int, directory: Path) -> list[str]:
        settings = directory / "nats.conf"
        settings.write_text(f'max_pending: {PENDING_BYTES}\nwrite_deadline: "60s"\n', encoding="utf-8")
        return [self.find_program() or self.program, "-a", HOST, "-p", str(port), "-c", str(settings)]

    def side(self, place: Place) -> Side:
        return NatsSide(place)


class NatsSide(Side):
    """One connection for both directions."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Any = None

    async def open(self, arrived: Arrived) -> None:
        import nats

        self._client = await nats.connect(f"nats://{HOST}:{self._place.server_port}", allow_reconnect=False)
        if self._place.receives:

            async def receive(message: Any) -> None:
                arrived(message.data)

            # Zero or less switches the client's own limits off.
            await self._client.subscribe(TOPIC, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0)
            await self._client.flush()

    async def publish(self, payload: bytes, count: int) -> None:
        publish = self._client.publish
        for _ in range(count):
            await publish(TOPIC, payload)

    async def close(self) -> None:
        await self._client.close()
