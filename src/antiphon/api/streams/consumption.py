"""A member of a named consumer: takes messages, acknowledges them, and goes on at the next leader."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from antiphon.api.batch import Batch, Message
from antiphon.api.heard import HeardTable
from antiphon.api.streams.leader_links import LeaderLinks, StreamPeer
from antiphon.api.streams.starts import StartPlace
from antiphon.kernel.errors import PeerError
from antiphon.runtime.errors import ClosedError, LostTurnError
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks
from antiphon.streams.commands import ConsumerSettings
from antiphon.streams.position import Position
from antiphon.streams.requests import (
    AckMessages,
    AttachConsumer,
    DetachConsumer,
    Done,
    ExtendLease,
    Handed,
    MissedMessages,
    Redirect,
    Response,
    ReturnMessage,
    SetWindow,
    encode,
)

log = logger("consumer")

ANSWER_SECONDS: Final = 30.0
"""How long a member looks for the leader before it gives up."""


class ConsumedMessage:
    """A message that a consumer has handed to this program. Acknowledge it, or give it back."""

    __slots__ = ("_consumption", "_generation", "_message", "delivery", "number")

    def __init__(self, consumption: Consumption, message: Message, number: int, generation: int, delivery: int) -> None:
        self._consumption = consumption
        self._message = message
        self._generation = generation
        self.number = number
        """The number of its position."""
        self.delivery = delivery
        """How often it was handed out, this time included."""

    @property
    def position(self) -> Position:
        """Its place in the history of the topic, the same at every node."""
        return Position(self.number, self._generation)

    def authored(self) -> tuple[int, int]:
        """Its author, and the author's number for it."""
        message = self._message
        return message.author, message.author_sequence

    def __getattr__(self, name: str) -> Any:
        # Value, key, headers and so on are those of the message.
        return getattr(self._message, name)

    def ack(self) -> asyncio.Future[None]:
        """The work is done. When this has been awaited, a majority of the replicas knows, and the message never comes
        again. The acknowledgements of one turn of the loop go together: begin many, then await them.
        """
        return self._consumption.acknowledge(self)

    async def nack(self, delay_seconds: float = 0.0) -> None:
        """Give the message back: it is handed out again, after a while."""
        await self._consumption.give_back(self, delay_seconds)

    async def extend(self) -> None:
        """Take longer: the time for the acknowledgement begins anew."""
        await self._consumption.extend(self)

    def __repr__(self) -> str:
        return f"ConsumedMessage(position={self.position}, delivery={self.delivery}, {self._message!r})"


