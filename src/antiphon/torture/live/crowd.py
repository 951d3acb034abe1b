"""A crowd of subscribers in a live campaign: of every policy and limit, they come, lag, close, stay and vanish.

Run as ``python -m antiphon.torture.live.crowd``. The first line on standard input says who is to come; each that
follows is a command, answered on standard output. All lines are JSON. A process whose subscribers are to vanish is
killed, so each writes down what it sees as soon as it sees it.

Each subscriber has a client of its own, at a node that is drawn. It takes messages for a while and then takes none,
again and again, until it closes its subscription, drops its connection, or stays. Somebody else then takes its place,
with another number. A node sends up to 16,384 messages or 16 MB ahead of an application, so the campaign lets an
application publish more than that meanwhile: what is behind it waits at the node and meets the limit.
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
from antiphon.torture.live.journal import Journal
from antiphon.torture.live.load import say
from antiphon.torture.live.values import name_in

if TYPE_CHECKING:
    from antiphon.api.subscription import Subscription
    from antiphon.client.client import Client

FIRST_IDENTITY: Final = 1 << 20
"""Subscribers have numbers from here on, and applications below."""

LIVES_AT_MOST: Final = 16
"""So many subscribers follow each other at one place."""

SMALL_LIMITS: Final = (1, 7, 100)
LIMITS: Final = (*SMALL_LIMITS, 1000, 65_536)
DROPPING: Final = ("drop_oldest", "drop_newest")
"""What subscribers with these policies saw is judged apart: they miss messages, and are told how many."""

DROPPING_NAME: Final = "dropping"
"""The directory with the journals of these, beside those of all others."""

TAKE_SECONDS: Final = (0.0, 1.0)
LAG_SECONDS: Final = (0.2, 4.0)
TURNS_AT_MOST: Final = 3
DEAF: Final = 0.5
"""How often a subscriber takes nothing at all from when it is ready until it ends or everything is healed. Such a one
subscribes to where most is published, and its limit is soon reached. The first of each policy in a process is one."""

DEAF_SECONDS: Final = (5.0, 20.0)
RECONNECT_SECONDS: Final = 60.0
STAYS: Final = 0.4
"""How often a subscriber stays until everything is healed."""

FLUSH_MESSAGES: Final = 64
READ_BYTES: Final = 1 << 20
COME_SECONDS: Final = 5.0
END_SECONDS: Final = 20.0


class CrowdWork(msgspec.Struct, frozen=True):
    """Who is to come."""

    doors: list[str]
    topics: list[str]
    count: int
    """How many there are at a time."""
    first_identity: int
    seed: str
    directory: str
    """Where the directories with journals are."""
    name: str
    """Of this crowd, for its files."""


class Guest:
    """One place, where subscribers follow each other; all have the same policy, so one file says what they saw."""

    def __init__(self, work: CrowdWork, place: int) -> None:
        self._work = work
        self._place = place
        self._chance = random.Random(f"{work.seed} {place}")
        # The crowd's places take turns, so even a small one has every policy.
        self._policy = POLICIES[place % len(POLICIES)]
        kind = DROPPING_NAME if self._policy in DROPPING else "journals"
        self.journal = Journal(Path(work.directory) / kind / f"crowd-{work.name}-{place}.txt")
        self._next_identity = work.first_identity + place * LIVES_AT_MOST
        self._lives_left = LIVES_AT_MOST
        self._unflushed = 0
        self._dropped = 0
        self.settles = asyncio.Event()
        """Set when nobody is to lag or to come any more."""
        self.ends = asyncio.Event()
        self.has_come = asyncio.Event()
        self.probe = 0
        """The last round of probes of which something came; 0 if there is nobody to whom it should come."""
        self.is_there = False

    async def run(self) -> None:
        """Come and go until it is enough, or until somebody stays."""
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
            # To be told how much it has missed.
            await self._take(subscription, topic, TAKE_SECONDS[1])
        if chance.random() < STAYS:
            while not (self.ends.is_set() or subscription.is_closed):
                await self._take(subscription, topic, TAKE_SECONDS[1])
        elif chance.random() < 0.5:
            await subscription.close()
            await client.close()

    async def _take(self, subscription: Subscription, topic: int, seconds: float) -> None:
        """Take whatever there is, for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        async for message in subscription:
                            self._count_dropped(subscription, topic)
                            name = name_in(message.headers)
                            is_whole = message.value == name.value()
                            self.journal.see(topic, name.identity, name.number, message.order, is_whole)
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
    """All of this process."""

    def __init__(self, work: CrowdWork) -> None:
        self._guests = [Guest(work, place) for place in range(work.count)]
        self._tasks = [asyncio.ensure_future(guest.run()) for guest in self._guests]

    async def obey(self, command: str, probe: int) -> dict[str, Any]:
        """Do what the campaign asks for; the answer says to how many nothing of this round of probes has come.

        ``come``: answered when all have come, or soon. ``settle``: nobody comes any more, and those that are there do
        not lag. ``end``: all go.
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
        """What no subscriber should meet."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [error for task in ended if (error := task.exception()) is not None]


async def serve() -> None:
    """Obey until there are no more commands."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(READ_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    guests = Guests(msgspec.json.decode(await reader.readline(), type=CrowdWork))
    while line := await reader.readline():
        command = msgspec.json.decode(line)
        say(await guests.obey(command["command"], command["probe"]))


if __name__ == "__main__":
    antiphon.run(serve())
