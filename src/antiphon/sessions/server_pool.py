"""The addresses at which a client looks for its next node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

ADDRESSES_AT_MOST: Final = 1024


class ServerPool:
    """Where a client's next node could be: the addresses it was given, and those that its nodes have told it."""

    def __init__(self, given: Sequence[str]) -> None:
        self.given = list(given)
        self._learned: list[str] = []

    def learn(self, addresses: Iterable[str]) -> None:
        """The node has said where the others are now."""
        self._learned = list(addresses)[:ADDRESSES_AT_MOST]

    def others(self, lost: str, draw: Callable[[int], int]) -> list[str]:
        """Where to go when a node is lost: first to others that it knew, in random order, and to it last.

        So the clients of a lost node do not all come to the same one.
        """
        likely = [address for address in self._learned if address != lost]
        for place in range(len(likely) - 1, 0, -1):
            other = draw(place + 1)
            likely[place], likely[other] = likely[other], likely[place]
        return list(dict.fromkeys([*likely, *(address for address in self.given if address != lost), lost]))
