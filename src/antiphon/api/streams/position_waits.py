"""Publishers that wait for the positions of their messages: those of one turn of the loop ask together."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from antiphon.api.columns import Receipt
from antiphon.api.receipts import Publishing
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


SettledFuture = asyncio.Future[SettledReceipt]

Lot = tuple[str, int, float, float]
"""What messages that are asked for together have in common: topic, author, and how long their publishers wait."""


class PositionWaits:
    """The messages of one program whose positions are awaited."""

    def __init__(self, links: LeaderLinks) -> None:
        self._links = links
        self._lots: dict[Lot, list[tuple[int, SettledFuture]]] = {}
        self._asking: Final[set[asyncio.Task[None]]] = set()

    def settled(self, receipt: Receipt, timeout: float, all_seconds: float) -> SettledFuture:
        """The receipt of a message when a majority of the replicas has it on disk; or all, for so many seconds."""
        found: SettledFuture = asyncio.get_running_loop().create_future()
        self._add(receipt, timeout, all_seconds, found)
        return found

    def settle(self, publishing: Publishing, timeout: float, all_seconds: float) -> SettledFuture:
        """The same for a message on its way; without a task for each, because there are many."""
        found: SettledFuture = asyncio.get_running_loop().create_future()
        publishing.add_done_callback(partial(self._accepted, found, timeout, all_seconds))
        return found

    def _accepted(
        self, found: SettledFuture, timeout: float, all_seconds: float, publishing: asyncio.Future[Receipt]
    ) -> None:
        if found.done():
            return
        if publishing.cancelled():
            found.cancel()
            return
        error = publishing.exception()
        if error is None:
            self._add(publishing.result(), timeout, all_seconds, found)
        else:
            found.set_exception(error)

    def _add(self, receipt: Receipt, timeout: float, all_seconds: float, found: SettledFuture) -> None:
        if not self._lots:
            found.get_loop().call_soon(self._ask_for_all)
        lot = (receipt.topic, receipt.author, timeout, all_seconds)
        waiting = self._lots.get(lot)
        if waiting is None:
            waiting = self._lots[lot] = []
        waiting.append((receipt.sequence, found))

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

    async def _ask(self, lot: Lot, waiting: list[tuple[int, SettledFuture]]) -> None:
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
