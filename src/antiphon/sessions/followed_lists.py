"""The lists of a client that comes from another node, kept packed while its new node catches up with them.

A request to follow names the last batch of each author that the client has seen, perhaps of thousands. Its node may
wait for half a minute until all of them have come. As bytes the lists take a tenth of the memory that they take as
Python's integers, so a client that sends many such requests and never waits for an answer gains little.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from antiphon.sessions.dedup import Ranges, numbers_from

ENCODER: Final = msgspec.msgpack.Encoder()
PAST_DECODER: msgspec.msgpack.Decoder[dict[int, int]] = msgspec.msgpack.Decoder(dict[int, int])
PUBLICATIONS_DECODER: msgspec.msgpack.Decoder[dict[int, Ranges]] = msgspec.msgpack.Decoder(dict[int, Ranges])

OBJECT_BYTES: Final = 8192
"""The objects of a request that waits, beside its lists."""

UNPACKED: Final = 2
"""A list that is waited for takes its bytes twice: packed, and as the numbers that have not come."""


class SeenElsewhere(Protocol):
    """What a client has seen at other nodes on a topic on which it is about to publish."""

    @property
    def number(self) -> int:
        """The number of its request."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def past(self) -> dict[int, int]:
        """The last batch of each author that it has seen."""

    @property
    def publications(self) -> dict[int, Ranges]:
        """The publications that brought these batches, by publisher; none if it cannot say that of all."""


class FollowedLists:
    """What a client has seen elsewhere, as bytes. Each look at a list unpacks it."""

    def __init__(self, message: SeenElsewhere) -> None:
        self.number = message.number
        self.topic = message.topic
        self._past = ENCODER.encode(message.past)
        self._publications = ENCODER.encode(message.publications)

    @property
    def past(self) -> dict[int, int]:
        """The last batch of each author that the client has seen."""
        return PAST_DECODER.decode(self._past)

    @property
    def publications(self) -> dict[int, Ranges]:
        """The publications that brought these batches."""
        return PUBLICATIONS_DECODER.decode(self._publications)

    @property
    def size_bytes(self) -> int:
        """The memory that the request takes while it waits."""
        return OBJECT_BYTES + UNPACKED * (len(self._past) + len(self._publications))


def batches_of(seen: SeenElsewhere) -> Iterator[tuple[int, int]]:
    """The authors and numbers of batches, from memory that is not made of objects."""
    past = seen.past
    # From a list an array is made as long as it has to be.
    return zip(array("q", list(past)), array("q", list(past.values())), strict=True)


def publications_of(seen: SeenElsewhere) -> Iterator[tuple[int, int, int]]:
    """The publications that a client has seen: publisher, and the first and last number of each interval."""
    found = array("q")
    for publisher, ranges in seen.publications.items():
        numbers = numbers_from(ranges)
        for first, last in numbers.inside(1, numbers.highest()):
            found.extend((publisher, first, last))
    values = iter(found)
    return zip(values, values, values, strict=True)
