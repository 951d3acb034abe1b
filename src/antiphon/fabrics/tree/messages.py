"""The messages of the broker tree.

Publications travel as :class:`Item`: an entry of the stream of a topic, numbered by the broker that put it there. All
other messages are about the shape of the tree, the topics that a link carries, and total publications.
"""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import Keyed, ProtocolMessage

Frontier = dict[int, int]
"""Per broker, up to which number its items are meant."""

DATA: Final[i64] = 0
LOCK: Final[i64] = 1
COMPLETION: Final[i64] = 2
VOID: Final[i64] = 3
"""The kinds of items."""

NOT_A_CHILD: Final[i64] = 0
"""The number of an answer to no request: the broker that gets it is no child of the one that sent it."""


@mypyc_attr(acyclic=True)
class Item(ProtocolMessage):
    """An entry of a topic's stream, the ``number``-th that the broker ``origin`` put there.

    ``DATA`` is a publication to be delivered at once. ``LOCK`` is a total publication that all brokers are to prepare
    for; ``COMPLETION`` is the root's order that all brokers deliver it at this place. ``VOID`` has the number of an
    entry that no broker needs any more, so that later ones of its origin can follow.
    """

    def __init__(self, origin: i64, number: i64, kind: i64, publication: Keyed) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.origin: Final[i64] = origin
        self.number: Final[i64] = number
        self.kind: Final[i64] = kind
        self.publication: Final[Keyed] = publication

    def is_control(self) -> bool:
        return self.kind >= COMPLETION


@mypyc_attr(acyclic=True)
class LockItem(Item):
    """A lock, with the epoch of the root that put it there.

    Roots lock again in their own epoch what earlier ones have locked and not completed. The epoch and then the number
    say in which order locks are completed.
    """

    def __init__(self, origin: i64, number: i64, epoch: i64, publication: Keyed) -> None:
        super().__init__(origin, number, LOCK, publication)
        self.epoch: Final[i64] = epoch


@mypyc_attr(acyclic=True)
class Proposal(ProtocolMessage):
    """A publication that needs a place in the order, on its way to the root, which locks it; for one epoch only."""

    def __init__(self, publication: Keyed, epoch: i64) -> None:
        super().__init__(publication.source, publication.sequence, publication.topic)
        self.epoch: Final[i64] = epoch
        self.publication: Final[Keyed] = publication

    def is_control(self) -> bool:
        return False


@mypyc_attr(acyclic=True)
class Closed(ProtocolMessage):
    """No broker below the sender publishes anything about the keys of a total publication before its completion.

    Said in one epoch, and true in that epoch only.
    """

    def __init__(self, source: i64, sequence: i64, topic: i64, epoch: i64) -> None:
        super().__init__(source, sequence, topic)
        self.epoch: Final[i64] = epoch


@mypyc_attr(acyclic=True)
class Known(ProtocolMessage):
    """A broker's knowledge of a topic, told over a link that is to carry it.

    ``frontier`` is what it has got, None if it begins with nothing; ``base`` is what it does not keep any more, because
    all brokers of the topic have it. Of this part ``completed`` is the last completed total publication by source, and
    ``locks`` are those that are not completed.
    """

    def __init__(
        self,
        topic: i64,
        frontier: Frontier | None,
        base: Frontier,
        completed: Frontier,
        locks: list[Item],
    ) -> None:
        super().__init__(0, 0, topic)
        self.frontier: Final[Frontier | None] = frontier
        self.base: Final[Frontier] = base
        self.completed: Final[Frontier] = completed
        self.locks: Final[list[Item]] = locks


@mypyc_attr(acyclic=True)
class JoinRequest(Known):
    """A child asks its parent to carry a topic over their link."""


@mypyc_attr(acyclic=True)
class JoinResponse(Known):
    """The parent's answer; from now on the link carries the topic both ways.

    ``history`` is what a child that begins with nothing must keep for others, though it came too late to deliver it.
    Unless the parent ``is_settled`` it may still skip what all brokers of the topic have, and will say so. If it
    ``is_apart`` the topic began on this side of a partition, and earlier items are no loss here.
    """

    def __init__(
        self,
        topic: i64,
        frontier: Frontier,
        base: Frontier,
        completed: Frontier,
        locks: list[Item],
        history: list[Item],
        is_settled: bool,
        is_apart: bool,
    ) -> None:
        super().__init__(topic, frontier, base, completed, locks)
        self.history: Final[list[Item]] = history
        self.is_settled: Final[bool] = is_settled
        self.is_apart: Final[bool] = is_apart


