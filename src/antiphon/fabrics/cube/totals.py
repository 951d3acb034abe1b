"""Total order on the cube: a keeper decides who is next about a key, and each publisher does the rest on its own tree.

1. **Claim.** The publisher asks the keeper for the keys of its total publication. The keeper
   (:mod:`antiphon.orders.claims`) grants claims to the same key one after the other.
2. **Lock.** Who was granted sends a lock down its own tree of members. Who gets it begins nothing about these keys
   any more. ``Closed`` comes back up the tree with the number of the last publication that each member had begun.
3. **Publish.** When all are closed the publication starts, like any other, naming these numbers and all that its
   publisher has seen; and the claim is released. Who has delivered it is open again.

:mod:`antiphon.orders.total` says why this gives one order for each key, and why nobody waits for ever. It needs that
every member has the lock before the publication starts, or counts the publication as past, and that nothing is
missing among the numbers. With members that come and go:

* *Newcomers.* If the publisher had heard the newcomer's ``Synchronise`` before its lock left, the lock reaches the
  newcomer as publications do. If not, it hears it later, and its answer lists the lock, if the publication has not
  started by then; and if it has, the answer waits until its publisher has delivered it, so that it is past for the
  newcomer, with all it names. (To answer with its number at once would be wrong: what it names would not be past.)
* *Leavers.* Who leaves has delivered its own total publications, and all its publications are acknowledged. So every
  publisher has seen them, and names them though nobody asks the leaver any more. That is why leaving waits for
  acknowledgements.
* *One line.* What a node publishes on a topic is one line. Something weaker begins when all total ones before it are
  delivered here. A total one is claimed when all before it have begun or are total ones that were granted. So whoever
  has a claim granted waits for nothing but its lock: claims wait for claims only, and these stand in one order.

The **keeper** is a node like others, member or not: the lowest one at the beginning. When it leaves the system it
makes the lowest that stays the keeper of the next *epoch*. That one asks everybody what stands (claims, and grants
that were not released), and grants nothing before all have answered. Whoever has answered passes over grants of
earlier epochs, and keepers pass over what is meant for others: it is said anew. A newcomer has claimed nothing; who
leaves has nothing unfinished. So at most one node grants at a time, and no claim is lost. Everybody hears of the
keeper from itself: it tells those whom it knows when it begins, and others when they join. In the same way a keeper
that crashed could be replaced; nobody notices crashes here yet.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.membership import Membership, append_all
from antiphon.fabrics.cube.messages import Refusal
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, Options, OwnTotal, Pending, Topic
from antiphon.fabrics.cube.topology import Cube, cluster
from antiphon.fabrics.cube.total_messages import Claim, Closed, Granted, KeeperIs, KeyLock, Release, Standing, ToKeeper
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, Message, publication_key
from antiphon.kernel.process import NO_NODE, Environment
from antiphon.orders.claims import NOT_GRANTED, Claims, Wish
from antiphon.orders.order import KeyedOrdered, Ordered, merged_frontiers
from antiphon.orders.total import ALL_SHARE, TotalOrder

PLACE_BITS: Final = 40
"""Places of later epochs are above those of earlier ones."""


@final
class Closing:
    """A lock on its way through this node: who is to be told when all below are closed, and what they said."""

    def __init__(self, place: i64, parent: i64, missing: i64, entries: vec[i64]) -> None:
        self.place: Final[i64] = place
        self.parent: Final[i64] = parent
        self.missing: i64 = missing
        self.entries: vec[i64] = entries


class Totals(Membership):
    """The part of a node that agrees on total order; it sleeps unless the options say that there is one."""

    def __init__(self, environment: Environment, cube: Cube, options: Options) -> None:
        super().__init__(environment, cube, options)
        self._closings: dict[i64, dict[i64, Closing]] = {}
        self.claims: dict[i64, Claims] = {}
        # Topics on which total publications were delivered since the last message.
        self.opened: dict[i64, Topic] = {}
        # Where nodes come and go the first one is alone at first, and later ones are told.
        self.keeper: i64 = 0 if cube.contains(0) else min(cube.members(), default=self.me)
        self.epoch: i64 = 1
        # Where nodes may fail, how often this one has taken back its locks.
        self.attempt: i64 = 0
        # As a new keeper: who has not said what stands, what was said, and what came before it was time.
        self.awaited: dict[i64, bool] = {}
        self._standing: list[Standing] = []
        self._early: list[ToKeeper] = []

    def begin_as_newcomer(self) -> None:
        """Others were here first: the keeper among them says who it is (before ``start``)."""
        self.keeper = NO_NODE
        self.epoch = 0

    # What the part above adds.

    def arrived(self, topic: Topic, publication: Ordered) -> None:
        """A publication has arrived at a member: deliver all that may be."""
        raise NotImplementedError

    def attempt_of(self, claimant: i64) -> i64:
        """What a claimant has said last was said in this attempt, where nodes may fail."""
        return 0

    def who_keeps(self) -> KeeperIs:
        """What is told of the keeper."""
        return KeeperIs(self.me, self.epoch, self.keeper, 0, vec[i64]())

    def started(self, packet: Message, copies: i64) -> None:
        """An own packet has left in so many copies; for those who measure."""

    def send_to_cluster(self, topic: Topic, message: Message, s: i64) -> i64:
        """Send to those who serve a cluster; the answer is how many copies left."""
        raise NotImplementedError

    def send_own(self, topic: Topic, packet: Message) -> i64:
        """Send an own packet down the own tree, and expect answers; how many copies left."""
        raise NotImplementedError

    # The line of own publications.

    def may_begin_weak(self, topic: Topic, pending: Pending) -> bool:
        """Whether total order lets something weaker begin, or a change of membership."""
        if topic.undelivered_totals > 0:
            return False
        if pending.payload is None:
            # Whoever leaves is not asked for its last number any more: all must have seen what it published.
            return topic.state == OUTSIDE or topic.in_flight == 0
        return not is_closed(topic, pending.keys)

    def claim_next(self, topic: Topic) -> None:
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
        topic.own_totals.append(OwnTotal(pending.sequence, keys))
        self._tell_keeper(Claim(self.me, pending.sequence, topic.name, self.epoch, keys))

    def may_start_total(self, topic: Topic) -> bool:
        return len(topic.own_totals) > 0 and topic.own_totals[0].is_closed

    def start_total(self, topic: Topic) -> None:
        """Start the total publication at the head of the line, for which everybody is closed."""
        pending = topic.queue[0]
        own = topic.own_totals[0]
        payload = pending.payload
        order = topic.order
        assert own.is_closed and payload is not None and isinstance(order, TotalOrder), "it is ready to start"
        del topic.queue[0]
        del topic.own_totals[0]
        names = order.everything_before(own.entries)
        publication = self.new_total(topic, pending, payload, names, own.place)
        topic.undelivered_totals += 1
        topic.begun = pending.sequence
        count = self.send_own(topic, publication)
        self._tell_keeper(Release(self.me, pending.sequence, topic.name, self.epoch))
        self.arrived(topic, publication)
        self.started(publication, count)

    def new_total(self, topic: Topic, pending: Pending, payload: bytes, names: vec[i64], place: i64) -> Ordered:
        """A total publication that starts now."""
        return KeyedOrdered(
            self.me, pending.sequence, pending.timestamp, payload, names, topic.name, TOTAL, pending.keys
        )

    def totals_delivered(self, topic: Topic, totals: list[Ordered]) -> None:
        """Total publications were delivered here, and all that was released with them."""
        for publication in totals:
            if publication.source == self.me:
                topic.undelivered_totals -= 1
        if topic.undelivered_totals == 0:
            self.answer_delayed(topic)
        self.opened[topic.name] = topic

    def go_on_opened(self) -> None:
        """Begin what waited for total publications; not before all that has come in one message is used."""
        while len(self.opened) > 0:
            _, topic = self.opened.popitem()
            self.go_on(topic)

    # Locks.

    def granted(self, message: Granted) -> None:
        """The keeper lets this node lock the keys of a publication."""
        if message.epoch != self.epoch:
            # The next keeper was told, or will be, that this is not granted.
            return
        topic = self.find_topic(message.topic)
        position: i64 = len(topic.own_totals) - 1
        if position < 0 or topic.own_totals[position].sequence != message.sequence or topic.state != MEMBER:
            raise ProtocolError(f"node {self.me} was granted publication {message.sequence}, which it did not claim")
        self.lock_out(topic, topic.own_totals[position], message.place)

    def lock_out(self, topic: Topic, own: OwnTotal, place: i64) -> None:
        """Let all members close for a publication that was granted."""
        own.is_granted = True
        own.place = place
        lock = self.lock_of(topic, own)
        self.close(topic, lock)
        self.pass_lock_on(topic, lock, NO_NODE, self.cube.dimension)
        self.go_on(topic)

    def lock_of(self, topic: Topic, own: OwnTotal) -> KeyLock:
        """The lock for a publication that was granted."""
        return KeyLock(self.me, own.sequence, topic.name, own.keys, own.place, self.attempt)

    def close(self, topic: Topic, lock: KeyLock) -> None:
        """Begin nothing about the keys of a lock any more."""
        total(topic).lock(lock.source, lock.sequence, lock.keys, lock.place, lock.attempt)

    def what_has_begun(self, topic: Topic) -> vec[i64]:
        """What a total publication for which this node closes is to name: the last that it has begun, as entries."""
        entries = vec[i64]()
        return append(entries, publication_key(self.me, topic.begun)) if topic.begun > 0 else entries

    def pass_lock_on(self, topic: Topic, lock: KeyLock, parent: i64, height: i64) -> None:
        """Close all in the clusters up to ``height``, and tell the parent."""
        closing = Closing(lock.place, parent, self.send_down(topic, lock, height), self.what_has_begun(topic))
        if closing.missing == 0:
            self._all_closed(topic, lock, closing)
            return
        topic.closing_count += 1
        self._closings.setdefault(topic.name, {})[publication_key(lock.source, lock.sequence)] = closing

    def receive_lock(self, sender: i64, lock: KeyLock) -> None:
        """A lock, with a cluster to serve."""
        topic = self.find_topic(lock.topic)
        if not topic.is_active():
            self.environment.send(sender, Refusal(lock, topic.left_counter, False))
            return
        self.close(topic, lock)
        self.pass_lock_on(topic, lock, sender, cluster(self.me, sender) - 1)

    def receive_lock_copy(self, sender: i64, lock: KeyLock) -> None:
        """A lock for this node alone."""
        topic = self.find_topic(lock.topic)
        if topic.state == OUTSIDE:
            self.environment.send(sender, Refusal(lock, topic.left_counter, True))
            return
        self.close(topic, lock)
        self.environment.send(
            sender, Closed(lock.source, lock.sequence, lock.topic, lock.place, self.what_has_begun(topic))
        )

    def lock_refused(self, topic: Topic, sender: i64, refusal: Refusal) -> None:
        """Who was to serve a cluster is no member; somebody else must."""
        closing = self._closing(topic, refusal)
        if not refusal.was_leaf:
            closing.missing += self.send_to_cluster(topic, refusal.packet, cluster(self.me, sender))
        self._one_closed(topic, refusal, closing)

    def receive_closed(self, sender: i64, message: Closed) -> None:
        """All below a child are closed."""
        topic = self.find_topic(message.topic)
        closing = self._closing(topic, message)
        closing.entries = merged_frontiers(closing.entries, message.entries)
        self._one_closed(topic, message, closing)

    def _closing(self, topic: Topic, message: Message) -> Closing:
        closings = self._closings.get(topic.name)
        closing = None if closings is None else closings.get(publication_key(message.source, message.sequence))
        if closing is None:
            raise ProtocolError(f"an answer to a lock came to node {self.me}, which sent none on: {message}")
        return closing

    def _one_closed(self, topic: Topic, about: Message, closing: Closing) -> None:
        closing.missing -= 1
        if closing.missing > 0:
            return
        del self._closings[topic.name][publication_key(about.source, about.sequence)]
        topic.closing_count -= 1
        self._all_closed(topic, about, closing)
        self.close_if_outside(topic)

    def _all_closed(self, topic: Topic, about: Message, closing: Closing) -> None:
        if closing.parent != NO_NODE:
            closed = Closed(about.source, about.sequence, about.topic, closing.place, closing.entries)
            self.environment.send(closing.parent, closed)
            return
        for own in topic.own_totals:
            if own.sequence == about.sequence:
                own.is_closed = True
                own.entries = closing.entries
        self.go_on(topic)

    # Newcomers.

    def announced(self, topic: Topic) -> vec[i64]:
        entries = vec[i64]()
        for own in topic.own_totals:
            if own.is_granted:
                for entry in (publication_key(self.me, own.sequence), own.place, len(own.keys)):
                    entries = append(entries, entry)
                entries = append_all(entries, own.keys)
        return entries

    def adopt(self, topic: Topic, announced: vec[i64]) -> None:
        order = topic.order
        for (name, place), keys in records_of(self.me, announced, 2):
            if not isinstance(order, TotalOrder):
                raise ProtocolError(f"node {self.me} was told of locks, and knows no total order")
            order.lock(name & SOURCE_MASK, name >> SOURCE_BITS, keys, place)

    # The keeper.

    def _tell_keeper(self, message: ToKeeper) -> None:
        if self.keeper == self.me:
            self.keep(message)
        elif self.keeper != NO_NODE and self.cube.contains(self.keeper):
            self.environment.send(self.keeper, message)
        # Else nobody is known, or the keeper has gone; the next one will ask for all that stands.

    def keep(self, message: ToKeeper) -> None:
        """Somebody has something to say to the keeper of an epoch."""
        if message.epoch != self.epoch or self.keeper != self.me:
            # It is meant for another keeper, who has gone; the next one asks.
            return
        if len(self.awaited) > 0:
            self._early.append(message)
        else:
            claims = self.claims_of(message.topic)
            if isinstance(message, Claim):
                granted = claims.add(Wish(message.source, message.sequence, message.keys))
            else:
                granted = claims.release(message.source, message.sequence)
            self.grant(message.topic, granted)

    def claims_of(self, topic: i64) -> Claims:
        """What is claimed on a topic."""
        claims = self.claims.get(topic)
        if claims is None:
            claims = Claims(self.epoch << PLACE_BITS)
            self.claims[topic] = claims
        return claims

    def grant(self, topic: i64, granted: list[Wish]) -> None:
        """Tell those whose turn it is."""
        for wish in granted:
            grant = Granted(wish.source, wish.sequence, topic, self.epoch, wish.place, self.attempt_of(wish.source))
            if wish.source == self.me:
                self.granted(grant)
            else:
                self.environment.send(wish.source, grant)

    def joined(self, node: i64) -> None:
        super().joined(node)
        if self._is_leaving and self.keeper == self.me:
            # Nobody was there when this node began to leave.
            self._resign()
        elif self.options.total and self.keeper == self.me:
            self.environment.send(node, self.who_keeps())

    def left(self, node: i64) -> None:
        super().left(node)
        if node in self.awaited:
            # Who leaves has nothing unfinished.
            del self.awaited[node]
            self.take_standing()

    def leave(self) -> None:
        super().leave()
        self._resign()

    def _resign(self) -> None:
        """Let the lowest of those who stay be the next keeper."""
        others = [node for node in self.cube.members() if node != self.me]
        if self.options.total and self.keeper == self.me and len(others) > 0:
            self.enter_epoch(self.epoch + 1, min(others))
            self.environment.send(self.keeper, self.who_keeps())

    def enter_epoch(self, epoch: i64, keeper: i64) -> None:
        """There is another keeper, who knows of nothing yet."""
        self.epoch = epoch
        self.keeper = keeper
        self.claims.clear()
        self.awaited.clear()
        self._standing.clear()
        self._early.clear()

    def receive_keeper(self, sender: i64, message: KeeperIs) -> None:
        """Somebody says who the keeper is."""
        if message.sequence <= self.epoch:
            return
        self.enter_epoch(message.sequence, message.origin)
        if self.keeper != self.me:
            if self.cube.contains(self.keeper):
                self.environment.send(self.keeper, self.own_standing())
            # Else it has gone, and the next one will ask.
        elif self._is_leaving:
            self._resign()
        else:
            self.begin_keeping()

    def own_standing(self) -> Standing:
        """What this node has claimed and not started."""
        entries = vec[i64]()
        for topic in self.topics():
            for own in topic.own_totals:
                for entry in (topic.name, own.sequence, own.place if own.is_granted else 0, len(own.keys)):
                    entries = append(entries, entry)
                entries = append_all(entries, own.keys)
        return Standing(self.me, self.epoch, self.attempt, entries)

    def begin_keeping(self) -> None:
        """Ask everybody what stands, and grant nothing before all have said it."""
        others = [node for node in self.cube.members() if node != self.me]
        for node in others:
            self.awaited[node] = True
            self.environment.send(node, self.who_keeps())
        self.receive_standing(self.own_standing())

    def receive_standing(self, message: Standing) -> None:
        """Somebody says what it has claimed."""
        if message.sequence == self.epoch and self.keeper == self.me:
            self._standing.append(message)
            self.awaited.pop(message.source, None)
            self.take_standing()

    def take_standing(self) -> None:
        """Grant what may be, if all have spoken."""
        if len(self.awaited) > 0:
            return
        wishes = [wish for message in self._standing for wish in wishes_of(message)]
        self._standing.clear()
        for topic, wish in wishes:
            if wish.place != NOT_GRANTED:
                self.claims_of(topic).resume(wish)
        for topic, wish in wishes:
            if wish.place == NOT_GRANTED:
                self.grant(topic, self.claims_of(topic).add(wish))
        early = self._early
        self._early = []
        for message in early:
            self.keep(message)

    # What arrives.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, KeyLock):
            self.receive_lock(sender, message)
        elif isinstance(message, Closed):
            self.receive_closed(sender, message)
        elif isinstance(message, Granted):
            self.granted(message)
        elif isinstance(message, ToKeeper):
            self.keep(message)
        elif isinstance(message, KeeperIs):
            self.receive_keeper(sender, message)
        elif isinstance(message, Standing):
            self.receive_standing(message)
        else:
            super().receive(sender, message)

    def state(self) -> str:
        closings = [
            (name, [(key, one.parent, one.missing, list(one.entries)) for key, one in sorted(of_topic.items())])
            for name, of_topic in sorted(self._closings.items())
        ]
        claims = [(name, kept.state()) for name, kept in sorted(self.claims.items())]
        early = [(message.source, message.sequence, message.topic, message.epoch) for message in self._early]
        keeping = (self.keeper, self.epoch, sorted(self.awaited), len(self._standing), early)
        return f"{super().state()} {closings} {claims} {keeping}"


def is_closed(topic: Topic, keys: vec[i64]) -> bool:
    """Whether nothing may begin on a topic about some keys."""
    return total(topic).is_closed(keys if len(keys) > 0 else ALL_SHARE)


def total(topic: Topic) -> TotalOrder:
    """The order of a topic where publications may be total."""
    order = topic.order
    assert isinstance(order, TotalOrder), "with total order a topic has an order that serves it"
    return order


def wishes_of(message: Standing) -> list[tuple[i64, Wish]]:
    """What somebody has claimed, each with its topic."""
    return [
        (topic, Wish(message.source, sequence, keys, place))
        for (topic, sequence, place), keys in records_of(message.source, message.entries, 3)
    ]


def records_of(about: i64, entries: vec[i64], width: i64) -> list[tuple[list[i64], vec[i64]]]:
    """What entries hold about locks or claims: so many numbers each, and keys, whose count stands before them."""
    found: list[tuple[list[i64], vec[i64]]] = []
    position: i64 = 0
    while position + width < len(entries):
        begin = position + width + 1
        count = entries[begin - 1]
        end = begin + count
        if count < 0 or end > len(entries):
            raise ProtocolError(f"what was said of locks or claims of node {about} is cut off")
        found.append(([entries[position + offset] for offset in range(width)], vec[i64](entries[begin:end])))
        position = end
    return found
