"""CubeDelivery at a member: it restores the order of publications and gives them to the application."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.messages import Bundle
from antiphon.fabrics.cube.topic import MEMBER, CubeTopic
from antiphon.kernel.message import TOTAL, ProtocolMessage, Publication
from antiphon.kernel.process import Environment


class CubeDelivery:
    """Delivers the publications that the order of a topic releases."""

    def __init__(self, environment: Environment, agenda: Agenda) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._agenda: Final[Agenda] = agenda

    def take(self, topic: CubeTopic, packet: ProtocolMessage) -> None:
        """Use a publication or a bundle that has arrived; a node that is not synchronised yet stores it."""
        if topic.state != MEMBER:
            topic.add_early(packet)
        elif isinstance(packet, Publication):
            self.arrived(topic, packet)
        elif isinstance(packet, Bundle):
            for publication in packet.publications:
                self.arrived(topic, publication)

    def arrived(self, topic: CubeTopic, publication: Publication) -> None:
        """A publication has arrived at a member: deliver all that may be."""
        self.deliver_all(topic, topic.order.arrived(publication))

    def deliver_all(self, topic: CubeTopic, publications: list[Publication]) -> None:
        """Deliver the publications that an order has released."""
        has_total = False
        for released in publications:
            self.deliver_one(topic, released)
            if released.order == TOTAL:
                has_total = True
        if has_total:
            self._totals_delivered(topic, publications)

    def deliver_one(self, topic: CubeTopic, publication: Publication) -> None:
        """Give a publication to the application."""
        self._environment.deliver(publication)

    def _totals_delivered(self, topic: CubeTopic, publications: list[Publication]) -> None:
        for publication in publications:
            if publication.order == TOTAL and publication.source == self._me:
                topic.undelivered_totals -= 1
        self._agenda.totals_delivered(topic)
