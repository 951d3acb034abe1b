"""Live torture of gossip: nodes are killed at random and replaced by new ones, while all publish and subscribe.

A few nodes, drawn in each round, stay from the beginning to the end. Any other node may be killed, the first one with
preference, and so may replacements. A new node subscribes and publishes as well, and counts from then on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.node.local_cluster import Plan
from antiphon.torture.live.rounds.round import (
    KILL_SECONDS,
    QUIET,
    SURVIVORS,
    TOGETHER,
    TOPICS,
    Round,
    RoundFigures,
    last_words,
)

if TYPE_CHECKING:
    from antiphon.client.handle import Client

ORDERS = ("none", "fifo", "causal", "causal", "total", "total")
REPLACED = 0.75
"""The share of killed nodes that are replaced by a new one."""

LOOK_SECONDS = 0.25
LOOKS = 4
"""How often in a row the stable nodes must have delivered the same number of messages, with nothing left to do."""


class GossipRound(Round):
    """A gossip cluster that loses nodes and gets new ones."""

    def __init__(
        self,
        figures: RoundFigures,
        chance: random.Random,
        nodes: int,
        directory: Path,
        complain: Callable[[str], None],
    ) -> None:
        super().__init__(figures, chance, nodes, directory, complain)
        self._nodes = nodes
        self._coming: list[asyncio.Future[None]] = []

    def plan(self, nodes: int, directory: Path) -> Plan:
        return Plan(nodes, 0, None, directory / "traces", settings=QUIET, fabric=GOSSIP.name)

    async def trouble(self) -> None:
        """Kill as many nodes as there were at the start."""
        chance = self.chance
        members = self.cluster.members
        # Every other round may kill the founder.
        self.stable = chance.sample(members[1:] if self.figures.rounds % 2 == 0 else members, SURVIVORS)
        left = self._nodes
        is_first = True
        while left > 0:
            await asyncio.sleep(chance.uniform(*KILL_SECONDS))
            mortal = [member for member in self.alive_members() if member.about and member not in self.stable]
            count = min(len(mortal), left, 2 if chance.random() < TOGETHER else 1)
            victims = chance.sample(mortal, count)
            if is_first and members[0] in mortal:
                victims[:1] = [members[0]]
            is_first = False
            for victim in victims:
                self.kill(victim)
                left -= 1
            for _ in range(max(1, count)):
                if chance.random() < REPLACED:
                    self._coming.append(asyncio.ensure_future(self._replace(chance.choice(self.stable).address)))
        await asyncio.gather(*self._coming)

    async def _replace(self, contact: str) -> None:
        member = await self.cluster.add(contact)
        self.figures.newcomers += 1
        self.load(member)

    def publish_one(self, client: Client, topic: str, value: bytes, chance: random.Random) -> Any:
        return client.publish(topic, value, order=chance.choice(ORDERS))

    async def agree(self, clients: list[Client], nodes: list[int]) -> None:
        """Every stable node publishes last words and receives those of all; then all have delivered the same number.

        Nodes that passed over a message in total order report it, and may have delivered less.
        """
        for topic in TOPICS:
            heard = [client.subscribe(topic) for client in clients]
            await asyncio.gather(*(subscription.ready() for subscription in heard))
            for client, node in zip(clients, nodes, strict=True):
                await client.publish(topic, b"last %d" % node, order="causal")
            await asyncio.gather(*(last_words(each, len(clients)) for each in heard))
        looks = holes = 0
        before: list[list[int]] = []
        while looks < LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            found = [await client.status() for client in clients]
            counts = [[status["topics"][topic]["delivered_messages"] for topic in TOPICS] for status in found]
            holes = sum(status["topics"][topic]["lost_batches"] for status in found for topic in TOPICS)
            # A node that passed over a message has delivered less.
            is_same = holes > 0 or all(count == counts[0] for count in counts)
            is_done = is_same and not any(each["unfinished"] for each in found)
            looks = looks + 1 if is_done and counts == before else 0
            before = counts
        self.figures.holes += holes
