"""Streams as a program finds them at a client: ``client.topics``, ``client.consume``, ``client.history``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from antiphon.api.batch import Batch, Message
from antiphon.api.columns import Receipt
from antiphon.client.streams.consumption import Consumption
from antiphon.client.streams.leader_links import LeaderLinks
from antiphon.client.streams.topics import ASK_SECONDS, Topics
from antiphon.kernel.errors import UsageError
from antiphon.streams.commands import MODES, ConsumerSettings
from antiphon.streams.requests import (
    EARLIEST,
    LATEST,
    AwaitPosition,
    HistoryPiece,
    PositionFound,
    ReadHistory,
)

PIECE_BYTES: Final = 1 << 20
NEWS_US: Final = 5_000_000
"""How long a reader at the end of the history waits for an answer before it asks again."""


class SettledReceipt(NamedTuple):
    """Of a message in the history of its topic: its author and number, its position, and on how many disks it is."""

    topic: str
    author: int
    sequence: int
    generation: int
    position: int
    disks: int


class HistoryMessage:
    """A message of the history."""

    __slots__ = ("_message", "position")

    def __init__(self, message: Message, position: int) -> None:
        self._message = message
        self.position = position
        """Its place in the history of the topic, the same at every node."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._message, name)

    def __repr__(self) -> str:
        return f"HistoryMessage(position={self.position}, {self._message!r})"


class StreamCalls:
    """The calls of a client about streams."""

    def __init__(self, links: LeaderLinks) -> None:
        self._links = links
        self.topics = Topics(links)

    def consume(
        self,
        topic: str,
        name: str,
        mode: str,
        ack_seconds: float,
        max_deliveries: int,
        start: str | int,
        window: int,
    ) -> Consumption:
        """Be a member of a consumer."""
        if mode not in MODES:
            raise UsageError(f"a consumer hands out by one of {', '.join(MODES)}, not {mode!r}")
        if not 0.1 <= ack_seconds <= 86_400:
            raise UsageError(f"ack_seconds is between 0.1 and 86400, not {ack_seconds}")
        if not 1 <= window <= 65_536:
            raise UsageError(f"a window is between 1 and 65536 messages, not {window}")
        settings = ConsumerSettings(mode, round(ack_seconds * 1_000_000), max_deliveries, 65_536)  # type: ignore[arg-type]
        return Consumption(self._links, topic, name, settings, position_of(start), window)

    async def history(self, topic: str, start: str | int, follow: bool) -> AsyncIterator[HistoryMessage]:
        """The messages of a topic from a position on."""
        position = position_of(start)
        while True:
            request = ReadHistory(topic, position, PIECE_BYTES, NEWS_US if follow else 0)
            _, found = await self._links.ask(topic, request, ASK_SECONDS)
            assert isinstance(found, HistoryPiece)
            for content in found.batches:
                batch = Batch(
                    topic,
                    content.publisher,
                    content.order,
                    content.position,
                    content.payload,
                    sequence=content.sequence,
                )
                for message in batch.messages(max(position, content.position)):
                    yield HistoryMessage(message, message.offset)
            position = found.next_position
            if not found.batches and not follow:
                return

    async def settled(self, receipt: Receipt, timeout: float) -> SettledReceipt:
        """Wait until a message has its position, and a majority of the replicas has it on disk."""
        request = AwaitPosition(receipt.topic, receipt.author, receipt.sequence)
        _, found = await self._links.ask(receipt.topic, request, timeout)
        assert isinstance(found, PositionFound)
        return SettledReceipt(
            receipt.topic, receipt.author, receipt.sequence, found.generation, found.position, found.disks
        )


def position_of(start: str | int) -> int:
    """A place to begin at, as a position."""
    if start == "earliest":
        return EARLIEST
    if start == "latest":
        return LATEST
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    raise UsageError(f"begin at 'earliest', 'latest' or a position from 0 on, not {start!r}")
