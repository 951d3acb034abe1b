"""The topics of one broker, and what a later incarnation of it is to know of them."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.tree.durable_state import DurableState
from antiphon.fabrics.tree.messages import Item, JoinResponse, Leave, Skip
from antiphon.fabrics.tree.pieces import lock_pieces
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.message import ProtocolMessage


@final
class TreeTopicTable:
    """All topics that a broker has heard of, by number."""

    def __init__(self, owner: i64, durable: DurableState) -> None:
        self._owner: Final[i64] = owner
        self._durable: Final[DurableState] = durable
        self.by_number: Final[dict[i64, TreeTopic]] = {}
        for record in durable.take_records():
            self._restore(record)

    def get(self, number: i64) -> TreeTopic | None:
        """The state of a topic, if there is any."""
        return self.by_number.get(number)

    def of(self, number: i64) -> TreeTopic:
        """The state of a topic, made at its first use."""
        topic = self.by_number.get(number)
        if topic is None:
            topic = TreeTopic(number, self._owner, self._durable.first_number)
            self.by_number[number] = topic
        return topic

    def all(self) -> list[TreeTopic]:
        """All topics, in the order in which they were heard of."""
        return list(self.by_number.values())

    # What outlives a crash.

    def _restore(self, record: ProtocolMessage) -> None:
        """Take over what an earlier incarnation has written of a topic: it was cut off from all others, it seems."""
        if isinstance(record, JoinResponse):
            topic = self.of(record.topic)
            topic.end()
            topic.items = []
            topic.begin_at(record)
            topic.is_carried = True
            topic.is_needed = True
            topic.is_written = True
        elif isinstance(record, (Item, Skip, Leave)):
            known = self.by_number.get(record.topic)
            if known is None or not known.is_written:
                return
            if isinstance(record, Item):
                known.remember([record])
            elif isinstance(record, Skip):
                known.skip_to(record)
            else:
                del self.by_number[record.topic]

    def write_down(self, topic: TreeTopic) -> None:
        """Write down what becomes of a topic from now on, and what has become of it so far."""
        if not topic.is_written and self._durable.is_kept:
            topic.is_written = True
            for record in image_of(topic):
                self._durable.write(record)

    def shorten_journal(self, view: TreeView) -> None:
        """Write the journal anew if most of it is not needed any more."""
        written = [topic for topic in self.by_number.values() if topic.is_written]
        if self._durable.is_long(sum(len(topic.items) + 1 for topic in written)):
            records = [record for topic in written for record in image_of(topic)]
            self._durable.rewrite(view, records)


def image_of(topic: TreeTopic) -> list[ProtocolMessage]:
    """The record of a topic for a later incarnation: all but its items, and these."""
    base, completed, locks = topic.known()
    first, *others = lock_pieces(locks)
    known = JoinResponse(topic.name, base, base, completed, first, [], False, topic.is_apart)
    return [known, *(Skip(topic.name, None, {}, {}, piece) for piece in others), *topic.items]