@mypyc_attr(acyclic=True)
class Settled(Known):
    """The parent, which had only begun to carry a topic, will not skip anything any more."""


@mypyc_attr(acyclic=True)
class Skip(Known):
    """The sender cannot send what is in its ``base``, and the receiver is to go on without.

    Or the base is empty, and the ``locks`` are those for which the message before had no room.
    """


@mypyc_attr(acyclic=True)
class Leave(ProtocolMessage):
    """A child needs the topic no more, and everything that it put into the stream is known to all."""


@mypyc_attr(acyclic=True)
class ProbeRequest(ProtocolMessage):
    """A broker without a parent, the source, looks for brokers near it; ``sequence`` counts its searches."""


@mypyc_attr(acyclic=True)
class ProbeResponse(ProtocolMessage):
    """The answer to a probe."""


@mypyc_attr(acyclic=True)
class ParentRequest(ProtocolMessage):
    """A broker without a parent, the source, asks for one; ``sequence`` counts its attempts.

    ``route`` are the brokers through which the request has gone on its way to the root, which alone may grant it;
    ``is_forced`` asks to be accepted whatever the degree.
    """

    def __init__(self, source: i64, sequence: i64, is_forced: bool, route: list[int]) -> None:
        super().__init__(source, sequence)
        self.is_forced: Final[bool] = is_forced
        self.route: Final[list[int]] = route


@mypyc_attr(acyclic=True)
class ParentResponse(ProtocolMessage):
    """The answer to a request, which goes back the way it came; ``overlay`` is what the answering broker knows."""

    def __init__(self, source: i64, sequence: i64, is_granted: bool, route: list[int], overlay: Overlay) -> None:
        super().__init__(source, sequence)
        self.is_granted: Final[bool] = is_granted
        self.route: Final[list[int]] = route
        self.overlay: Final[Overlay] = overlay


def not_a_child(broker: i64, overlay: Overlay) -> ParentResponse:
    """The answer to a broker that takes this one for its parent: it is no child, because the link broke in between.

    A broker that stood still learns of a break after it has granted a place to the very broker that was behind it.
    """
    return ParentResponse(broker, NOT_A_CHILD, False, [], overlay)


@mypyc_attr(acyclic=True)
class BrokerHello(ProtocolMessage):
    """The first words of a child, the source, to its new parent: the brokers below it, and the topics that it needs.

    ``sequence`` is the attempt that the parent granted, ``epoch`` the highest that the child has heard of.
    """

    def __init__(
        self,
        source: i64,
        sequence: i64,
        parents: dict[int, int],
        overlay: Overlay,
        council: Council,
        epoch: i64,
        joins: list[JoinRequest],
    ) -> None:
        super().__init__(source, sequence)
        self.epoch: Final[i64] = epoch
        self.parents: Final[dict[int, int]] = parents
        self.overlay: Final[Overlay] = overlay
        self.council: Final[Council] = council
        self.joins: Final[list[JoinRequest]] = joins


@mypyc_attr(acyclic=True)
class Ready(ProtocolMessage):
    """A new child has sent its parent everything that it had: what it says from now on is in the right order."""


@mypyc_attr(acyclic=True)
class Goodbye(ProtocolMessage):
    """The source has found another parent before it heard that this one accepts its attempt, the ``sequence``-th."""


@mypyc_attr(acyclic=True)
class Attached(ProtocolMessage):
    """Brokers that had no way to the root have one again, through the sender; ``parents`` names their parents.

    ``overlay``, ``council`` and the highest ``epoch`` are what the uppermost of them knows.
    """

    def __init__(self, parents: dict[int, int], overlay: Overlay, council: Council, epoch: i64) -> None:
        super().__init__(0, 0)
        self.epoch: Final[i64] = epoch
        self.parents: Final[dict[int, int]] = parents
        self.overlay: Final[Overlay] = overlay
        self.council: Final[Council] = council


@mypyc_attr(acyclic=True)
class Lost(ProtocolMessage):
    """The broker ``source``, a child of a broker below the sender, is lost; ``orphans`` have no way here any more."""

    def __init__(self, source: i64, orphans: list[int]) -> None:
        super().__init__(source, 0)
        self.orphans: Final[list[int]] = orphans