class Consumption:
    """An async iterator over the messages that a consumer hands to this program."""

    def __init__(
        self,
        links: LeaderLinks,
        heard: HeardTable,
        topic: str,
        name: str,
        settings: ConsumerSettings,
        start: StartPlace,
        window: int,
        member: int = 0,
    ) -> None:
        self._links = links
        self._heard = heard
        self.topic = topic
        self.name = name
        self._settings = settings
        self._start = start
        self._window = window
        self.missed = 0
        """How many messages retention has removed before they were done, since there is the consumer."""
        self._member = member or secrets.randbits(61)
        self._leader: StreamPeer | None = None
        self._reconnects = 0
        # Messages that this program has, and those among them that it has not taken yet.
        self._held: dict[int, ConsumedMessage] = {}
        self._queue: deque[ConsumedMessage] = deque()
        self._arrival: asyncio.Event = asyncio.Event()
        self._attaching: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._attachment = 0
        # Acknowledgements that are not sent yet, with those who wait for them.
        self._acks: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks = Tasks()
        self._is_acking = False

    # Being a member.

    async def ready(self) -> Consumption:
        """Wait until the consumer hands out messages to this program."""
        await self._attached()
        return self

    async def _attached(self) -> StreamPeer:
        while self._leader is None or not self._is_attached(self._leader):
            if self._failure is not None:
                raise self._failure
            if self._attaching is None:
                self._attaching = asyncio.get_running_loop().create_task(self._attach())
            attaching = self._attaching
            try:
                await asyncio.shield(attaching)
            finally:
                if attaching.done():
                    self._attaching = None
        return self._leader

    def _is_attached(self, leader: StreamPeer) -> bool:
        """Whether the node that this member attached to is still there: a client may be at another one meanwhile."""
        return leader.is_up and leader.reconnects == self._reconnects

    async def _attach(self) -> None:
        self._attachment += 1
        number = self._attachment
        held = [(position, message.delivery) for position, message in self._held.items()]
        position, generation, time_us = self._start
        request = AttachConsumer(
            self.topic, self.name, self._settings, position, self._member, held, self._window, generation, time_us
        )

        def on_more(response: Response) -> None:
            if number == self._attachment:
                self._on_response(response)

        leader, response = await self._links.ask(self.topic, request, ANSWER_SECONDS, on_more)
        if not isinstance(response, Done) or not response.counts:
            raise PeerError(
                f"the consumer {self.name!r} of {self.topic!r} was removed while this program attached to it"
            )
        self._leader, self._reconnects = leader, leader.reconnects
        if self._failure is not None:
            # The program has left meanwhile: as a member it would be given messages and never work on them.
            await self._detach(leader)

    def _on_response(self, response: Response) -> None:
        if isinstance(response, Handed):
            self._take(response)
        elif isinstance(response, Redirect):
            # The leader leads no more.
            self._leader = None
        elif isinstance(response, MissedMessages):
            log.warning("retention removed messages before they were done", count=response.total - self.missed)
            self.missed = response.total
        self._arrival.set()

    def _take(self, handed: Handed) -> None:
        content = handed.batch
        batch = Batch(
            self.topic, content.publisher, content.order, content.position, content.payload, sequence=content.sequence
        )
        messages = batch.messages(content.position)
        held, queue, first, generation = self._held, self._queue, content.position, handed.generation
        for place, delivery in handed.places:
            message = ConsumedMessage(self, messages[place], first + place, generation, delivery)
            held[first + place] = message
            queue.append(message)

    # Taking messages.

    def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[ConsumedMessage]:
        while True:
            for message in await self.fetch(1):
                yield message

    async def fetch(self, most: int, timeout: float | None = None) -> list[ConsumedMessage]:
        """Some messages, at most so many: those that are here, or else the first that come; none after the timeout."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not self._queue:
            leader = await self._attached()
            self._arrival.clear()
            if self._queue:
                break
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                return []
            # A connection that ends says nothing: look from time to time.
            wait = 0.5 if left is None else min(left, 0.5)
            try:
                await asyncio.wait_for(self._arrival.wait(), wait)
            except TimeoutError:
                if not self._is_attached(leader):
                    self._leader = None
        found: list[ConsumedMessage] = []
        while self._queue and len(found) < most:
            message = self._queue.popleft()
            if message.number in self._held:
                found.append(message)
        self._note(found)
        return found or await self.fetch(most, timeout)

    def _note(self, taken: list[ConsumedMessage]) -> None:
        """Let the next publications of the program on the topic follow the last of these messages of each author."""
        last: dict[int, int] = {}
        for message in taken:
            author, number = message.authored()
            if number > last.get(author, -1):
                last[author] = number
        for author, number in last.items():
            self._heard.note(self.topic, author, number)

    # Acknowledging.

    def acknowledge(self, message: ConsumedMessage) -> asyncio.Future[None]:
        """A message is done; see :meth:`ConsumedMessage.ack`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acks.append((message.number, done))
        if not self._is_acking:
            self._is_acking = True
            self._tasks.spawn(self._send_acks())
        return done

    async def _send_acks(self) -> None:
        """Acknowledgements of one turn of the loop go together; the next ones do not wait for their answer."""
        await asyncio.sleep(0)
        acks, self._acks = self._acks, []
        self._is_acking = False
        try:
            counts = await self._tell(AckMessages(self.topic, self.name, self._member, [each for each, _ in acks]))
            if not counts and len(acks) > 1:
                # One of them does not count: ask for each.
                for position, waiting in acks:
                    one = await self._tell(AckMessages(self.topic, self.name, self._member, [position]))
                    self._acked(position, waiting, one)
                return
            for position, waiting in acks:
                self._acked(position, waiting, counts)
        except Exception as error:
            for _, waiting in acks:
                if not waiting.done():
                    waiting.set_exception(error)

    def _acked(self, position: int, waiting: asyncio.Future[None], counts: bool) -> None:
        self._held.pop(position, None)
        if waiting.done():
            return
        if counts:
            waiting.set_result(None)
        else:
            waiting.set_exception(
                LostTurnError(
                    f"the message at position {position} of {self.topic!r} was handed to another member of "
                    f"{self.name!r}: its acknowledgement came later than after {self._settings.ack_us / 1e6:g} seconds"
                )
            )

    async def give_back(self, message: ConsumedMessage, delay_seconds: float) -> None:
        """Give a message back; see :meth:`ConsumedMessage.nack`."""
        self._held.pop(message.position, None)
        delay_us = round(delay_seconds * 1_000_000)
        await self._tell(ReturnMessage(self.topic, self.name, self._member, int(message.position), delay_us))

    async def extend(self, message: ConsumedMessage) -> None:
        """Take longer; see :meth:`ConsumedMessage.extend`."""
        await self._tell(ExtendLease(self.topic, self.name, self._member, int(message.position)))

    async def _tell(self, request: Any) -> bool:
        """Tell the leader something, the next one if need be; whether it counts."""
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_SECONDS
        while loop.time() < until:
            leader = await self._attached()
            try:
                response = await leader.ask_streams(encode(request))
            except ClosedError:
                if self._failure is not None:
                    raise
                self._leader = None
                continue
            except PeerError:
                self._leader = None
                continue
            if isinstance(response, Done):
                return response.counts
            self._leader = None
        raise PeerError(f"the leader of {self.topic!r} did not answer within {ANSWER_SECONDS} seconds")

    async def set_window(self, window: int) -> None:
        """Take so many messages at a time from now on; with 0, no more until it is changed again."""
        self._window = window
        await self._tell(SetWindow(self.topic, self.name, self._member, window))

    async def close(self) -> None:
        """Take nothing more: messages that are not acknowledged go to other members at once."""
        if self._failure is not None:
            return
        self._failure = ClosedError("this program has left the consumer; attach again")
        leader = self._leader
        if leader is not None and leader.is_up:
            await self._detach(leader)

    async def _detach(self, leader: StreamPeer) -> None:
        try:
            await leader.ask_streams(encode(DetachConsumer(self.topic, self.name, self._member)))
        except PeerError:
            return

    async def __aenter__(self) -> Consumption:
        return await self.ready()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
