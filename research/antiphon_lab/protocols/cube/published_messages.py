"""The messages of VCube-PS as published (thesis, section 5.5.1) and of its rivals; they have the names given there.

``source`` and ``sequence`` are the fields s and c of the documents: the node that began the operation, and the value of
its counter, of which there is one for all its topics and operations. An acknowledgement carries those of the
acknowledged operation.

Subscriptions and unsubscriptions are not control messages here: the published churn figures charge them to the output
server like publications. Only with that charge does the root of a single tree saturate where Figure 5.11 says it does.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.messages import COUNTER_BITS
from antiphon.kernel.message import ProtocolMessage, Publication

NO_ENTRIES: Final = vec[i64]()


@mypyc_attr(acyclic=True)
class Pub(Publication):
    """A publication and its causal barrier, as keys; the predecessor from the same source is listed like any other."""

    def __init__(
        self, source: i64, sequence: i64, timestamp: i64, payload: bytes, barrier: vec[i64], topic: i64 = 0
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic)
        self.barrier: Final[vec[i64]] = barrier

    def entries_carried(self) -> i64:
        return len(self.barrier)

    def without_payload(self) -> Pub:
        """The publication where its data field has been overwritten."""
        return Pub(self.source, self.sequence, self.timestamp, b"", self.barrier, self.topic)


@mypyc_attr(acyclic=True)
class Sub(ProtocolMessage):
    """The source subscribes to the topic."""

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class Uns(ProtocolMessage):
    """The source unsubscribes from the topic."""

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class Ack(ProtocolMessage):
    """The subtree of the sender has received a message; ``entries`` is its information about the members of the topic.

    An entry is a tuple (node, SUB or UNS, counter) of the documents, packed by
    :func:`antiphon.fabrics.cube.messages.member_entry` with the last bit set for SUB.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, entries: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


def merged_entries(some: vec[i64], others: vec[i64]) -> vec[i64]:
    """The union of two lists of entries, both sorted by node: of one node, the entry with the larger counter."""
    if len(some) == 0:
        return others
    if len(others) == 0:
        return some
    union = vec[i64](capacity=len(some))
    position: i64 = 0
    for entry in others:
        node = entry >> (COUNTER_BITS + 1)
        while position < len(some) and (some[position] >> (COUNTER_BITS + 1)) < node:
            union = append(union, some[position])
            position += 1
        if position < len(some) and (some[position] >> (COUNTER_BITS + 1)) == node:
            # The counter is in higher bits than the operation, so the greater entry is the later one.
            union = append(union, some[position] if some[position] > entry else entry)
            position += 1
        else:
            union = append(union, entry)
    while position < len(some):
        union = append(union, some[position])
        position += 1
    return union
