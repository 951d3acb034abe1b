"""A crowd of subscribers in a live campaign: of every policy and limit; they connect, lag, close, stay and vanish.

Run as ``python -m antiphon.torture.live.crowd``. The first line on standard input describes the crowd; each further
line is a command, answered on standard output. All lines are JSON. A process whose subscribers are to vanish is killed,
so each subscriber writes its journal at once.

Each subscriber has a client of its own, at a drawn node. It alternates between taking messages and taking none, until
it closes its subscription, drops its connection, or stays. Another subscriber with another number then takes its place.
A node sends up to 16,384 messages or 16 MB ahead of an application, so the campaign lets an application publish more
than that meanwhile: further messages wait at the node and reach the limit.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import antiphon
from antiphon.api.subscription import POLICIES
from antiphon.kernel.errors import PeerError
from antiphon.runtime.errors import MissedMessagesError
from antiphon.torture.live.journal import ApplicationJournal
from antiphon.torture.live.load import say
from antiphon.torture.live.values import name_in

if TYPE_CHECKING:
    from antiphon.api.pubsub import Subscription
    from antiphon.client.handle import Client

FIRST_IDENTITY: Final = 1 << 20
"""Subscribers have numbers from here on; applications have smaller ones."""

LIVES_AT_MOST: Final = 16
"""The most subscribers that follow each other at one place."""

SMALL_LIMITS: Final = (1, 7, 100)
LIMITS: Final = (*SMALL_LIMITS, 1000, 65_536)
DROPPING: Final = ("drop_oldest", "drop_newest")
"""Subscribers with these policies are judged separately: they miss messages, and are told how many."""

DROPPING_NAME: Final = "dropping"
"""The directory with the journals of such subscribers."""

TAKE_SECONDS: Final = (0.0, 1.0)
LAG_SECONDS: Final = (0.2, 4.0)
TURNS_AT_MOST: Final = 3
DEAF: Final = 0.5
"""The share of subscribers that take nothing from when they are ready until they end or everything is healed. Such a
subscriber chooses the busiest topic and soon reaches its limit. The first of each policy in a process is one.
"""

DEAF_SECONDS: Final = (5.0, 20.0)
RECONNECT_SECONDS: Final = 60.0
STAYS: Final = 0.4
"""The share of subscribers that stay until everything is healed."""

FLUSH_MESSAGES: Final = 64
READ_BYTES: Final = 1 << 20
COME_SECONDS: Final = 5.0
END_SECONDS: Final = 20.0


class CrowdWork(msgspec.Struct, frozen=True):
    """Describes one process of a crowd."""

    doors: list[str]
    topics: list[str]
    count: int
    """The number of subscribers at a time."""
    first_identity: int
    seed: str
    directory: str
    """The parent of the directories with journals."""
    name: str
    """The name of this crowd, for its files."""


class Guest:
    """One place, where subscribers of the same policy follow each other and share a journal."""

    def __init__(self, work: CrowdWork, place: int) -> None:
        self._work = work
        self._place = place
        self._chance = random.Random(f"{work.seed} {place}")
        # Places take policies in turn, so that even a small crowd has every policy.
        self._policy = POLICIES[place % len(POLICIES)]
        kind = DROPPING_NAME if self._policy in DROPPING else "journals"
        self.journal = ApplicationJournal(Path(work.directory) / kind / f"crowd-{work.name}-{place}.txt")
        self._next_identity = work.first_identity + place * LIVES_AT_MOST
        self._lives_left = LIVES_AT_MOST
        self._unflushed = 0
        self._dropped = 0
        self.settles = asyncio.Event()
        """Set when no subscriber may lag or begin any more."""
        self.ends = asyncio.Event()
        self.has_come = asyncio.Event()
        self.probe = 0
        """The last round of probes of which a message arrived; 0 if no subscriber here expects one."""
        self.is_there = False

    async def run(self) -> None:
        """Run one subscriber after the other until there were enough, or until one stays."""
        while self._lives_left and not self.settles.is_set():
            self._lives_left -= 1
            with suppress(PeerError):
                await self._live()
        self.journal.close()

    async def _live(self) -> None:
        chance, work = self._chance, self._work
        doors = chance.sample(work.doors, len(work.doors))
        is_first = self._lives_left == LIVES_AT_MOST - 1 and self._place < len(POLICIES)
        is_deaf = is_first or chance.random() < DEAF
        topic = 0 if is_deaf else chance.randrange(len(work.topics))
        limit = chance.choice(SMALL_LIMITS if is_deaf else LIMITS)
        client = await antiphon.connect(doors, reconnect_seconds=RECONNECT_SECONDS, on_reconnect=self.journal.node)
        try:
            self.journal.begin(self._next_identity)
            self._next_identity += 1
            self.journal.node(client.address)
            subscription = client.subscribe(work.topics[topic], policy=self._policy, limit=limit)
            await subscription.ready()
            self.journal.ready(topic)
            self._dropped = self.probe = 0
            self.is_there = True
            self.has_come.set()
            await self._visit(client, subscription, topic, is_deaf)
        finally:
            self.is_there = False
            self.journal.end(topic)
            self.journal.flush()
            await client.abandon()

    async def _visit(self, client: Client, subscription: Subscription, topic: int, is_deaf: bool) -> None:
        chance = self._chance
        turns_left = 1 if is_deaf else chance.randint(1, TURNS_AT_MOST)
        while turns_left and not self.settles.is_set():
            turns_left -= 1
            if not is_deaf:
                await self._take(subscription, topic, chance.uniform(*TAKE_SECONDS))
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(*(DEAF_SECONDS if is_deaf else LAG_SECONDS))):
                    await self.settles.wait()
        if is_deaf and self._policy in DROPPING:
            # Take the report of missed messages.
            await self._take(subscription, topic, TAKE_SECONDS[1])
        if chance.random() < STAYS:
            while not (self.ends.is_set() or subscription.is_closed):
                await self._take(subscription, topic, TAKE_SECONDS[1])
        elif chance.random() < 0.5:
            await subscription.close()
            await client.close()

    async def _take(self, subscription: Subscription, topic: int, seconds: float) -> None:
        """Take all messages that arrive in this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        async for message in subscription:
                            self._count_dropped(subscription, topic)
                            name = name_in(message.headers)
                            is_whole = message.value == name.value()
                            self.journal.see(
                                topic, name.identity, name.number, message.order, message.publisher, is_whole
                            )
                            self.probe = max(self.probe, name.probe)
                            self._flush_sometimes()
                    except MissedMessagesError:
                        self._count_dropped(subscription, topic)
                        self.journal.gap(topic)
                    if subscription.is_closed:
                        return

    def _count_dropped(self, subscription: Subscription, topic: int) -> None:
        if subscription.dropped != self._dropped:
            self._dropped = subscription.dropped
            self.journal.dropped(topic, self._dropped)

    def _flush_sometimes(self) -> None:
        self._unflushed += 1
        if self._unflushed >= FLUSH_MESSAGES:
            self._unflushed = 0
            self.journal.flush()


