"""The messages of the topic protocols on the cube.

A publication travels as itself (:class:`antiphon.orders.order.Ordered`): every copy in every tree is the same object.
"""

from __future__ import annotations

from typing import Any, Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.orders.order import KeyedOrdered, Ordered, Placed


@mypyc_attr(acyclic=True)
class Acknowledgement(ProtocolMessage):
    """The whole subtree of the sender has the publication."""

    def is_credit(self) -> bool:
        return True


@mypyc_attr(acyclic=True)
class PublicationList(ProtocolMessage):
    """Publications that travel together; named after the first."""

    def __init__(self, publications: list[Publication]) -> None:
        first = publications[0]
        super().__init__(first.source, first.sequence, first.topic)
        self.publications: Final[list[Publication]] = publications

    def is_control(self) -> bool:
        return False

    def publications_carried(self) -> i64:
        return len(self.publications)

    def payload_bytes(self) -> i64:
        total: i64 = 0
        for publication in self.publications:
            total += len(publication.payload)
        return total

    def entries_carried(self) -> i64:
        total: i64 = 0
        for publication in self.publications:
            total += len(publication.dependencies)
        return total


@mypyc_attr(acyclic=True)
class Bundle(PublicationList):
    """Publications of one source that follow each other."""


@mypyc_attr(acyclic=True)
class LeafCopy(ProtocolMessage):
    """A publication or a bundle for the receiver alone: it is not to hand it on."""

    def __init__(self, packet: ProtocolMessage) -> None:
        super().__init__(packet.source, packet.sequence, packet.topic)
        self.packet: Final[ProtocolMessage] = packet

    def is_control(self) -> bool:
        return self.packet.is_control()

    def publications_carried(self) -> i64:
        return self.packet.publications_carried()

    def payload_bytes(self) -> i64:
        return self.packet.payload_bytes()

    def entries_carried(self) -> i64:
        return self.packet.entries_carried()


@mypyc_attr(acyclic=True)
class Refusal(ProtocolMessage):
    """The sender is no member, or not yet able to serve a cluster, and returns a copy; ``was_leaf`` says which kind.

    ``counter`` is that of the sender's last unsubscription: news about any membership before it is out of date.
    """

    def __init__(self, packet: ProtocolMessage, counter: i64, was_leaf: bool) -> None:
        super().__init__(packet.source, packet.sequence, packet.topic)
        self.packet: Final[ProtocolMessage] = packet
        self.counter: Final[i64] = counter
        self.was_leaf: Final[bool] = was_leaf

    def payload_bytes(self) -> i64:
        return self.packet.payload_bytes()

    def entries_carried(self) -> i64:
        return self.packet.entries_carried()


@mypyc_attr(acyclic=True)
class SurveyRequest(ProtocolMessage):
    """A question of a newcomer, the source, on its way to become a member; ``sequence`` counts its subscriptions.

    ``targets`` names those whom the receiver is to ask in turn; None means all nodes of its part of the cube.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, targets: vec[i64] | None = None) -> None:
        super().__init__(source, sequence, topic)
        self.targets: Final[vec[i64] | None] = targets

    def entries_carried(self) -> i64:
        return 0 if self.targets is None else len(self.targets)

    def narrowed_to(self, targets: vec[i64]) -> SurveyRequest:
        """The same question for others."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class Subscribe(SurveyRequest):
    """The source becomes a member and has no view yet: each member answers for itself."""

    def narrowed_to(self, targets: vec[i64]) -> SurveyRequest:
        return Subscribe(self.source, self.sequence, self.topic, targets)


@mypyc_attr(acyclic=True)
class Synchronise(SurveyRequest):
    """The source has a complete view now: each node answers with its frontier."""

    def narrowed_to(self, targets: vec[i64]) -> SurveyRequest:
        return Synchronise(self.source, self.sequence, self.topic, targets)


@mypyc_attr(acyclic=True)
class SurveyResponse(ProtocolMessage):
    """The subtree of the sender has handled a question; ``entries`` is its answer.

    To a ``Subscribe``: each member's own word for itself (:func:`member_entry`). To a ``Synchronise``: a frontier, and
    ``announced`` total publications that have not started: name, place, count of keys and keys of each. ``is_past``
    says which of the two was asked.
    """

    def __init__(
        self, source: i64, sequence: i64, topic: i64, entries: vec[i64], announced: vec[i64], is_past: bool
    ) -> None:
        super().__init__(source, sequence, topic)
        self.entries: Final[vec[i64]] = entries
        self.announced: Final[vec[i64]] = announced
        self.is_past: Final[bool] = is_past

    def entries_carried(self) -> i64:
        return len(self.entries) + len(self.announced)


@mypyc_attr(acyclic=True)
class Unsubscribe(ProtocolMessage):
    """The source is no longer a member. ``sequence`` is the counter of the unsubscription."""


@mypyc_attr(acyclic=True)
class RegisterRequest(ProtocolMessage):
    """A newcomer asks the home of the topic to be listed. ``sequence`` is the counter of its subscription."""


@mypyc_attr(acyclic=True)
class RegisterResponse(ProtocolMessage):
    """The home's answer to the newcomer: the members listed before, and the frontiers of those that have left."""

    def __init__(self, source: i64, sequence: i64, topic: i64, members: vec[i64], past: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.members: Final[vec[i64]] = members
        self.past: Final[vec[i64]] = past

    def entries_carried(self) -> i64:
        return len(self.members) + len(self.past)


@mypyc_attr(acyclic=True)
class Unregister(ProtocolMessage):
    """A leaver asks the home of the topic to take it off the list, and hands over its frontier."""

    def __init__(self, source: i64, sequence: i64, topic: i64, past: vec[i64]) -> None:
        super().__init__(source, sequence, topic)
        self.past: Final[vec[i64]] = past

    def entries_carried(self) -> i64:
        return len(self.past)


@mypyc_attr(acyclic=True)
class FrontierHandover(ProtocolMessage):
    """The frontiers of nodes that have left the system; the source is the leaver, or a node that greets a newcomer.

    ``entries`` holds for each topic its number, how many keys follow, and the keys of a frontier.
    """

    def __init__(self, source: i64, entries: vec[i64]) -> None:
        super().__init__(source, 0)
        self.entries: Final[vec[i64]] = entries

    def entries_carried(self) -> i64:
        return len(self.entries)


COUNTER_BITS: Final = 38
COUNTER_MASK: Final = (1 << 38) - 1


def member_entry(node: i64, counter: i64, is_active: bool) -> i64:
    """A member, the counter of its subscription and whether it is active, in one integer."""
    return (node << (COUNTER_BITS + 1)) | (counter << 1) | (1 if is_active else 0)


def member_entries(entries: vec[i64]) -> dict[i64, bool]:
    """The nodes of packed entries, and whether each is active or away."""
    return {entry >> (COUNTER_BITS + 1): entry & 1 == 1 for entry in entries}


def append_all(entries: vec[i64], more: vec[i64]) -> vec[i64]:
    """Both lists, one after the other."""
    if len(entries) == 0:
        return more
    for entry in more:
        entries = append(entries, entry)
    return entries


NUMBERED: Final[dict[int, type[Any]]] = {
    0: Ordered,
    1: Bundle,
    2: Acknowledgement,
    3: LeafCopy,
    4: Refusal,
    5: Subscribe,
    6: Synchronise,
    7: SurveyResponse,
    8: Unsubscribe,
    9: RegisterRequest,
    10: RegisterResponse,
    11: Unregister,
    12: FrontierHandover,
    65: KeyedOrdered,
    78: Placed,
}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
