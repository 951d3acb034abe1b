"""What messages of live campaigns hold: from one byte to as much as a message may hold, mostly little.

A value follows from the message's name and size, so each subscriber can tell whether all of it has come. The name does
not fit into one byte: it is in a header.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from antiphon.api.publisher import VALUE_BYTES_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_HEADER: Final = "name"

SMALL_BYTES: Final = (1, 64)
SHORT_BYTES: Final = (64, 2 << 10)
MIDDLE_BYTES: Final = (2 << 10, 64 << 10)
LARGE_BYTES: Final = (64 << 10, VALUE_BYTES_AT_MOST)
RANGES: Final = (SMALL_BYTES, SHORT_BYTES, MIDDLE_BYTES, LARGE_BYTES)
SHARES: Final = (70.0, 25.0, 4.5, 0.5)
"""How often messages are of which sizes, in percent; within a range each order of magnitude is as likely as others."""

LARGEST: Final = 0.25
"""How often a large message is as large as it may be."""

RICH: Final = 0.125
"""How often a publisher may send the largest message at once."""

LARGE_BYTES_PER_MESSAGE: Final = 1 << 10
"""What one publisher may use for large messages grows by so much with each message, whatever its size. With 8
publishers of 20 messages a second that is 10 MB a minute beside what they begin with, and as much for middle sizes."""


class Name(NamedTuple):
    """Whose message it is, the how many-th on its topic, of which round of probes (0: of none), and how long."""

    identity: int
    number: int
    probe: int
    size: int

    def header(self) -> dict[str, bytes]:
        """What is published beside the value."""
        return {NAME_HEADER: b"%d %d %d %d" % self}

    def value(self) -> bytes:
        """What is published: the name, again and again."""
        pattern = b"%d.%d " % (self.identity, self.number)
        return (pattern * (self.size // len(pattern) + 1))[: self.size]


def name_in(headers: Mapping[str, bytes]) -> Name:
    """The name that came with a message."""
    identity, number, probe, size = map(int, headers[NAME_HEADER].split())
    return Name(identity, number, probe, size)


class Sizes:
    """Draws the sizes of one publisher's messages. What large ones hold in all is bounded."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        is_rich = chance.random() < RICH
        self._left_bytes = VALUE_BYTES_AT_MOST if is_rich else chance.randrange(VALUE_BYTES_AT_MOST // 8)

    def next(self) -> int:
        """The size of the next message."""
        chance = self._chance
        self._left_bytes = min(self._left_bytes + LARGE_BYTES_PER_MESSAGE, 2 * VALUE_BYTES_AT_MOST)
        (drawn,) = chance.choices(RANGES, SHARES)
        if drawn is not LARGE_BYTES:
            return log_uniform(chance, *drawn)
        most = min(VALUE_BYTES_AT_MOST, self._left_bytes)
        if most <= LARGE_BYTES[0]:
            return log_uniform(chance, *SMALL_BYTES)
        size = most if chance.random() < LARGEST else log_uniform(chance, LARGE_BYTES[0], most)
        self._left_bytes -= size
        return size

    def small(self) -> int:
        """The size of a message of which there are many."""
        return log_uniform(self._chance, *SMALL_BYTES)


def log_uniform(chance: random.Random, least: int, most: int) -> int:
    """A number between these, both included, as likely to be small as large."""
    return min(most, int(least * math.exp(chance.random() * math.log((most + 1) / least))))
