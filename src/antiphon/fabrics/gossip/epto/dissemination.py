"""The dissemination component of EpTO: balls of events, relayed until everybody has them.

Thesis of M. Matos, section 5.2.4, Algorithm 4. Every event that a node knows has a slot: its name, stamp and payload,
and how often it had been relayed when it came last. An event is relayed in as many rounds as it was short of ``ttl``
relays when it came first. A ball is built from the slots that are to be relayed, and read into them. Nearly every entry
of a ball is known, and no news: looking it up is what a simulation spends its time on. So what is looked at for every
entry and in every round lies in flat arrays by slot, and events themselves are touched only when something happens to
them.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.epto.messages import Ball, Stamped, Wanted
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import DONE, KnownEvent, Ordering
from antiphon.fabrics.gossip.epto.payloads import PayloadStore
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import publication_key
from antiphon.kernel.process import Environment

NOT_IN_BALL: Final[i64] = -1
RELAYED: Final[i64] = 1 << 40
"""The number of relays of an event that is in no ball: it comes into one again, or has been relayed often enough."""

UNBORN: Final[i64] = 1 << 60
"""Of an event that the ordering component has not been told of."""


@mypyc_attr(allow_interpreted_subclasses=True)
class EptoListener:
    """Listens for events before they are delivered; this one ignores them."""

    def on_publication(self, publication: Stamped) -> None:
        """An event has come; it may take long until it is delivered.

        An event that has been forgotten since its delivery may come again.
        """

    def on_correction(self, publication: Stamped) -> None:
        """An event has come after others with larger keys were delivered, and belongs before them.

        Only where late events are corrected (:mod:`antiphon.fabrics.gossip.epto.corrections`).
        """


@final
class EptoDissemination:
    """The balls of one node, and the ordering component that they feed. ``fanout`` and ``ttl`` may change."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: EptoOptions,
        is_founder: bool,
        listener: EptoListener,
        payloads: PayloadStore,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._listener: Final[EptoListener] = listener
        self._persists: Final[bool] = options.persists
        self._digests: Final[bool] = options.digests
        self._carried: Final[bool] = options.carried
        self._patience: Final[i64] = options.patience
        self._ages: Final[i64] = 2 if options.is_logical else 1
        self.ordering: Final[Ordering] = options.new_ordering(environment, topic, is_founder)
        self.payloads: Final[PayloadStore] = payloads
        self.fanout: i64 = options.fanout
        self.ttl: i64 = options.ttl
        self.round: i64 = 0
        # Whether nothing is delivered for now, however old it is.
        self.is_held: bool = False
        # The known events, by slot; a slot is free again when its event is done and in no ball.
        self._slot_of: Final[IntegerMap] = IntegerMap()
        self._known: Final[list[KnownEvent | None]] = []
        self._publications: Final[list[Stamped | None]] = []
        self._names: vec[i64] = vec[i64]()
        self._stamps: vec[i64] = vec[i64]()
        self._hops: vec[i64] = vec[i64]()
        self._left: vec[i64] = vec[i64]()
        self._born: vec[i64] = vec[i64]()
        self._is_done: vec[i64] = vec[i64]()
        self._free: Final[list[i64]] = []
        self._in_ball: list[i64] = []
        # Counted for measurements.
        self.balls_sent: i64 = 0
        self.entries_sent: i64 = 0
        self.largest_ball: i64 = 0
        self.heard_in_round: i64 = 0

    def is_idle(self) -> bool:
        """Whether nothing is to be relayed or ordered."""
        return len(self._in_ball) == 0 and self.ordering.count() == 0

    def slots(self) -> i64:
        """For how many events there is room; what was delivered and is relayed no more takes none."""
        return len(self._known)

    def broadcast(self, event: Stamped) -> None:
        """An event of this node begins."""
        self._put_in_ball(self._learn(publication_key(event.source, event.sequence), event.stamp, event), 0)

    def take(self, sender: i64, ball: Ball) -> None:
        """A ball has come: what is to be relayed again goes into the next one."""
        if not ball.whole:
            for publication in ball.publications:
                self.fill(publication)
        names, hops = ball.names, ball.hops
        slots, relayed = self._slot_of, self._hops
        ttl = self.ttl
        count: i64 = len(names)
        position: i64 = 0
        while position < count:
            slot = slots.get(names[position], -1)
            # Nearly every entry is known and no older than here.
            if slot < 0 or hops[position] > relayed[slot]:
                if slot < 0:
                    if self._is_past(names[position], ball.stamps[position], hops[position]):
                        position += 1
                        continue
                    whole = ball.publications[position] if ball.whole else None
                    slot = self._learn(names[position], ball.stamps[position], whole)
                    relayed = self._hops
                if hops[position] < ttl:
                    self._put_in_ball(slot, hops[position])
                elif self.round + 1 - hops[position] < self._born[slot]:
                    self._offer(slot, self.round + 1 - hops[position])
                    if self._is_done[slot] != 0 and not self._is_in_ball(slot):
                        self._forget(slot)
            position += 1
        self.payloads.ask(sender)

    def _is_past(self, name: i64, stamp: i64, hops: i64) -> bool:
        """Whether an entry that is not known here, or not any more, need not be looked at."""
        if hops >= self.ttl and self.ordering.is_past(name, stamp):
            return True
        # A delivered event has been relayed often enough; as published it is relayed whenever it comes.
        if self._carried:
            return self.payloads.is_past(name)
        return self._persists and self.ordering.has_left(name, stamp)

    def _is_in_ball(self, slot: i64) -> bool:
        return NOT_IN_BALL < self._hops[slot] < RELAYED

    def _learn(self, name: i64, stamp: i64, publication: Stamped | None) -> i64:
        """A slot for an event that has not been known here, or is not any more."""
        if publication is None:
            publication = self.payloads.lookup(name)
        event = KnownEvent(name, stamp, publication)
        slot: i64
        if len(self._free) > 0:
            slot = self._free.pop()
            self._known[slot] = event
            self._publications[slot] = publication
            self._names[slot] = name
            self._stamps[slot] = stamp
            self._hops[slot] = NOT_IN_BALL
            self._left[slot] = 0
            self._born[slot] = UNBORN
            self._is_done[slot] = 0
        else:
            slot = len(self._known)
            self._known.append(event)
            self._publications.append(publication)
            self._names = append(self._names, name)
            self._stamps = append(self._stamps, stamp)
            self._hops = append(self._hops, NOT_IN_BALL)
            self._left = append(self._left, 0)
            self._born = append(self._born, UNBORN)
            self._is_done = append(self._is_done, 0)
        event.place = slot
        self._slot_of.put(name, slot)
        if publication is not None:
            self.payloads.has(publication)
            self._listener.on_publication(publication)
        else:
            self.payloads.lacks(name)
        if stamp > self.ordering.last_stamp:
            self.heard_in_round += 1
        return slot

    def _put_in_ball(self, slot: i64, hops: i64) -> None:
        if self._hops[slot] == NOT_IN_BALL:
            self._in_ball.append(slot)
            # As many rounds as are left now, also if a quicker copy comes later and shows it to be older.
            self._left[slot] = self.ttl - hops
        self._hops[slot] = hops

    def _offer(self, slot: i64, born: i64) -> None:
        """Tell the ordering component of an event, or that it is older than was known."""
        self._born[slot] = born
        event = self._known[slot]
        assert event is not None, "a slot in use has an event"
        self.ordering.offer(event, born)
        if event.state == DONE:
            self._is_done[slot] = 1

    def _forget(self, slot: i64) -> None:
        event = self._known[slot]
        assert event is not None, "a slot in use has an event"
        if event.publication is None:
            self.payloads.given_up(event.name)
        # A publisher that came back without its memory may have given the name of an old event to a new one.
        if self._slot_of.get(event.name, -1) == slot:
            self._slot_of.remove(event.name)
        self._known[slot] = None
        self._publications[slot] = None
        self._hops[slot] = NOT_IN_BALL
        self._free.append(slot)

    def run_round(self, sampling: PeerSampling) -> None:
        """Count the relays, send the ball, order, deliver."""
        self.round += 1
        if len(self._in_ball) > 0:
            self._send(self._next_ball(), sampling.sample(self.fanout))
        self._order()
        if self._digests:
            self.payloads.round_passed(self.round, sampling)

    def _next_ball(self) -> Ball:
        """All that is to be relayed, one relay older."""
        count = len(self._in_ball)
        names = vec[i64](capacity=count)
        stamps = vec[i64](capacity=count)
        counts = vec[i64](capacity=count)
        carried: list[Stamped] = []
        whole = not self._digests
        latest: i64 = 0
        for slot in self._in_ball:
            hops = self._hops[slot] + 1
            self._hops[slot] = hops
            names = append(names, self._names[slot])
            stamps = append(stamps, self._stamps[slot])
            counts = append(counts, hops)
            latest = max(latest, self._stamps[slot])
            # Where balls name events, the payload goes with the first relay, which is the publisher's own.
            if whole or (hops == 1 and not self._carried):
                publication = self._publications[slot]
                assert publication is not None, "whole balls and own events have their payload"
                carried.append(publication)
        return Ball(self._me, self._topic, names, stamps, counts, carried, whole, latest)

    def _send(self, ball: Ball, peers: list[i64]) -> None:
        size: i64 = len(ball.names)
        for peer in peers:
            self._environment.send(peer, ball)
        self.balls_sent += len(peers)
        self.entries_sent += size * len(peers)
        self.payloads.count_sent(ball.publications, len(peers))
        self.largest_ball = max(self.largest_ball, size)

    def _order(self) -> None:
        """Hand the ball to the ordering component, deliver what it lets go, and see what stays in the next ball."""
        relayed = self._in_ball
        self._in_ball = []
        for slot in relayed:
            born = self.round - self._hops[slot]
            if born < self._born[slot]:
                self._offer(slot, born)
        latest_birth = self.round - self._ages * self.ttl - 1
        self._deliver(latest_birth)
        for slot in relayed:
            self._left[slot] -= 1
            if self._persists and self._left[slot] > 0:
                self._in_ball.append(slot)
                continue
            # A copy that took longer would begin all over; as published it does.
            self._hops[slot] = RELAYED if self._persists else NOT_IN_BALL
            if self._is_done[slot] != 0:
                self._forget(slot)

    def _deliver(self, latest_birth: i64) -> None:
        while not self.is_held:
            for event in self.ordering.release(latest_birth):
                publication = event.publication
                assert publication is not None, "only what is complete is delivered"
                self.done(event)
                if event.is_late:
                    self._listener.on_correction(publication)
                else:
                    self._environment.deliver(publication)
            stuck = self.ordering.next() if self._digests else None
            if stuck is None or stuck.born > latest_birth - self._patience or stuck.publication is not None:
                break
            self.ordering.give_up(stuck)
            self.done(stuck)

    def done(self, event: KnownEvent) -> None:
        """An event has left the ordering component; unless it is in a ball its slot is free."""
        slot = event.place
        self._is_done[slot] = 1
        if not self._is_in_ball(slot):
            self._forget(slot)

    # Payloads that do not travel with balls.

    def arrived(self, publication: Stamped) -> None:
        """A publication has come another way: it ages from now on, and is relayed as if it began here.

        Its publisher may have failed before its first ball, and then only those that it came to so can spread its name.
        """
        name = publication_key(publication.source, publication.sequence)
        slot = self._slot_of.get(name, -1)
        if slot >= 0:
            event = self._known[slot]
            self.fill(publication)
            if event is not None and self._is_done[slot] != 0:
                # Its name came too late; now it is known what has to be passed over.
                self.ordering.refuse(event)
            return
        if self.ordering.is_past(name, publication.stamp):
            return
        slot = self._learn(name, publication.stamp, publication)
        self._offer(slot, self.round + 1)
        if self._is_done[slot] != 0:
            self._forget(slot)
        else:
            self._put_in_ball(slot, 0)

    def fill(self, publication: Stamped) -> None:
        """A payload has come."""
        name = publication_key(publication.source, publication.sequence)
        slot = self._slot_of.get(name, -1)
        if slot < 0:
            # It came before the entry of the same ball was looked at.
            self.payloads.has(publication)
            return
        event = self._known[slot]
        if event is not None and event.publication is None and event.stamp == publication.stamp:
            event.publication = publication
            self._publications[slot] = publication
            self.payloads.has(publication)
            self._listener.on_publication(publication)

    def answer(self, sender: i64, message: Wanted) -> None:
        """Somebody lacks payloads: what is here goes back, and what is on its way here will follow."""
        found: list[Stamped] = []
        for name in message.names:
            publication = self.payloads.lookup(name)
            if publication is not None:
                found.append(publication)
            elif self._slot_of.get(name, -1) >= 0:
                self.payloads.remember(name, sender)
        self.payloads.give(sender, found)
