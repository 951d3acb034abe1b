"""A process with a publisher and members of consumers in a live campaign; it may be killed at any moment.

Its first line of input describes its work. When its input ends, it publishes no more, waits for the receipts of what
is under way, lets its members leave, and ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

import antiphon
from antiphon.api.streams.consumption import Consumption
from antiphon.client.handle import Client
from antiphon.torture.live.consumers.records import ACKED, ACKING, ASKED, GOT, RECEIPT, REFUSED, WorkRecords

TOPIC: Final = "jobs"
KEYS: Final = ("anna", "ben", "clara", "dora", "emil")
ACK_SECONDS: Final = 2.0
MEMBERS: Final = 2
"""So many members one process has at a time."""

PAUSE_SECONDS: Final = 0.2
RECONNECT_SECONDS: Final = 30.0
TAKEN_AT_ONCE: Final = 8
STAYS_SECONDS: Final = (1.0, 10.0)
"""How long a member stays with one consumer."""


class ProgramWork(msgspec.Struct, frozen=True):
    """What a process does. ``modes`` are those of consumers by name."""

    addresses: list[str]
    program: int
    life: int
    seed: int
    modes: dict[str, str]
    messages_per_second: float
    directory: str


class Program:
    """The publisher and the members of one process."""

    def __init__(self, work: ProgramWork) -> None:
        self._work = work
        self._chance = random.Random(f"{work.seed}/{work.program}/{work.life}")
        self._records = WorkRecords(Path(work.directory) / f"program-{work.program}-{work.life}.jsonl")
        self._is_over = asyncio.Event()
        self._joined = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until the input ends."""
        addresses = self._work.addresses
        async with (
            antiphon.connect(addresses, reconnect_seconds=RECONNECT_SECONDS) as publisher,
            antiphon.connect(addresses, reconnect_seconds=RECONNECT_SECONDS) as worker,
        ):
            members = [asyncio.ensure_future(self._be_members(worker)) for _ in range(MEMBERS)]
            publishing = asyncio.ensure_future(self._publish(publisher))
            await asyncio.to_thread(sys.stdin.read)
            self._is_over.set()
            await publishing
            for member in members:
                member.cancel()
            await asyncio.gather(*members, *self._under_way, return_exceptions=True)
        self._records.close()

    # Publishing.

    async def _publish(self, client: Client) -> None:
        number = 0
        while not self._is_over.is_set():
            await asyncio.sleep(self._chance.expovariate(self._work.messages_per_second))
            number += 1
            name = f"{self._work.program}.{self._work.life}:{number}"
            key = self._chance.choice(KEYS)
            self._records.note(ASKED, name, key)
            task = asyncio.ensure_future(self._settle(client, name, key))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _settle(self, client: Client, name: str, key: str) -> None:
        # Without an answer nobody knows whether it is in the history.
        with suppress(antiphon.AntiphonError):
            receipt = await client.publish(TOPIC, name.encode(), key=key, order="causal", acks="quorum")
            self._records.note(RECEIPT, name, receipt.generation, int(receipt.position), receipt.disks)

    # Consuming.

    async def _be_members(self, client: Client) -> None:
        """Be a member of one consumer after the other."""
        while True:
            name = self._chance.choice(sorted(self._work.modes))
            self._joined += 1
            member = f"{self._work.program}.{self._work.life}.{self._joined}"
            mode = self._work.modes[name]
            try:
                work = client.consume(TOPIC, name, mode=mode, ack_seconds=ACK_SECONDS, window=2 * TAKEN_AT_ONCE)
                async with work:
                    await self._work_on(work, name, member)
            except antiphon.AntiphonError:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _work_on(self, work: Consumption, name: str, member: str) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._chance.uniform(*STAYS_SECONDS)
        while loop.time() < until:
            taken = await work.fetch(TAKEN_AT_ONCE, timeout=1.0)
            places = [(int(message.position), message.delivery) for message in taken]
            for message, place in zip(taken, places, strict=True):
                self._records.note(GOT, name, member, *place, message.value.decode())
            for message, (position, delivery) in zip(taken, places, strict=True):
                fate = self._chance.random()
                if fate < 0.02:
                    # The program is slow: the lease may end.
                    await asyncio.sleep(self._chance.uniform(0.5, 1.5 * ACK_SECONDS))
                elif fate < 0.05:
                    await message.nack(delay_seconds=self._chance.choice((0.0, 0.3)))
                    continue
                elif fate < 0.06:
                    # It leaves with what it holds.
                    return
                self._records.note(ACKING, name, member, position, delivery)
                try:
                    await message.ack()
                    self._records.note(ACKED, name, member, position, delivery)
                except antiphon.LostTurnError:
                    self._records.note(REFUSED, name, member, position, delivery)


async def main() -> None:
    """Read the work, and do it."""
    line = await asyncio.to_thread(sys.stdin.readline)
    await Program(msgspec.json.decode(line, type=ProgramWork)).run()


if __name__ == "__main__":
    antiphon.run(main())
