"""EpTO in the engine and by hand, for its tests."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.messages import Ball, Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import EptoClock, HostClock, KnownEvent, LogicalClock
from antiphon.fabrics.gossip.epto.process import Epto
from antiphon.fabrics.gossip.sampling.known_nodes import Everybody, KnownNodes
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood
from antiphon.kernel import Environment, ProtocolMessage, RandomStream
from antiphon.kernel.message import Publication, publication_key


class Desk(Environment):
    """The environment of one process that a test drives by hand."""

    def __init__(self, identifier: int = 0) -> None:
        super().__init__(identifier)
        self.time = 0
        self.sent: list[tuple[int, ProtocolMessage]] = []
        self.delivered: list[tuple[int, int]] = []
        self.holes: list[tuple[int, int]] = []
        self.timers: list[int] = []
        self._random = RandomStream(1, identifier)

    def now(self) -> int:
        return self.time

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.sent.append((int(destination), message))

    def deliver(self, publication: Publication) -> None:
        self.delivered.append((int(publication.source), int(publication.sequence)))

    def lost(self, topic: int, source: int, sequence: int, is_late: bool = False) -> None:
        self.holes.append((int(source), int(sequence)))

    def set_timer(self, delay: int, name: int) -> int:
        self.timers.append(int(delay))
        return len(self.timers)

    def random(self) -> RandomStream:
        return self._random

    def balls(self) -> list[Ball]:
        """Every ball that was sent, once for each receiver."""
        return [message for _, message in self.sent if isinstance(message, Ball)]


def options(nodes: int = 3, ttl: int = 2, **others: object) -> EptoOptions:
    """A small system in which nothing drifts."""
    return EptoOptions(nodes, fanout=nodes - 1, ttl=ttl, drift=0.0, agreement=0.0, **others)  # type: ignore[arg-type]


def process_at(desk: Desk, chosen: EptoOptions, clock: EptoClock | None = None, is_founder: bool = True) -> Epto:
    """A process that knows all nodes."""
    usual = LogicalClock() if chosen.is_logical else HostClock(desk)
    process = Epto(desk, chosen, usual if clock is None else clock, is_founder)
    known = KnownNodes()
    for node in range(int(chosen.nodes)):
        known.add(node)
    process.begin(Everybody(desk, 0, Connections(desk), Neighbourhood(), known), [])
    process.start()
    return process


def stamped(source: int, sequence: int, stamp: int, payload: bytes = b"") -> Stamped:
    """A publication with a place in the order."""
    return Stamped(source, sequence, 0, payload, 0, stamp, vec[i64]())


def known(source: int, sequence: int, stamp: int) -> KnownEvent:
    """The same as an ordering component sees it."""
    return KnownEvent(publication_key(source, sequence), stamp, stamped(source, sequence, stamp))


def ball_of(sender: int, *entries: tuple[Stamped, int], whole: bool = True) -> Ball:
    """A ball with these events and numbers of relays; without payloads if it is not whole."""

    events = [event for event, _ in entries]
    return Ball(
        sender,
        0,
        vec[i64]([publication_key(event.source, event.sequence) for event in events]),
        vec[i64]([event.stamp for event in events]),
        vec[i64]([hops for _, hops in entries]),
        events if whole else [],
        whole,
        max(int(event.stamp) for event in events),
    )
