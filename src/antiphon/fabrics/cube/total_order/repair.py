"""Total order on the cube through crashes and partitions: locks that lead around the lost.

Extends :mod:`antiphon.fabrics.cube.total_order.ordering` to nodes that may fail; lock managers are replaced by
:mod:`antiphon.fabrics.cube.total_order.quorum`. ``docs/proofs/cube-voters.md`` argues it.

* **Closing.** A member that closes lists everything that it has seen, not only its own last number: a source that has
  failed cannot do so. Locks take routes as packets do, around lost nodes. A member that comes back into a view is
  locked before anything starts.
* **Taking back.** A publisher that loses its grant says so (``Unlock``). Locks are counted by attempts, so that a lock
  that comes late over a longer way does not lock again.
* **Orphans.** A lock whose owner does not count any more is given up when all nodes within reach have been asked and
  none has its publication.
* **Places.** A total publication carries the place that the lock manager gave it. The place decides whether it comes
  too late (:mod:`antiphon.fabrics.cube.repair.delivery`).
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.agenda import Agenda
from antiphon.fabrics.cube.messages import LeafCopy, Refusal, append_all
from antiphon.fabrics.cube.nodes import CubeNodes
from antiphon.fabrics.cube.repair.delivery import RepairedDelivery
from antiphon.fabrics.cube.repair.presence import Presence
from antiphon.fabrics.cube.repair.tree_repair import RepairedDissemination
from antiphon.fabrics.cube.repair.unsettled import UnsettledTopics
from antiphon.fabrics.cube.route import Route
from antiphon.fabrics.cube.topic import MEMBER, CubeTopic, CubeTopicTable, PendingRequest, total
from antiphon.fabrics.cube.topology import cluster
from antiphon.fabrics.cube.total_order.electorate import Electorate
from antiphon.fabrics.cube.total_order.lock_manager import records_of
from antiphon.fabrics.cube.total_order.messages import GrantResponse, KeyLockRequest, KeyLockResponse, Unlock
from antiphon.fabrics.cube.total_order.ordering import CubeTotalOrder
from antiphon.fabrics.cube.total_order.quorum import QuorumLockManager
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.order import Placed, merged_frontiers
from antiphon.orders.total import Lock


@final
class LockRoute:
    """A lock on its way through this node, and what those below have said."""

    def __init__(self, lock: KeyLockRequest, entries: vec[i64]) -> None:
        self.lock: Final[KeyLockRequest] = lock
        self.route: Final[Route] = Route(lock)
        self.entries: vec[i64] = entries


@final
class RepairedTotalOrder(CubeTotalOrder):
    """Agrees on total order with others who fail, come back and lose each other."""

    def __init__(
        self,
        environment: Environment,
        topics: CubeTopicTable,
        nodes: CubeNodes,
        agenda: Agenda,
        dissemination: RepairedDissemination,
        delivery: RepairedDelivery,
        lock_manager: QuorumLockManager,
        presence: Presence,
        electorate: Electorate,
        unsettled_topics: UnsettledTopics,
    ) -> None:
        super().__init__(environment, topics, nodes, agenda, dissemination, delivery, lock_manager)
        self._trees: Final[RepairedDissemination] = dissemination
        self._returns: Final[RepairedDelivery] = delivery
        self._quorum: Final[QuorumLockManager] = lock_manager
        self._presence: Final[Presence] = presence
        self._electorate: Final[Electorate] = electorate
        self._unsettled: Final[UnsettledTopics] = unsettled_topics
        # By topic and publication.
        self._lock_routes: dict[i64, dict[i64, LockRoute]] = {}
        # By topic and owner, before which attempt its locks do not count.
        self._taken_back: dict[tuple[i64, i64], i64] = {}

    # Grants.

    def on_node_found(self, node: i64) -> None:
        for topic in self.topics.all():
            if len(topic.own_totals) > 0:
                self.environment.send(node, self._unlock_message(topic))

    def on_voter_removed(self, node: i64) -> None:
        for topic in self.topics.all():
            self._taken_back.pop((topic.name, node), 0)
            if self.has_orphans(topic):
                self._unsettled.disturb(topic)

    def on_grant(self, message: GrantResponse) -> None:
        topic = self.topics.find(message.topic)
        if message.epoch != self.lock_manager.epoch or message.attempt != self.attempt or topic.state != MEMBER:
            return
        for own in topic.own_totals:
            if own.sequence == message.sequence:
                own.is_closed = False
                self.lock_out(topic, own, message.place)
                return

    def take_back_locks(self) -> None:
        self.attempt += 1
        for topic in self.topics.all():
            if not any(own.is_granted for own in topic.own_totals):
                continue
            for own in topic.own_totals:
                own.is_granted = own.is_closed = False
            self._unlock(topic, self.me, self.attempt, topic.begun)
            # Newcomers may have heard of them that are not in the view yet.
            for node in self._presence.present:
                self.environment.send(node, self._unlock_message(topic))

    def _unlock_message(self, topic: CubeTopic) -> Unlock:
        return Unlock(self.me, self.attempt, topic.name, topic.begun)

    def _unlock(self, topic: CubeTopic, owner: i64, attempt: i64, begun: i64) -> None:
        """Open the locks of an owner from earlier attempts whose publications have not begun."""
        routes = self._lock_routes.get(topic.name, {})
        for key, one in list(routes.items()):
            if key & SOURCE_MASK == owner and one.lock.attempt < attempt:
                del routes[key]
                topic.closing_count -= 1
        locks = [lock for lock in total(topic).locks() if lock.source == owner and lock.attempt < attempt]
        # What has begun comes over the tree, and may be overtaken by this.
        open_again = [lock for lock in locks if lock.publication is None and lock.sequence > begun]
        self.delivery.deliver_all(topic, total(topic).withdraw(open_again))
        self.agenda.advance_later(topic)
        self.agenda.close_if_outside(topic)

    # Locks.

    def what_has_begun(self, topic: CubeTopic) -> vec[i64]:
        entries = vec[i64]([publication_key(self.me, topic.begun)]) if topic.begun > 0 else vec[i64]()
        return merged_frontiers(total(topic).everything_before(vec[i64]()), entries)

    def on_lock(self, sender: i64, lock: KeyLockRequest) -> None:
        if not self._is_stale(lock):
            super().on_lock(sender, lock)

    def on_lock_copy(self, sender: i64, lock: KeyLockRequest) -> None:
        if not self._is_stale(lock):
            super().on_lock_copy(sender, lock)

    def _is_stale(self, lock: KeyLockRequest) -> bool:
        """Whether its owner has taken it back, and said so over a shorter way, or has locked anew since."""
        name = (lock.topic, lock.source)
        latest = self._taken_back.get(name, 0)
        if lock.attempt > latest:
            self._taken_back[name] = lock.attempt
        return lock.attempt < latest

    def pass_lock_on(self, topic: CubeTopic, lock: KeyLockRequest, parent: i64, height: i64) -> None:
        key = publication_key(lock.source, lock.sequence)
        routes = self._lock_routes.setdefault(topic.name, {})
        one = routes.get(key)
        if one is None or one.lock.place != lock.place:
            topic.closing_count += 1 if one is None else 0
            one = LockRoute(lock, self.what_has_begun(topic))
            routes[key] = one
        one.route.parents[parent] = height
        self._trees.serve(topic, one.route, height)
        self._lock_met(topic, one, height)
        self._settle_lock(topic, key, one)

    def _lock_met(self, topic: CubeTopic, one: LockRoute, height: i64) -> None:
        """Lock those too of whom this node does not know whether they are members, because it has only found them.

        A newcomer finds nodes while it asks for members, and a node that returns with its log knows no members. The
        owner of the lock relies on this node for its clusters. A node that is not a member refuses.
        """
        for peer in self._presence.met(topic):
            if peer != one.lock.source and cluster(self.me, peer) <= height and not topic.view.contains(peer):
                one.route.sent(peer, False)
                self.environment.send(peer, LeafCopy(one.lock))

    def on_lock_response(self, sender: i64, message: KeyLockResponse) -> None:
        topic = self.topics.find(message.topic)
        key = publication_key(message.source, message.sequence)
        one = self._lock_routes.get(topic.name, {}).get(key)
        if one is None or one.lock.place != message.place or not one.route.on_ack(sender):
            return
        one.entries = merged_frontiers(one.entries, message.entries)
        self._settle_lock(topic, key, one)

    def on_lock_refused(self, sender: i64, refusal: Refusal) -> None:
        topic = self.topics.find(refusal.topic)
        topic.view.remove(sender, refusal.counter)
        if refusal.was_leaf:
            self._presence.hear(topic, sender)
        key = publication_key(refusal.source, refusal.sequence)
        one = self._lock_routes.get(topic.name, {}).get(key)
        if one is None or not one.route.on_ack(sender):
            return
        if not refusal.was_leaf:
            self._trees.hand_on(topic, one.route, cluster(self.me, sender))
        self._settle_lock(topic, key, one)

    def _settle_lock(self, topic: CubeTopic, key: i64, one: LockRoute) -> None:
        lock = one.lock
        for parent in one.route.served(self.me):
            if parent != NO_NODE:
                closed = KeyLockResponse(lock.source, lock.sequence, lock.topic, lock.place, one.entries)
                self.environment.send(parent, closed)
                continue
            for own in topic.own_totals:
                if own.sequence == lock.sequence and own.place == lock.place:
                    own.is_closed = True
                    own.closed_at = self.environment.now()
                    own.entries = one.entries
            self.agenda.advance_later(topic)
        routes = self._lock_routes[topic.name]
        if len(one.route.awaited) == 0 and routes.get(key) is one:
            del routes[key]
            topic.closing_count -= 1
            self.agenda.close_if_outside(topic)

    def on_member_lost(self, topic: CubeTopic, node: i64) -> None:
        """A node is lost, member or not: locks are led around it."""
        for key, one in list(self._lock_routes.get(topic.name, {}).items()):
            if self._trees.lead_around(topic, one.route, node):
                self._settle_lock(topic, key, one)

    def on_member_back(self, topic: CubeTopic, peer: i64) -> None:
        """A member has been given all that is here: it has to know the locks of this node, and no others of it."""
        self.environment.send(peer, self._unlock_message(topic))
        self._lock_again(topic, peer)
        self._tell_of_absent(topic, peer)

    def _tell_of_absent(self, topic: CubeTopic, peer: i64) -> None:
        """Let a member know the locks of owners that cannot be asked: this node waits for what they have announced.

        Else the member would take what this node publishes afterwards before that.
        """
        present = self._presence.present
        for lock in total(topic).locks():
            if lock.publication is None and lock.source not in (self.me, peer) and lock.source not in present:
                told = KeyLockRequest(lock.source, lock.sequence, topic.name, lock.keys, lock.place, lock.attempt)
                self.environment.send(peer, LeafCopy(told))

    def on_member_found(self, topic: CubeTopic, peer: i64) -> None:
        """A node is within reach that may be a member: nobody knows before it has answered, so it is locked too."""
        if self.options.total and topic.state == MEMBER:
            self._presence.meet(topic, peer)
            self._lock_again(topic, peer)

    def _lock_again(self, topic: CubeTopic, peer: i64) -> None:
        """Lock a node that may not have the locks of this one, before anything starts."""
        routes = self._lock_routes.setdefault(topic.name, {})
        for own in topic.own_totals:
            if not own.is_granted:
                continue
            key = publication_key(self.me, own.sequence)
            one = routes.get(key)
            if one is None:
                topic.closing_count += 1
                one = LockRoute(self.lock_of(topic, own), own.entries)
                one.route.height = self.nodes.cube.dimension
                routes[key] = one
            own.is_closed = False
            one.route.parents[NO_NODE] = self.nodes.cube.dimension
            one.route.sent(peer, False)
            self.environment.send(peer, LeafCopy(one.lock))
        self.agenda.advance_later(topic)

    def may_start(self, topic: CubeTopic) -> bool:
        if not super().may_start(topic) or not self._electorate.has_majority:
            return False
        own = topic.own_totals[0]
        if total(topic).has_unknown_before(own.place, own.keys):
            return False
        if any(self._electorate.is_missed(member) for member in topic.away):
            return False
        # Whoever is within reach comes back soon, unless it waits for this publication itself.
        if not any(member in self._presence.present for member in topic.away):
            return True
        return self._quorum.calm.is_calm_since(own.closed_at)

    def may_begin_weak(self, topic: CubeTopic, pending: PendingRequest) -> bool:
        if self._returns.is_returning(topic) and pending.payload is not None:
            return False
        return super().may_begin_weak(topic, pending)

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Unlock):
            self._on_unlock(message)
        else:
            super().receive(sender, message)

    def _on_unlock(self, message: Unlock) -> None:
        """The owner of locks has taken them back."""
        topic = self.topics.find(message.topic)
        name = (topic.name, message.source)
        self._taken_back[name] = max(message.sequence, self._taken_back.get(name, 0))
        self._unlock(topic, message.source, message.sequence, message.number)
        self.agenda.advance_opened()

    def new_total(
        self, topic: CubeTopic, pending: PendingRequest, payload: bytes, names: vec[i64], place: i64
    ) -> Publication:
        return Placed(
            self.me, pending.sequence, pending.timestamp, payload, names, topic.name, TOTAL, pending.keys, place
        )

    # Orphans.

    def _orphans(self, topic: CubeTopic) -> list[Lock]:
        if not self.options.total or topic.state != MEMBER:
            return []
        locks = total(topic).locks()
        return [
            lock
            for lock in locks
            if lock.publication is None and lock.source != self.me and not self._electorate.may_bring(lock.source)
        ]

    def has_orphans(self, topic: CubeTopic) -> bool:
        """Whether somebody has announced something that is not here, and does not count any more."""
        return len(self._orphans(topic)) > 0

    def give_up_orphans(self, topic: CubeTopic) -> None:
        """Nobody within reach has what those who do not count any more have announced."""
        orphans = self._orphans(topic)
        if len(orphans) > 0:
            self.delivery.deliver_all(topic, total(topic).withdraw(orphans))
            self.agenda.advance_later(topic)

    def break_circle(self, topic: CubeTopic) -> None:
        """Parts that did not know of each other may have published so that nothing can be first."""
        self.delivery.deliver_all(topic, total(topic).break_circle())
        self.agenda.advance_later(topic)

    # Newcomers, and those who return.

    def announced(self, topic: CubeTopic) -> vec[i64]:
        entries = vec[i64]()
        for lock in total(topic).locks():
            # A negative place is hearsay: it counts if the owner cannot be asked.
            place = lock.place if lock.source == self.me else -lock.place
            for entry in (publication_key(lock.source, lock.sequence), place, lock.attempt, len(lock.keys)):
                entries = append(entries, entry)
            entries = append_all(entries, lock.keys)
        return entries

    def adopt(self, topic: CubeTopic, announced: vec[i64]) -> None:
        for (name, place, attempt), keys in records_of(self.me, announced, 3):
            owner = name & SOURCE_MASK
            lock = KeyLockRequest(owner, name >> SOURCE_BITS, topic.name, keys, max(place, -place), attempt)
            if (place > 0 or owner not in self._presence.present) and not self._is_stale(lock):
                self.close(topic, lock)
        if self.has_orphans(topic):
            self._unsettled.disturb(topic)

    def send_unlocked(self, topic: CubeTopic) -> None:
        """This node is a member again, and has no locks of an earlier life."""
        for peer in self._presence.present:
            self.environment.send(peer, self._unlock_message(topic))

    def text(self) -> str:
        routes = [
            (name, [(key, one.lock.place, one.route.text(), list(one.entries)) for key, one in sorted(each.items())])
            for name, each in sorted(self._lock_routes.items())
        ]
        return f"{routes} {sorted(self._taken_back.items())}"
