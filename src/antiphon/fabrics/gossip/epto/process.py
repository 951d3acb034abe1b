"""EpTO: total order by gossip, with probabilistic agreement.

Thesis of M. Matos, chapter 5. Every period a node puts all events that it has to relay into one **ball** and sends it
to a few others, drawn by peer sampling (Algorithm 4, :mod:`antiphon.fabrics.gossip.epto.dissemination`; balls
and bins after Koldehofe, 2002). Each relay makes an event older. After ``ttl`` relays it has reached everybody with
high probability: it is stable, and may be delivered in the order of keys (Algorithm 5,
:mod:`antiphon.fabrics.gossip.epto.order`). Nobody waits for anybody, nobody leads, and nothing is acknowledged.

Promises (section 5.2.2). Always: each event is delivered at most once and only if it was published; a publisher that
stays up delivers its own events; any two nodes deliver their common events in the same order. With a probability that
the options decide (:mod:`antiphon.fabrics.gossip.epto.analysis`): all nodes deliver everything. An event that a node
cannot deliver any more is a hole; the node reports it as lost in its place.

Where this departs from the thesis:

* Keys are compared as a whole, in both places; the printed comparison is inverted, and equal stamps break the order.
* A copy with ``ttl`` relays behind it is not relayed again, but goes to the ordering component. In Algorithm 4 (line
  13) it is thrown away, and the last relay is for nothing.
* Stamps are above the last delivered one, so a clock that is behind does not make a node refuse its own event.
* Events persist in balls (:class:`~antiphon.fabrics.gossip.epto.options.EptoOptions`); a newcomer
  with a logical clock asks for the time before its first event begins.
* Balls may carry names instead of payloads (:mod:`antiphon.fabrics.gossip.epto.payloads`); period, fanout and
ttl may
  follow from measurements (:mod:`antiphon.fabrics.gossip.epto.adaptation`).
* A node to which nothing happens for a while stops its rounds, until something does
  (:mod:`antiphon.fabrics.gossip.epto.rounds`).

A round is, in this order: what was asked for meanwhile is in the ball; all relays are counted; the ball is sent; events
are ordered and delivered.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.gossip.epto.dissemination import EptoDissemination, EptoListener
from antiphon.fabrics.gossip.epto.messages import Ball, Greeting, Newcomer, Payloads, Probe, Stamped, Wanted
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import EptoClock
from antiphon.fabrics.gossip.epto.payloads import PayloadStore
from antiphon.fabrics.gossip.epto.rounds import Rounds, Tentative
from antiphon.fabrics.gossip.sampling.service import PeerSampling, SamplingMessage
from antiphon.kernel.message import TOTAL, UNSPECIFIED, ProtocolMessage
from antiphon.kernel.process import Environment, Process
from antiphon.orders.fifo import NO_DEPENDENCIES

ROUND: Final[i64] = 0
"""The name of the timer of rounds."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Epto(Process):
    """EpTO at one node. All nodes are members of the one group."""

    def __init__(
        self,
        environment: Environment,
        options: EptoOptions,
        clock: EptoClock,
        is_founder: bool = True,
        topic: i64 = 0,
        listener: EptoListener | None = None,
    ) -> None:
        super().__init__(environment)
        self._options: Final[EptoOptions] = options
        self._clock: Final[EptoClock] = clock
        self._topic: Final[i64] = topic
        self._sampling: PeerSampling | None = None
        self._bootstrap: list[i64] = []
        self.balls: Final[EptoDissemination] = EptoDissemination(
            environment,
            topic,
            options,
            is_founder,
            EptoListener() if listener is None else listener,
            PayloadStore(environment, topic, options),
        )
        self.rounds: Final[Rounds] = Rounds(environment, topic, options, ROUND, self.balls)
        self._published: i64 = 0
        # A newcomer that does not know the time yet keeps what it is asked to publish.
        self._is_late: bool = options.is_logical and not is_founder
        self._queue: Final[list[Stamped]] = []

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

    # Calls of the application.

    def publish(self, payload: bytes, topic: i64 = 0, order: i64 = UNSPECIFIED) -> i64:
        self.check_only_order(order, TOTAL)
        self._published += 1
        event = Stamped(self.me, self._published, self.environment.now(), payload, self._topic, 0, NO_DEPENDENCIES)
        if self._is_late:
            self._queue.append(event)
        else:
            self._broadcast(event)
        self.wake()
        return event.sequence

    def tentative(self) -> list[Tentative]:
        """The waiting events, in order, with probabilities by which an application may go ahead."""
        return self.rounds.tentative()

    def _broadcast(self, asked: Stamped) -> None:
        """An event begins: it gets its stamp, and is in the next ball."""
        stamp = self._clock.stamp(self.balls.ordering.last_stamp)
        self.balls.broadcast(
            Stamped(self.me, asked.sequence, asked.timestamp, asked.payload, self._topic, stamp, NO_DEPENDENCIES)
        )

    # Calls of the host.

    def receive(self, sender: i64, message: ProtocolMessage) -> None:
        if isinstance(message, Ball):
            self._clock.on_stamp(message.latest)
            self._know_the_time()
            self.balls.take(sender, message)
            self.wake()
        elif isinstance(message, SamplingMessage):
            self._peers().receive(sender, message)
        elif isinstance(message, Wanted):
            self.balls.answer(sender, message)
        elif isinstance(message, Payloads):
            for publication in message.publications:
                self.balls.fill(publication)
        elif isinstance(message, Probe):
            self.rounds.probed(sender, message)
        elif isinstance(message, Newcomer):
            self.environment.send(sender, Greeting(self.me, self._topic, self._clock.reading()))
        else:
            assert isinstance(message, Greeting), "EpTO has no other message"
            self._clock.on_stamp(message.stamp)
            self._know_the_time()

    def expire(self, name: i64) -> None:
        self.round_begins()
        self._join_if_alone()
        sampling = self._peers()
        sampling.tick()
        if self._is_late:
            self._ask_the_time()
        self.balls.run_round(sampling)
        self.rounds.adapt(sampling)
        self.rounds.schedule_next(self.is_idle())

    def peer_lost(self, peer: i64) -> None:
        self._peers().lost(peer)

    def unfinished(self) -> i64:
        return self.balls.ordering.count() + len(self._queue)

    def wake(self) -> None:
        """Go on with rounds, if they have stopped."""
        self.rounds.wake()

    def is_idle(self) -> bool:
        """Whether nothing is to be relayed, ordered or asked for."""
        return self.balls.is_idle() and len(self._queue) == 0 and not self._is_late

    def round_begins(self) -> None:
        """A round is about to begin; for experiments in which nodes publish once per round."""

    def _peers(self) -> PeerSampling:
        sampling = self._sampling
        assert sampling is not None, "a node begins with a peer sampling service"
        return sampling

    def _join_if_alone(self) -> None:
        sampling = self._peers()
        if len(sampling.neighbours()) == 0:
            for node in self._bootstrap:
                sampling.join(node)

    # Newcomers.

    def _ask_the_time(self) -> None:
        if self.balls.round >= self._options.patience:
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