@mypyc_attr(acyclic=True)
class Install(ProtocolMessage):
    """The root's word that all brokers that live are in one tree again: a new epoch begins."""

    def __init__(self, overlay: Overlay) -> None:
        super().__init__(overlay.root, overlay.epoch)
        self.overlay: Final[Overlay] = overlay


@mypyc_attr(acyclic=True)
class Claim(ProtocolMessage):
    """The source says that it is the root, by the last epoch it knows, to brokers that have not come to it.

    ``champion`` is the first of that epoch's successors in its part of the tree.
    """

    def __init__(self, source: i64, champion: i64, overlay: Overlay) -> None:
        super().__init__(source, overlay.epoch)
        self.champion: Final[i64] = champion
        self.overlay: Final[Overlay] = overlay


@mypyc_attr(acyclic=True)
class CollectRequest(ProtocolMessage):
    """The root asks, in round ``sequence``, which items of the topics ``names`` all brokers have."""

    def __init__(self, source: i64, sequence: i64, epoch: i64, names: list[int]) -> None:
        super().__init__(source, sequence)
        self.names: Final[list[int]] = names
        self.epoch: Final[i64] = epoch


@mypyc_attr(acyclic=True)
class CollectResponse(ProtocolMessage):
    """The items that all brokers below the sender have, by topic; topics that it does not carry are left out."""

    def __init__(self, source: i64, sequence: i64, epoch: i64, frontiers: dict[int, Frontier]) -> None:
        super().__init__(source, sequence)
        self.epoch: Final[i64] = epoch
        self.frontiers: Final[dict[int, Frontier]] = frontiers


@mypyc_attr(acyclic=True)
class Stable(ProtocolMessage):
    """The items that all brokers of the epoch have, by topic; only an absent broker may still ask for them."""

    def __init__(self, frontiers: dict[int, Frontier], is_final: bool) -> None:
        super().__init__(0, 0)
        self.frontiers: Final[dict[int, Frontier]] = frontiers
        self.is_final: Final[bool] = is_final


@mypyc_attr(acyclic=True)
class Carry(ProtocolMessage):
    """A child is to carry a topic for which no broker there or below has asked: it must know of total publications."""


@mypyc_attr(acyclic=True)
class BrokerRecord(ProtocolMessage):
    """The record of a broker about itself (``durable_state.py``); it is never sent.

    ``incarnation`` counts from 0. Numbers of publications up to ``reserved`` and of epochs up to ``epoch`` may have
    been used.
    """

    def __init__(self, incarnation: i64, reserved: i64, overlay: Overlay, council: Council, epoch: i64) -> None:
        super().__init__(0, 0)
        self.epoch: Final[i64] = epoch
        self.incarnation: Final[i64] = incarnation
        self.reserved: Final[i64] = reserved
        self.overlay: Final[Overlay] = overlay
        self.council: Final[Council] = council


@mypyc_attr(acyclic=True)
class Dismiss(ProtocolMessage):
    """An operator says at the source that some ``brokers`` are gone for good, and no majority is to wait for them."""

    def __init__(self, source: i64, brokers: list[int]) -> None:
        super().__init__(source, 0)
        self.brokers: Final[list[int]] = brokers


@mypyc_attr(acyclic=True)
class Begun(ProtocolMessage):
    """The sender and all below it have begun an epoch."""

    def __init__(self, epoch: i64) -> None:
        super().__init__(0, 0)
        self.epoch: Final[i64] = epoch


NUMBERED: Final[dict[int, type[Any]]] = {
    13: Keyed,
    14: Council,
    15: Overlay,
    16: Item,
    17: Proposal,
    18: Closed,
    19: JoinRequest,
    20: JoinResponse,
    21: Settled,
    22: Skip,
    23: Leave,
    24: ParentRequest,
    25: ParentResponse,
    26: BrokerHello,
    27: Ready,
    28: Goodbye,
    29: Attached,
    30: Lost,
    31: Install,
    32: Claim,
    33: CollectRequest,
    34: CollectResponse,
    35: Stable,
    36: Carry,
    37: Begun,
    38: ProbeRequest,
    39: ProbeResponse,
    82: BrokerRecord,
    83: Dismiss,
    84: LockItem,
}
"""The messages by their numbers on the wire (:class:`antiphon.fabrics.fabric.Implementation`)."""
