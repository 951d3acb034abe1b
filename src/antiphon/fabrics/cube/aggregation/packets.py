"""Packets: several publications that go to the same neighbour travel as one.

A **packet** holds one or more publications. One alone travels as itself (:class:`antiphon.orders.order.Ordered`); more
than one as a :class:`Packet`. All of them came from the same neighbour and go to the same ones: the children of a node
depend only on the cluster of its parent, so a packet can be handed on whole.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.cube.messages import PublicationList
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ProtocolMessage, Publication, publication_key


@mypyc_attr(acyclic=True)
class Packet(PublicationList):
    """Two publications or more on their way to one neighbour."""


@mypyc_attr(acyclic=True)
class Parcel(ProtocolMessage):
    """Messages to one neighbour that leave at the same moment: publications and bundles, or acknowledgements.

    Each is handled as if it had come alone, except that what goes on to the same neighbour goes on together. A parcel
    is named after its first part; all parts are about the same topic.
    """

    def __init__(self, parts: list[ProtocolMessage]) -> None:
        first = parts[0]
        super().__init__(first.source, first.sequence, first.topic)
        self.parts: Final[list[ProtocolMessage]] = parts

    def is_control(self) -> bool:
        return self.parts[0].is_control()

    def is_credit(self) -> bool:
        return self.parts[0].is_credit()


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

    def publication_bytes(self, publication: Publication) -> i64:
        """The bytes that one publication adds to a packet."""
        entries: i64 = len(publication.dependencies) + 1
        return self.source_bytes + len(publication.payload) + entries * self.entry_bytes


class Traffic:
    """Counts the packets and publications that all processes of one run have sent and received.

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

    def received(self, node: i64, publication: Publication, together: i64, now: i64) -> None:
        """A node has received a publication in a packet of ``together``."""
        if self._keeps_journeys:
            rows = append(self.receptions, node)
            rows = append(rows, publication_key(publication.source, publication.sequence))
            rows = append(rows, together)
            self.receptions = append(rows, now)

    def delivered(self, node: i64, publication: Publication, now: i64) -> None:
        """A node has delivered a publication of another one."""
        if self._keeps_journeys:
            rows = append(self.deliveries, node)
            rows = append(rows, publication_key(publication.source, publication.sequence))
            self.deliveries = append(rows, now)

    def stamped(self, publication: Publication) -> None:
        """A node has published."""
        if self._keeps_journeys:
            rows = append(self.published, publication_key(publication.source, publication.sequence))
            self.published = append(rows, len(publication.dependencies))
