"""Causal aggregation inside VCube-PS: on causal barriers, over trees of subscribers that come and go.

The thesis leaves this open (section 6.2): its aggregation (:mod:`antiphon.fabrics.cube.aggregation`) needs vectors of
the size of the system and trees that never change. Here a member that forwards ``x`` holds it back from its cluster
``s`` while it lacks some ``y`` that happened before ``x`` and that it will have to send into cluster ``s`` as well.
When ``y`` arrives, both go in one packet (:class:`Parcel`).

**What is missing, without vectors.** A barrier names immediate predecessors only. Of one that has arrived and waits for
its own delivery the barrier is known, and so on: what ``x`` lacks is whatever these chains end at that has not arrived.
The predecessors of a publication that has not arrived are unknown, so nothing waits for them until it arrives; then
``x`` is checked again. So ``x`` may leave earlier than with vectors, never later. A delivered publication lacks
nothing.

**When this delays no delivery.** Let ``m`` be a member in cluster ``s`` of the forwarder ``f``. If ``y`` reaches ``m``
through ``f`` too, ``m`` cannot have ``y`` before ``f`` has it and has sent it on; ``x`` leaves with it, so ``m`` has
both at once, and could not have delivered ``x`` earlier. ``y`` comes through ``f`` exactly if ``f`` gets it from a
cluster above ``s``, and that depends on the *publisher of y*: child sets differ from tree to tree. ``f`` works it out
from its view (:meth:`View.height_in_tree`). So no delivery is later

* where the views of those on the way agree with ``f``'s about that one tree, and
* ``m`` needs ``y``. A member that joined in between may count ``y`` as past; it gets ``x`` when ``f`` has ``y``.

While members change either may fail, and then ``x`` waits for ``y`` to reach ``f``, at most; the order is what
receivers restore, whatever a forwarder believes. Only publications in causal order are held: the others do not wait for
``y``. A bundle is held for what its first publication lacks, since that one could be delivered alone. Two things are
later: the acknowledgement of what was held, and the next publication of a source whose window is full.

**Why nothing waits for ever.** ``f`` holds only while it is a member, and ``x`` and ``y`` do not count as past there:
so both are among what a member gets. A hold waits for something that happened before what is held; along a chain of
holds happened-before goes back, and it is finite. Views do not enter this argument. A node that leaves sends everything
that it holds first. So does a node that hears of a leaver, because the trees change. To serve a cluster later than it
could be served is nothing new: that is what happens when a copy is returned.

Acknowledgements that go to the same neighbour at the same moment travel together too. A host that writes all that
leaves in one turn at once needs no parcels: with ``form`` None there are none.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.aggregation.packets import PacketFormat, Parcel, Traffic
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.dissemination import WaveDissemination
from antiphon.fabrics.cube.membership import MembershipListener
from antiphon.fabrics.cube.messages import Acknowledgement, Bundle, LeafCopy
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.topic import MEMBER, CubeTopic, CubeTopicTable
from antiphon.fabrics.cube.topology import cluster
from antiphon.kernel.message import CAUSAL, NONE, SOURCE_MASK, TOTAL, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.causal import CausalOrder


@final
class Undelivered:
    """A publication that has arrived here and may have to wait: keys of what it lacks, or lacked when last asked."""

    def __init__(self, missing: list[i64]) -> None:
        self.missing: list[i64] = missing


@final
class Forwarded:
    """A packet on its way through this node, as number ``number`` of all.

    It goes to the clusters ``blocked + 1 .. above`` now and to ``1 .. blocked`` later. ``copies`` counts what has left.
    """

    def __init__(self, packet: ProtocolMessage, sender: i64, height: i64, number: i64) -> None:
        self.packet: Final[ProtocolMessage] = packet
        self.sender: Final[i64] = sender
        self.number: Final[i64] = number
        self.above: i64 = height
        self.blocked: i64 = 0
        self.copies: i64 = 0

    def check_rest(self) -> None:
        """Let the blocked clusters be served next."""
        self.above = self.blocked
        self.blocked = 0
        self.copies = 0


@final
class Holding:
    """The packets that one node holds back on one topic."""

    def __init__(self) -> None:
        self.undelivered: dict[i64, Undelivered] = {}
        # Keyed by the one publication that each of the listed packets waits for.
        self.waiting_for: dict[i64, list[Forwarded]] = {}

    def state(self) -> str:
        """All that decides what will be sent, as text."""
        waiting = [
            (key, [(one.packet.source, one.packet.sequence, one.sender, one.blocked) for one in queue])
            for key, queue in sorted(self.waiting_for.items())
        ]
        return f"{sorted(self.undelivered)} {waiting}"


@final
class AggregatingDissemination(WaveDissemination):
    """Holds back what nobody below this node could deliver yet.

    ``form`` bounds and measures parcels; ``traffic`` counts them, for those who measure. With ``holds`` false nothing
    is held back, which leaves the measuring.
    """

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        delivery: CubeDelivery,
        form: PacketFormat | None,
        traffic: Traffic | None,
        holds: bool,
    ) -> None:
        super().__init__(environment, topics, nodes, agenda, delivery)
        self._form: Final[PacketFormat | None] = form
        self._traffic: Final[Traffic | None] = traffic
        self._holds: Final[bool] = holds
        self._holdings: dict[i64, Holding] = {}
        self._arrivals: i64 = 0
        self.held_total: i64 = 0
        # Acknowledgements of the message that is being received, by neighbour; empty between two messages.
        self._answers: dict[i64, list[ProtocolMessage]] = {}

    def held_back(self) -> i64:
        """How many packets still have to go into some cluster."""
        count: i64 = 0
        for holding in self._holdings.values():
            for queue in holding.waiting_for.values():
                count += len(queue)
        return count

    def text(self) -> str:
        """The packets that are held back, as text, to compare states."""
        return str([(name, holding.state()) for name, holding in sorted(self._holdings.items())])

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Parcel):
            self._receive_parcel(sender, message)
        else:
            super().receive(sender, message)

    def on_packet(self, sender: i64, packet: ProtocolMessage) -> None:
        self._receive_packets(self._topics.find(packet.topic), sender, [packet])

    def _receive_parcel(self, sender: i64, parcel: Parcel) -> None:
        """Packets, or acknowledgements, that left together."""
        topic = self._topics.find(parcel.topic)
        if parcel.is_credit():
            for part in parcel.parts:
                self.close_one(topic, part)
        else:
            self._receive_packets(topic, sender, parcel.parts)

    def _receive_packets(self, topic: CubeTopic, sender: i64, packets: list[ProtocolMessage]) -> None:
        """Packets that came together, with a cluster to serve."""
        if not topic.is_active():
            for packet in packets:
                self._environment.unwanted(packet)
                self.refuse(sender, topic, packet, False)
            return
        if self._traffic is not None:
            self._count_received(packets)
        height = cluster(self._me, sender) - 1
        fresh: list[Forwarded] = []
        for packet in packets:
            self._arrivals += 1
            fresh.append(Forwarded(packet, sender, height, self._arrivals))
        self._forward(topic, fresh)
        for packet in packets:
            if topic.state != MEMBER:
                topic.add_early(packet)
                continue
            for publication in publications_of(packet):
                self._deliver_after(topic, publication)

    def after_leaf_copy(self, copy: LeafCopy) -> None:
        """A copy that is not handed on has been taken: others may have waited for it."""
        if self._traffic is not None:
            self._count_received([copy.packet])
        topic = self._topics.find(copy.topic)
        if topic.state == MEMBER and self._holds:
            holding = self._holding(topic)
            freed: list[Forwarded] = []
            self._note(topic, holding, copy.packet)
            self._check_again(topic, holding, copy.packet, freed)
            self._send_freed(topic, freed)
            # Such a copy is delivered already, with whatever it releases; it comes to newcomers only.
            self._forget_delivered(topic, holding)

    def _forget_delivered(self, topic: CubeTopic, holding: Holding) -> None:
        order = topic.order
        if isinstance(order, CausalOrder):
            for key in [key for key in holding.undelivered if order.counts(key)]:
                del holding.undelivered[key]

    def note_early(self, topic: CubeTopic, early: list[ProtocolMessage]) -> None:
        """This node has become a member, and what came early has arrived."""
        for packet in early:
            self._note(topic, self._holding(topic), packet)

    def _deliver_after(self, topic: CubeTopic, publication: Publication) -> None:
        """A publication has arrived: deliver all that may be."""
        undelivered = self._holding(topic).undelivered
        released = topic.order.arrived(publication)
        for one in released:
            undelivered.pop(publication_key(one.source, one.sequence), None)
            if self._traffic is not None:
                self._traffic.delivered(self._me, one, self._environment.now())
        self._delivery.deliver_all(topic, released)

    # Holding back.

    def _holding(self, topic: CubeTopic) -> Holding:
        holding = self._holdings.get(topic.name)
        if holding is None:
            holding = Holding()
            self._holdings[topic.name] = holding
        return holding

    def _forward(self, topic: CubeTopic, fresh: list[Forwarded]) -> None:
        """Send on what may leave: of what has waited for what has just come, and of that itself."""
        freed: list[Forwarded] = []
        if self._holds and topic.state == MEMBER:
            holding = self._holding(topic)
            for forwarded in fresh:
                self._note(topic, holding, forwarded.packet)
            for forwarded in fresh:
                self._check_again(topic, holding, forwarded.packet, freed)
            for forwarded in fresh:
                self._block(topic, holding, forwarded)
                if forwarded.blocked > 0:
                    self.held_total += 1
        self._serve(topic, freed + fresh)
        for forwarded in fresh:
            packet = forwarded.packet
            # What is blocked counts as one answer that is missing, so that the wave stays open.
            missing = forwarded.copies + (1 if forwarded.blocked > 0 else 0)
            if missing > 0:
                topic.waves.open(publication_key(packet.source, packet.sequence), missing, forwarded.sender)
            else:
                self.answer(forwarded.sender, Acknowledgement(packet.source, packet.sequence, packet.topic))
        self._account_for(topic, freed)

    def _send_freed(self, topic: CubeTopic, freed: list[Forwarded]) -> None:
        self._serve(topic, freed)
        self._account_for(topic, freed)

    def _account_for(self, topic: CubeTopic, freed: list[Forwarded]) -> None:
        """Expect answers for what has left at last."""
        for forwarded in freed:
            packet = forwarded.packet
            if forwarded.copies > 0:
                topic.waves.expect_more(publication_key(packet.source, packet.sequence), forwarded.copies)
            if forwarded.blocked == 0:
                self.close_one(topic, packet)

    def _serve(self, topic: CubeTopic, packets: list[Forwarded]) -> None:
        """Send to each cluster all that may go there now, in the order of arrival."""
        highest: i64 = 0
        for forwarded in packets:
            if forwarded.above > highest:
                highest = forwarded.above
        largest_first = self._options.largest_first
        step: i64 = 1
        while step <= highest:
            s = highest + 1 - step if largest_first else step
            going = [forwarded for forwarded in packets if forwarded.blocked < s <= forwarded.above]
            if len(going) > 1:
                going.sort(key=arrival_number)
            if len(going) > 0:
                self._serve_cluster(topic, s, going)
            step += 1

    def _serve_cluster(self, topic: CubeTopic, s: i64, going: list[Forwarded]) -> None:
        child = topic.view.first(self._me, s)
        form = self._form
        if child == NO_NODE or form is None or len(going) == 1:
            for forwarded in going:
                copies = self.send_to_cluster(topic, forwarded.packet, s)
                forwarded.copies += copies
                self._count_sent(forwarded.packet, copies)
            return
        parts: list[ProtocolMessage] = []
        size = form.header_bytes
        for forwarded in going:
            forwarded.copies += 1
            more = packet_bytes(form, forwarded.packet)
            if len(parts) > 0 and size + more > form.largest:
                if self._traffic is not None:
                    self._traffic.closed += 1
                self._send_parts(child, parts, size)
                parts = []
                size = form.header_bytes
            parts.append(forwarded.packet)
            size += more
        self._send_parts(child, parts, size)

    def _send_parts(self, child: i64, parts: list[ProtocolMessage], size_bytes: i64) -> None:
        if self._traffic is not None:
            self._traffic.sent(self._me, publication_count(parts), size_bytes)
        self._environment.send(child, parts[0] if len(parts) == 1 else Parcel(parts))

    def started(self, packet: ProtocolMessage, copies: i64) -> None:
        if isinstance(packet, Publication) and packet.order == TOTAL:
            # It is taken like an arrival, with whatever it releases; others may name it before it is delivered here,
            # and it has arrived.
            topic = self._topics.find(packet.topic)
            holding = self._holding(topic)
            self._forget_delivered(topic, holding)
            self._note(topic, holding, packet)
        if self._traffic is not None:
            for publication in publications_of(packet):
                self._traffic.stamped(publication)
            self._count_sent(packet, copies)

    def _count_sent(self, packet: ProtocolMessage, copies: i64) -> None:
        form = self._form
        if self._traffic is not None and form is not None:
            size = form.header_bytes + packet_bytes(form, packet)
            for _ in range(copies):
                self._traffic.sent(self._me, publication_count([packet]), size)

    def _note(self, topic: CubeTopic, holding: Holding, packet: ProtocolMessage) -> None:
        """Write down what the publications of a packet name, unless they count as past."""
        order = topic.order
        if not isinstance(order, CausalOrder):
            return
        for publication in publications_of(packet):
            key = publication_key(publication.source, publication.sequence)
            if key not in holding.undelivered and not order.counts(key):
                holding.undelivered[key] = Undelivered(causes_of(publication))

    def _lacking(self, order: CausalOrder, holding: Holding, keys: list[i64]) -> list[i64]:
        """Of these publications and all that is known to have happened before them, those that have not arrived."""
        found: dict[i64, bool] = {}
        seen: set[i64] = set()
        rest = list(keys)
        while len(rest) > 0:
            key = rest.pop()
            if key in seen or order.counts(key):
                continue
            seen.add(key)
            arrived = holding.undelivered.get(key)
            if arrived is None:
                found[key] = True
            else:
                rest.extend(arrived.missing)
        return list(found)

    def _block(self, topic: CubeTopic, holding: Holding, forwarded: Forwarded) -> None:
        """Find up to which cluster a packet has to wait now, and let it wait for one thing that makes it."""
        order = topic.order
        first = publications_of(forwarded.packet)[0]
        if forwarded.above == 0 or first.order != CAUSAL or not isinstance(order, CausalOrder):
            return
        known = holding.undelivered.get(publication_key(first.source, first.sequence))
        if known is None or len(known.missing) == 0:
            return
        known.missing = self._lacking(order, holding, known.missing)
        highest: i64 = 0
        cause: i64 = 0
        for key in known.missing:
            shared = topic.view.height_in_tree(self._me, key & SOURCE_MASK)
            if shared > highest:
                highest, cause = shared, key
        if highest > forwarded.above:
            highest = forwarded.above
        view = topic.view
        while highest > 0 and view.first(self._me, highest) == NO_NODE and not view.has_passive():
            # Nobody is there to hold anything back from.
            highest -= 1
        if highest > 0:
            forwarded.blocked = highest
            holding.waiting_for.setdefault(cause, []).append(forwarded)

    def _check_again(self, topic: CubeTopic, holding: Holding, packet: ProtocolMessage, freed: list[Forwarded]) -> None:
        """A packet has arrived that others may have waited for; ``freed`` gets those."""
        for publication in publications_of(packet):
            queue = holding.waiting_for.pop(publication_key(publication.source, publication.sequence), None)
            if queue is not None:
                for forwarded in queue:
                    forwarded.check_rest()
                    self._block(topic, holding, forwarded)
                    freed.append(forwarded)

    def let_go_for_good(self, topic: CubeTopic) -> None:
        """This node is about to leave a topic."""
        self._let_go(topic)
        self._holdings.pop(topic.name, None)

    def node_left(self) -> None:
        """The trees are others now, and what was waited for may take another way."""
        for topic in self._topics.all():
            self._let_go(topic)

    def _let_go(self, topic: CubeTopic) -> None:
        """Send all that is held back on a topic."""
        holding = self._holdings.get(topic.name)
        if holding is None or len(holding.waiting_for) == 0:
            return
        freed: list[Forwarded] = []
        for queue in holding.waiting_for.values():
            for forwarded in queue:
                forwarded.check_rest()
                freed.append(forwarded)
        holding.waiting_for = {}
        self._send_freed(topic, freed)
        self.send_answers()

    # Answers, and what is measured.

    def answer(self, parent: i64, message: ProtocolMessage) -> None:
        if self._form is None:
            self._environment.send(parent, message)
        else:
            self._answers.setdefault(parent, []).append(message)

    def send_answers(self) -> None:
        """Send the acknowledgements of the message that has been used."""
        if len(self._answers) == 0:
            return
        answers = self._answers
        self._answers = {}
        for parent, parts in answers.items():
            self._environment.send(parent, parts[0] if len(parts) == 1 else Parcel(parts))

    def _count_received(self, packets: list[ProtocolMessage]) -> None:
        traffic = self._traffic
        if traffic is not None:
            together = publication_count(packets)
            for packet in packets:
                for publication in publications_of(packet):
                    traffic.received(self._me, publication, together, self._environment.now())


@final
class HoldingListener(MembershipListener):
    """Tells those who hold back packets what becomes of this node's memberships."""

    def __init__(self, dissemination: AggregatingDissemination) -> None:
        self._dissemination: Final[AggregatingDissemination] = dissemination

    def on_joined(self, topic: CubeTopic, early: list[ProtocolMessage]) -> None:
        self._dissemination.note_early(topic, early)

    def on_leaving(self, topic: CubeTopic) -> None:
        self._dissemination.let_go_for_good(topic)


