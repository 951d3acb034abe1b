"""Messages in total order that an application may see before they are delivered, in gossip."""

from __future__ import annotations

from typing import NamedTuple

from antiphon.api.batch import Batch, Message
from antiphon.api.topic_state import LiveTopic
from antiphon.fabrics.gossip.process import Brisa
from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import Process


class TentativeBatch(NamedTuple):
    """Messages of one batch that wait, and how likely it is that they may be taken as they are."""

    messages: list[Message]
    stable: float
    """The probability that all nodes know of them."""
    deliverable: float
    """The probability that nothing can come before them any more."""


def early_of(process: Process | None, topic: LiveTopic) -> list[TentativeBatch]:
    """The messages that wait on a topic; they have no offsets yet, and are counted from the next one on."""
    if not isinstance(process, Brisa):
        return []
    found = []
    offset = topic.end_offset
    for each in process.tentative(topic.number):
        publication = each.publication
        order = ORDER_NAMES[publication.order]
        batch = Batch(topic.name, publication.source, order, offset, publication.payload, sequence=publication.sequence)
        offset = batch.end_offset
        found.append(TentativeBatch(batch.messages(0), float(each.stable), float(each.deliverable)))
    return found
