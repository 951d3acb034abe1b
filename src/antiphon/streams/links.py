"""The predecessors that messages of a stream name, and the messages that are in view and not done."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Final, NamedTuple

BEHIND_ALL: Final = 1 << 62


class MessageLinks(NamedTuple):
    """The author of a message, the author's number of it, and the messages that it names as predecessors.

    ``follows`` has authors and numbers. A *narrowed* message follows these messages alone. Any other follows
    everything of these authors up to these numbers, and everything that its own author published before it.
    """

    author: int
    number: int
    follows: tuple[tuple[int, int], ...] = ()
    is_narrowed: bool = False


class PendingMessages:
    """The messages in view that are not done, by their authors."""

    def __init__(self, links: Callable[[int], MessageLinks], is_done: Callable[[int], bool]) -> None:
        self._links = links
        self._is_done = is_done
        # By author: numbers and positions, in order. And what each message says.
        self._by_author: dict[int, list[tuple[int, int]]] = {}
        self._said: dict[int, MessageLinks] = {}

    def add(self, position: int) -> None:
        """A message has come into view."""
        if position not in self._said:
            links = self._said[position] = self._links(position)
            insort(self._by_author.setdefault(links.author, []), (links.number, position))

    def remove(self, position: int) -> None:
        """A message is done."""
        links = self._said.pop(position, None)
        if links is not None:
            numbers = self._by_author[links.author]
            del numbers[bisect_left(numbers, (links.number, position))]
            if not numbers:
                del self._by_author[links.author]

    def pass_over(self, earliest: int) -> None:
        """The messages before a position are removed, and count as done."""
        for position in [each for each in self._said if each < earliest]:
            self.remove(position)

    def first_awaited(self, position: int) -> int | None:
        """A message that is not done and that this one, which is in view, follows; None if there is none.

        A predecessor without an earlier position does not count: messages whose order promises nothing may come in any.
        """
        links = self._said[position]
        named = links.follows if links.is_narrowed else ((links.author, links.number - 1), *links.follows)
        for author, number in named:
            found = self._last_of(author, number, position, links.is_narrowed)
            if found is not None:
                return found
        return None

    def _last_of(self, author: int, number: int, below: int, is_exact: bool) -> int | None:
        """The last message of an author up to a number, or with it, that is not done and has a lower position."""
        numbers = self._by_author.get(author, [])
        for place in range(bisect_right(numbers, (number, BEHIND_ALL)) - 1, -1, -1):
            found, position = numbers[place]
            if is_exact and found != number:
                return None
            if position < below and not self._is_done(position):
                return position
        return None
