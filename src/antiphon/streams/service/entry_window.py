"""The last entries of a stream that have messages, by position, in memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from antiphon.streams.entries import IndexEntry

LEAST: Final = 4096
"""So many of the last entries are there at least."""


class EntryWindow:
    """Entries in the order of their positions; the first ones go when there are twice as many as needed."""

    def __init__(self, least: int = LEAST) -> None:
        self._least = least
        self._starts: list[int] = []
        self._entries: list[IndexEntry] = []

    def add(self, entry: IndexEntry) -> None:
        """The next entry."""
        if self._starts and entry.position < self._starts[-1]:
            # Another part of the stream, or an earlier one: entries of two parts are not kept together.
            self._starts.clear()
            self._entries.clear()
        self._starts.append(entry.position)
        self._entries.append(entry)
        if len(self._starts) > 2 * self._least:
            del self._starts[: self._least], self._entries[: self._least]

    def find(self, position: int) -> IndexEntry | None:
        """The entry that holds a position, if it is here."""
        place = bisect_right(self._starts, position) - 1
        if place < 0:
            return None
        found = self._entries[place]
        return found if position < found.end else None
