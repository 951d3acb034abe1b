"""VCube-PS, repaired: topics with per-publisher trees of subscribers only, through joins and leaves.

Follows chapter 5 of the thesis: a publication goes down a tree that is rooted at its publisher and holds subscribers
only; a wave of acknowledgements comes back up; causal order is kept per topic by causal barriers. The printed
algorithms lose publications and block subscribers when membership changes
(:mod:`antiphon_lab.protocols.cube.vcube_ps_published` has them as they are). What is different here:

* A newcomer floods ``Subscribe`` to all nodes; it is *passive* for whoever knows it. When all have answered it has a
  complete view: each member has spoken for itself, and nobody for others. It floods ``Synchronise``, which makes it
  *active*; the answers carry what each node counts as past. Their union is a consistent cut, the newcomer's starting
  point. Then the subscription is effective, and the environment is told.
* Only active members are given a cluster to serve. Passive ones get a copy of their own where a cluster has no active
  member.
* Who is addressed and is no member returns the copy; the sender forgets it and gives the cluster to the next member.
  So there are no relays, nothing is lost to a stale view, and a stale entry is corrected at its first use. An
  ``Unsubscribe`` therefore needs neither acknowledgement nor tombstones.
* Publications are numbered per topic without gaps, so several can be in flight (``window``): order is restored at the
  receiver and no longer bought with one round trip per publication. Those that had to queue for the window travel
  together (``bundle``).
* Each publication may choose its own order (``mixed``), also total order about some keys (``total``).
* With ``directory`` a newcomer asks the topic's home node for the members instead of flooding.

Membership is in :mod:`antiphon.fabrics.cube.membership`, total order in :mod:`antiphon.fabrics.cube.totals`,
publications are here.

``docs/architecture.md`` argues why nothing is lost and nobody blocks; the tests explore all schedules of small systems.
Links must not lose or duplicate; they may reorder. Nodes do not fail here: those that may are in
:mod:`antiphon.fabrics.cube.lasting`.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import (
    Acknowledgement,
    Bundle,
    LeafCopy,
    Refusal,
    Unsubscribe,
)
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, Options, Pending, Topic
from antiphon.fabrics.cube.topology import cluster
from antiphon.fabrics.cube.total_messages import KeyLock
from antiphon.fabrics.cube.totals import Totals, is_closed
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, NO_KEYS, NONE, ORDER_NAMES, TOTAL, UNSPECIFIED, Message, publication_key
from antiphon.kernel.process import NO_NODE, order_name
from antiphon.orders.order import KeyedOrdered, Ordered

__all__ = ["Options", "Topic", "VCubePs"]


class VCubePs(Totals):
    """One node of the topic system."""

    # What the application does.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        return self._publish(NO_KEYS, payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        if not self.options.total:
            raise UsageError("keys are for total order, which is not to be had here; publish without naming any")
        return self._publish(vec[i64](sorted(set(keys))), payload, topic, order)

    def _publish(self, keys: vec[i64], payload: bytes, topic: i64, order: i64) -> i64:
        chosen = self._chosen_order(order)
        state = self.find_topic(topic)
        if not state.wants_membership:
            raise UsageError(f"node {self.me} is not subscribed to topic {topic}; only subscribers publish: subscribe")
        state.published += 1
        state.queue.append(Pending(state.published, self.environment.now(), payload, chosen, keys))
        self.go_on(state)
        return state.published

    def room(self, topic: i64) -> i64:
        state = self.topic(topic)
        if state is None or state.state != MEMBER:
            return 0
        return max(0, self.options.window - state.in_flight - len(state.queue))

    def _chosen_order(self, asked: i64) -> i64:
        """The order of a publication: what was asked for, if that may be, or the default."""
        if asked == UNSPECIFIED:
            return self.options.strength
        if not self.options.mixed:
            self.check_only_order(asked, self.options.strength)
        else:
            strongest = TOTAL if self.options.total else CAUSAL
            if not NONE <= asked <= strongest:
                names = ", ".join(ORDER_NAMES[: strongest + 1])
                raise UsageError(f"there is no order {order_name(asked)} here; choose one of {names}")
        return asked

    # What arrives.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, (Ordered, Bundle)):
            self.receive_packet(sender, message)
        elif isinstance(message, Acknowledgement):
            self.close_one(self.find_topic(message.topic), message)
        elif isinstance(message, LeafCopy):
            self.receive_leaf_copy(sender, message)
        elif isinstance(message, Refusal):
            self.receive_refusal(sender, message)
        else:
            super().receive(sender, message)
        if self.options.total:
            self.go_on_opened()

    def receive_packet(self, sender: i64, packet: Message) -> None:
        """A publication or a bundle, with a cluster to serve."""
        topic = self.find_topic(packet.topic)
        if not topic.is_active():
            self.environment.unwanted(packet)
            self.environment.send(sender, Refusal(packet, topic.left_counter, False))
            return
        count = self.send_down(topic, packet, cluster(self.me, sender) - 1)
        if count > 0:
            topic.waves.open(publication_key(packet.source, packet.sequence), count, sender)
        else:
            self.environment.send(sender, Acknowledgement(packet.source, packet.sequence, packet.topic))
        self.take(topic, packet)

    def receive_leaf_copy(self, sender: i64, copy: LeafCopy) -> None:
        packet = copy.packet
        if isinstance(packet, KeyLock):
            self.receive_lock_copy(sender, packet)
            return
        topic = self.find_topic(copy.topic)
        if topic.state == OUTSIDE:
            self.environment.unwanted(copy)
            self.environment.send(sender, Refusal(copy.packet, topic.left_counter, True))
            return
        self.environment.send(sender, Acknowledgement(copy.source, copy.sequence, copy.topic))
        self.take(topic, copy.packet)

    def take(self, topic: Topic, packet: Message) -> None:
        if topic.state != MEMBER:
            topic.early.append(packet)
        elif isinstance(packet, Ordered):
            self.arrived(topic, packet)
        elif isinstance(packet, Bundle):
            for publication in packet.publications:
                self.arrived(topic, publication)

    def arrived(self, topic: Topic, publication: Ordered) -> None:
        self.deliver_all(topic, topic.order.arrived(publication))

    def deliver_all(self, topic: Topic, publications: list[Ordered]) -> None:
        """Deliver what an order has released."""
        totals: list[Ordered] = []
        for released in publications:
            self.deliver_one(topic, released)
            if released.order == TOTAL:
                totals.append(released)
        if len(totals) > 0:
            self.totals_delivered(topic, totals)

    def deliver_one(self, topic: Topic, publication: Ordered) -> None:
        """Deliver what an order has released."""
        self.environment.deliver(publication)

    def receive_refusal(self, sender: i64, refusal: Refusal) -> None:
        """Forget a stale member; if it was to serve a cluster, somebody else must."""
        topic = self.find_topic(refusal.topic)
        topic.view.remove(sender, refusal.counter)
        if isinstance(refusal.packet, KeyLock):
            self.lock_refused(topic, sender, refusal)
            return
        if not refusal.was_leaf:
            key = publication_key(refusal.source, refusal.sequence)
            count = self.send_to_cluster(topic, refusal.packet, cluster(self.me, sender))
            topic.waves.expect_more(key, count)
        self.close_one(topic, refusal)

    def close_one(self, topic: Topic, message: Message) -> None:
        """One child has answered for a publication."""
        parent = topic.waves.answered(publication_key(message.source, message.sequence))
        if parent >= 0:
            if not isinstance(message, Acknowledgement):
                message = Acknowledgement(message.source, message.sequence, message.topic)
            self.answer(parent, message)
        elif parent == NO_NODE:
            topic.in_flight -= 1
            self.go_on(topic)
        self.close_if_outside(topic)

    def answer(self, parent: i64, message: Message) -> None:
        """Tell a parent that the whole subtree has a publication."""
        self.environment.send(parent, message)

    # Sending down trees.

    def send_down(self, topic: Topic, message: Message, height: i64) -> i64:
        """Send to one member in each of this node's clusters up to ``height``; the answer is how many copies left."""
        count: i64 = 0
        largest_first = self.options.largest_first
        s: i64 = 1
        while s <= height:
            count += self.send_to_cluster(topic, message, height + 1 - s if largest_first else s)
            s += 1
        return count

    def send_to_cluster(self, topic: Topic, message: Message, s: i64) -> i64:
        view = topic.view
        child = view.first(self.me, s)
        if child != NO_NODE:
            self.environment.send(child, message)
            return 1
        if not view.has_passive():
            return 0
        passive = view.passive_in_cluster(self.me, s)
        if not isinstance(message, Unsubscribe):
            message = LeafCopy(message)
        for newcomer in passive:
            self.environment.send(newcomer, message)
        return len(passive)

    def started(self, packet: Message, copies: i64) -> None:
        """An own packet has left in so many copies; for those who measure."""

    def _stamped(self, topic: Topic, pending: Pending, payload: bytes) -> Ordered:
        """A publication that begins now, with what it names."""
        sequence, order = pending.sequence, pending.order
        names = topic.order.stamp(sequence, order)
        if len(pending.keys) == 0:
            return Ordered(self.me, sequence, pending.timestamp, payload, names, topic.name, order)
        return KeyedOrdered(self.me, sequence, pending.timestamp, payload, names, topic.name, order, pending.keys)

    def start_publications(self, topic: Topic) -> None:
        """Start the publication at the head of the queue, with those behind it that had to wait as it did."""
        started: list[Ordered] = []
        while len(started) < self.options.bundle and len(started) < len(topic.queue):
            pending = topic.queue[len(started)]
            payload = pending.payload
            if payload is None or pending.order == TOTAL or (self.options.total and is_closed(topic, pending.keys)):
                break
            publication = self._stamped(topic, pending, payload)
            self.environment.deliver(publication)
            started.append(publication)
        del topic.queue[: len(started)]
        topic.begun = started[-1].sequence
        packet: Message = started[0] if len(started) == 1 else Bundle(started)
        self.started(packet, self.send_own(topic, packet))

    def send_own(self, topic: Topic, packet: Message) -> i64:
        """Send an own packet down the own tree, and expect answers; how many copies left."""
        count = self.send_down(topic, packet, self.cube.dimension)
        if count > 0:
            topic.in_flight += 1
            topic.waves.open(publication_key(self.me, packet.sequence), count, NO_NODE)
        return count
