"""Broadcast in packets: several publications that go to the same neighbour travel as one.

A **packet** holds one or more publications. One alone travels as itself (:class:`antiphon.orders.order.Ordered`); more
than one as a :class:`Packet`. All of them came from the same neighbour and go to the same ones: the children of a node
depend only on the cluster of its parent, so a packet can be handed on whole.

``PacketBroadcast`` sends every publication at once and alone. It is what the protocols that aggregate are compared
with (section 4.5 of the thesis), and what they share: causal delivery by vector clocks, packets no larger than the
network carries, and bytes counted as published.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.messages import Several
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.kernel.errors import ProtocolError, UsageError
from antiphon.kernel.message import UNSPECIFIED, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.order import Ordered
from antiphon.orders.vectors import CausalVectors


@mypyc_attr(acyclic=True)
class Packet(Several):
    """Two publications or more on their way to one neighbour."""


class PacketFormat:
    """How many bytes things take, and the most that one packet may have (section 4.5 of the thesis).

    A publication has its payload, the number of its source, and one entry per source that its compressed vector names;
    its own entry is one of them. A publication that alone is larger than a packet travels alone.
    """

    def __init__(
        self, largest: i64 = 1500, header_bytes: i64 = 20, source_bytes: i64 = 2, entry_bytes: i64 = 4
    ) -> None:
        if largest <= header_bytes:
            raise UsageError(
                f"a packet of {largest} bytes has no room beside its header of {header_bytes}; allow larger packets"
            )
        self.largest: Final[i64] = largest
        self.header_bytes: Final[i64] = header_bytes
        self.source_bytes: Final[i64] = source_bytes
        self.entry_bytes: Final[i64] = entry_bytes

    def publication_bytes(self, publication: Ordered) -> i64:
        """What one publication adds to a packet."""
        entries: i64 = len(publication.dependencies) + 1
        return self.source_bytes + len(publication.payload) + entries * self.entry_bytes


class Traffic:
    """What all processes of one run have sent and received, for those who measure.

    ``by_publications[n]`` counts the packets with ``n`` publications, ``by_bytes[n]`` those of ``n`` bytes; what is
    larger than the largest packet is counted there. ``closed`` counts the packets that were sent because the next
    publication did not fit. ``largest[i]`` is the most publications that node ``i`` has put into one packet. With
    ``keeps_journeys`` every reception is written down as four numbers: node, publication, how many came together, and
    the time; every delivery of what came from elsewhere as three: node, publication and time; and every publication as
    two: itself, and how many others it names.
    """

    def __init__(self, node_count: i64, largest_bytes: i64 = 1500, keeps_journeys: bool = False) -> None:
        self.by_publications: vec[i64] = vec[i64]([0])
        self.by_bytes: Final[vec[i64]] = vec[i64]([0] * (int(largest_bytes) + 1))
        self.largest: Final[vec[i64]] = vec[i64]([0] * int(node_count))
        self.closed: i64 = 0
        self.bytes_sent: i64 = 0
        self.receptions: vec[i64] = vec[i64]()
        self.deliveries: vec[i64] = vec[i64]()
        self.published: vec[i64] = vec[i64]()
        self._keeps_journeys: Final[bool] = keeps_journeys

    def sent(self, node: i64, publications: i64, size_bytes: i64) -> None:
        """A node has sent a packet."""
        counts = self.by_publications
        while len(counts) <= publications:
            counts = append(counts, 0)
        counts[publications] += 1
        self.by_publications = counts
        last: i64 = len(self.by_bytes) - 1
        self.by_bytes[size_bytes if size_bytes < last else last] += 1
        self.bytes_sent += size_bytes
        if publications > self.largest[node]:
            self.largest[node] = publications

    def received(self, node: i64, publication: Ordered, together: i64, now: i64) -> None:
        """A node has received a publication in a packet of ``together``."""
        if self._keeps_journeys:
            rows = append(self.receptions, node)
            rows = append(rows, publication_key(publication.source, publication.sequence))
            rows = append(rows, together)
            self.receptions = append(rows, now)

    def delivered(self, node: i64, publication: Ordered, now: i64) -> None:
        """A node has delivered a publication of another one."""
        if self._keeps_journeys:
            rows = append(self.deliveries, node)
            rows = append(rows, publication_key(publication.source, publication.sequence))
            self.deliveries = append(rows, now)

    def stamped(self, publication: Ordered) -> None:
        """A node has published."""
        if self._keeps_journeys:
            rows = append(self.published, publication_key(publication.source, publication.sequence))
            self.published = append(rows, len(publication.dependencies))


@mypyc_attr(allow_interpreted_subclasses=True)
class PacketBroadcast(Process):
    """Over the tree of each source; what arrives is handed on at once, one publication per packet."""

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

    def receive(self, sender: i64, message: Message) -> None:
        publications = self.opened(sender, message)
        height = cluster(self.me, sender) - 1
        for publication in publications:
            self.hand_on(publication, 0, height)
        self.accept(publications)

    def unfinished(self) -> i64:
        return self.order.waiting()

    def stamped(self, payload: bytes, topic: i64, asked: i64) -> Ordered:
        """A new publication of this node, which counts as delivered here from now on."""
        self.check_only_order(asked, self.order.strength)
        self._sequence += 1
        dependencies = self.order.stamp(self._sequence)
        now = self.environment.now()
        publication = Ordered(self.me, self._sequence, now, payload, dependencies, topic, self.order.strength)
        if self.traffic is not None:
            self.traffic.stamped(publication)
        return publication

    def opened(self, sender: i64, message: Message) -> list[Ordered]:
        """The publications of an arriving packet."""
        if isinstance(message, Ordered):
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

    def hand_on(self, publication: Ordered, above: i64, height: i64) -> None:
        """Send a publication alone to the children in clusters ``above + 1 .. height``."""
        s = above + 1
        while s <= height:
            child = self.cube.first(self.me, s)
            if child != NO_NODE:
                self._send_one(child, publication)
            s += 1

    def send_all(self, child: i64, publications: list[Ordered]) -> None:
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

    def accept(self, publications: list[Ordered]) -> None:
        """Deliver what may be delivered now that these have arrived."""
        traffic = self.traffic
        for publication in publications:
            for released in self.order.arrived(publication):
                if traffic is not None:
                    traffic.delivered(self.me, released, self.environment.now())
                self.environment.deliver(released)

    def _send_one(self, child: i64, publication: Ordered) -> None:
        if self.traffic is not None:
            self.traffic.sent(self.me, 1, self.form.header_bytes + self.form.publication_bytes(publication))
        self.environment.send(child, publication)

    def _send_packet(self, child: i64, publications: list[Ordered], size_bytes: i64) -> None:
        if self.traffic is not None:
            self.traffic.sent(self.me, len(publications), size_bytes)
        if len(publications) == 1:
            self.environment.send(child, publications[0])
        else:
            self.environment.send(child, Packet(publications))
