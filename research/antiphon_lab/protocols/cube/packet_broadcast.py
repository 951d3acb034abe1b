"""Broadcast in packets, each with one publication: the baseline of the aggregating protocols.

``PacketBroadcast`` sends every publication at once and alone (section 4.5 of the thesis). The aggregating protocols
share it: causal delivery by vector clocks, packets no larger than the network carries, and bytes counted as published.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.aggregation.packets import Packet, PacketFormat, Traffic
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import UNSPECIFIED, ProtocolMessage, Publication
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.order import Ordered
from antiphon.orders.vectors import CausalVectors


@mypyc_attr(allow_interpreted_subclasses=True)
class PacketBroadcast(Process):
    """Over the tree of each source; arriving publications are forwarded at once, one per packet."""

    def __init__(
        self, environment: Environment, cube: Cube, form: PacketFormat | None = None, traffic: Traffic | None = None
    ) -> None:
        super().__init__(environment)
        self.cube: Final[Cube] = cube
        self.order: Final[CausalVectors] = CausalVectors(environment.identifier)
        self.form: Final[PacketFormat] = PacketFormat() if form is None else form
        self.traffic: Final[Traffic | None] = traffic
        self._sequence: i64 = 0

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        publication = self.stamped(payload, topic, order)
        self.environment.deliver(publication)
        self.hand_on(publication, 0, self.cube.dimension)
        return publication.sequence

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        publications = self.opened(sender, message)
        height = cluster(self.me, sender) - 1
        for publication in publications:
            self.hand_on(publication, 0, height)
        self.accept(publications)

    def unfinished(self) -> i64:
        return self.order.waiting()

    def stamped(self, payload: bytes, topic: i64, asked: i64) -> Publication:
        """A new publication of this node, which counts as delivered here from now on."""
        self.check_only_order(asked, self.order.strength)
        self._sequence += 1
        dependencies = self.order.stamp(self._sequence)
        now = self.environment.now()
        publication = Ordered(self.me, self._sequence, now, payload, dependencies, topic, self.order.strength)
        if self.traffic is not None:
            self.traffic.stamped(publication)
        return publication

    def opened(self, sender: i64, message: ProtocolMessage) -> list[Publication]:
        """The publications of an arriving packet."""
        if isinstance(message, Publication):
            publications = [message]
        elif isinstance(message, Packet):
            publications = message.publications
        else:
            raise ProtocolError(
                f"node {sender} sent a {type(message).__name__}, which a broadcast in packets does not know"
            )
        traffic = self.traffic
        if traffic is not None:
            now = self.environment.now()
            for publication in publications:
                traffic.received(self.me, publication, len(publications), now)
        return publications

    def hand_on(self, publication: Publication, above: i64, height: i64) -> None:
        """Send a publication alone to the children in clusters ``above + 1 .. height``."""
        s = above + 1
        while s <= height:
            child = self.cube.first(self.me, s)
            if child != NO_NODE:
                self._send_one(child, publication)
            s += 1

    def send_all(self, child: i64, publications: list[Publication]) -> None:
        """Send publications to a child in as few packets as they fit into, filled in this order."""
        form = self.form
        begun: i64 = 0
        size = form.header_bytes
        position: i64 = 0
        while position < len(publications):
            more = form.publication_bytes(publications[position])
            if position > begun and size + more > form.largest:
                if self.traffic is not None:
                    self.traffic.closed += 1
                self._send_packet(child, publications[begun:position], size)
                begun = position
                size = form.header_bytes
            size += more
            position += 1
        self._send_packet(child, publications[begun:], size)

    def accept(self, publications: list[Publication]) -> None:
        """Deliver the publications that may be delivered now that these have arrived."""
        traffic = self.traffic
        for publication in publications:
            for released in self.order.arrived(publication):
                if traffic is not None:
                    traffic.delivered(self.me, released, self.environment.now())
                self.environment.deliver(released)

    def _send_one(self, child: i64, publication: Publication) -> None:
        if self.traffic is not None:
            self.traffic.sent(self.me, 1, self.form.header_bytes + self.form.publication_bytes(publication))
        self.environment.send(child, publication)

    def _send_packet(self, child: i64, publications: list[Publication], size_bytes: i64) -> None:
        if self.traffic is not None:
            self.traffic.sent(self.me, len(publications), size_bytes)
        if len(publications) == 1:
            self.environment.send(child, publications[0])
        else:
            self.environment.send(child, Packet(publications))
