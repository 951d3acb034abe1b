"""The messages of StaN: walks that collect identifiers, their findings, and events that are posted to topics."""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import NONE, ProtocolMessage, Publication


@mypyc_attr(acyclic=True)
class Walk(ProtocolMessage):
    """A random walk on behalf of the source; ``known`` are the nodes it has met, ``hops`` the remaining hops.

    A node that was met twice is listed twice: a check would cost more than it saves.
    """

    def __init__(self, source: i64, topic: i64, hops: i64, known: vec[i64]) -> None:
        super().__init__(source, 0, topic)
        self.hops: Final[i64] = hops
        self.known: Final[vec[i64]] = known

    def entries_carried(self) -> i64:
        return len(self.known)


@mypyc_attr(acyclic=True)
class Found(ProtocolMessage):
    """The end of a walk: the nodes it has met."""

    def __init__(self, source: i64, topic: i64, known: vec[i64]) -> None:
        super().__init__(source, 0, topic)
        self.known: Final[vec[i64]] = known

    def entries_carried(self) -> i64:
        return len(self.known)


@mypyc_attr(acyclic=True)
class Post(Publication):
    """An event that is posted to one topic or to several, in transit.

    ``number`` names it among all events of its source. In each of its ``topics`` it has a sequence number of its own,
    in ``sequences``. ``hops`` is the number of links that this copy has crossed.
    """

    def __init__(
        self,
        source: i64,
        number: i64,
        timestamp: i64,
        payload: bytes,
        topics: vec[i64],
        sequences: vec[i64],
        hops: i64,
    ) -> None:
        super().__init__(source, sequences[0], timestamp, payload, topics[0], NONE)
        self.number: Final[i64] = number
        self.topics: Final[vec[i64]] = topics
        self.sequences: Final[vec[i64]] = sequences
        self.hops: Final[i64] = hops

    def entries_carried(self) -> i64:
        return len(self.topics)