class Guests:
    """All places of this process."""

    def __init__(self, work: CrowdWork) -> None:
        self._guests = [Guest(work, place) for place in range(work.count)]
        self._tasks = [asyncio.ensure_future(guest.run()) for guest in self._guests]

    async def obey(self, command: str, probe: int) -> dict[str, Any]:
        """Carry out a command of the campaign; the answer counts the subscribers without a message of this round of
        probes.

        ``come``: answered when all have connected, or soon. ``settle``: start no more subscribers, and let none lag.
        ``end``: end all.
        """
        if command == "come":
            with suppress(TimeoutError):
                async with asyncio.timeout(COME_SECONDS):
                    await asyncio.gather(*(guest.has_come.wait() for guest in self._guests))
        for guest in self._guests:
            if command in ("settle", "end"):
                guest.settles.set()
            if command == "end":
                guest.ends.set()
        if command == "end":
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
        waiting = sum(guest.is_there and guest.probe < probe for guest in self._guests)
        return {"waiting": waiting, "failures": [str(error) for error in self._failures()]}

    def _failures(self) -> list[BaseException]:
        """Errors that no subscriber should meet."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [error for task in ended if (error := task.exception()) is not None]


async def serve() -> None:
    """Carry out commands until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(READ_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    guests = Guests(msgspec.json.decode(await reader.readline(), type=CrowdWork))
    while line := await reader.readline():
        command = msgspec.json.decode(line)
        say(await guests.obey(command["command"], command["probe"]))


if __name__ == "__main__":
    antiphon.run(serve())
