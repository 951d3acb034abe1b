"""The positions of the last publications of a stream, and the publishers that wait for theirs, by author."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.streams.requests import Response

RECENT: Final = 4096
"""The positions of so many publications can be asked for afterwards."""

PATIENCE_US: Final = 120_000_000
"""A publisher that has waited for so long is gone: no client waits for longer."""


class PlacedBatch(NamedTuple):
    """The messages of an author from one number on, with the position of the first, and the number of their entry."""

    first: int
    messages: int
    position: int
    entry: int


Found = Callable[[int, list[int], int], None]
"""Called with the position of the first message, jumps (:class:`antiphon.streams.requests.PositionFound`), and the
number of the last entry."""


class AwaitedPositions:
    """Messages of one author, from one number on, whose positions somebody waits for."""

    def __init__(
        self,
        holder: object,
        author: int,
        first: int,
        count: int,
        since_us: int,
        found: Found,
        respond: Callable[[Response], None],
    ) -> None:
        self.holder = holder
        self.respond = respond
        self.author = author
        self.since_us = since_us
        self._first = first
        self._end = first + count
        self._missing = count
        # By place: where a part begins, and its position.
        self._parts: dict[int, int] = {}
        self._entry = 0
        self._found = found

    def take(self, batch: PlacedBatch) -> bool:
        """Messages of the author have their places; whether all have now."""
        first, end = max(batch.first, self._first), min(batch.first + batch.messages, self._end)
        place = first - self._first
        if first < end and place not in self._parts:
            self._parts[place] = batch.position + first - batch.first
            self._missing -= end - first
            self._entry = max(self._entry, batch.entry)
        return self._missing <= 0

    def answer(self) -> None:
        """Tell the publisher."""
        jumps: list[int] = []
        last_place, last_position = 0, self._parts[0]
        for place in sorted(self._parts):
            position = self._parts[place]
            if position - last_position != place - last_place:
                jumps += (place, position)
                last_place, last_position = place, position
        self._found(self._parts[0], jumps, self._entry)


class RecentPositions:
    """The positions of one stream at its leader."""

    def __init__(self) -> None:
        self._by_author: dict[int, deque[PlacedBatch]] = {}
        self._authors: deque[int] = deque()
        self._waiting: dict[int, list[AwaitedPositions]] = {}

    def find(self, awaited: AwaitedPositions) -> None:
        """Answer a publisher: now, or when all its messages are settled."""
        # A publisher asks right after it has published: the newest come first.
        for batch in reversed(self._by_author.get(awaited.author, ())):
            if awaited.take(batch):
                awaited.answer()
                return
        waiting = self._waiting.setdefault(awaited.author, [])
        if waiting and waiting[0].since_us < awaited.since_us - PATIENCE_US:
            del waiting[0]
        waiting.append(awaited)

    def add(self, author: int, batch: PlacedBatch) -> None:
        """Messages of an author are settled."""
        self._by_author.setdefault(author, deque()).append(batch)
        self._authors.append(author)
        if len(self._authors) > RECENT:
            oldest = self._authors.popleft()
            self._by_author[oldest].popleft()
            if not self._by_author[oldest]:
                del self._by_author[oldest]
        waiting = self._waiting.pop(author, ())
        answered = [each for each in waiting if each.take(batch)]
        if len(answered) < len(waiting):
            self._waiting[author] = [each for each in waiting if each not in answered]
        for each in answered:
            each.answer()

    def leads_no_more(self) -> list[AwaitedPositions]:
        """Nobody is answered here from now on; the answer are those who wait."""
        waiting, self._waiting = self._waiting, {}
        return [each for several in waiting.values() for each in several]

    def holder_ended(self, holder: object) -> None:
        """Somebody has gone, and waits for nothing any more."""
        for author, waiting in list(self._waiting.items()):
            left = [each for each in waiting if each.holder is not holder]
            if not left:
                del self._waiting[author]
            elif len(left) < len(waiting):
                self._waiting[author] = left
