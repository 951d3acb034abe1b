"""Lists of what a client has seen, by topic and author, as it sends them to its next node: bounded, and kept packed.

A client cuts its lists to a bound before it sends them, and leaves out the authors that were silent for longest. The
next node then takes their batches for unseen. It sends those again that it still has, which the client drops, or tells
a gap. A node keeps the lists for as long as the subscription lives, because topics may begin later. As bytes they take
a tenth of the memory that Python's integers take.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.sessions.dedup import Ranges

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
