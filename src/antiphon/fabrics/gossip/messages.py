"""The messages of BRISA. A publication travels inside ``Data``, with the position of the node that hands it on."""

from __future__ import annotations

from typing import Any, Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.orders.order import Ordered

TREE_BITS: Final = 6
"""A structure is named by one integer: its root above these bits, which of the root's trees in them."""


def structure_key(root: i64, tree: i64) -> i64:
    """The name of a structure."""
    return (root << TREE_BITS) | tree


@final
@mypyc_attr(acyclic=True)
class TreePosition:
    """Where a node is in a structure: the nodes from the root to it, itself included, or only how deep it is.

    A node that has lost its place has depth -1. Positions never change; a new place is a new object.
    """

    def __init__(self, path: vec[i64], depth: i64) -> None:
        self.path: Final[vec[i64]] = path
        self.depth: Final[i64] = depth

    def passes(self, node: i64) -> bool:
        """Whether a node is on the path."""
        for each in self.path:  # noqa: SIM110 (a generator costs more than the whole loop)
            if each == node:
                return True
        return False


NOWHERE: Final = TreePosition(vec[i64](), -1)


@mypyc_attr(acyclic=True)
class Data(ProtocolMessage):
    """A publication on its way through a structure; ``is_upward`` if it did not begin at the root."""

    def __init__(self, publication: Publication, key: i64, position: TreePosition, is_upward: bool) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.publication: Final[Publication] = publication
        self.key: Final[i64] = key
        self.position: Final[TreePosition] = position
        self.is_upward: Final[bool] = is_upward

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class FetchResponse(ProtocolMessage):
    """A publication that the receiver has requested, or that a new child may miss."""

    def __init__(self, publication: Publication) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.publication: Final[Publication] = publication

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class Deactivate(ProtocolMessage):
    """The receiver is to send nothing more of a structure to the sender."""

    def __init__(self, key: i64, topic: i64) -> None:
        super().__init__(key >> TREE_BITS, 0, topic)
        self.key: Final[i64] = key


@mypyc_attr(acyclic=True)
class Activate(ProtocolMessage):
    """The receiver is to send what comes through a structure to the sender, which has all of the root to ``last``."""

    def __init__(self, key: i64, topic: i64, last: i64) -> None:
        super().__init__(key >> TREE_BITS, 0, topic)
        self.key: Final[i64] = key
        self.last: Final[i64] = last


@mypyc_attr(acyclic=True)
class Moved(ProtocolMessage):
    """Where the sender is in a structure now: said to a new child, and to all children when the depth changes."""

    def __init__(self, key: i64, topic: i64, position: TreePosition) -> None:
        super().__init__(key >> TREE_BITS, 0, topic)
        self.key: Final[i64] = key
        self.position: Final[TreePosition] = position


@final
@mypyc_attr(acyclic=True)
class Report:
    """A summary of what a node has and where it is, the same for all receivers.

    ``numbers`` are pairs of a source and the number up to which the sender has everything; ``floors``, if publishers
    are slowed, how far it is ready to go on with each of these sources. ``keys`` are structures, ``positions`` its
    places in them. ``pulses`` are pairs of a contact and the last pulse that came from there over neighbours.
    """

    def __init__(
        self,
        numbers: vec[i64],
        floors: vec[i64],
        keys: vec[i64],
        positions: list[TreePosition],
        pulses: vec[i64],
        uptime: i64,
        load: i64,
        bandwidth: i64,
    ) -> None:
        self.numbers: Final[vec[i64]] = numbers
        self.floors: Final[vec[i64]] = floors
        self.keys: Final[vec[i64]] = keys
        self.pulses: Final[vec[i64]] = pulses
        self.positions: Final[list[TreePosition]] = positions
        self.uptime: Final[i64] = uptime
        self.load: Final[i64] = load
        self.bandwidth: Final[i64] = bandwidth


@mypyc_attr(acyclic=True)
class Beat(ProtocolMessage):
    """Said once per period to each neighbour: a report, and what measures the round trip.

    ``stamp`` is the sender's clock; ``echo`` is the last stamp it had from the receiver, ``held`` ticks ago, or -1.
    """

    def __init__(self, source: i64, topic: i64, report: Report, stamp: i64, echo: i64, held: i64) -> None:
        super().__init__(source, 0, topic)
        self.report: Final[Report] = report
        self.stamp: Final[i64] = stamp
        self.echo: Final[i64] = echo
        self.held: Final[i64] = held


@mypyc_attr(acyclic=True)
class Comparison(ProtocolMessage):
    """Before it falls silent a node compares what it has with a contact; ``is_answer`` if the contact speaks.

    ``wants_pulse`` if the sender has lost a neighbour and wants to know whether it is still connected with the contact.
    ``question`` counts the comparisons of the asker; an answer repeats the number of the question.
    """

    def __init__(
        self, source: i64, topic: i64, report: Report, is_answer: bool, wants_pulse: bool, question: i64 = 0
    ) -> None:
        super().__init__(source, 0, topic)
        self.report: Final[Report] = report
        self.is_answer: Final[bool] = is_answer
        self.wants_pulse: Final[bool] = wants_pulse
        self.question: Final[i64] = question


@mypyc_attr(acyclic=True)
class FetchRequest(ProtocolMessage):
    """Requests publications of the source that the sender misses, by their numbers.

    A receiver that had them and has not kept them asks its own neighbours for the sender, over at most ``hops`` hops.
    """

    def __init__(self, source: i64, topic: i64, numbers: vec[i64], hops: i64 = 0) -> None:
        super().__init__(source, 0, topic)
        self.numbers: Final[vec[i64]] = numbers
        self.hops: Final[i64] = hops


@mypyc_attr(acyclic=True)
class NotKept(ProtocolMessage):
    """The sender had the requested publications of the source up to ``sequence``, and has not kept them."""


@mypyc_attr(acyclic=True)
class GossipFrontierRequest(ProtocolMessage):
    """Asks a neighbour for its frontier: the sender is new, and will count everything in it as past."""


@mypyc_attr(acyclic=True)
class GossipFrontierResponse(ProtocolMessage):
    """The frontier of the sender, where a newcomer starts, and the time of its total order, 0 if there is none.

    ``last_stamp`` and ``last_name`` are the key of what the sender has delivered last in total order; the stamp is
    below 0 if there is nothing.
    """

    def __init__(
        self, source: i64, topic: i64, frontier: vec[i64], stamp: i64, last_stamp: i64 = -1, last_name: i64 = 0
    ) -> None:
        super().__init__(source, 0, topic)
        self.frontier: Final[vec[i64]] = frontier
        self.stamp: Final[i64] = stamp
        self.last_stamp: Final[i64] = last_stamp
        self.last_name: Final[i64] = last_name


NUMBERED: Final[dict[int, type[Any]]] = {
    0: Ordered,
    40: TreePosition,
    41: Report,
    42: Data,
    43: FetchResponse,
    44: Deactivate,
    45: Activate,
    46: Moved,
    47: Beat,
    48: Comparison,
    49: FetchRequest,
    50: NotKept,
    51: GossipFrontierRequest,
    52: GossipFrontierResponse,
}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
