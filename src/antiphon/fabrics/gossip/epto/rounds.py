"""The rounds of EpTO at one node: when they are, what is measured in them, and what follows from it.

A node without events for a while stops its rounds until there is one. Period, fanout and ttl are those of the options,
or follow from measured delays and an estimated size (:mod:`antiphon.fabrics.gossip.epto.adaptation`). The measurements
also show how far a waiting event has spread, and how likely it is that no other event comes before it
(:mod:`antiphon.fabrics.gossip.epto.analysis`).

**Standing still.** A process that gets no processor for a while finds its timers and its messages at the same time, and
may handle the timers first. A stamp that it gives then, by counting, is too low: others have delivered what it has not
read yet, and pass its publication over. So a node gives no stamp before it has listened: from when its rounds begin, or
from a round that came late, until the next round. Between two rounds a host hands over what has arrived.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.adaptation import DelayEstimate, SizeEstimate
from antiphon.fabrics.gossip.epto.analysis import published_fanout
from antiphon.fabrics.gossip.epto.dissemination import EptoDissemination
from antiphon.fabrics.gossip.epto.messages import Probe, Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.kernel.process import Environment

SMOOTHING: Final = 8.0
"""Over about so many rounds the rate at which events begin is taken."""


@final
class Tentative:
    """An event that is known and not delivered: how likely everybody knows it, and nothing can come before it."""

    def __init__(self, publication: Stamped, age: i64, stable: float, deliverable: float) -> None:
        self.publication: Final[Stamped] = publication
        self.age: Final[i64] = age
        self.stable: Final[float] = stable
        self.deliverable: Final[float] = deliverable


@final
class Rounds:
    """The rounds of one node in one group; ``timer`` is the name of their timer."""

    def __init__(
        self, environment: Environment, topic: i64, options: EptoOptions, timer: i64, balls: EptoDissemination
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._options: Final[EptoOptions] = options
        self._timer: Final[i64] = timer
        self._balls: Final[EptoDissemination] = balls
        self.delay: Final[DelayEstimate] = DelayEstimate(options.period)
        self.size: Final[SizeEstimate | None] = (
            SizeEstimate(environment.random(), options.nodes) if options.adapts else None
        )
        self.period: i64 = options.period
        self.heard_per_round: float = 0.0
        self.is_awake: bool = False
        # Whether what had arrived before the last round has been handed over; for how many rounds it has not.
        self._has_listened: bool = False
        self._late_rounds: i64 = 0
        self._due: i64 = 0
        self._idle_rounds: i64 = 0
        self._adapted_epoch: i64 = 0

    def wake(self) -> None:
        """Go on with rounds, if they have stopped; the first is at a random time of a period."""
        self._idle_rounds = 0
        if not self.is_awake:
            self.is_awake = True
            self._has_listened = False
            self._set_timer(self._environment.random().below(self.period))

    def _set_timer(self, delay: i64) -> None:
        self._due = self._environment.now() + delay
        self._environment.set_timer(delay, self._timer)

    def has_listened(self) -> bool:
        """Whether this node is not behind what has arrived, so that it may give a stamp; if it sleeps it wakes."""
        self.wake()
        return self._has_listened and not self._is_late()

    def _is_late(self) -> bool:
        """Whether a round is later than names may be that reach everybody in time."""
        return self._environment.now() - self._due > self.period * max(1, self._balls.ttl // 2)

    def begin_round(self) -> None:
        """The timer has run out. A node whose rounds are always late gives stamps in some of them."""
        self._late_rounds = self._late_rounds + 1 if self._is_late() else 0
        self._has_listened = self._late_rounds == 0 or self._late_rounds > self._balls.ttl
        if self._has_listened:
            self._late_rounds = 0

    def schedule_next(self, is_idle: bool) -> None:
        """A round is over: the next follows, unless nothing has happened for long."""
        self._idle_rounds = self._idle_rounds + 1 if is_idle else 0
        if self._idle_rounds >= self._options.patience:
            self.is_awake = False
            return
        spread = i64(int(float(self.period) * self._options.drift))
        delay = self.period
        if spread > 0:
            delay += self._environment.random().between(-spread, spread)
        self._set_timer(max(0, delay))

    def probed(self, sender: i64, probe: Probe) -> None:
        """Somebody measures, or answers."""
        size = self.size
        if size is None:
            if not probe.is_answer:
                self._environment.send(sender, Probe(self._me, self._topic, probe.sent_at, 0, vec[i64](), True))
            return
        size.merge(probe.epoch, probe.minima)
        if probe.is_answer:
            self.delay.add((self._environment.now() - probe.sent_at) // 2)
        else:
            answer = Probe(self._me, self._topic, probe.sent_at, size.epoch, size.minima, True)
            self._environment.send(sender, answer)

    def probe(self, peer: i64) -> None:
        """Ask a node for an answer."""
        size, now = self.size, self._environment.now()
        if size is None:
            self._environment.send(peer, Probe(self._me, self._topic, now, 0, vec[i64](), False))
        else:
            self._environment.send(peer, Probe(self._me, self._topic, now, size.epoch, size.minima, False))

    def adapt(self, sampling: PeerSampling) -> None:
        """Measure once per round, and take what follows for period, fanout and ttl."""
        balls = self._balls
        self.heard_per_round += (float(balls.heard_in_round) - self.heard_per_round) / SMOOTHING
        balls.heard_in_round = 0
        size = self.size
        if size is None:
            return
        size.round_passed()
        for peer in sampling.sample(1):
            self.probe(peer)
        self.period = max(self._options.least_period, self.delay.median)
        if size.epoch > self._adapted_epoch:
            self._adapted_epoch = size.epoch
            nodes = size.cautious()
            balls.fanout = published_fanout(nodes)
            balls.ttl = self._options.ttl_for(nodes, balls.fanout)

    def tentative(self) -> list[Tentative]:
        """The waiting events, in order, with probabilities by which an application may go ahead.

        An application that uses an event early takes it back, or lives with it, if another comes before it.
        """
        found: list[Tentative] = []
        pace = float(self.period) / float(self.period + self.delay.median)
        spread = self._options.spread
        for event in self._balls.ordering.waiting():
            publication = event.publication
            if publication is not None:
                # A publication that came another way than in a ball begins to age with the next round.
                age = max(0, self._balls.round - event.born)
                rounds = float(age) * pace
                begun = self.heard_per_round / pace
                deliverable = spread.deliverable(rounds, begun, self._options.is_logical)
                found.append(Tentative(publication, age, spread.stable(rounds), deliverable))
        return found
