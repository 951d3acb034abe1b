"""The applications of a live campaign: a process with clients that publish, subscribe and write journals.

Run as ``python -m antiphon.torture.live.load``. The first line on standard input describes the work; each further line
is a command, answered on standard output when it is done. All lines are JSON.

An application has a home node. When that node is gone its client reconnects to another one, and stays there until the
command ``home`` ends the application: a new one begins, with a new number. An application also ends when it was told
that its publications would not follow what it has seen, as real applications must.
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
from antiphon.kernel.errors import PeerError
from antiphon.runtime.errors import OverloadedError
from antiphon.torture.live.journal import ApplicationJournal
from antiphon.torture.live.values import Name, Sizes, name_in

if TYPE_CHECKING:
    from antiphon.api.batch import Message
    from antiphon.client.handle import Client

RECONNECT_SECONDS: Final = 3600.0
"""Clients look for a node for as long as a campaign may last."""

RETRY_SECONDS: Final = 0.2
FAREWELL_SECONDS: Final = 20.0
"""How long an ending application waits until its publications would survive its node."""

PROBES_REMEMBERED: Final = 64
BURST_AT_MOST: Final = 4
TOGETHER_IN_BURST: Final = 100
TOGETHER_IN_FLOOD: Final = 300
FLOODS: Final = ((20_100, 0), (1_200, 20 << 10))
"""Numbers of messages and their size in bytes, 0 for small ones: more than nodes send ahead of an application, in
messages or in bytes.
"""

READ_BYTES: Final = 1 << 20


class Orders(msgspec.Struct, frozen=True):
    """The orders and keys to draw for messages.

    With ``weak_keys``, messages of weaker orders use these, and total ones use the others.
    """

    names: list[str]
    keys: list[str] = []
    weak_keys: list[str] = []
    goes_on_when_refused: bool = False
    """Whether the application continues after a refused message: it may, if later messages still follow what it has
    seen.
    """

    @property
    def of_probes(self) -> list[str]:
        """The orders of probes: total, if there is one, and an order that follows everything its publisher published or
        saw.
        """
        return [*(["total"] if "total" in self.names else []), "causal"]

    def draw(self, chance: random.Random, order: str | None = None) -> tuple[str, list[str]]:
        """Draw an order, unless it is given, and keys."""
        order = order or chance.choice(self.names)
        keys = self.weak_keys if self.weak_keys and order != "total" else self.keys
        return order, chance.sample(keys, min(len(keys), chance.choice((1, 1, 2)))) if keys else []


class LoadWork(msgspec.Struct, frozen=True):
    """The work of the applications of one process."""

    doors: list[str]
    places: list[int]
    """The home nodes of the applications."""
    topics: list[str]
    orders: Orders
    messages_per_second: float
    """The rate of each application."""
    seed: int
    journals: str


class LoadApplication:
    """One place, where applications follow each other."""

    def __init__(self, work: LoadWork, place: int) -> None:
        self._work = work
        self.place = place
        self._chance = random.Random(f"{work.seed} {place}")
        self._lives = 0
        self._identity = -1
        self.journal = ApplicationJournal(Path(work.journals) / f"application-{place}.txt")
        self._client: Client | None = None
        self._numbers: list[int] = []
        self._sizes = Sizes(random.Random(f"{work.seed} {place} sizes"))
        self._publishing: list[asyncio.Task[None]] = []
        self._is_quiet = False
        self._has_begun = asyncio.Event()
        self._beginning = asyncio.Lock()
        # By probe: the places, topics and orders of which a message has arrived.
        self.probes: dict[int, set[tuple[int, int, str]]] = {}
        self.moves = 0
        self.accepted = 0
        self.refused = 0
        self.seen = 0
        self.gaps = 0
        self.published_bytes = 0
        self.flood_left = 0
        """The number of messages of a flood that are not accepted yet."""

    # Begin and end.

    async def begin(self) -> None:
        """Connect, at home if possible, subscribe to all topics and publish."""
        work = self._work
        doors = [work.doors[self.place], *(door for door in work.doors if door != work.doors[self.place])]
        while True:
            try:
                client = await antiphon.connect(doors, reconnect_seconds=RECONNECT_SECONDS, on_reconnect=self._moved)
                break
            except PeerError:
                await asyncio.sleep(RETRY_SECONDS)
        self._identity = self.place + self._lives * len(work.doors)
        self._lives += 1
        self._client = client
        self._numbers = [0] * len(work.topics)
        self.journal.begin(self._identity)
        self.journal.node(client.address)
        await asyncio.gather(*(self._subscribe(client, topic) for topic in range(len(work.topics))))
        self._publishing = [
            asyncio.create_task(self._publish(client, topic, random.Random(self._chance.getrandbits(62))))
            for topic in range(len(work.topics))
        ]
        self._has_begun.set()

    async def _subscribe(self, client: Client, topic: int) -> None:
        name = self._work.topics[topic]

        def missed(_: str) -> None:
            if client is self._client:
                self.gaps += 1
                self.journal.gap(topic)

        def see(message: Message) -> None:
            if client is self._client:
                self._see(topic, message)

        await client.subscribe(name, callback=see, when_missed=missed).ready()
        self.journal.ready(topic)

    async def begin_again(self, client: Client | None = None, at_home: bool = False) -> None:
        """End and begin again, unless another task did meanwhile, or the application must be at home and is."""
        async with self._beginning:
            former = self._client
            if former is None or client not in (None, former):
                return
            if at_home and former.address == self._work.doors[self.place]:
                return
            self._has_begun.clear()
            for publishing in self._publishing:
                publishing.cancel()
            self._client = None
            for topic in range(len(self._work.topics)):
                self.journal.end(topic)
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await former.close()
            await former.abandon()
            await self.begin()

    def _moved(self, address: str) -> None:
        self.moves += 1
        self.journal.node(address)

    # Publish and receive.

    async def _publish(self, client: Client, topic: int, chance: random.Random) -> None:
        pause_seconds = len(self._work.topics) * (1 + BURST_AT_MOST) / 2 / self._work.messages_per_second
        while not self._is_quiet:
            burst = [self._ask(client, topic, chance) for _ in range(chance.randint(1, BURST_AT_MOST))]
            for number, receipt in burst:
                await self._answer(client, topic, number, receipt)
            await asyncio.sleep(chance.expovariate(1 / pause_seconds))

    def _ask(
        self, client: Client, topic: int, chance: random.Random, probe: int = 0, order: str | None = None
    ) -> tuple[int, Any]:
        # Probes measure recovery, so they all have the same size.
        size = self._sizes.small() if probe else self._sizes.next()
        return self._ask_about(client, topic, *self._work.orders.draw(chance, order), probe, size)

    def _ask_about(
        self, client: Client, topic: int, order: str, keys: list[str], probe: int, size: int
    ) -> tuple[int, Any]:
        self._numbers[topic] += 1
        number = self._numbers[topic]
        self.journal.ask(topic, number, order, keys)
        name = Name(self._identity, number, probe, size)
        self.published_bytes += name.size
        try:
            receipt = client.publish(
                self._work.topics[topic], name.value(), order=order, keys=keys or None, headers=name.header()
            )
        except (PeerError, OverloadedError):
            return number, None
        # Written at once, while the client is still at the node that answered.
        receipt.add_done_callback(lambda answered: self._answered(client, topic, number, answered))
        return number, receipt

    def _answered(self, client: Client, topic: int, number: int, answered: asyncio.Future[Any]) -> None:
        if not answered.cancelled() and answered.exception() is None and client is self._client:
            self.accepted += 1
            self.journal.answered(topic, number, True)

    async def _answer(self, client: Client, topic: int, number: int, receipt: Any) -> None:
        try:
            if receipt is None:
                raise PeerError("the client refused it")
            await receipt
        except PeerError:
            if client is self._client:
                self.refused += 1
                self.journal.answered(topic, number, False)
                if not self._work.orders.goes_on_when_refused:
                    asyncio.get_running_loop().create_task(self.begin_again(client))

    def _see(self, topic: int, message: Message) -> None:
        name = name_in(message.headers)
        self.seen += 1
        is_whole = message.value == name.value()
        self.journal.see(topic, name.identity, name.number, message.order, message.publisher, is_whole)
        if name.probe:
            place = name.identity % len(self._work.doors)
            self.probes.setdefault(name.probe, set()).add((place, topic, message.order))
            self.probes.pop(name.probe - PROBES_REMEMBERED, None)

    # Commands of the campaign.

    def publish_more(self, command: str, number: int) -> None:
        """Publish many messages on the first topic beside everything else, if that is the command."""
        client = self._client
        if client is None or self._is_quiet:
            return
        if command == "burst":
            self._publishing.append(asyncio.create_task(self._burst(client, number)))
        elif command == "flood":
            self._publishing.append(asyncio.create_task(self._flood(client, *FLOODS[number])))

    async def _burst(self, client: Client, count: int) -> None:
        """Publish so many messages as fast as they are accepted, in any order but total."""
        weaker = [order for order in self._work.orders.names if order != "total"] or ["causal"]
        for _ in range(0, count, TOGETHER_IN_BURST):
            asked = [
                self._ask(client, 0, self._chance, order=self._chance.choice(weaker)) for _ in range(TOGETHER_IN_BURST)
            ]
            for number, receipt in asked:
                await self._answer(client, 0, number, receipt)

    async def _flood(self, client: Client, count: int, size: int) -> None:
        """Publish so many messages of one size, or small ones."""
        orders = self._work.orders
        self.flood_left = count
        weaker = [order for order in orders.names if order != "total"] or ["causal"]
        try:
            for _ in range(0, count, TOGETHER_IN_FLOOD):
                # Messages of one order and the same keys travel in one batch.
                order, keys = orders.draw(self._chance, self._chance.choice(weaker))
                asked = [
                    self._ask_about(client, 0, order, keys, 0, size or self._sizes.small())
                    for _ in range(TOGETHER_IN_FLOOD)
                ]
                for number, receipt in asked:
                    await self._answer(client, 0, number, receipt)
                    self.flood_left -= 1
        finally:
            self.flood_left = 0

    async def probe(self, number: int, orders: list[str]) -> None:
        """Publish on each topic in each of these orders, once an application has begun."""
        await self._has_begun.wait()
        client = self._client
        if client is None:
            return
        asked = [
            (topic, *self._ask(client, topic, self._chance, number, order))
            for topic in range(len(self._work.topics))
            for order in orders
        ]
        for topic, message, receipt in asked:
            await self._answer(client, topic, message, receipt)

    async def be_quiet(self) -> None:
        """Publish no more, and wait for messages in transit."""
        self._is_quiet = True
        await asyncio.gather(*self._publishing, return_exceptions=True)

    async def close(self) -> None:
        """End for good."""
        for publishing in self._publishing:
            publishing.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)
        former, self._client = self._client, None
        if former is not None:
            await former.abandon()
        self.journal.close()


class Load:
    """All applications of this process."""

    def __init__(self, work: LoadWork) -> None:
        self._work = work
        self._applications = [LoadApplication(work, place) for place in work.places]
        self._tasks: set[asyncio.Task[None]] = set()
        # By probe: the number of orders it is published in.
        self._orders_of: dict[int, int] = {}

    async def begin(self) -> None:
        """Begin all applications."""
        await asyncio.gather(*(each.begin() for each in self._applications))

    async def obey(self, command: str, number: int, places: list[int]) -> dict[str, Any]:
        """Carry out a command of the campaign at some places; returns the answer."""
        applications = [each for each in self._applications if not places or each.place in places]
        for each in applications:
            each.publish_more(command, number)
        if command == "home":
            await asyncio.gather(*(each.begin_again(at_home=True) for each in applications))
        elif command in ("probe", "last"):
            # Last words use every order.
            orders = self._work.orders.of_probes if command == "probe" else self._work.orders.names
            self._orders_of[number] = len(orders)
            for each in applications:
                task = asyncio.create_task(each.probe(number, orders))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        elif command == "quiet":
            await asyncio.gather(*(each.be_quiet() for each in applications))
        elif command == "close":
            await asyncio.gather(*(each.close() for each in applications))
        elif command == "figures":
            for each in applications:
                each.journal.flush()
        return self._figures()

    def _figures(self) -> dict[str, Any]:
        names = ("accepted", "refused", "seen", "gaps", "moves", "published_bytes", "flood_left")
        figures: dict[str, Any] = {name: sum(getattr(each, name) for each in self._applications) for name in names}
        places = len(self._work.doors) * len(self._work.topics)
        complete = [
            {probe for probe, come in each.probes.items() if len(come) == places * self._orders_of.get(probe, 0)}
            for each in self._applications
        ]
        figures["probes"] = sorted(set.intersection(*complete))
        return figures


async def serve() -> None:
    """Read commands until the input ends; applications run meanwhile."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(READ_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    load = Load(msgspec.json.decode(await reader.readline(), type=LoadWork))
    await load.begin()
    say({"number": 0})
    running: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        command = msgspec.json.decode(line)
        task = asyncio.create_task(answer(load, command))
        running.add(task)
        task.add_done_callback(running.discard)


async def answer(load: Load, command: dict[str, Any]) -> None:
    """Carry out one command and answer it."""
    figures = await load.obey(command["command"], command.get("probe", 0), command.get("places", []))
    say({"number": command["number"], **figures})


def say(line: dict[str, Any]) -> None:
    """Write an answer to the campaign."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    antiphon.run(serve())
