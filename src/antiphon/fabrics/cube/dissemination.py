"""Publications on the cube: trees of members that are rooted at the publisher, and waves that come back up.

A publication goes to one active member of each cluster, which serves its own smaller clusters. Passive members get a
copy of their own (``LeafCopy``) where a cluster has no active one. An acknowledgement comes back up when a subtree
has the publication. A receiver that is no member returns the copy (``Refusal``); the sender forgets it and gives the
cluster to the next member.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.messages import Acknowledgement, Bundle, LeafCopy, Refusal, Unsubscribe
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.topic import OUTSIDE, CubeTopic, CubeTopicTable, Options, PendingRequest, is_closed
from antiphon.fabrics.cube.topology import cluster
from antiphon.kernel.message import TOTAL, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.order import KeyedOrdered, Ordered


class CubeDissemination:
    """Begins own publications, and sends down trees. How answers come back up is for subclasses to say."""

    def __init__(
        self, environment: Environment, topics: CubeTopicTable, nodes: CubeNodes, agenda: Agenda, delivery: CubeDelivery
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topics: Final[CubeTopicTable] = topics
        self._options: Final[Options] = topics.options
        self._nodes: Final[CubeNodes] = nodes
        self._agenda: Final[Agenda] = agenda
        self._delivery: Final[CubeDelivery] = delivery

    # What subclasses do.

    def on_packet(self, sender: i64, packet: ProtocolMessage) -> None:
        """A publication or a bundle, with a cluster to serve."""
        raise NotImplementedError

    def on_ack(self, sender: i64, message: Acknowledgement) -> None:
        """The whole subtree of a child has a packet."""
        raise NotImplementedError

    def on_refusal(self, sender: i64, refusal: Refusal) -> None:
        """Forget a stale member; if it was to serve a cluster, somebody else must."""
        raise NotImplementedError

    def send_own(self, topic: CubeTopic, packet: ProtocolMessage) -> i64:
        """Send an own packet down the own tree, and expect answers; how many copies left."""
        raise NotImplementedError

    def started(self, packet: ProtocolMessage, copies: i64) -> None:
        """An own packet has left in so many copies; for those who measure."""

    # What arrives.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """A packet has come down a tree, or an answer up."""
        if isinstance(message, (Publication, Bundle)):
            self.on_packet(sender, message)
        elif isinstance(message, Acknowledgement):
            self.on_ack(sender, message)
        elif isinstance(message, LeafCopy):
            self.on_leaf_copy(sender, message)
        elif isinstance(message, Refusal):
            self.on_refusal(sender, message)

    def refuse(self, sender: i64, topic: CubeTopic, packet: ProtocolMessage, was_leaf: bool) -> None:
        """Return a packet that has come to one who is no member."""
        self._environment.send(sender, Refusal(packet, topic.left_counter, was_leaf))

    def on_leaf_copy(self, sender: i64, copy: LeafCopy) -> None:
        """A publication or a bundle for this node alone."""
        topic = self._topics.find(copy.topic)
        if topic.state == OUTSIDE:
            self._environment.unwanted(copy)
            self.refuse(sender, topic, copy.packet, True)
            return
        # First, so that a host that holds acknowledgements back until all that was delivered is on disk holds this one.
        self._delivery.take(topic, copy.packet)
        self._environment.send(sender, Acknowledgement(copy.source, copy.sequence, copy.topic))

    # Sending down trees.

    def send_down(self, topic: CubeTopic, message: ProtocolMessage, height: i64) -> i64:
        """Send to one member in each of this node's clusters up to ``height``; the answer is how many copies left."""
        count: i64 = 0
        largest_first = self._options.largest_first
        s: i64 = 1
        while s <= height:
            count += self.send_to_cluster(topic, message, height + 1 - s if largest_first else s)
            s += 1
        return count

    def send_to_cluster(self, topic: CubeTopic, message: ProtocolMessage, s: i64) -> i64:
        """Send to those who serve a cluster; the answer is how many copies left."""
        view = topic.view
        child = view.first(self._me, s)
        if child != NO_NODE:
            self._environment.send(child, message)
            return 1
        if not view.has_passive():
            return 0
        passive = view.passive_in_cluster(self._me, s)
        if not isinstance(message, Unsubscribe):
            message = LeafCopy(message)
        for newcomer in passive:
            self._environment.send(newcomer, message)
        return len(passive)

    def start_publications(self, topic: CubeTopic) -> None:
        """Start the publication at the head of the queue, which may begin, with those behind that waited as it did."""
        started: list[Publication] = []
        while len(started) < self._options.bundle and len(started) < len(topic.queue):
            pending = topic.queue[len(started)]
            payload = pending.payload
            if payload is None or pending.order == TOTAL:
                break
            if len(started) > 0 and self._options.total and is_closed(topic, pending.keys):
                break
            publication = self._stamped(topic, pending, payload)
            self._environment.deliver(publication)
            started.append(publication)
        topic.dequeue(len(started))
        topic.begun = started[-1].sequence
        packet: ProtocolMessage = started[0] if len(started) == 1 else Bundle(started)
        self.started(packet, self.send_own(topic, packet))

    def _stamped(self, topic: CubeTopic, pending: PendingRequest, payload: bytes) -> Publication:
        """A publication that begins now, with what it names."""
        sequence, order = pending.sequence, pending.order
        names = topic.order.stamp(sequence, order)
        if len(pending.keys) == 0:
            return Ordered(self._me, sequence, pending.timestamp, payload, names, topic.name, order)
        return KeyedOrdered(self._me, sequence, pending.timestamp, payload, names, topic.name, order, pending.keys)


