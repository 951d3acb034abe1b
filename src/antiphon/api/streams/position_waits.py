"""Publishers that wait for the positions of their messages: those of one turn of the loop ask together."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from antiphon.api.columns import Receipt
from antiphon.api.streams.leader_links import LeaderLinks
from antiphon.streams.position import Position
from antiphon.streams.requests import MESSAGES_AWAITED, AwaitPosition, PositionFound


class SettledReceipt(NamedTuple):
    """Of a message in the history of its topic: its author and number, its position, and on how many disks it is."""

    topic: str
    author: int
    sequence: int
    generation: int
    position: Position
    disks: int


Lot = tuple[str, int, float, float]
"""What messages that are asked for together have in common: topic, author, and how long their publishers wait."""


class PositionWaits:
    """The messages of one program whose positions are awaited."""

    def __init__(self, links: LeaderLinks) -> None:
        self._links = links
        self._lots: dict[Lot, list[tuple[int, asyncio.Future[SettledReceipt]]]] = {}
        self._asking: Final[set[asyncio.Task[None]]] = set()

    def settled(self, receipt: Receipt, timeout: float, all_seconds: float) -> asyncio.Future[SettledReceipt]:
        """The receipt of a message when a majority of the replicas has it on disk; or all, for so many seconds."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[SettledReceipt] = loop.create_future()
        if not self._lots:
            loop.call_soon(self._ask_for_all)
        self._lots.setdefault((receipt.topic, receipt.author, timeout, all_seconds), []).append(
            (receipt.sequence, found)
        )
        return found

    def _ask_for_all(self) -> None:
        lots, self._lots = self._lots, {}
        for lot, waiting in lots.items():
            waiting.sort(key=lambda each: each[0])
            begin = 0
            for end in range(1, len(waiting) + 1):
                # Several may wait for one message; a gap, or too many, begin another request.
                is_next = end < len(waiting) and waiting[end][0] - waiting[end - 1][0] <= 1
                if not is_next or waiting[end][0] - waiting[begin][0] >= MESSAGES_AWAITED:
                    task = asyncio.get_running_loop().create_task(self._ask(lot, waiting[begin:end]))
                    self._asking.add(task)
                    task.add_done_callback(self._asking.discard)
                    begin = end

    async def _ask(self, lot: Lot, waiting: list[tuple[int, asyncio.Future[SettledReceipt]]]) -> None:
        topic, author, timeout, all_seconds = lot
        first, last = waiting[0][0], waiting[-1][0]
        request = AwaitPosition(topic, author, first, round(all_seconds * 1e6), last - first + 1)
        try:
            _, found = await self._links.ask(topic, request, timeout + all_seconds)
            assert isinstance(found, PositionFound)
        except BaseException as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
                    # Its publisher may wait no more.
                    future.exception()
            if not isinstance(error, Exception):
                raise
            return
        generation, disks = found.generation, found.disks
        for sequence, future in waiting:
            if not future.done():
                position = Position(found.position_of(sequence - first), generation)
                future.set_result(SettledReceipt(topic, author, sequence, generation, position, disks))
