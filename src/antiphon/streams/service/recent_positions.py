"""The positions of the last publications of a stream, and the publishers that wait for theirs, by author."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

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


Found = Callable[[int, int], None]
"""Called with the position of a message and the number of its entry."""


class RecentPositions:
    """The positions of one stream at its leader."""

    def __init__(self) -> None:
        self._by_author: dict[int, deque[PlacedBatch]] = {}
        self._authors: deque[int] = deque()
        self._waiting: dict[int, list[tuple[int, Found]]] = {}

    def find(self, author: int, sequence: int, found: Found) -> None:
        """Call ``found`` for a message of an author: now, or when it is settled."""
        # A publisher asks right after it has published: the newest come first.
        for batch in reversed(self._by_author.get(author, ())):
            if batch.has(sequence):
                found(batch.position + sequence - batch.first, batch.entry)
                return
        self._waiting.setdefault(author, []).append((sequence, found))

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
        left = [each for each in waiting if not batch.has(each[0])]
        if left:
            self._waiting[author] = left
        for sequence, found in waiting:
            if batch.has(sequence):
                found(batch.position + sequence - batch.first, batch.entry)
