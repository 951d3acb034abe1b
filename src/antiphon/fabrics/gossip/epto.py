"""EpTO: total order by gossip, with probabilistic agreement.

Thesis of M. Matos, chapter 5. Every period a node puts all events that it has to relay into one **ball** and sends it
to a few others, drawn by peer sampling (Algorithm 4, here; balls and bins after Koldehofe, 2002). Each relay makes an
event older. After ``ttl`` relays it has reached everybody with high probability: it is stable, and may be delivered in
the order of keys (Algorithm 5, :mod:`antiphon.fabrics.gossip.epto_order`). Nobody waits for anybody, nobody leads, and
nothing is acknowledged.

What is promised (section 5.2.2). Whatever happens: each event is delivered at most once and only if it was published;
who publishes and stays up delivers its own events; any two nodes deliver what both deliver in the same order. With a
probability that the options decide (:mod:`antiphon.fabrics.gossip.epto_spread`): everybody delivers everything. What a
node cannot deliver any more is a hole, and is reported as lost where it would have come.

Where this departs from the thesis:

* Keys are compared as a whole, in both places; the printed comparison is inverted, and equal stamps break the order.
* A copy with ``ttl`` relays behind it is not relayed again, but goes to the ordering component. In Algorithm 4 (line
  13) it is thrown away, and the last relay is for nothing.
* Stamps are above the last delivered one, so a clock that is behind does not make a node refuse its own event.
* Events persist in balls (:class:`~antiphon.fabrics.gossip.epto_options.EptoOptions`); who comes later than the others
  and has a logical clock asks for the time before its first event begins.
* Balls may carry names instead of payloads (:mod:`antiphon.fabrics.gossip.epto_payloads`); period, fanout and ttl may
  follow from measurements (:mod:`antiphon.fabrics.gossip.epto_adaptation`).
* A node to which nothing happens for a while stops its rounds, until something does.

A round is, in this order: what was asked for meanwhile is in the ball; all relays are counted; the ball is sent; events
are ordered and delivered.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.epto_adaptation import DelayEstimate, SizeEstimate
from antiphon.fabrics.gossip.epto_messages import Ball, Greeting, Newcomer, Payloads, Probe, Stamped, Wanted
from antiphon.fabrics.gossip.epto_options import EptoOptions
from antiphon.fabrics.gossip.epto_order import DONE, Clock, Known, Ordering
from antiphon.fabrics.gossip.epto_payloads import PayloadStore
from antiphon.fabrics.gossip.epto_spread import published_fanout
from antiphon.fabrics.gossip.peer_sampling import PeerSampling, SamplingMessage
from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.message import TOTAL, UNSPECIFIED, Message, publication_key
from antiphon.kernel.process import Environment, Process

ROUND: Final[i64] = 0
"""The name of the timer of rounds."""

NOT_IN_BALL: Final[i64] = -1

SMOOTHING: Final = 8.0
"""Over about so many rounds the rate at which events begin is taken."""


@final
class Outlook:
    """An event that is known and not delivered: how likely everybody knows it, and nothing can come before it."""

    def __init__(self, publication: Stamped, age: i64, stable: float, deliverable: float) -> None:
        self.publication: Final[Stamped] = publication
        self.age: Final[i64] = age
        self.stable: Final[float] = stable
        self.deliverable: Final[float] = deliverable


@mypyc_attr(allow_interpreted_subclasses=True)
class Epto(Process):
    """EpTO at one node. All nodes are members of the one group."""

    def __init__(
        self,
        environment: Environment,
        options: EptoOptions,
        clock: Clock,
        is_founder: bool = True,
        topic: i64 = 0,
    ) -> None:
        super().__init__(environment)
        self._options: Final[EptoOptions] = options
        self._clock: Final[Clock] = clock
        self._topic: Final[i64] = topic
        self._sampling: PeerSampling | None = None
        self._bootstrap: list[i64] = []
        self.ordering: Final[Ordering] = options.new_ordering(environment, topic, is_founder)
        self.payloads: Final[PayloadStore] = PayloadStore(environment, topic, options)
        self.delay: Final[DelayEstimate] = DelayEstimate()
        self.size: Final[SizeEstimate | None] = (
            SizeEstimate(environment.random(), options.nodes) if options.adapts else None
        )
        self.period: i64 = options.period
        self.fanout: i64 = options.fanout
        self.ttl: i64 = options.ttl
        self.round: i64 = 0
        self._is_awake: bool = False
        self._idle_rounds: i64 = 0
        self._published: i64 = 0
        # Who does not know the time yet keeps what it is asked to publish.
        self._is_late: bool = options.is_logical and not is_founder
        self._adapted_epoch: i64 = 0
        self._queue: Final[list[Stamped]] = []
        # What this node knows of, by slot; a slot is free again when its event is done and in no ball.
        self._slot_of: Final[IntegerMap] = IntegerMap()
        self._known: Final[list[Known | None]] = []
        self._hops: vec[i64] = vec[i64]()
        self._free: Final[list[i64]] = []
        self._in_ball: list[i64] = []
        # Counted for measurements.
        self.balls_sent: i64 = 0
        self.entries_sent: i64 = 0
        self.largest_ball: i64 = 0
        self.heard_in_round: i64 = 0
        self.heard_per_round: float = 0.0

    # Before the start.

    def begin(self, sampling: PeerSampling, bootstrap: list[int]) -> None:
        """Take a peer sampling service, and the nodes through which to enter its overlay."""
        self._sampling = sampling
        self._bootstrap = [i64(node) for node in bootstrap]
        for node in self._bootstrap:
            sampling.join(node)

    def start(self) -> None:
        if self._is_late:
            self.wake()

    # What the application does.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        self.check_only_order(order, TOTAL)
        self._published += 1
        event = Stamped(self.me, self._published, self.environment.now(), payload, self._topic, 0)
        if self._is_late:
            self._queue.append(event)
        else:
            self._broadcast(event)
        self.wake()
        return event.sequence

    def outlook(self) -> list[Outlook]:
        """What is known and not delivered, in order, with probabilities by which an application may go ahead.

        The formulas are derived in :mod:`antiphon.fabrics.gossip.epto_spread`. Whoever uses an event early takes it
        back, or lives with it, if another comes before it.
        """
        found: list[Outlook] = []
        delay = self.delay.median if self.delay.median > 0 else self.period
        pace = float(self.period) / float(self.period + delay)
        spread = self._options.spread
        for event in self.ordering.waiting():
            publication = event.publication
            if publication is not None:
                age = self.round - event.born
                rounds = float(age) * pace
                begun = self.heard_per_round / pace
                deliverable = spread.deliverable(rounds, begun, self._options.is_logical)
                found.append(Outlook(publication, age, spread.stable(rounds), deliverable))
        return found

    def _broadcast(self, asked: Stamped) -> None:
        """An event begins: it gets its stamp, and is in the next ball."""
        stamp = self._clock.stamp(self.ordering.last_stamp)
        event = Stamped(self.me, asked.sequence, asked.timestamp, asked.payload, self._topic, stamp)
        slot = self._learn(publication_key(self.me, event.sequence), stamp, event)
        self._put_in_ball(slot, 0)

    # What the host does.

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, Ball):
            self._take(sender, message)
        elif isinstance(message, SamplingMessage):
            self._peers().receive(sender, message)
        elif isinstance(message, Wanted):
            self._answer(sender, message)
        elif isinstance(message, Payloads):
            for publication in message.publications:
                self._fill(publication)
        elif isinstance(message, Probe):
            self._probed(sender, message)
        elif isinstance(message, Newcomer):
            self.environment.send(sender, Greeting(self.me, self._topic, self._clock.reading()))
        else:
            assert isinstance(message, Greeting), "EpTO has no other message"
            self._clock.saw(message.stamp)
            self._know_the_time()

    def expire(self, name: i64) -> None:
        self.round_begins()
        self._round()
        if self.is_idle():
            self._idle_rounds += 1
        else:
            self._idle_rounds = 0
        if self._idle_rounds >= self._options.patience:
            self._is_awake = False
        else:
            self._set_timer()

    def peer_lost(self, peer: i64) -> None:
        self._peers().lost(peer)

    def unfinished(self) -> i64:
        return self.ordering.count() + len(self._queue)

    def wake(self) -> None:
        """Go on with rounds, if they have stopped; the first is at a random time of a period."""
        self._idle_rounds = 0
        if not self._is_awake:
            self._is_awake = True
            self.environment.set_timer(self.environment.random().below(self.period), ROUND)

    def is_idle(self) -> bool:
        """Whether nothing is to be relayed, ordered or asked for."""
        return len(self._in_ball) == 0 and self.ordering.count() == 0 and len(self._queue) == 0 and not self._is_late

    def round_begins(self) -> None:
        """A round is about to begin; for experiments in which nodes publish once per round."""

    def heard(self, publication: Stamped) -> None:
        """An event has come; it may take long until it is delivered. For experiments.

        What has been forgotten since it was delivered may come again.
        """

    def _set_timer(self) -> None:
        spread = i64(int(float(self.period) * self._options.drift))
        delay = self.period
        if spread > 0:
            delay += self.environment.random().between(-spread, spread)
        self.environment.set_timer(max(0, delay), ROUND)

    def _peers(self) -> PeerSampling:
        sampling = self._sampling
        assert sampling is not None, "a node begins with a peer sampling service"
        return sampling

    # Dissemination (Algorithm 4).

    def _take(self, sender: i64, ball: Ball) -> None:
        """A ball has come: what is to be relayed again goes into the next one."""
        self._clock.saw(ball.latest)
        if self._is_late:
            self._know_the_time()
        if not ball.whole:
            for publication in ball.publications:
                self._fill(publication)
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
                    whole = ball.publications[position] if ball.whole else None
                    slot = self._learn(names[position], ball.stamps[position], whole)
                    relayed = self._hops
                if hops[position] < ttl:
                    self._put_in_ball(slot, hops[position])
                else:
                    self._offer(slot, self.round + 1 - hops[position])
            position += 1
        self.payloads.ask(sender)
        self.wake()

    def _learn(self, name: i64, stamp: i64, publication: Stamped | None) -> i64:
        """A slot for an event that has not been known here, or is not any more."""
        if publication is None:
            publication = self.payloads.lookup(name)
        event = Known(name, stamp, publication)
        slot: i64
        if len(self._free) > 0:
            slot = self._free.pop()
            self._known[slot] = event
            self._hops[slot] = NOT_IN_BALL
        else:
            slot = len(self._known)
            self._known.append(event)
            self._hops = append(self._hops, NOT_IN_BALL)
        self._slot_of.put(name, slot)
        if publication is not None:
            self.payloads.has(publication)
            self.heard(publication)
        else:
            self.payloads.lacks(name)
        if stamp > self.ordering.last_stamp:
            self.heard_in_round += 1
        return slot

    def _put_in_ball(self, slot: i64, hops: i64) -> None:
        if self._hops[slot] == NOT_IN_BALL:
            self._in_ball.append(slot)
        self._hops[slot] = hops

    def _offer(self, slot: i64, born: i64) -> None:
        event = self._known[slot]
        assert event is not None, "a slot in use has an event"
        self.ordering.offer(event, born)
        if event.state == DONE and self._hops[slot] == NOT_IN_BALL:
            self._forget(slot)

    def _forget(self, slot: i64) -> None:
        event = self._known[slot]
        assert event is not None, "a slot in use has an event"
        if event.publication is None:
            self.payloads.given_up(event.name)
        self._slot_of.remove(event.name)
        self._known[slot] = None
        self._hops[slot] = NOT_IN_BALL
        self._free.append(slot)

    def _round(self) -> None:
        """Count the relays, send the ball, order, deliver."""
        self.round += 1
        sampling = self._peers()
        if len(sampling.neighbours()) == 0:
            for node in self._bootstrap:
                sampling.join(node)
        sampling.tick()
        if self._is_late:
            self._ask_the_time()
        if len(self._in_ball) > 0:
            self._send(self._next_ball())
        self._order()
        self._adapt()

    def _next_ball(self) -> Ball:
        """All that is to be relayed, one relay older."""
        count = len(self._in_ball)
        names = vec[i64](capacity=count)
        stamps = vec[i64](capacity=count)
        counts = vec[i64](capacity=count)
        carried: list[Stamped] = []
        whole = not self._options.digests
        latest: i64 = 0
        for slot in self._in_ball:
            event = self._known[slot]
            assert event is not None, "a slot in a ball has an event"
            hops = self._hops[slot] + 1
            self._hops[slot] = hops
            names = append(names, event.name)
            stamps = append(stamps, event.stamp)
            counts = append(counts, hops)
            latest = max(latest, event.stamp)
            # Where balls name events, the payload goes with the first relay, which is the publisher's own.
            if whole or hops == 1:
                publication = event.publication
                assert publication is not None, "whole balls and own events have their payload"
                carried.append(publication)
        return Ball(self.me, self._topic, names, stamps, counts, carried, whole, latest)

    def _send(self, ball: Ball) -> None:
        peers = self._peers().sample(self.fanout)
        size: i64 = len(ball.names)
        for peer in peers:
            self.environment.send(peer, ball)
        self.balls_sent += len(peers)
        self.entries_sent += size * len(peers)
        self.payloads.count_sent(ball.publications, len(peers))
        self.largest_ball = max(self.largest_ball, size)

    def _order(self) -> None:
        """Hand the ball to the ordering component, deliver what it lets go, and see what stays in the next ball."""
        relayed = self._in_ball
        self._in_ball = []
        for slot in relayed:
            event = self._known[slot]
            assert event is not None, "a slot in a ball has an event"
            self.ordering.offer(event, self.round - self._hops[slot])
        latest_birth = self.round - (2 * self.ttl if self._options.is_logical else self.ttl) - 1
        self._deliver(latest_birth)
        for slot in relayed:
            if self._options.persists and self._hops[slot] < self.ttl:
                self._in_ball.append(slot)
                continue
            self._hops[slot] = NOT_IN_BALL
            event = self._known[slot]
            if event is not None and event.state == DONE:
                self._forget(slot)

    def _deliver(self, latest_birth: i64) -> None:
        while True:
            for event in self.ordering.release(latest_birth):
                publication = event.publication
                assert publication is not None, "only what is complete is delivered"
                self._done(event)
                self.environment.deliver(publication)
            stuck = self.ordering.next() if self._options.digests else None
            if stuck is None or stuck.born > latest_birth - self._options.patience or stuck.publication is not None:
                break
            self.ordering.give_up(stuck)
            self._done(stuck)
        if self._options.digests:
            self.payloads.round_passed(self.round, self._peers())

    def _done(self, event: Known) -> None:
        """An event has left the ordering component; unless it is in a ball its slot is free."""
        slot = self._slot_of.get(event.name, -1)
        assert slot >= 0, "an event that waits is known"
        if self._hops[slot] == NOT_IN_BALL:
            self._forget(slot)

    # Payloads that do not travel with balls.

    def _fill(self, publication: Stamped) -> None:
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
            self.payloads.has(publication)
            self.heard(publication)

    def _answer(self, sender: i64, message: Wanted) -> None:
        """Somebody lacks payloads: what is here goes back, and what is on its way here will follow."""
        found: list[Stamped] = []
        for name in message.names:
            publication = self.payloads.lookup(name)
            if publication is not None:
                found.append(publication)
            elif self._slot_of.get(name, -1) >= 0:
                self.payloads.remember(name, sender)
        self.payloads.give(sender, found)

    # Newcomers and measurements.

    def _ask_the_time(self) -> None:
        if self.round > self._options.patience:
            # Nobody answers, so nobody can be ahead.
            self._know_the_time()
        for peer in self._peers().sample(1):
            self.environment.send(peer, Newcomer(self.me, 0, self._topic))

    def _know_the_time(self) -> None:
        if not self._is_late:
            return
        self._is_late = False
        for asked in self._queue:
            self._broadcast(asked)
        self._queue.clear()

    def _probed(self, sender: i64, probe: Probe) -> None:
        size = self.size
        if size is None:
            return
        size.merge(probe.epoch, probe.minima)
        if probe.is_answer:
            self.delay.add((self.environment.now() - probe.sent_at) // 2)
        else:
            answer = Probe(self.me, self._topic, probe.sent_at, size.epoch, size.minima, True)
            self.environment.send(sender, answer)

    def _adapt(self) -> None:
        """Measure once per round, and take what follows for period, fanout and ttl."""
        self.heard_per_round += (float(self.heard_in_round) - self.heard_per_round) / SMOOTHING
        self.heard_in_round = 0
        size = self.size
        if size is None:
            return
        size.round_passed()
        for peer in self._peers().sample(1):
            now = self.environment.now()
            self.environment.send(peer, Probe(self.me, self._topic, now, size.epoch, size.minima, False))
        if self.delay.median > 0:
            self.period = self.delay.median
        if size.epoch > self._adapted_epoch:
            self._adapted_epoch = size.epoch
            nodes = size.cautious()
            self.fanout = published_fanout(nodes)
            self.ttl = self._options.ttl_for(nodes, self.fanout)
