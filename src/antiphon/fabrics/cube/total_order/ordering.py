"""Total order on the cube: a lock manager grants keys to one publisher at a time, and each publisher uses its own tree.

1. **Claim.** The publisher asks the lock manager (:mod:`antiphon.fabrics.cube.total_order.lock_manager`) for the keys
   of its total publication. The lock manager grants claims to the same key one after the other
   (:mod:`antiphon.orders.claims`).
2. **Lock.** The publisher sends a lock down its own tree of members. A member that gets the lock is *closed*: it begins
   nothing about these keys. ``KeyLockResponse`` comes back up the tree with the number of the last publication that
   each member had begun.
3. **Publish.** When all are closed, the publication starts like any other. It names these numbers and everything that
   its publisher has seen. The publisher releases the claim. A member that has delivered the publication is open again.

:mod:`antiphon.orders.total` says why this gives one order for each key, and why nobody waits for ever. It needs that
every member has the lock before the publication starts, or counts the publication as past, and that nothing is
missing among the numbers. With members that come and go:

* *Newcomers.* If the publisher had heard the newcomer's ``Synchronise`` before its lock left, the lock reaches the
  newcomer as publications do. If not, it hears it later, and its answer lists the lock, if the publication has not
  started by then; and if it has, the answer waits until its publisher has delivered it, so that it is past for the
  newcomer, with all it names. (To answer with its number at once would be wrong: what it names would not be past.)
* *Leavers.* A node that leaves has delivered its own total publications, and all its publications are acknowledged. So
  every publisher has seen them, and names them though no node asks the leaver any more. That is why leaving waits for
  acknowledgements.
* *One line.* What a node publishes on a topic is one line. Something weaker begins when all total ones before it are
  delivered here. A total one is claimed when all before it have begun or are total ones that were granted. So whoever
  has a claim granted waits for nothing but its lock: claims wait for claims only, and these stand in one order.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.delivery import CubeDelivery
from antiphon.fabrics.cube.dissemination import CubeDissemination
from antiphon.fabrics.cube.messages import LeafCopy, Refusal, append_all
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.topic import (
    MEMBER,
    OUTSIDE,
    CubeTopic,
    CubeTopicTable,
    Options,
    OwnTotal,
    PendingRequest,
    is_closed,
    total,
)
from antiphon.fabrics.cube.topology import cluster
from antiphon.fabrics.cube.total_order.lock_manager import Claimant, LockManager, records_of
from antiphon.fabrics.cube.total_order.messages import (
    GrantRelease,
    GrantRequest,
    GrantResponse,
    KeyLockRequest,
    KeyLockResponse,
)
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.order import KeyedOrdered, merged_frontiers
from antiphon.orders.total import ALL_SHARE
from antiphon.orders.total import TotalOrder as OrderOfTopic


class CubeTotalOrder(Claimant):
    """Claims, locks and starts total publications. How locks travel is for subclasses to say.

    It sleeps unless the options say that there is total order.
    """

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        dissemination: CubeDissemination,
        delivery: CubeDelivery,
        lock_manager: LockManager,
    ) -> None:
        super().__init__()
        self.environment: Final[Environment] = environment
        self.me: Final[i64] = environment.identifier
        self.topics: Final[CubeTopicTable] = topics
        self.options: Final[Options] = topics.options
        self.nodes: Final[CubeNodes] = nodes
        self.agenda: Final[Agenda] = agenda
        self.dissemination: Final[CubeDissemination] = dissemination
        self.delivery: Final[CubeDelivery] = delivery
        self.lock_manager: Final[LockManager] = lock_manager

    # What subclasses do.

    def pass_lock_on(self, topic: CubeTopic, lock: KeyLockRequest, parent: i64, height: i64) -> None:
        """Close all in the clusters up to ``height``, and tell the parent."""
        raise NotImplementedError

    def on_lock_refused(self, sender: i64, refusal: Refusal) -> None:
        """The node that was to serve a cluster is not a member; another one must."""
        raise NotImplementedError

    def on_lock_response(self, sender: i64, message: KeyLockResponse) -> None:
        """All below a child are closed."""
        raise NotImplementedError

    def what_has_begun(self, topic: CubeTopic) -> vec[i64]:
        """The entries that a total publication must name because this node closes for it."""
        raise NotImplementedError

    def new_total(
        self, topic: CubeTopic, pending: PendingRequest, payload: bytes, names: vec[i64], place: i64
    ) -> Publication:
        """A total publication that starts now."""
        raise NotImplementedError

    def announced(self, topic: CubeTopic) -> vec[i64]:
        """Total publications that a newcomer must know of though they have not started."""
        raise NotImplementedError

    def adopt(self, topic: CubeTopic, announced: vec[i64]) -> None:
        """This newcomer has heard of total publications that have not started."""
        raise NotImplementedError

    def text(self) -> str:
        """The state as text, to compare states."""
        raise NotImplementedError

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        """A grant has come from the lock manager, or a lock down a tree, or an answer to one up."""
        if isinstance(message, KeyLockRequest):
            self.on_lock(sender, message)
        elif isinstance(message, KeyLockResponse):
            self.on_lock_response(sender, message)
        elif isinstance(message, GrantResponse):
            self.on_grant(message)
        elif isinstance(message, LeafCopy) and isinstance(message.packet, KeyLockRequest):
            self.on_lock_copy(sender, message.packet)
        elif isinstance(message, Refusal):
            self.on_lock_refused(sender, message)

    # The line of own publications.

    def may_begin_weak(self, topic: CubeTopic, pending: PendingRequest) -> bool:
        """Whether total order lets something weaker begin, or a change of membership."""
        if topic.undelivered_totals > 0:
            return False
        if pending.payload is None:
            # Whoever leaves is not asked for its last number any more: all must have seen what it published.
            return topic.state == OUTSIDE or topic.in_flight == 0
        return not is_closed(topic, pending.keys)

    def claim_next(self, topic: CubeTopic) -> None:
        """Claim the next total publication of the line, if those before it have been granted."""
        count = len(topic.own_totals)
        if topic.state != MEMBER or count >= len(topic.queue) or topic.in_flight + count >= self.options.window:
            return
        pending = topic.queue[count]
        if pending.order != TOTAL or pending.payload is None:
            return
        if count > 0 and not topic.own_totals[count - 1].is_granted:
            return
        keys = pending.keys if len(pending.keys) > 0 else ALL_SHARE
        topic.add_own_total(OwnTotal(pending.sequence, keys))
        self.lock_manager.send_to_manager(
            GrantRequest(self.me, pending.sequence, topic.name, self.lock_manager.epoch, keys)
        )

    def may_start(self, topic: CubeTopic) -> bool:
        """Whether the total publication at the head of the line is prepared: everybody is closed for it."""
        return len(topic.own_totals) > 0 and topic.own_totals[0].is_closed

    def start(self, topic: CubeTopic) -> None:
        """Start the total publication at the head of the line, for which everybody is closed."""
        pending = topic.queue[0]
        own = topic.own_totals[0]
        payload = pending.payload
        order = topic.order
        assert own.is_closed and payload is not None and isinstance(order, OrderOfTopic), "it is ready to start"
        topic.dequeue(1)
        del topic.own_totals[0]
        names = order.everything_before(own.entries)
        publication = self.new_total(topic, pending, payload, names, own.place)
        topic.undelivered_totals += 1
        topic.begun = pending.sequence
        count = self.dissemination.send_own(topic, publication)
        self.lock_manager.send_to_manager(GrantRelease(self.me, pending.sequence, topic.name, self.lock_manager.epoch))
        self.delivery.arrived(topic, publication)
        self.dissemination.started(publication, count)

    # Locks.

    def lock_out(self, topic: CubeTopic, own: OwnTotal, place: i64) -> None:
        """Let all members close for a publication that was granted."""
        own.is_granted = True
        own.place = place
        lock = self.lock_of(topic, own)
        self.close(topic, lock)
        self.pass_lock_on(topic, lock, NO_NODE, self.nodes.cube.dimension)
        self.agenda.advance(topic)

    def lock_of(self, topic: CubeTopic, own: OwnTotal) -> KeyLockRequest:
        """The lock for a publication that was granted."""
        return KeyLockRequest(self.me, own.sequence, topic.name, own.keys, own.place, self.attempt)

    def close(self, topic: CubeTopic, lock: KeyLockRequest) -> None:
        """Begin nothing about the keys of a lock any more."""
        total(topic).lock(lock.source, lock.sequence, lock.keys, lock.place, lock.attempt)

    def on_lock(self, sender: i64, lock: KeyLockRequest) -> None:
        """A lock, with a cluster to serve."""
        topic = self.topics.find(lock.topic)
        if not topic.is_active():
            self.dissemination.refuse(sender, topic, lock, False)
            return
        self.close(topic, lock)
        self.pass_lock_on(topic, lock, sender, cluster(self.me, sender) - 1)

    def on_lock_copy(self, sender: i64, lock: KeyLockRequest) -> None:
        """A lock for this node alone."""
        topic = self.topics.find(lock.topic)
        if topic.state == OUTSIDE:
            self.dissemination.refuse(sender, topic, lock, True)
            return
        self.close(topic, lock)
        self.environment.send(
            sender, KeyLockResponse(lock.source, lock.sequence, lock.topic, lock.place, self.what_has_begun(topic))
        )


@final
class Closing:
    """A lock on its way through this node: who is to be told when all below are closed, and what they said."""

    def __init__(self, place: i64, parent: i64, missing: i64, entries: vec[i64]) -> None:
        self.place: Final[i64] = place
        self.parent: Final[i64] = parent
        self.missing: i64 = missing
        self.entries: vec[i64] = entries


@final
class WaveTotalOrder(CubeTotalOrder):
    """Counts the answers to each lock, where nobody fails."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        dissemination: CubeDissemination,
        delivery: CubeDelivery,
        lock_manager: LockManager,
    ) -> None:
        super().__init__(environment, topics, nodes, agenda, dissemination, delivery, lock_manager)
        # By topic and publication.
        self._closings: dict[i64, dict[i64, Closing]] = {}

    def new_total(
        self, topic: CubeTopic, pending: PendingRequest, payload: bytes, names: vec[i64], place: i64
    ) -> Publication:
        return KeyedOrdered(
            self.me, pending.sequence, pending.timestamp, payload, names, topic.name, TOTAL, pending.keys
        )

    def on_grant(self, message: GrantResponse) -> None:
        if message.epoch != self.lock_manager.epoch:
            # The next lock manager was told, or will be, that this is not granted.
            return
        topic = self.topics.find(message.topic)
        position: i64 = len(topic.own_totals) - 1
        if position < 0 or topic.own_totals[position].sequence != message.sequence or topic.state != MEMBER:
            raise ProtocolError(f"node {self.me} was granted publication {message.sequence}, which it did not claim")
        self.lock_out(topic, topic.own_totals[position], message.place)

    def what_has_begun(self, topic: CubeTopic) -> vec[i64]:
        entries = vec[i64]()
        return append(entries, publication_key(self.me, topic.begun)) if topic.begun > 0 else entries

    def pass_lock_on(self, topic: CubeTopic, lock: KeyLockRequest, parent: i64, height: i64) -> None:
        missing = self.dissemination.send_down(topic, lock, height)
        closing = Closing(lock.place, parent, missing, self.what_has_begun(topic))
        if closing.missing == 0:
            self._all_closed(topic, lock, closing)
            return
        topic.closing_count += 1
        self._closings.setdefault(topic.name, {})[publication_key(lock.source, lock.sequence)] = closing

    def on_lock_refused(self, sender: i64, refusal: Refusal) -> None:
        topic = self.topics.find(refusal.topic)
        topic.view.remove(sender, refusal.counter)
        closing = self._closing(topic, refusal)
        if not refusal.was_leaf:
            packet, s = refusal.packet, cluster(self.me, sender)
            closing.missing += self.dissemination.send_to_cluster(topic, packet, s)
        self._one_closed(topic, refusal, closing)

    def on_lock_response(self, sender: i64, message: KeyLockResponse) -> None:
        topic = self.topics.find(message.topic)
        closing = self._closing(topic, message)
        closing.entries = merged_frontiers(closing.entries, message.entries)
        self._one_closed(topic, message, closing)

    def _closing(self, topic: CubeTopic, message: ProtocolMessage) -> Closing:
        closings = self._closings.get(topic.name)
        closing = None if closings is None else closings.get(publication_key(message.source, message.sequence))
        if closing is None:
            raise ProtocolError(f"an answer to a lock came to node {self.me}, which sent none on: {message}")
        return closing

    def _one_closed(self, topic: CubeTopic, about: ProtocolMessage, closing: Closing) -> None:
        closing.missing -= 1
        if closing.missing > 0:
            return
        del self._closings[topic.name][publication_key(about.source, about.sequence)]
        topic.closing_count -= 1
        self._all_closed(topic, about, closing)
        self.agenda.close_if_outside(topic)

    def _all_closed(self, topic: CubeTopic, about: ProtocolMessage, closing: Closing) -> None:
        if closing.parent != NO_NODE:
            closed = KeyLockResponse(about.source, about.sequence, about.topic, closing.place, closing.entries)
            self.environment.send(closing.parent, closed)
            return
        for own in topic.own_totals:
            if own.sequence == about.sequence:
                own.is_closed = True
                own.entries = closing.entries
        self.agenda.advance(topic)

    def announced(self, topic: CubeTopic) -> vec[i64]:
        entries = vec[i64]()
        for own in topic.own_totals:
            if own.is_granted:
                for entry in (publication_key(self.me, own.sequence), own.place, len(own.keys)):
                    entries = append(entries, entry)
                entries = append_all(entries, own.keys)
        return entries

    def adopt(self, topic: CubeTopic, announced: vec[i64]) -> None:
        order = topic.order
        for (name, place), keys in records_of(self.me, announced, 2):
            if not isinstance(order, OrderOfTopic):
                raise ProtocolError(f"node {self.me} was told of locks, and knows no total order")
            order.lock(name & SOURCE_MASK, name >> SOURCE_BITS, keys, place)

    def text(self) -> str:
        closings = [
            (name, [(key, one.parent, one.missing, list(one.entries)) for key, one in sorted(of_topic.items())])
            for name, of_topic in sorted(self._closings.items())
        ]
        return str(closings)