class WaveDissemination(CubeDissemination):
    """Counts the answers to each packet, where nobody fails (:mod:`antiphon.fabrics.cube.ack_aggregation`)."""

    def on_packet(self, sender: i64, packet: ProtocolMessage) -> None:
        topic = self._topics.find(packet.topic)
        if not topic.is_active():
            self._environment.unwanted(packet)
            self.refuse(sender, topic, packet, False)
            return
        count = self.send_down(topic, packet, cluster(self._me, sender) - 1)
        if count > 0:
            topic.waves.open(publication_key(packet.source, packet.sequence), count, sender)
        else:
            self._environment.send(sender, Acknowledgement(packet.source, packet.sequence, packet.topic))
        self._delivery.take(topic, packet)

    def on_ack(self, sender: i64, message: Acknowledgement) -> None:
        self.close_one(self._topics.find(message.topic), message)

    def on_refusal(self, sender: i64, refusal: Refusal) -> None:
        topic = self._topics.find(refusal.topic)
        topic.view.remove(sender, refusal.counter)
        if not refusal.was_leaf:
            key = publication_key(refusal.source, refusal.sequence)
            count = self.send_to_cluster(topic, refusal.packet, cluster(self._me, sender))
            topic.waves.expect_more(key, count)
        self.close_one(topic, refusal)

    def close_one(self, topic: CubeTopic, message: ProtocolMessage) -> None:
        """One child has answered for a publication."""
        parent = topic.waves.on_ack(publication_key(message.source, message.sequence))
        if parent >= 0:
            if not isinstance(message, Acknowledgement):
                message = Acknowledgement(message.source, message.sequence, message.topic)
            self.answer(parent, message)
        elif parent == NO_NODE:
            topic.in_flight -= 1
            self._agenda.advance(topic)
        self._agenda.close_if_outside(topic)

    def answer(self, parent: i64, message: ProtocolMessage) -> None:
        """Tell a parent that the whole subtree has a publication."""
        self._environment.send(parent, message)

    def send_own(self, topic: CubeTopic, packet: ProtocolMessage) -> i64:
        count = self.send_down(topic, packet, self._nodes.cube.dimension)
        if count > 0:
            topic.in_flight += 1
            topic.waves.open(publication_key(self._me, packet.sequence), count, NO_NODE)
        return count
