"""The messages that a program has received since it published on their topic: its next message follows them."""

from __future__ import annotations

from typing import Final, final

from antiphon.api.batch import Batch
from antiphon.api.columns import FOLLOWED_AT_MOST, Follows

TOPICS_AT_MOST: Final = 65_536
"""So many topics are remembered on which a program has received something and published nothing since."""

THIS_TOPIC: Final = ""


@final
class HeardTable:
    """Everything that the program of a node or client has received: by topic, the last number of each author.

    A batch counts as received when its first message is shown.
    """

    def __init__(self) -> None:
        self.by_topic: Final[dict[str, dict[int, int]]] = {}

    def add(self, batch: Batch) -> None:
        """The messages of a batch are shown to the program."""
        columns = batch.columns
        first = columns.author_sequence
        begin: int = columns.first_sequence if first is None else first
        self.note(batch.topic, batch.author, begin + int(batch.count) - 1)

    def note(self, topic: str, author: int, number: int) -> None:
        """The program has received an author's messages up to a number."""
        heard = self.by_topic.get(topic)
        if heard is None:
            if len(self.by_topic) >= TOPICS_AT_MOST:
                del self.by_topic[next(iter(self.by_topic))]
            heard = self.by_topic[topic] = {}
        if heard.get(author, -1) < number:
            heard[author] = number
            if len(heard) > FOLLOWED_AT_MOST:
                del heard[next(iter(heard))]

    def take(self, topic: str, me: int) -> Follows | None:
        """The messages that the next one on a topic follows beside those of its author."""
        heard = self.by_topic.pop(topic, None)
        if heard is None:
            return None
        heard.pop(me, None)
        pairs = [number for pair in heard.items() for number in pair]
        return Follows({THIS_TOPIC: pairs}) if pairs else None

    def give_back(self, topic: str, follows: Follows | None) -> None:
        """A message was refused: the next one follows what it would have followed."""
        if follows is not None and not follows.is_narrowed:
            pairs = follows.topics.get(THIS_TOPIC, [])
            for place in range(0, len(pairs) - 1, 2):
                self.note(topic, pairs[place], pairs[place + 1])


def narrowed(topic: str, messages: list[tuple[str, int, int]]) -> Follows:
    """The predecessors of a message that follows these alone: each with topic, author and the author's number."""
    found: dict[str, list[int]] = {}
    for where, author, number in messages:
        found.setdefault(THIS_TOPIC if where == topic else where, []).extend((author, number))
    return Follows(found, True)
