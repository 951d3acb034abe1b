"""Where a client's next node could be: the addresses it was given, and those of which its nodes have told it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.kernel.errors import UsageError
from antiphon.transport.links import split_address

ADDRESSES_AT_MOST: Final = 1024
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two rounds through all addresses; it doubles each time."""


def addresses_of(given: str | Sequence[str]) -> list[str]:
    """Addresses from a list, or from a text with commas."""
    words = given.split(",") if isinstance(given, str) else list(given)
    found = [word.strip() for word in words if word.strip()]
    if not found:
        raise UsageError("a client needs the address of a node; for example 127.0.0.1:7400, or several with commas")
    for address in found:
        split_address(address)
    return list(dict.fromkeys(found))


class Whereabouts:
    """All addresses that a client knows."""

    def __init__(self, given: str | Sequence[str]) -> None:
        self._given = addresses_of(given)
        self._learned: list[str] = []

    def first(self) -> list[str]:
        """Where to connect at the beginning, in this order."""
        return self._given

    def learn(self, addresses: Iterable[str]) -> None:
        """The node has said where the others are now."""
        self._learned = list(addresses)[:ADDRESSES_AT_MOST]

    def others(self, lost: str) -> list[str]:
        """Where to go when a node is lost: first to others that it knew, each client in another order, and to it last.

        So the clients of a node that goes do not all come to the same one.
        """
        likely = [address for address in self._learned if address != lost]
        random.shuffle(likely)
        return list(dict.fromkeys([*likely, *(address for address in self._given if address != lost), lost]))


class Pauses:
    """How long to wait between rounds, each time about twice as long, up to a bound."""

    def __init__(self) -> None:
        self._next_seconds = FIRST_PAUSE_SECONDS

    def next(self) -> float:
        """The next pause. It varies, so that clients do not come all at once."""
        seconds = self._next_seconds
        self._next_seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
        return seconds * random.uniform(0.5, 1.0)
