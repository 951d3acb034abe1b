"""Total order on the cube through crashes and partitions: locks that lead around the lost, and places that decide.

Adds to :mod:`antiphon.fabrics.cube.totals` what it needs where nodes may fail, above keepers that are replaced
(:mod:`antiphon.fabrics.cube.voting`). ``docs/architecture.md`` argues it.

* **Closing.** Who closes says all that it has seen, not only its own last number: a source that has failed cannot say
  it. Locks take routes as packets do, around the lost. Who comes back into a view is locked before anything starts.
* **Taking back.** Who loses its grant says so (``Unlock``). Locks are counted by attempts, so that what comes late over
  a longer way does not lock anew.
* **Orphans.** A lock whose owner does not count any more is given up when all within reach have been asked and nobody
  has its publication.
* **Places.** A total publication carries the place that the keeper gave it. Of two about a key nobody delivers that
  with the lower place second: if it comes too late, because it was on the other side of a partition, its loss is told.
  So whoever delivers two of them delivers them in the same order as all others who deliver both, whatever has failed.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.membership import append_all
from antiphon.fabrics.cube.messages import LeafCopy, Refusal
from antiphon.fabrics.cube.rerouting import FaultOptions
from antiphon.fabrics.cube.route import Route
from antiphon.fabrics.cube.topic import MEMBER, Options, Pending, Topic
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.fabrics.cube.total_messages import Closed, Granted, KeyLock, Unlock
from antiphon.fabrics.cube.totals import records_of, total
from antiphon.fabrics.cube.voting import Voting
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment, LogReader
from antiphon.orders.order import Ordered, Placed, merged_frontiers
from antiphon.orders.total import Lock, keys_of

PLACES_AT_MOST: Final = 1 << 16
"""Of so many keys of a topic the last place is remembered."""

RECALLED_PIECES: Final = 64
"""So much of its log a node reads at most that has returned, to know what is too late."""

DISORDER: Final = 1024
"""No total publication was delivered after so many whose places are all before its own."""


@final
class Places:
    """The last total publication about each key that was delivered, of the keys that were used last.

    What an earlier life of this node delivered is read from its log, but only if something comes that may be older.
    """

    def __init__(self, log: LogReader | None) -> None:
        self._last: Final[dict[i64, tuple[i64, i64]]] = {}
        # Of those that are forgotten the highest: whatever is new is far above it.
        self._forgotten: tuple[i64, i64] = (0, 0)
        # What was not read of the log, and the places of what was read last, as many as tell; 0 for what has none.
        self._log: LogReader | None = log
        self._pieces_read: i64 = 0
        self._read_last: list[i64] = []

    def take(self, publication: Placed) -> bool:
        """Whether a total publication may be delivered now; it is then."""
        name = (publication.place, publication.source)
        while self._log is not None and self._may_be_before(publication.place):
            self._read_back(self._log)
        keys = keys_of(publication)
        for key in keys:
            if name <= self._last.get(key, self._forgotten):
                return False
        for key in keys:
            self._put(key, name)
        return True

    def _may_be_before(self, place: i64) -> bool:
        """Whether something may have been delivered, in what was not read, that has a later place."""
        return len(self._read_last) < DISORDER or max(self._read_last) >= place

    def _read_back(self, log: LogReader) -> None:
        piece = log.earlier()
        self._pieces_read += 1
        if piece is None or len(piece) == 0 or self._pieces_read == RECALLED_PIECES:
            self._log = None
        places: list[i64] = []
        for message in reversed(piece or []):
            places.append(message.place if isinstance(message, Placed) else 0)
            if isinstance(message, Placed):
                name = (message.place, message.source)
                for key in keys_of(message):
                    if name > self._last.get(key, self._forgotten):
                        self._put(key, name)
        self._read_last = (self._read_last + places)[-DISORDER:]

    def _put(self, key: i64, name: tuple[i64, i64]) -> None:
        self._last.pop(key, None)
        self._last[key] = name
        if len(self._last) > PLACES_AT_MOST:
            oldest = next(iter(self._last))
            self._forgotten = max(self._forgotten, self._last.pop(oldest))

    def text(self) -> str:
        """Everything as text, for those who compare states."""
        return f"{sorted(self._last.items())} {self._forgotten} {self._pieces_read} {self._log is None}"


@final
class LockRoute:
    """A lock on its way through this node, and what those below have said."""

    def __init__(self, lock: KeyLock, entries: vec[i64]) -> None:
        self.lock: Final[KeyLock] = lock
        self.route: Final[Route] = Route(lock)
        self.entries: vec[i64] = entries


class LastingTotals(Voting):
    """The part of a node that agrees on total order with others who fail, come back and lose each other."""

    def __init__(self, environment: Environment, cube: Cube, options: Options, faults: FaultOptions) -> None:
        super().__init__(environment, cube, options, faults)
        # By topic and publication.
        self._lock_routes: dict[i64, dict[i64, LockRoute]] = {}
        # By topic and owner, before which attempt its locks do not count.
        self._taken_back: dict[tuple[i64, i64], i64] = {}
        self._places: dict[i64, Places] = {}
        # Topics in which this node is a member again and has not heard from all what it missed; what came meanwhile.
        self._returning: dict[i64, dict[i64, Ordered]] = {}

    # What the part above adds.

    def orphaned(self, topic: Topic) -> None:
        """Locks are here whose owner does not count any more."""

    # Grants.

    def meet_again(self, node: i64) -> None:
        for topic in self.topics():
            if len(topic.own_totals) > 0:
                self.environment.send(node, self._unlock_message(topic))

    def voter_removed(self, node: i64) -> None:
        for topic in self.topics():
            self._taken_back.pop((topic.name, node), 0)
            if self.has_orphans(topic):
                self.orphaned(topic)

    def granted(self, message: Granted) -> None:
        topic = self.find_topic(message.topic)
        if message.epoch != self.epoch or message.attempt != self.attempt or topic.state != MEMBER:
            return
        for own in topic.own_totals:
            if own.sequence == message.sequence:
                own.is_closed = False
                self.lock_out(topic, own, message.place)
                return

    def take_back_locks(self) -> None:
        """What this node was granted does not count any more, nor what is on its way."""
        self.attempt += 1
        for topic in self.topics():
            if not any(own.is_granted for own in topic.own_totals):
                continue
            for own in topic.own_totals:
                own.is_granted = own.is_closed = False
            self._unlock(topic, self.me, self.attempt, topic.begun)
            # Newcomers may have heard of them that are not in the view yet.
            for node in self.present:
                self.environment.send(node, self._unlock_message(topic))

    def _unlock_message(self, topic: Topic) -> Unlock:
        return Unlock(self.me, self.attempt, topic.name, topic.begun)

    def _unlock(self, topic: Topic, owner: i64, attempt: i64, begun: i64) -> None:
        """What an owner has locked in an earlier attempt, and has not begun to publish, is open."""
        routes = self._lock_routes.get(topic.name, {})
        for key, one in list(routes.items()):
            if key & SOURCE_MASK == owner and one.lock.attempt < attempt:
                del routes[key]
                topic.closing_count -= 1
        locks = [lock for lock in total(topic).locks() if lock.source == owner and lock.attempt < attempt]
        # What has begun comes over the tree, and may be overtaken by this.
        open_again = [lock for lock in locks if lock.publication is None and lock.sequence > begun]
        self.deliver_all(topic, total(topic).withdraw(open_again))
        self.opened[topic.name] = topic
        self.close_if_outside(topic)

    # Locks.

    def what_has_begun(self, topic: Topic) -> vec[i64]:
        entries = vec[i64]([publication_key(self.me, topic.begun)]) if topic.begun > 0 else vec[i64]()
        return merged_frontiers(total(topic).everything_before(vec[i64]()), entries)

    def receive_lock(self, sender: i64, lock: KeyLock) -> None:
        if not self._is_stale(lock):
            super().receive_lock(sender, lock)

    def receive_lock_copy(self, sender: i64, lock: KeyLock) -> None:
        if not self._is_stale(lock):
            super().receive_lock_copy(sender, lock)

    def _is_stale(self, lock: KeyLock) -> bool:
        """Whether its owner has taken it back, and said so over a shorter way, or has locked anew since."""
        name = (lock.topic, lock.source)
        latest = self._taken_back.get(name, 0)
        if lock.attempt > latest:
            self._taken_back[name] = lock.attempt
        return lock.attempt < latest

    def pass_lock_on(self, topic: Topic, lock: KeyLock, parent: i64, height: i64) -> None:
        key = publication_key(lock.source, lock.sequence)
        routes = self._lock_routes.setdefault(topic.name, {})
        one = routes.get(key)
        if one is None or one.lock.place != lock.place:
            topic.closing_count += 1 if one is None else 0
            one = LockRoute(lock, self.what_has_begun(topic))
            routes[key] = one
        one.route.parents[parent] = height
        self._serve(topic, one.route, height)
        self._lock_met(topic, one, height)
        self._settle_lock(topic, key, one)

    def _lock_met(self, topic: Topic, one: LockRoute, height: i64) -> None:
        """Lock those too of whom this newcomer does not know whether they are members, found since it began to ask.

        The owner of the lock relies on it for its clusters. Who is no member refuses.
        """
        for peer in self.met(topic):
            if peer != one.lock.source and cluster(self.me, peer) <= height and not topic.view.contains(peer):
                one.route.sent(peer, False)
                self.environment.send(peer, LeafCopy(one.lock))

    def receive_closed(self, sender: i64, message: Closed) -> None:
        topic = self.find_topic(message.topic)
        key = publication_key(message.source, message.sequence)
        one = self._lock_routes.get(topic.name, {}).get(key)
        if one is None or one.lock.place != message.place or not one.route.answered(sender):
            return
        one.entries = merged_frontiers(one.entries, message.entries)
        self._settle_lock(topic, key, one)

    def lock_refused(self, topic: Topic, sender: i64, refusal: Refusal) -> None:
        key = publication_key(refusal.source, refusal.sequence)
        one = self._lock_routes.get(topic.name, {}).get(key)
        if one is None or not one.route.answered(sender):
            return
        if not refusal.was_leaf:
            self._hand_on(topic, one.route, cluster(self.me, sender))
        self._settle_lock(topic, key, one)

    def _settle_lock(self, topic: Topic, key: i64, one: LockRoute) -> None:
        lock = one.lock
        for parent in one.route.served(self.me):
            if parent != NO_NODE:
                closed = Closed(lock.source, lock.sequence, lock.topic, lock.place, one.entries)
                self.environment.send(parent, closed)
                continue
            for own in topic.own_totals:
                if own.sequence == lock.sequence and own.place == lock.place:
                    own.is_closed = True
                    own.closed_at = self.environment.now()
                    own.entries = one.entries
            self.opened[topic.name] = topic
        routes = self._lock_routes[topic.name]
        if len(one.route.awaited) == 0 and routes.get(key) is one:
            del routes[key]
            topic.closing_count -= 1
            self.close_if_outside(topic)

    def forget_member(self, topic: Topic, node: i64) -> None:
        super().forget_member(topic, node)
        for key, one in list(self._lock_routes.get(topic.name, {}).items()):
            one.route.parents.pop(node, None)
            if node in one.route.awaited:
                if one.route.lost(node):
                    self._hand_on(topic, one.route, cluster(self.me, node))
                self._settle_lock(topic, key, one)

    def member_back(self, topic: Topic, peer: i64) -> None:
        """A member has been given all that is here: it has to know the locks of this node, and no others of it."""
        self.environment.send(peer, self._unlock_message(topic))
        routes = self._lock_routes.setdefault(topic.name, {})
        for own in topic.own_totals:
            if not own.is_granted:
                continue
            key = publication_key(self.me, own.sequence)
            one = routes.get(key)
            if one is None:
                topic.closing_count += 1
                one = LockRoute(self.lock_of(topic, own), own.entries)
                one.route.height = self.cube.dimension
                routes[key] = one
            own.is_closed = False
            one.route.parents[NO_NODE] = self.cube.dimension
            one.route.sent(peer, False)
            self.environment.send(peer, LeafCopy(one.lock))
        self.opened[topic.name] = topic

    def may_start_total(self, topic: Topic) -> bool:
        if not super().may_start_total(topic) or not self.has_majority:
            return False
        own = topic.own_totals[0]
        if total(topic).has_unknown_before(own.place, own.keys):
            return False
        if any(self.is_missed(member) for member in topic.away):
            return False
        # Whoever is within reach comes back soon, unless it waits for this publication itself.
        if not any(member in self.present for member in topic.away):
            return True
        return self.is_calm_since(own.closed_at)

    def not_away(self, topic: Topic, member: i64) -> None:
        """Nobody has to wait for a member to come back."""
        if topic.away.pop(member, NO_NODE) != NO_NODE:
            self.opened[topic.name] = topic

    def may_begin_weak(self, topic: Topic, pending: Pending) -> bool:
        if self.is_returning(topic) and pending.payload is not None:
            return False
        return super().may_begin_weak(topic, pending)

    # What comes.

    def receive(self, sender: i64, message: Message) -> None:
        if not isinstance(message, Unlock):
            super().receive(sender, message)
            return
        topic = self.find_topic(message.topic)
        name = (topic.name, message.source)
        self._taken_back[name] = max(message.sequence, self._taken_back.get(name, 0))
        self._unlock(topic, message.source, message.sequence, message.number)
        self.go_on_opened()

    def arrived(self, topic: Topic, publication: Ordered) -> None:
        if self.is_returning(topic) and publication.order != TOTAL:
            # It may belong behind a total publication that has not come yet, and of which nobody has told this node.
            self._returning[topic.name][publication_key(publication.source, publication.sequence)] = publication
            return
        if publication.order == TOTAL:
            self.lock_unannounced(topic, publication)
            self.opened[topic.name] = topic
        super().arrived(topic, publication)

    def lock_unannounced(self, topic: Topic, publication: Ordered) -> None:
        """What others publish after a total publication waits for it, also where the lock has not come."""
        order = total(topic)
        if isinstance(publication, Placed) and not order.knows_lock(publication.source, publication.sequence):
            order.lock(publication.source, publication.sequence, keys_of(publication), publication.place)

    def new_total(self, topic: Topic, pending: Pending, payload: bytes, names: vec[i64], place: i64) -> Ordered:
        return Placed(
            self.me, pending.sequence, pending.timestamp, payload, names, topic.name, TOTAL, pending.keys, place
        )

    def deliver_one(self, topic: Topic, publication: Ordered) -> None:
        if isinstance(publication, Placed) and not self._places_of(topic).take(publication):
            self.environment.lost(topic.name, publication.source, publication.sequence)
        else:
            super().deliver_one(topic, publication)

    def _places_of(self, topic: Topic) -> Places:
        places = self._places.get(topic.name)
        if places is None:
            places = Places(None)
            self._places[topic.name] = places
        return places

    # Orphans.

    def _orphans(self, topic: Topic) -> list[Lock]:
        if not self.options.total or topic.state != MEMBER:
            return []
        locks = total(topic).locks()
        return [
            lock
            for lock in locks
            if lock.publication is None and lock.source != self.me and not self.counts_for_total(lock.source)
        ]

    def has_orphans(self, topic: Topic) -> bool:
        """Whether somebody has announced something that is not here, and does not count any more."""
        return len(self._orphans(topic)) > 0

    def _give_up_orphans(self, topic: Topic) -> None:
        """Nobody within reach has what those who do not count any more have announced."""
        orphans = self._orphans(topic)
        if len(orphans) > 0:
            self.deliver_all(topic, total(topic).withdraw(orphans))
            self.opened[topic.name] = topic

    def break_circle(self, topic: Topic) -> None:
        """Parts that did not know of each other may have published so that nothing can be first."""
        self.deliver_all(topic, total(topic).break_circle())
        self.opened[topic.name] = topic

    # Newcomers, and those who return.

    def announced(self, topic: Topic) -> vec[i64]:
        entries = vec[i64]()
        for lock in total(topic).locks():
            # A negative place is hearsay: it counts if the owner cannot be asked.
            place = lock.place if lock.source == self.me else -lock.place
            for entry in (publication_key(lock.source, lock.sequence), place, lock.attempt, len(lock.keys)):
                entries = append(entries, entry)
            entries = append_all(entries, lock.keys)
        return entries

    def adopt(self, topic: Topic, announced: vec[i64]) -> None:
        for (name, place, attempt), keys in records_of(self.me, announced, 3):
            owner = name & SOURCE_MASK
            lock = KeyLock(owner, name >> SOURCE_BITS, topic.name, keys, max(place, -place), attempt)
            if (place > 0 or owner not in self.present) and not self._is_stale(lock):
                self.close(topic, lock)
        if self.has_orphans(topic):
            self.orphaned(topic)

    def returned(self, topic: Topic) -> None:
        """This node is a member again, from its log: it hears from all what it missed before it publishes."""
        if self.options.total:
            self._returning[topic.name] = {}
            self._places[topic.name] = Places(self.environment.read_back(topic.name))
            for peer in self.present:
                self.environment.send(peer, self._unlock_message(topic))

    def is_returning(self, topic: Topic) -> bool:
        """Whether this node has not heard yet what it missed."""
        return topic.name in self._returning

    def held_back(self, topic: Topic) -> list[i64]:
        """What has come while this node was returning."""
        held = self._returning.get(topic.name)
        return [] if held is None else list(held)

    def is_held_back(self, topic: Topic, key: i64) -> bool:
        """Whether a publication has come while this node was returning."""
        held = self._returning.get(topic.name)
        return held is not None and key in held

    def heard_from_all(self, topic: Topic) -> None:
        """All within reach have said what they have."""
        if self.is_returning(topic):
            order = total(topic)
            for key, publication in self._returning.pop(topic.name).items():
                if not order.counts(key) and not order.is_held(key):
                    self.arrived(topic, publication)
            self.opened[topic.name] = topic
        self._give_up_orphans(topic)

    def state(self) -> str:
        routes = [
            (name, [(key, one.lock.place, one.route.text(), list(one.entries)) for key, one in sorted(each.items())])
            for name, each in sorted(self._lock_routes.items())
        ]
        returning = [(name, sorted(held)) for name, held in sorted(self._returning.items())]
        places = [(name, each.text()) for name, each in sorted(self._places.items())]
        return f"{super().state()} {routes} {places} {returning} {sorted(self._taken_back.items())}"
