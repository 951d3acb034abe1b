"""The newest value of each key of a topic with a history: a read view that follows the history."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final

from antiphon.api.batch import Message
from antiphon.api.columns import Receipt
from antiphon.api.publisher import Key, bytes_of_key
from antiphon.api.streams.position_waits import SettledReceipt
from antiphon.api.streams.starts import StartPlace, place_of
from antiphon.api.streams.stream_api import StreamCalls
from antiphon.api.topic_names import checked_name
from antiphon.kernel.errors import RemovedError
from antiphon.runtime.errors import ClosedError, SlowConsumerError
from antiphon.streams.position import Position

CHANGES_AT_MOST: Final = 65_536
"""So many changes wait for a program that iterates over them."""

SETTLE_SECONDS: Final = 15.0


class TableChanges:
    """The changes that wait for one iteration."""

    def __init__(self) -> None:
        self.waiting: deque[Message] = deque()
        self.arrival = asyncio.Event()
        self.is_overrun = False

    def add(self, message: Message) -> None:
        """A key has another value."""
        if len(self.waiting) < CHANGES_AT_MOST:
            self.waiting.append(message)
        else:
            self.is_overrun = True
        self.arrival.set()


class Table:
    """The newest message of each key. Made by ``table``; use it with ``async with``.

    All tables of a topic go through the same states, in the order of the history. A message with an empty value removes
    its key. Messages without a key do not count.
    """

    def __init__(self, calls: StreamCalls, topic: str, refuse_if_closed: Callable[[], None]) -> None:
        self.topic: Final = checked_name(topic)
        self._calls = calls
        self._refuse_if_closed = refuse_if_closed
        self._newest: dict[bytes, Message] = {}
        # The position behind the last message that counts here.
        self._end: Position | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._progress = asyncio.Event()
        self._changes: list[TableChanges] = []

    async def ready(self) -> Table:
        """Wait until the table has everything that was in the history when this was called."""
        end = (await self._calls.topics.describe(self.topic)).end
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
        await self._reached(end)
        return self

    async def _read(self) -> None:
        start = place_of("earliest")
        try:
            while True:
                try:
                    async for piece in self._calls.pieces(self.topic, start, follow=True):
                        for batch in piece.batches:
                            for message in batch.messages():
                                self._apply(message)
                        self._end = piece.end
                        self._wake()
                        start = StartPlace(int(piece.end), piece.end.generation)
                except RemovedError:
                    # Retention was quicker; what it has removed is not compacted.
                    start = place_of("earliest")
        except Exception as error:
            self._failure = error
            self._wake()

    def _wake(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
        for changes in self._changes:
            changes.arrival.set()

    def _apply(self, message: Message) -> None:
        key = message.key
        before = None if key is None else self._newest.get(key)
        if key is None or (before is not None and self._place(before) >= self._place(message)):
            return
        if message.value:
            self._newest[key] = message
        else:
            self._newest.pop(key, None)
        for changes in self._changes:
            changes.add(message)

    def _place(self, message: Message) -> int:
        position = message.position
        return -1 if position is None else int(position)

    async def _reached(self, end: int) -> None:
        while self._end is None or self._end < end:
            self._check()
            await self._progress.wait()
        self._check()

    def _check(self) -> None:
        self._refuse_if_closed()
        if self._failure is not None:
            raise self._failure
        if self._reading is None:
            raise ClosedError(f"the table of {self.topic!r} is not open; use it with async with")

    # What the program asks for.

    @property
    def position(self) -> Position | None:
        """The position behind the last message that the table has."""
        return self._end

    async def get(
        self, key: Key, *, after: Receipt | SettledReceipt | Message | Position | None = None
    ) -> Message | None:
        """The newest message of a key, or None.

        With ``after`` the table waits until it has a message: one that this program has published or received.
        """
        self._check()
        if after is not None:
            await self._reached(await self._behind(after))
        return self._newest.get(bytes_of_key(key))

    async def _behind(self, what: Receipt | SettledReceipt | Message | Position) -> int:
        """The position behind a message."""
        if isinstance(what, (Position, SettledReceipt)):
            return int(what if isinstance(what, Position) else what.position) + 1
        if isinstance(what, Message):
            if what.position is not None:
                return int(what.position) + 1
            what = Receipt(what.topic, what.author, what.author_sequence)
        return int((await self._calls.settled(what, SETTLE_SECONDS)).position) + 1

    def items(self) -> dict[bytes, Message]:
        """All keys with their newest messages, at one moment of the history."""
        self._check()
        return dict(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    async def changes(self) -> AsyncIterator[Message]:
        """The messages that change the table from now on, in the order of the history; an empty value removes a key."""
        self._check()
        changes = TableChanges()
        self._changes.append(changes)
        try:
            while True:
                while changes.waiting:
                    yield changes.waiting.popleft()
                if changes.is_overrun:
                    raise SlowConsumerError(
                        f"more than {CHANGES_AT_MOST} changes of the table of {self.topic!r} waited; read its items, "
                        "and iterate again"
                    )
                self._check()
                changes.arrival.clear()
                await changes.arrival.wait()
        finally:
            self._changes.remove(changes)

    async def close(self) -> None:
        """Follow the history no more."""
        self._failure = self._failure or ClosedError(f"the table of {self.topic!r} has been closed")
        if self._reading is not None:
            self._reading.cancel()
        self._wake()

    async def __aenter__(self) -> Table:
        return await self.ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()
