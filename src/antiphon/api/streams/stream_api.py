"""Streams as a program finds them at a client: ``client.topics``, ``client.consume``, ``client.history``."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from antiphon.api.batch import Batch, Message
from antiphon.api.columns import Receipt
from antiphon.api.heard import HeardTable
from antiphon.api.receipts import Publishing
from antiphon.api.streams.consumption import Consumption
from antiphon.api.streams.leader_links import LeaderLinks, NoAnswerError
from antiphon.api.streams.pattern_consumption import PatternConsumption
from antiphon.api.streams.position_waits import PositionWaits, SettledReceipt, Settling
from antiphon.api.streams.starts import StartPlace, StreamStart, place_of
from antiphon.api.streams.topics import ASK_SECONDS, Topics
from antiphon.api.topic_names import checked_pattern, is_pattern
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.runtime.errors import ClosedError
from antiphon.runtime.logging import logger
from antiphon.streams.commands import MODES, ConsumerSettings
from antiphon.streams.position import Position
from antiphon.streams.requests import (
    BatchContent,
    DescribeTopic,
    HistoryPiece,
    ReadHistory,
)

SETTLE_SECONDS: Final = 15.0
"""How long a publisher waits for the position of a message."""

ALL_SECONDS: Final = 10.0
"""How long a publisher waits until all replicas have a message that has its position."""

PIECE_BYTES: Final = 1 << 20
NEWS_US: Final = 5_000_000
"""How long a reader at the end of the history waits for an answer before it asks again."""

LOOK_SECONDS: Final = 3.0
"""How long a subscription asks whether its topic has a history, before it begins with the log of the node."""

log = logger("streams")


class BatchPiece(NamedTuple):
    """A piece of a history, and the position behind it."""

    batches: list[Batch]
    end: Position
    is_compacted: bool
    """Whether positions between the batches were removed, and are not missed."""


class StreamCalls:
    """The calls of a client about streams."""

    def __init__(self, links: LeaderLinks) -> None:
        self._links = links
        self._positions = PositionWaits(links)
        self.topics = Topics(links)
        # The messages that the program receives, which those that it publishes follow.
        self.heard = HeardTable()

    def consume(
        self,
        topic: str,
        name: str | None,
        mode: str,
        ack_seconds: float,
        max_deliveries: int,
        start: StreamStart,
        window: int,
    ) -> Consumption:
        """Be a member of a consumer."""
        if mode not in MODES:
            raise UsageError(f"a consumer hands out by one of {', '.join(MODES)}, not {mode!r}")
        if not 0.1 <= ack_seconds <= 86_400:
            raise UsageError(f"ack_seconds is between 0.1 and 86400, not {ack_seconds}")
        if not 1 <= window <= 65_536:
            raise UsageError(f"a window is between 1 and 65536 messages, not {window}")
        ack_us = round(ack_seconds * 1_000_000)
        settings = ConsumerSettings(mode, ack_us, max_deliveries, 65_536, name is None)  # type: ignore[arg-type]
        if is_pattern(checked_pattern(topic)):
            if name is None:
                raise UsageError("a consumer on a pattern has a name: it is that of a consumer on each of its topics")

            def attach(one: str, begin: StreamStart, most: int) -> Consumption:
                return Consumption(self._links, self.heard, one, name, settings, place_of(begin), most)

            return PatternConsumption(self.topics, topic, name, start, window, attach)
        chosen = f"ephemeral-{secrets.token_hex(8)}" if name is None else name
        return Consumption(self._links, self.heard, topic, chosen, settings, place_of(start), window)

    async def has_history(self, topic: str) -> bool:
        """Whether several nodes keep the history of a topic; false also where nobody says so within a few seconds."""
        try:
            await self._links.ask(topic, DescribeTopic(topic), LOOK_SECONDS)
        except ClosedError:
            raise
        except PeerError as error:
            if isinstance(error, NoAnswerError):
                log.warning("cannot find out whether the topic has a history; reading the node's own log", cause=error)
            return False
        return True

    async def pieces(self, topic: str, start: StartPlace, follow: bool) -> AsyncIterator[BatchPiece]:
        """Piece after piece of a history, from a position on; an empty one where it ends for now.

        With ``follow`` it waits for more, also while no node can say what comes next.
        """
        wait_us = 0
        position, generation, time_us = start
        while True:
            request = ReadHistory(topic, position, PIECE_BYTES, wait_us, generation, time_us)
            try:
                _, found = await self._links.ask(topic, request, ASK_SECONDS)
            except NoAnswerError:
                if follow and wait_us:
                    continue
                raise
            assert isinstance(found, HistoryPiece)
            generation, position, time_us = found.generation, found.next_position, 0
            wait_us = NEWS_US if follow else 0
            batches = [batch_from(topic, content, generation) for content in found.batches]
            yield BatchPiece(batches, Position(position, generation), found.is_compacted)
            if not found.batches and not follow:
                return

    async def history(self, topic: str, start: StreamStart, follow: bool) -> AsyncIterator[Message]:
        """The messages of a topic from a place on."""
        place = place_of(start)
        async for piece in self.pieces(topic, place, follow):
            for batch in piece.batches:
                self.heard.add(batch)
                for message in batch.messages(max(place.position, batch.first_offset)):
                    yield message

    def settle(self, publishing: Publishing, acks: str) -> Settling:
        """The receipt of a message when it has its position, and is on the disks that were asked for."""
        return self._positions.settle(publishing, SETTLE_SECONDS, ALL_SECONDS if acks == "all" else 0.0)

    async def settled(self, receipt: Receipt, timeout: float, all_seconds: float = 0.0) -> SettledReceipt:
        """Wait until a message has its position, and a majority of the replicas has it on disk; then for the others."""
        return await self._positions.settled(receipt, timeout, all_seconds)


def batch_from(topic: str, content: BatchContent, generation: int) -> Batch:
    """The messages of a publication in a history, with their positions."""
    return Batch(
        topic,
        content.publisher,
        content.order,
        content.position,
        content.payload,
        sequence=content.sequence,
        generation=generation,
    )
