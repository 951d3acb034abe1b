"""A node of the cluster that lies: it joins as others do, and then sends what no node would send."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import antiphon
from antiphon.kernel.errors import AntiphonError
from antiphon.node.handle import Node
from antiphon.torture.hostile.lies import Lies

JOIN_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.01
LIES_AT_ONCE: Final = 8
TOPIC: Final = "lies.room"


class Liar:
    """One node that lies to all nodes that it has a link to. A node that is thrown out joins again."""

    def __init__(self, fabric: str, seed: int, address: str, **settings: Any) -> None:
        self._chance = random.Random(seed)
        self._lies = Lies(fabric, seed, [0], [])
        self._address = address
        self._settings = {"fabric": fabric, "leave_seconds": 0.2, **settings}
        self._node: Node | None = None
        self.sent: Counter[str] = Counter()
        self.joined = 0

    async def lie(self, seconds: float) -> None:
        """Lie for so long; a node that does not let this one join has its peace until the next time."""
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout(seconds + JOIN_SECONDS):
                while asyncio.get_running_loop().time() < until:
                    await self._step()
        except (AntiphonError, OSError, TimeoutError):
            self.sent["(not let in)"] += 1
        finally:
            await self._leave()

    async def _step(self) -> None:
        node = self._node
        if node is None or node._live.failure is not None or not node._live.host.links:
            await self._leave()
            node = self._node = await antiphon.start(join=[self._address], **self._settings)
            self.joined += 1
            await node.subscribe(TOPIC).ready()
            await node.publish(TOPIC, b"an honest beginning")
        live = node._live
        self._lies.topics = [topic.number for topic in live.topics.values()]
        self._lies.nodes = [live.identifier, *live.host.links]
        for link in list(live.host.links.values()):
            for _ in range(self._chance.randrange(1, LIES_AT_ONCE)):
                kind, frame = self._lies.message()
                link.send(frame)
                self.sent[kind] += 1
            link.flush()
        await asyncio.sleep(PAUSE_SECONDS)

    async def _leave(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            with suppress(AntiphonError, OSError, TimeoutError):
                async with asyncio.timeout(JOIN_SECONDS):
                    await node._live.abandon()
