"""One attacker with a token: its chance, its targets, its connections, and what it was refused."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.torture.hostile.raw_client import RawClient

OWN: Final = "shop"
"""The first part of all topics on which the attacker has rights."""

HIDDEN: Final = "honest.hidden"
"""A topic on which it has none, and whose members it must not learn."""

SHARED: Final = "honest.shared"
"""A topic to which it may subscribe, and on which others publish."""


@dataclass
class Attacker:
    """One lane of attacks: its chance, its targets and what it was refused."""

    chance: random.Random
    addresses: list[str]
    metrics: list[str]
    token: str
    reasons: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Some node."""
        return self.chance.choice(self.addresses)

    @asynccontextmanager
    async def clients(self, count: int, reads: bool = True, place: int | None = None) -> AsyncIterator[list[RawClient]]:
        """So many connections to one node, which end with the block: to a drawn one, or to that at a place."""
        address, opened = self.address if place is None else self.addresses[place], []
        try:
            for _ in range(count):
                opened.append(RawClient(self.reasons))
                await opened[-1].open(address, self.token, f"attacker-{self.chance.getrandbits(60):x}", reads)
            yield opened
        finally:
            for client in opened:
                client.close()

    async def linger(self, least: float, most: float) -> None:
        """Stay for a while."""
        await asyncio.sleep(self.chance.uniform(least, most))


def batch(values: list[bytes]) -> bytes:
    """A batch as a client sends it."""
    return encode_columns(Columns(1, 0, values))


class Episode(msgspec.Struct):
    """One attack that is over: what was refused, and what was not and should have been."""

    attack: str
    reasons: dict[str, int]
    violations: list[str]
    sent: int = 1
