"""A simulated program: it publishes with receipts, takes messages from consumers, works on them, and dies.

It is a client of :mod:`antiphon.simulator.clients` that asks about streams with the calls of live clients
(:mod:`antiphon.api.streams`), on an event loop in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from antiphon.api.columns import Receipt
from antiphon.api.heard import THIS_TOPIC
from antiphon.api.streams.consumption import ConsumedMessage, Consumption
from antiphon.api.streams.leader_links import LeaderLinks
from antiphon.api.streams.starts import place_of
from antiphon.api.streams.stream_api import ALL_SECONDS, SETTLE_SECONDS, StreamCalls
from antiphon.audit.clients import ERROR, ClientJudge
from antiphon.audit.streams import StreamsJudge
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.runtime.errors import ClosedError, LostTurnError
from antiphon.sessions.client_messages import (
    Delivery,
    FollowResponse,
    PublishResponse,
    StatusResponse,
    StreamRequest,
    StreamResponse,
)
from antiphon.simulator.clients.batches import SimulatedBatch, batch_of
from antiphon.simulator.clients.client import SimulatedClient
from antiphon.simulator.clients.machine import ROOM
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.network import Network, Pipe
from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.requests import CreateTopic, Policy, Response, decode_response
from antiphon.torture.streams.loop import ProgramLoop
from antiphon.torture.streams.node import MessageText

PAUSE_SECONDS: Final = 0.3
"""After how long a program tries again what could not be done."""

KEYS: Final = 3
WINDOW: Final = 8
START: Final = place_of("earliest")


class StreamConnection:
    """A connection of a program to a node, over which it asks about streams."""

    def __init__(self, program: StreamProgram, address: str) -> None:
        self.address = address
        self.place = program.place
        self._program = program
        self._numbers = 0
        self._open: dict[int, asyncio.Future[Response]] = {}
        self._handlers: dict[int, Callable[[Response], None]] = {}
        self.is_standing = True
        # A program makes another connection.
        self.reconnects = 0
        self.pipe: Pipe | None = None

    @property
    def is_up(self) -> bool:
        """Whether it stands, and the program runs."""
        return self.is_standing and self._program.is_up

    def ask_streams(
        self, payload: bytes, on_more: Callable[[Response], None] | None = None
    ) -> asyncio.Future[Response]:
        """Ask about streams; further answers to the same request go to ``on_more``."""
        if not self.is_up:
            raise PeerError(f"the connection to {self.address} has ended")
        self._numbers += 1
        answer = self._open[self._numbers] = self._program.loop.create_future()
        if on_more is not None:
            self._handlers[self._numbers] = on_more
        assert self.pipe is not None, "it was opened"
        self.pipe.send(StreamRequest(self._numbers, payload))
        return answer

    async def abandon(self) -> None:
        """End the connection."""
        self.lost(self.pipe)
        if self.pipe is not None:
            self.pipe.close()

    # What the network does.

    def on_reply(self, pipe: Pipe, frame: object) -> None:
        """The node says something."""
        if isinstance(frame, StreamResponse):
            self._program.handle(lambda: self._hear(frame))
        elif not isinstance(frame, StatusResponse):
            self.lost(pipe)

    def _hear(self, frame: StreamResponse) -> None:
        response = decode_response(frame.payload)
        answer = self._open.pop(frame.number, None)
        if answer is not None and not answer.done():
            answer.set_result(response)
        elif frame.number in self._handlers:
            self._handlers[frame.number](response)

    def lost(self, pipe: Pipe | None) -> None:
        """The connection has ended."""
        self._program.handle(self._lose)

    def _lose(self) -> None:
        self.is_standing = False
        opened, self._open = self._open, {}
        for answer in opened.values():
            if not answer.done():
                answer.set_exception(PeerError(f"the connection to {self.address} has ended"))
                answer.exception()

    def opened(self, pipe: Pipe) -> None:
        """The connection stands."""

    def accepted(self, pipe: Pipe) -> None:
        """Nobody connects to a program."""

    def on_frame(self, pipe: Pipe, frame: object) -> None:
        """Nobody connects to a program."""

    def ended(self, pipe: Pipe) -> None:
        """Nobody connects to a program."""


class StreamProgram(SimulatedClient):
    """One program: its subscription, its publications with their receipts, and the consumers that it is a member of."""

    def __init__(
        self,
        number: int,
        addresses: list[str],
        clock: VirtualClock,
        network: Network,
        judges: tuple[ClientJudge, StreamsJudge],
        random: RandomStream,
    ) -> None:
        super().__init__(number, addresses, clock, network, judges[0], random)
        self.streams = judges[1]
        self.loop = ProgramLoop(clock, self.handle, self._unexpected)
        self.addresses = addresses
        self._connections = 0
        self._asked_names: dict[str, tuple[int, str]] = {}
        self._acks = "one"
        self._key = 0
        self.consumptions: dict[str, Consumption] = {}
        self._members = 0
        # Whether it acknowledges all that it gets.
        self.is_tireless = False
        # The messages that it has read from the history last, by position.
        self.history: dict[int, str] = {}
        self.links = LeaderLinks(self.connection(addresses[0]), self._connect)
        self.calls = StreamCalls(self.links)

    def _unexpected(self, about: str) -> None:
        self.streams.violation(ERROR, f"program {self.number}: {about}")

    # Its connections.

    def connection(self, address: str) -> StreamConnection:
        """Another connection to a node."""
        self._connections += 1
        made = StreamConnection(self, address)
        # Each of them is a client of its own to the node.
        author = str((1 << 61) + (1 << 40) + self.number * 1000 + self._connections)
        made.pipe = self._network.open(made, address, Hello(PROTOCOL_VERSION, "antiphon", author, ""), 0)
        return made

    async def _connect(self, address: str) -> StreamConnection:
        return self.connection(address)

    async def ask(self, request: Any, seconds: float) -> Response:
        """The answer of the node that can answer, through a node that is there."""
        if not self.links._home.is_up:
            self._go_home()
        return (await self.links.ask(ROOM, request, seconds))[1]

    def _go_home(self) -> None:
        """Ask through another node from now on."""
        place = int(self._random.below(len(self.addresses)))
        self.links._home = self.connection(self.addresses[place])

    # Publishing.

    def publish_with(self, order: str, acks: str, key: int) -> None:
        """Ask for a message, and for its receipt."""
        self._acks, self._key = acks, key
        self.publish(order)

    def _ask(self, order: str) -> None:
        follows = self.calls.heard.take(ROOM, self._author)
        named = [] if follows is None else follows.topics[THIS_TOPIC]
        pairs = ",".join(f"{author}:{number}" for author, number in zip(named[::2], named[1::2], strict=True))
        self._published += 1
        name = f"{self.number}.{self._published}"
        text = f"{name};k{self._key};{pairs}"
        self._judge.asked(self.number, text, order, self._clock.now_us)
        self.streams.asked(name, self.number, f"k{self._key}", order)
        self._asked_names[text] = (self._published, self._acks)
        self._waiting.append((text, order))

    def accepted(self, receipt: Any) -> None:
        super().accepted(receipt)
        number, acks = self._asked_names[receipt]
        self.streams.accepted(f"{self.number}.{number}")
        if acks != "one":
            self.loop.spawn(self._settle(number, acks))

    def refused(self, receipt: Any, answer: PublishResponse | FollowResponse) -> None:
        super().refused(receipt, answer)
        # The next message follows what this one would have followed.
        self.calls.heard.give_back(ROOM, MessageText(receipt).follows)
        self.streams.refused(f"{self.number}.{self._asked_names[receipt][0]}")

    async def _settle(self, number: int, acks: str) -> None:
        """Wait for the receipt of a message as ``publish(..., acks=...)`` does."""
        receipt = Receipt(ROOM, self._author, number)
        try:
            if not self.links._home.is_up:
                self._go_home()
            found = await self.calls.settled(receipt, SETTLE_SECONDS, ALL_SECONDS if acks == "all" else 0.0)
        except (PeerError, UsageError, ClosedError):
            return
        self.streams.receipt(f"{self.number}.{number}", found.generation, int(found.position), found.disks, acks)

    def _hear(self, pipe: Pipe, frame: object) -> None:
        if pipe is self._pipe and isinstance(frame, Delivery):
            batch = batch_of(frame.publisher, frame.sequence, frame.order, frame.payload)
            self._shown(batch)
        super()._hear(pipe, frame)

    def _shown(self, batch: SimulatedBatch) -> None:
        self.calls.heard.note(ROOM, batch.author, batch.number)
        self.streams.saw(MessageText(batch.name).name, self.number)

    # The history.

    def create(self, policy: Policy) -> None:
        """Give the topic a history."""
        self.loop.spawn(self._create(policy))

    async def _create(self, policy: Policy) -> None:
        while True:
            try:
                await self.ask(CreateTopic(ROOM, policy), 15.0)
            except PeerError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.streams.created()
                return

    def read(self) -> None:
        """Read the history to its end."""
        self.loop.spawn(self._read())

    async def _read(self) -> None:
        try:
            if not self.links._home.is_up:
                self._go_home()
            self.history = {}
            async for message in self.calls.history(ROOM, "earliest", False):
                assert message.position is not None, "it is read from the history"
                name = message.value.decode()
                self.history[int(message.position)] = name
                self.streams.placed(name, message.position.generation, int(message.position))
                self.streams.saw(name, self.number)
        except (PeerError, UsageError):
            return

    # Working.

    def consume(self, consumer: str, settings: ConsumerSettings, pace: int) -> None:
        """Be a member of a consumer from now on; ``pace`` says how fast it works."""
        if consumer not in self.consumptions:
            self._members += 1
            member = self.number * 100 + self._members
            made = Consumption(self.links, self.calls.heard, ROOM, consumer, settings, START, WINDOW, member)
            self.consumptions[consumer] = made
            self.loop.spawn(self._work(consumer, made, pace))

    async def _work(self, consumer: str, made: Consumption, pace: int) -> None:
        while self.consumptions.get(consumer) is made:
            try:
                if not self.links._home.is_up:
                    self._go_home()
                for message in await made.fetch(4, 5.0):
                    self.loop.spawn(self._work_on(consumer, made, message, pace))
            except (PeerError, UsageError):
                await asyncio.sleep(PAUSE_SECONDS)
            self.streams.told_missed(consumer, made.missed)

    async def _work_on(self, consumer: str, made: Consumption, message: ConsumedMessage, pace: int) -> None:
        position = int(message.position)
        name = message.value.decode()
        self.streams.took(consumer, self.number, message.position.generation, position, name)
        fate = 3 if self.is_tireless else int(self._random.below(20))
        await asyncio.sleep((pace * int(self._random.below(1000))) / 1_000_000)
        try:
            if fate == 0:
                await message.nack(int(self._random.below(2)) * 0.05)
            elif fate == 1:
                # The program forgets it, until its lease ends.
                return
            else:
                if fate == 2:
                    await message.extend()
                await message.ack()
                self.streams.acknowledged(consumer, position)
        except (LostTurnError, ClosedError, PeerError):
            return

    def leave_consumer(self, consumer: str) -> None:
        """Leave a consumer in order."""
        made = self.consumptions.pop(consumer, None)
        if made is not None:
            self.loop.spawn(self._leave(made))

    async def _leave(self, made: Consumption) -> None:
        try:
            await made.close()
        except PeerError:
            return

    def die(self) -> None:
        """End without a word."""
        self.is_up, self.loop.is_over = False, True
        self._judge.gave_up(self.number)
        self.streams.died(self.number)
        self._network.ends(self, True)
        for pipe in list(self._network.pipes):
            if isinstance(pipe.opener, StreamConnection) and pipe.opener._program is self:
                pipe.vanish(pipe.opener, bool(self._random.below(2)))
