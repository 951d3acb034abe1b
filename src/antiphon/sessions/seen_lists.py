"""Lists of what a client has seen, by topic and author, as it sends them to its next node: bounded, and kept packed.

A client cuts its lists to a bound before it sends them, and leaves out the authors that were silent for longest. The
next node then takes their batches for unseen. It sends those again that it still has, which the client drops, or tells
a gap. A node keeps the lists for as long as the subscription lives, because topics may begin later. As bytes they take
a tenth of the memory that Python's integers take.

A request to follow has lists, too: the last batch of each author that the client has seen on a topic. The node may wait
for half a minute until all of them have come, and keeps these lists packed as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.sessions.dedup import Ranges, numbers_from

NUMBERS_AT_MOST: Final = 1 << 18
"""How many numbers the lists of one request hold; a name counts as several."""

CLIENT_NUMBERS_AT_MOST: Final = 1 << 20
"""The same for all requests of one client that resumes."""

LEAST_NUMBERS: Final = 1024
"""The share of a subscription, however many there are."""

NAME_BYTES_PER_NUMBER: Final = 8

TopicList = dict[int, Ranges]
SeenLists = dict[str, TopicList]

ENCODER: Final = msgspec.msgpack.Encoder()
DECODER: msgspec.msgpack.Decoder[TopicList] = msgspec.msgpack.Decoder(TopicList)
PAST_DECODER: msgspec.msgpack.Decoder[dict[int, int]] = msgspec.msgpack.Decoder(dict[int, int])

OBJECT_BYTES: Final = 8192
"""The objects of a request that waits, beside its lists."""

UNPACKED: Final = 2
"""A list that is waited for takes its bytes twice: packed, and as the numbers that have not come."""


def share_of(subscriptions: int) -> int:
    """How many numbers each of so many subscriptions may send."""
    return min(NUMBERS_AT_MOST, max(LEAST_NUMBERS, CLIENT_NUMBERS_AT_MOST // max(1, subscriptions)))


def cut_lists(lists: SeenLists, numbers_at_most: int) -> SeenLists:
    """The lists with so many numbers at most: on each topic the authors that were heard last."""
    found: SeenLists = {}
    left = numbers_at_most
    for position, (topic, seen) in enumerate(lists.items()):
        share = left // (len(lists) - position) - 1 - len(topic) // NAME_BYTES_PER_NUMBER
        kept: list[tuple[int, Ranges]] = []
        used = 0
        for author, ranges in reversed(seen.items()):
            if used + 1 + len(ranges) > share:
                break
            used += 1 + len(ranges)
            kept.append((author, ranges))
        if kept:
            left -= used + 1 + len(topic) // NAME_BYTES_PER_NUMBER
            found[topic] = dict(reversed(kept))
    return found


class PackedLists:
    """Lists that a node keeps as bytes."""

    def __init__(self, lists: SeenLists) -> None:
        self._of = {topic: ENCODER.encode(seen) for topic, seen in lists.items()}
        self.size_bytes = sum(len(topic) + len(packed) for topic, packed in self._of.items())

    def on(self, topic: str) -> TopicList:
        """What was seen on a topic."""
        packed = self._of.get(topic)
        return {} if packed is None else DECODER.decode(packed)


class SeenElsewhere(Protocol):
    """The messages that a client has seen at other nodes on a topic on which it is about to publish."""

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
    """The messages that a client has seen elsewhere, as bytes. Each look at a list unpacks it."""

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
        return DECODER.decode(self._publications)

    @property
    def size_bytes(self) -> int:
        """The memory that the request takes while it waits."""
        return OBJECT_BYTES + UNPACKED * (len(self._past) + len(self._publications))


def batches_of(seen: SeenElsewhere) -> Iterator[tuple[int, int]]:
    """The authors and numbers of batches, from memory that is not made of objects."""
    past = seen.past
    authors, numbers = vec[i64](list(past)), vec[i64](list(past.values()))
    return ((authors[place], numbers[place]) for place in range(len(authors)))


def publications_of(seen: SeenElsewhere) -> Iterator[tuple[int, int, int]]:
    """The publications that a client has seen: publisher, and the first and last number of each interval."""
    found: list[int] = []
    for publisher, ranges in seen.publications.items():
        numbers = numbers_from(ranges)
        for first, last in numbers.inside(1, numbers.highest()):
            found += (publisher, first, last)
    packed = vec[i64](found)
    return ((packed[place], packed[place + 1], packed[place + 2]) for place in range(0, len(packed), 3))
