"""Trees that lead around those who are lost: waves that go on when a node of the tree fails.

* **Waves.** A node remembers to whom it has handed a packet and who has not answered
  (:mod:`antiphon.fabrics.cube.route`). When one of them is lost its cluster goes to the next member there. So an
  acknowledgement still means that all members whom the sender can reach have the packet, and nobody waits for the lost.
* **Window.** A publisher goes on when all of its publications up to a window behind are acknowledged, the first of them
  included. So nobody is more than a window behind, except for those who are out of reach.
* **Members that are lost** are out of the view and remembered as being *away*.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.dissemination import CubeDissemination
from antiphon.fabrics.cube.messages import Acknowledgement, LeafCopy, Refusal
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.retransmission import CubeRetransmission
from antiphon.fabrics.cube.route import Route
from antiphon.fabrics.cube.topic import OUTSIDE, CubeTopic, CubeTopicTable
from antiphon.fabrics.cube.topology import cluster
from antiphon.kernel.message import ProtocolMessage, publication_key
from antiphon.kernel.process import NO_NODE, UNBOUNDED, Environment


@final
class RepairedDissemination(CubeDissemination):
    """Sends down trees whose nodes may be lost."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        delivery: CubeDelivery,
        retransmission: CubeRetransmission,
    ) -> None:
        super().__init__(environment, topics, nodes, agenda, delivery)
        self._retransmission: Final[CubeRetransmission] = retransmission

    # What arrives.

    def on_packet(self, sender: i64, packet: ProtocolMessage) -> None:
        topic = self._topics.find(packet.topic)
        if not topic.is_active():
            self._environment.unwanted(packet)
            self.refuse(sender, topic, packet, False)
            return
        key = publication_key(packet.source, packet.sequence)
        height = cluster(self._me, sender) - 1
        route = topic.routes.get(key)
        if route is None and height == 0:
            # It serves no cluster, so nobody has to answer it.
            self._delivery.take(topic, packet)
            self._environment.send(sender, Acknowledgement(packet.source, packet.sequence, packet.topic))
            if topic.state == OUTSIDE:
                self._agenda.close_if_outside(topic)
            return
        if route is None:
            route = Route(packet)
            topic.open_route(key, route)
        # It may have come before, from somebody who is lost by now.
        route.parents[sender] = height
        self.serve(topic, route, height)
        self._delivery.take(topic, packet)
        self._settle(topic, key, route)

    def on_ack(self, sender: i64, message: Acknowledgement) -> None:
        topic = self._topics.find(message.topic)
        key = publication_key(message.source, message.sequence)
        route = topic.routes.get(key)
        if route is not None and route.on_ack(sender):
            self._settle(topic, key, route)

    def on_refusal(self, sender: i64, refusal: Refusal) -> None:
        topic = self._topics.find(refusal.topic)
        key = publication_key(refusal.source, refusal.sequence)
        route = topic.routes.get(key)
        topic.view.remove(sender, refusal.counter)
        if route is None or not route.on_ack(sender):
            return
        if not refusal.was_leaf:
            self.hand_on(topic, route, cluster(self._me, sender))
        self._settle(topic, key, route)

    def on_member_lost(self, topic: CubeTopic, peer: i64) -> None:
        """A node is lost, member or not: its clusters are served by others, and nobody waits for its answer."""
        counter = topic.view.counter_of(peer)
        if counter >= 0:
            topic.view.forget(peer)
            topic.add_away(peer, counter)
        for key, route in list(topic.routes.items()):
            if self.lead_around(topic, route, peer):
                self._settle(topic, key, route)

    # Routes.

    def serve(self, topic: CubeTopic, route: Route, height: i64) -> None:
        """Hand on to all clusters up to ``height`` that have not been served."""
        s = height
        while s > route.height:
            self.hand_on(topic, route, s)
            s -= 1
        route.height = max(route.height, height)

    def hand_on(self, topic: CubeTopic, route: Route, s: i64) -> None:
        """Send to those who serve a cluster, and expect their answers."""
        view = topic.view
        child = view.first(self._me, s)
        if child != NO_NODE:
            route.sent(child, True)
            self._environment.send(child, route.packet)
        if view.has_passive():
            # The first of them may not know these yet.
            for newcomer in view.passive_in_cluster(self._me, s):
                route.sent(newcomer, False)
                self._environment.send(newcomer, LeafCopy(route.packet))

    def lead_around(self, topic: CubeTopic, route: Route, peer: i64) -> bool:
        """Let somebody else serve the cluster of one who is lost; whether its answer was awaited."""
        route.parents.pop(peer, None)
        if peer not in route.awaited:
            return False
        if route.lost(peer):
            self.hand_on(topic, route, cluster(self._me, peer))
        return True

    def _settle(self, topic: CubeTopic, key: i64, route: Route) -> None:
        """Tell the parents whose part is served."""
        packet = route.packet
        is_own_served = False
        for parent in route.served(self._me):
            if parent == NO_NODE:
                is_own_served = True
            else:
                self._environment.send(parent, Acknowledgement(packet.source, packet.sequence, packet.topic))
        if len(route.awaited) == 0:
            topic.close_route(key)
        if is_own_served:
            topic.close_own(packet.sequence)
            self._count_in_flight(topic)
            self._agenda.advance(topic)
        if topic.state == OUTSIDE:
            self._agenda.close_if_outside(topic)

    # Own publications.

    def send_own(self, topic: CubeTopic, packet: ProtocolMessage) -> i64:
        self._retransmission.keep_packet(topic, packet)
        route = Route(packet)
        route.parents[NO_NODE] = self._nodes.cube.dimension
        self.serve(topic, route, self._nodes.cube.dimension)
        count = len(route.awaited)
        if count > 0:
            topic.open_route(publication_key(self._me, packet.sequence), route)
            topic.open_own(packet.sequence)
            self._count_in_flight(topic)
        return count

    def _count_in_flight(self, topic: CubeTopic) -> None:
        """How many own publications have begun since the first that is not acknowledged, that one included."""
        topic.in_flight = 0
        for first in topic.own_open:
            topic.in_flight = topic.begun - first + 1
            break

    def first_unsettled(self, topic: i64) -> i64:
        """The number of the first own publication that not all members are known to have."""
        state = self._topics.get(topic)
        if state is None:
            return UNBOUNDED
        for first in state.own_open:
            return first
        return UNBOUNDED if state.published == state.begun else state.begun + 1
