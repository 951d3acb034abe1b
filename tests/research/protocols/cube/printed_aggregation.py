"""Algorithm 2 of the thesis as it is printed, with full vectors and scans over all that is pending, to compare with.

The corrections that it needs to work at all are marked with the names of the defects. Slow, and short.
"""

from __future__ import annotations

from antiphon.fabrics.cube import Cube, Traffic, cluster
from antiphon.kernel import UNSPECIFIED, Environment, ProtocolMessage, publication_key
from antiphon.kernel.message import Publication
from antiphon_lab.protocols.cube.packet_broadcast import PacketBroadcast

Vectors = dict[int, dict[int, int]]
"""The full vector of every publication, by key; one table for all nodes, filled by who publishes."""


class PrintedAggregation(PacketBroadcast):
    """One node. Delivery, which is not in question here, is that of the base class."""

    def __init__(self, environment: Environment, cube: Cube, vectors: Vectors, traffic: Traffic | None = None) -> None:
        super().__init__(environment, cube, None, traffic)
        self.vectors = vectors
        self.vector_max: dict[int, int] = {}
        self.pending: list[Publication] = []

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        publication = self.stamped(payload, topic, order)
        key = publication_key(self.me, publication.sequence)
        self.vectors[key] = {source: int(self.order.past(source)) for source in self.cube.members()}
        self.vector_max[self.me] = publication.sequence
        self.environment.deliver(publication)
        self.hand_on(publication, 0, self.cube.dimension)
        return publication.sequence

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        publications = self.opened(sender, message)
        for publication in publications:  # B-4: in the order of the packet, which is that of arrival at its sender
            self.pending.append(publication)
            self.raise_vector_max()
            for child in self.cube.children(self.me, cluster(self.me, sender) - 1):
                aggregate = self.check_aggregation(child, publication)
                if aggregate:
                    self.send_all(child, aggregate)
        self.accept(publications)
        self.pending = [each for each in self.pending if each.sequence > self.order.past(each.source)]

    def vector(self, publication: Publication) -> dict[int, int]:
        return self.vectors[publication_key(publication.source, publication.sequence)]

    def is_parent(self, child: int, root: int) -> bool:
        return child in self.cube.children_in_tree(self.me, root)

    def raise_vector_max(self) -> None:
        risen = True
        while risen:
            risen = False
            for each in self.pending:
                if each.sequence == self.vector_max.get(each.source, 0) + 1:
                    self.vector_max[each.source] = each.sequence
                    risen = True

    def check_aggregation(self, child: int, trigger: Publication) -> list[Publication]:
        return [
            each
            for each in self.pending
            if self.is_parent(child, each.source)
            and self.vector(each)[trigger.source] >= trigger.sequence
            and not any(
                entry > self.vector_max.get(source, 0) and self.is_parent(child, source)
                for source, entry in self.vector(each).items()
            )
        ]
