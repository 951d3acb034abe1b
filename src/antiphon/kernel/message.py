"""Messages are data: frozen, typed, shared between all their copies.

A message object is handed from process to process in the simulator without being copied, so nothing in it may
ever change: every field is ``Final``, which the type checker enforces everywhere and the compiled classes
enforce at run time too. Classes are written out instead of being dataclasses because the compiled constructor
is then fifteen times faster (30 against 430 ns).
"""

from __future__ import annotations

from typing import Final, Literal

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

SOURCE_BITS: Final = 22
SOURCE_MASK: Final = (1 << 22) - 1
"""A publication is named by one integer: its sequence number above these bits, its source in them.

The source is in the low bits because they are what a dictionary looks at first: sources differ between the entries of
one dictionary much more than sequence numbers do.
"""


NONE: Final[i64] = 0
FIFO: Final[i64] = 1
CAUSAL: Final[i64] = 2
TOTAL: Final[i64] = 3
"""How strongly a publication is ordered: what it waits for. The promise of each is in ``docs/guarantees.md``."""

UNSPECIFIED: Final[i64] = -1
"""Where no order is named. Who publishes means the default of the topic; a publication has passed no order at all."""

ORDER_NAMES: Final = ("none", "fifo", "causal", "total")
"""The orders by number, from ``NONE`` on."""

OrderName = Literal["none", "fifo", "causal", "total"]
"""The same for the arguments of commands."""

NO_KEYS: Final = vec[i64]()

BARRIER_KEY: Final[i64] = 1 << 62
"""Keys of applications are smaller. A total publication about one key from here on is a barrier: its host waits for its
place in the order, and later publications of the same source do not wait for it."""


def publication_key(source: i64, sequence: i64) -> i64:
    """The publication (source, sequence) as one integer, usable as a dictionary key and a trace column."""
    return (sequence << SOURCE_BITS) | source


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class ProtocolMessage:
    """Anything that one process sends to another.

    ``source`` and ``sequence`` name the publication or operation that the message is about: an acknowledgement
    carries those of what it acknowledges. A message about nothing in particular has sequence 0. ``topic`` is a small
    integer; hosts map names to it. Broadcasts that know no topics use 0.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64 = 0) -> None:
        self.source: Final[i64] = source
        self.sequence: Final[i64] = sequence
        self.topic: Final[i64] = topic

    def is_control(self) -> bool:
        """True for messages that carry no publication, such as acknowledgements.

        Hosts may treat them apart: the published experiments charge no transmission time for them.
        """
        return True

    def is_credit(self) -> bool:
        """True for messages that let a publisher go on, such as acknowledgements.

        A host whose application or disk cannot keep up holds them back, which slows the publishers of that topic.
        """
        return False

    def publications_carried(self) -> i64:
        """How many publications it brings to its receiver."""
        return 0

    def payload_bytes(self) -> i64:
        """Bytes of payload in it, of all publications together."""
        return 0

    def entries_carried(self) -> i64:
        """How many entries it carries: keys of causal barriers and vectors, words about members, and the like."""
        return 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source}, {self.sequence})"


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Publication(ProtocolMessage):
    """The unit that a publisher hands in and subscribers get.

    Sequence numbers of one source start at 1. ``timestamp`` is the publisher's clock at the moment of publication,
    in ticks of its host. ``order`` is how strongly it is ordered, from ``NONE`` to ``TOTAL``, or ``UNSPECIFIED``.
    ``dependencies`` is a set of publications of other sources that must be delivered before this one, where an order
    needs them. The publication's own predecessor at its source is not listed; the sequence number implies it.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        topic: i64 = 0,
        order: i64 = UNSPECIFIED,
        dependencies: vec[i64] = NO_KEYS,
    ) -> None:
        super().__init__(source, sequence, topic)
        self.order: Final[i64] = order
        self.timestamp: Final[i64] = timestamp
        self.payload: Final[bytes] = payload
        self.dependencies: Final[vec[i64]] = dependencies

    def is_control(self) -> bool:
        return False

    def publications_carried(self) -> i64:
        return 1

    def payload_bytes(self) -> i64:
        return len(self.payload)

    def entries_carried(self) -> i64:
        return len(self.dependencies)

    def total_order_keys(self) -> vec[i64]:
        """The keys under which it is in total order with others of its topic; none if one order is for the topic."""
        return NO_KEYS


@mypyc_attr(acyclic=True)
class Keyed(Publication):
    """A publication about some keys of its topic, such as accounts; one that names none is about key 0."""

    def __init__(
        self,
        source: i64,
        sequence: i64,
        timestamp: i64,
        payload: bytes,
        topic: i64,
        order: i64,
        keys: vec[i64],
    ) -> None:
        super().__init__(source, sequence, timestamp, payload, topic, order)
        self.keys: Final[vec[i64]] = keys

    def is_barrier(self) -> bool:
        """Whether it is about nothing that an application names, and is published for its place alone."""
        return len(self.keys) == 1 and self.keys[0] >= BARRIER_KEY

    def total_order_keys(self) -> vec[i64]:
        return self.keys
