"""Rounds of live torture of trees: most brokers are killed, or as many as leave a majority."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.fabrics.tree.fabric import TREE
from antiphon.kernel.errors import PeerError
from antiphon.node.local_cluster import Member, Plan, any_ports, write_founders
from antiphon.torture.live.rounds.round import (
    KILL_SECONDS,
    QUIET,
    STUCK_SECONDS,
    SURVIVORS,
    TOGETHER,
    TOPICS,
    Round,
    last_words,
)

if TYPE_CHECKING:
    from antiphon.client.handle import Client

KEYS = ("anna", "ben", "clara", "dora", "emil")
ORDERS = ("none", "fifo", "causal", "total", "total")


class TreeRound(Round):
    """A tree of brokers. Every other round kills most of them.

    In the other rounds the tree has a quorum: a minority of its founders is killed, and so are newcomers that take
    their places.
    """

    reconnect_seconds = STUCK_SECONDS

    def plan(self, nodes: int, directory: Path) -> Plan:
        port = any_ports(3 * nodes)
        self._has_quorum = self.figures.rounds % 2 == 1
        self._survivors = nodes // 2 + 1 if self._has_quorum else SURVIVORS
        tree = write_founders(directory / "tree.toml", TREE.name, nodes, port, self._has_quorum)
        settings = [*QUIET, *(word for topic in TOPICS for word in ("--keep", topic))]
        return Plan(nodes, port, None, directory / "traces", settings=settings, table=tree, fabric=TREE.name)

    async def trouble(self) -> None:
        founders = list(self.cluster.members)
        if self._has_quorum:
            await self._kill_and_replace(founders)
        else:
            await self._kill_most()
        self.stable = [member for member in self.alive_members() if member in founders]

    async def _kill_and_replace(self, founders: list[Member]) -> None:
        chance = self.chance
        spared = chance.sample(founders, self._survivors)
        coming: list[asyncio.Future[Member]] = []
        for _ in founders:
            await asyncio.sleep(chance.uniform(*KILL_SECONDS))
            alive_members = [member for member in self.alive_members() if member.about]
            mortal = [member for member in alive_members if member not in spared]
            if mortal:
                # The first founder as often as any other: it is the root, or succeeds it.
                self.kill(mortal[0] if chance.random() < TOGETHER else chance.choice(mortal))
            if len(alive_members) <= len(founders):
                coming.append(asyncio.ensure_future(self.cluster.add(chance.choice(spared).address)))
        self.figures.newcomers += len(await asyncio.gather(*coming))

    async def _kill_most(self) -> None:
        chance = self.chance
        is_first = True
        while len(self.alive_members()) > self._survivors:
            await asyncio.sleep(chance.uniform(*KILL_SECONDS))
            alive = self.alive_members()
            count = 2 if chance.random() < TOGETHER and len(alive) > self._survivors + 1 else 1
            victims = chance.sample(alive, count)
            if is_first and self.figures.rounds % 4 < 2:
                # The root never survives for long.
                victims[0] = alive[0]
            for victim in set(map(id, victims)):
                self.kill(next(member for member in alive if id(member) == victim))
            is_first = False

    def publish_one(self, client: Client, topic: str, value: bytes, chance: random.Random) -> Any:
        keys = chance.sample(KEYS, chance.choice((1, 1, 2)))
        return client.publish(topic, value, order=chance.choice(ORDERS), keys=keys)

    async def agree(self, clients: list[Client], nodes: list[int]) -> None:
        """Every survivor publishes last words about all keys and receives those of all, in one order."""
        for topic in TOPICS:
            heard = [client.subscribe(topic) for client in clients]
            await asyncio.gather(*(subscription.ready() for subscription in heard))
            for client, node in zip(clients, nodes, strict=True):
                await client.publish(topic, b"last %d on %b" % (node, topic.encode()), order="total", keys=KEYS)
            orders = await asyncio.gather(*(last_words(each, len(clients)) for each in heard))
            if any(order != orders[0] for order in orders):
                raise PeerError(f"survivors received last words in different orders: {orders}")
