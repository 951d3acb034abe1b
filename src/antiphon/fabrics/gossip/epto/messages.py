"""The messages of EpTO: publications with their place in the total order, and the balls in which they travel."""

from __future__ import annotations

from typing import Any, Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import TOTAL, ProtocolMessage, Publication

NAME_BYTES: Final[i64] = 6
STAMP_BYTES: Final[i64] = 8
HOPS_BYTES: Final[i64] = 2
ENTRY_BYTES: Final[i64] = NAME_BYTES + STAMP_BYTES + HOPS_BYTES
"""The size of one entry of a ball besides its payload: an identifier of 48 bits as in the thesis, time and hops."""


@final
@mypyc_attr(acyclic=True)
class Stamped(Publication):
    """A publication and its place in the total order: by ``stamp``, then source, then sequence number.

    ``timestamp`` is the time of the publisher's host, as everywhere; ``stamp`` is what the clock of the order said.
    ``dependencies`` are publications of weaker orders that come before it, where there are such.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        topic: i64,
        stamp: i64,
        dependencies: vec[i64],
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic, TOTAL, dependencies)
        self.stamp: Final[i64] = stamp


@mypyc_attr(acyclic=True)
class Carrier(ProtocolMessage):
    """A message that carries publications."""

    def __init__(self, source: i64, topic: i64, publications: list[Stamped]) -> None:
        super().__init__(source, 0, topic)
        self.publications: Final[list[Stamped]] = publications

    def is_control(self) -> bool:
        return False

    def publications_carried(self) -> i64:
        return len(self.publications)

    def payload_bytes(self) -> i64:
        return payload_bytes_of(self.publications)


@final
@mypyc_attr(acyclic=True)
class Ball(Carrier):
    """All that one node relays in one round: by position the name, stamp and number of relays of each publication.

    ``whole`` if ``publications`` holds one for each entry, in the same places. Otherwise it holds those whose payload
    travels with this ball; of the others the receiver learns that they exist. ``latest`` is the largest stamp.
    """

    def __init__(
        self,
        source: i64,
        topic: i64,
        names: vec[i64],
        stamps: vec[i64],
        hops: vec[i64],
        publications: list[Stamped],
        whole: bool,
        latest: i64,
    ) -> None:
        super().__init__(source, topic, publications)
        self.names: Final[vec[i64]] = names
        self.stamps: Final[vec[i64]] = stamps
        self.hops: Final[vec[i64]] = hops
        self.whole: Final[bool] = whole
        self.latest: Final[i64] = latest

    def entries_carried(self) -> i64:
        return len(self.names)


@final
@mypyc_attr(acyclic=True)
class Wanted(ProtocolMessage):
    """The sender knows of publications whose payload it lacks: their names."""

    def __init__(self, source: i64, topic: i64, names: vec[i64]) -> None:
        super().__init__(source, 0, topic)
        self.names: Final[vec[i64]] = names

    def entries_carried(self) -> i64:
        return len(self.names)


@final
@mypyc_attr(acyclic=True)
class Payloads(Carrier):
    """Publications that the receiver has asked for."""


@final
@mypyc_attr(acyclic=True)
class Newcomer(ProtocolMessage):
    """The sender has just come and asks what the time is."""


@final
@mypyc_attr(acyclic=True)
class Greeting(ProtocolMessage):
    """The largest stamp that the sender has seen, for a newcomer."""

    def __init__(self, source: i64, topic: i64, stamp: i64) -> None:
        super().__init__(source, 0, topic)
        self.stamp: Final[i64] = stamp


@final
@mypyc_attr(acyclic=True)
class Probe(ProtocolMessage):
    """Measures delay and size: the sender's time, which comes back, and what it knows of the size in an epoch."""

    def __init__(self, source: i64, topic: i64, sent_at: i64, epoch: i64, minima: vec[i64], is_answer: bool) -> None:
        super().__init__(source, 0, topic)
        self.sent_at: Final[i64] = sent_at
        self.epoch: Final[i64] = epoch
        self.minima: Final[vec[i64]] = minima
        self.is_answer: Final[bool] = is_answer

    def entries_carried(self) -> i64:
        return len(self.minima)


def payload_bytes_of(publications: list[Stamped]) -> i64:
    """Bytes of payload of several publications."""
    total: i64 = 0
    for publication in publications:
        total += len(publication.payload)
    return total


NUMBERED: Final[dict[int, type[Any]]] = {62: Stamped, 63: Ball, 64: Probe}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
