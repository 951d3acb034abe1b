"""The values of messages in live campaigns: from one byte to the largest allowed size, mostly small.

A value is computed from the name and the size of its message, so each subscriber can tell whether it arrived whole. The
name does not fit into one byte, so it is in a header.
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
"""The shares of size ranges, in percent; within a range, each order of magnitude is equally likely."""

LARGEST: Final = 0.25
"""The share of large messages that have the largest allowed size."""

RICH: Final = 0.125
"""The share of publishers that may send a largest message at the start."""

LARGE_BYTES_PER_MESSAGE: Final = 1 << 10
"""The budget of a publisher for large messages grows by this much with each message of any size. With 8 publishers of
20 messages a second that is 10 MB a minute beside the initial budget, and as much for middle sizes.
"""


class Name(NamedTuple):
    """The name of a message: its publisher, its number on the topic, its round of probes (0: none), and its size."""

    identity: int
    number: int
    probe: int
    size: int

    def header(self) -> dict[str, bytes]:
        """The headers to publish with the value."""
        return {NAME_HEADER: b"%d %d %d %d" % self}

    def value(self) -> bytes:
        """The value to publish: the name, repeated."""
        pattern = b"%d.%d " % (self.identity, self.number)
        return (pattern * (self.size // len(pattern) + 1))[: self.size]


def name_in(headers: Mapping[str, bytes]) -> Name:
    """The name in the headers of a message."""
    identity, number, probe, size = map(int, headers[NAME_HEADER].split())
    return Name(identity, number, probe, size)


class Sizes:
    """Draws the sizes of one publisher's messages. A budget bounds the total size of large ones."""

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
        """The size of an ordinary message."""
        return log_uniform(self._chance, *SMALL_BYTES)


def log_uniform(chance: random.Random, least: int, most: int) -> int:
    """A number in this range, both ends included; each order of magnitude is equally likely."""
    return min(most, int(least * math.exp(chance.random() * math.log((most + 1) / least))))
