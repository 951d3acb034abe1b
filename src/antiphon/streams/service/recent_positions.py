"""The positions of the last publications of a stream, and the publishers that wait for theirs, by author."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
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
        # By author and number. A batch looks only for its own numbers, however many others are waited for.
        self._waiting: dict[int, dict[int, list[Found]]] = {}

    def find(self, author: int, sequence: int, found: Found) -> Callable[[], None] | None:
        """Call ``found`` for a message of an author: now, or when it is settled. The answer ends the waiting."""
        # A publisher asks right after it has published: the newest come first.
        for batch in reversed(self._by_author.get(author, ())):
            if batch.has(sequence):
                found(batch.position + sequence - batch.first, batch.entry)
                return None
        self._waiting.setdefault(author, {}).setdefault(sequence, []).append(found)
        return partial(self._give_up, author, sequence, found)

    def _give_up(self, author: int, sequence: int, found: Found) -> None:
        waiting = self._waiting.get(author, {})
        those = waiting.get(sequence, [])
        if found in those:
            those.remove(found)
            if not those:
                del waiting[sequence]
            if not waiting:
                del self._waiting[author]

    def add(self, author: int, batch: PlacedBatch) -> None:
        """Messages of an author are settled."""
        self._by_author.setdefault(author, deque()).append(batch)
        self._authors.append(author)
        if len(self._authors) > RECENT:
            oldest = self._authors.popleft()
            self._by_author[oldest].popleft()
            if not self._by_author[oldest]:
                del self._by_author[oldest]
        waiting = self._waiting.get(author)
        if waiting is None:
            return
        numbers = range(batch.first, batch.first + batch.messages)
        settled = [each for each in (waiting if len(waiting) < len(numbers) else numbers) if each in waiting]
        for sequence in [each for each in settled if batch.has(each)]:
            for found in waiting.pop(sequence):
                found(batch.position + sequence - batch.first, batch.entry)
        if not waiting:
            self._waiting.pop(author, None)
