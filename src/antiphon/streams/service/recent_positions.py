"""The positions of the last publications of a stream, and the publishers that wait for theirs, by author."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from antiphon.streams.requests import Response

RECENT: Final = 4096
"""The positions of so many publications can be asked for afterwards."""


class PlacedBatch(NamedTuple):
    """The messages of an author from one number on, with the position of the first, and the number of their entry."""

    first: int
    messages: int
    position: int
    entry: int

    def has(self, sequence: int) -> bool:
        """Whether a message of the author is in it."""
        return self.first <= sequence < self.first + self.messages


Found = Callable[[int, list[int], int], None]
"""Called with the position of the first message, jumps (:class:`antiphon.streams.requests.PositionFound`), and the
number of the last entry."""


class AwaitedPositions:
    """Messages of one author, from one number on, whose positions somebody waits for.

    ``respond`` takes another answer than the one that ``found`` gives.
    """

    def __init__(self, author: int, first: int, count: int, found: Found, respond: Callable[[Response], None]) -> None:
        self.author = author
        self.respond = respond
        # The first of the messages that have no position yet.
        self.missing = first
        self._first = first
        self._end = first + count
        self._position = self._expected = 0
        self._jumps: list[int] = []
        self._entry = 0
        self._found = found

    def take(self, batch: PlacedBatch) -> bool:
        """The batch has the position of the first missing message; whether there are more."""
        position = batch.position + self.missing - batch.first
        if self.missing == self._first:
            self._position = position
        elif position != self._expected:
            self._jumps += (self.missing - self._first, position)
        end = min(self._end, batch.first + batch.messages)
        self._expected = position + end - self.missing
        self.missing = end
        self._entry = max(self._entry, batch.entry)
        return self.missing < self._end

    def answer(self) -> None:
        """All of them have positions."""
        self._found(self._position, self._jumps, self._entry)


class RecentPositions:
    """The positions of one stream at its leader."""

    def __init__(self) -> None:
        self._by_author: dict[int, deque[PlacedBatch]] = {}
        self._authors: deque[int] = deque()
        # The highest number of each author among them.
        self._last: dict[int, int] = {}
        # By author and the first missing number. A batch looks only for its own numbers, however many others are
        # waited for.
        self._waiting: dict[int, dict[int, list[AwaitedPositions]]] = {}

    def find(self, awaited: AwaitedPositions) -> Callable[[], None] | None:
        """Answer a publisher: now, or when all its messages are settled. The answer ends the waiting."""
        return partial(self._give_up, awaited) if self._waits(awaited) else None

    def _waits(self, awaited: AwaitedPositions) -> bool:
        """Take what has its position; whether something is missing. If not, the publisher is answered."""
        while (batch := self._placed(awaited.author, awaited.missing)) is not None:
            if not awaited.take(batch):
                awaited.answer()
                return False
        self._waiting.setdefault(awaited.author, {}).setdefault(awaited.missing, []).append(awaited)
        return True

    def _placed(self, author: int, sequence: int) -> PlacedBatch | None:
        # A publisher asks when it publishes: mostly for what has no position yet, and else for the newest.
        if sequence > self._last.get(author, 0):
            return None
        return next((batch for batch in reversed(self._by_author.get(author, ())) if batch.has(sequence)), None)

    def _give_up(self, awaited: AwaitedPositions) -> None:
        waiting = self._waiting.get(awaited.author, {})
        those = waiting.get(awaited.missing, [])
        if awaited in those:
            those.remove(awaited)
            if not those:
                del waiting[awaited.missing]
            if not waiting:
                del self._waiting[awaited.author]

    def leads_no_more(self) -> list[AwaitedPositions]:
        """Nobody is answered here from now on; the answer are those who wait."""
        waiting, self._waiting = self._waiting, {}
        return [each for numbers in waiting.values() for several in numbers.values() for each in several]

    def add(self, author: int, batch: PlacedBatch) -> None:
        """Messages of an author are settled."""
        self._by_author.setdefault(author, deque()).append(batch)
        self._last[author] = max(self._last.get(author, 0), batch.first + batch.messages - 1)
        self._authors.append(author)
        if len(self._authors) > RECENT:
            oldest = self._authors.popleft()
            self._by_author[oldest].popleft()
            if not self._by_author[oldest]:
                del self._by_author[oldest], self._last[oldest]
        waiting = self._waiting.get(author)
        if waiting is None:
            return
        numbers = range(batch.first, batch.first + batch.messages)
        settled = [each for each in (waiting if len(waiting) < len(numbers) else numbers) if each in waiting]
        answered = [awaited for each in settled if batch.has(each) for awaited in waiting.pop(each)]
        if not waiting:
            del self._waiting[author]
        for awaited in answered:
            self._waits(awaited)
