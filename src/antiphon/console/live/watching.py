"""Asks the nodes of a cluster how they are, while a window is open, and hands all windows the same picture.

It must not cost what it shows: nothing is asked without a window, all windows share one answer, and when the loop of
the node is late, pictures come less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from antiphon.console.http_messages import as_event
from antiphon.console.live.picture import ClusterPicture
from antiphon.kernel.errors import AntiphonError
from antiphon.node.node import LiveNode

if TYPE_CHECKING:
    from antiphon.client.handle import Client

PERIOD_SECONDS: Final = 1.0
PERIOD_SECONDS_AT_MOST: Final = 8.0
LATE_SECONDS: Final = 0.05
"""A loop that is later than this has more important work: the time to the next picture doubles."""

ANSWER_SECONDS: Final = 2.0
NODES_ASKED: Final = 64
"""So many other nodes are asked; of a larger cluster the page shows these, and who is there."""

WINDOWS_AT_MOST: Final = 16


class ClusterWatch:
    """The pictures of one cluster."""

    def __init__(self, live: LiveNode) -> None:
        self._live = live
        self._picture = ClusterPicture()
        self._clients: dict[str, Client] = {}
        self._windows: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._token = ""
        self._latest: dict[str, Any] | None = None
        self.period_seconds = PERIOD_SECONDS

    async def close(self) -> None:
        """End all questions."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._forget_clients()

    async def events(self, token: str) -> AsyncIterator[bytes]:
        """Pictures for one window; ``token`` is that of its admin, with which other nodes are asked."""
        if len(self._windows) >= WINDOWS_AT_MOST:
            yield as_event("refused", {"error": f"{WINDOWS_AT_MOST} windows are open already"})
            return
        fresh = asyncio.Event()
        self._windows.add(fresh)
        self._token = token or self._token
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            if self._latest is not None:
                yield as_event("picture", self._latest)
            while True:
                await fresh.wait()
                fresh.clear()
                yield as_event("picture", self._latest)
        finally:
            self._windows.discard(fresh)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._windows:
            statuses = [self._live.status.figures(), *await self._others()]
            self._latest = self._picture.taken(self._live.identifier, statuses, time.monotonic(), time.time())
            for window in self._windows:
                window.set()
            due = loop.time() + self.period_seconds
            await asyncio.sleep(self.period_seconds)
            is_late = loop.time() - due > LATE_SECONDS
            factor = 2.0 if is_late else 0.5
            self.period_seconds = min(max(self.period_seconds * factor, PERIOD_SECONDS), PERIOD_SECONDS_AT_MOST)
        await self._forget_clients()

    async def _others(self) -> list[Mapping[str, Any]]:
        """The statuses of the other nodes that answer in time."""
        addresses = [peer.address for peer in self._live.cluster.peers()][:NODES_ASKED]
        for address in self._clients.keys() - set(addresses):
            await self._clients.pop(address).abandon()
        answers = await asyncio.gather(*(self._ask(address) for address in addresses))
        return [answer for answer in answers if answer is not None]

    async def _ask(self, address: str) -> Mapping[str, Any] | None:
        import antiphon

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if address not in self._clients:
                    authority = self._live.settings.tls_authority
                    self._clients[address] = await antiphon.connect(
                        address,
                        cluster=self._live.settings.cluster,
                        reconnect_seconds=0,
                        tls=None if authority is None else {"authority": authority},
                        token=self._token,
                    )
                return await self._clients[address].status()
        except (AntiphonError, TimeoutError):
            client = self._clients.pop(address, None)
            if client is not None:
                await client.abandon()
            return None

    async def _forget_clients(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.abandon()