def publications_of(packet: ProtocolMessage) -> list[Publication]:
    """The publications in a packet that travels down a tree."""
    if isinstance(packet, Publication):
        return [packet]
    assert isinstance(packet, Bundle), "what travels down a tree is a publication or a bundle"
    return packet.publications


def publication_count(packets: list[ProtocolMessage]) -> i64:
    """How many publications there are in packets."""
    count: i64 = 0
    for packet in packets:
        count += len(publications_of(packet))
    return count


def packet_bytes(form: PacketFormat, packet: ProtocolMessage) -> i64:
    """The bytes that a packet adds to a parcel."""
    size: i64 = 0
    for publication in publications_of(packet):
        size += form.publication_bytes(publication)
    return size


def causes_of(publication: Publication) -> list[i64]:
    """The publications that must be delivered before a publication, as far as it names them.

    Single publications out of sequence, which are written as negative numbers, are left out: nobody waits for them
    here, which is as safe as not to know of them.
    """
    causes = [key for key in publication.dependencies if key >= 0]
    if publication.order != NONE and publication.sequence > 1:
        causes.append(publication_key(publication.source, publication.sequence - 1))
    return causes


def arrival_number(forwarded: Forwarded) -> int:
    """Sorts packets into the order in which they arrived."""
    return int(forwarded.number)
