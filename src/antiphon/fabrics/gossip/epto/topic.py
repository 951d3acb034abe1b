"""Total order on one topic of the gossip fabric: EpTO beside the structures that carry publications.

A total publication travels as all others of its topic do, through BRISA's structures, once, and is recovered as they
are (:mod:`antiphon.fabrics.gossip.recovery`). Beside that EpTO orders: balls carry the names, stamps and ages of total
publications, to nodes drawn from what the overlay of the topic knows. A publication that has come both ways and is
stable leaves in the order of its key. So agreement has two chances: a publication that no ball brings in time may still
come through a structure before its turn, and the other way round.

**Between total and weaker orders.** A total publication names what its publisher had delivered, as a causal one does,
and waits for it and for its publisher's earlier ones; those that follow in total order wait with it. Later
publications of its publisher, in any order, leave the publisher when the total one has been delivered there. So all
promises for causal publications hold for total ones. A fifo or causal one that follows a total one is delivered
after it, or after the hole; one without order waits for nothing where it arrives. Weaker ones of different publishers
are in no relation to total ones, unless one follows the other causally.

*Why nothing waits for ever.* A publication waits for what its publisher had delivered, and in total order for smaller
keys. Stamps are above all that their publisher had delivered or passed over. So if one total publication is before
another because of what was delivered, directly or through others, its key is the smaller one, and there is no circle.

**Holes.** What is refused, or given up because its payload does not come, is passed over when the structures bring it,
which they do in the end: it takes its place in the order of the topic, after what it depends on, and the application is
told there instead of getting it. So what follows it still comes after all that it followed.

**Newcomers** count as past what a neighbour has delivered, are told its time, and go on after what it has delivered
last, so that they refuse what would be too late there. Otherwise a client that had been shown what is past would be
shown earlier publications after it. A node that comes back to a topic goes on after what it had delivered itself.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.dissemination import EptoDissemination, EptoListener
from antiphon.fabrics.gossip.epto.messages import Ball, Probe, Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import EptoClock, HostClock, KeyOrdering, KnownEvent, LogicalClock
from antiphon.fabrics.gossip.epto.payloads import Missing, PayloadStore
from antiphon.fabrics.gossip.epto.rounds import Rounds, Tentative
from antiphon.fabrics.gossip.messages import FetchRequest
from antiphon.fabrics.gossip.sampling.service import PeerSampling, draw_some
from antiphon.fabrics.gossip.stream import QueuedRequest, Stream
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream

TOPICS: Final[i64] = 1 << 62
"""Topics have numbers below this one; timers of their rounds have names below all others."""


def rounds_timer(topic: i64) -> i64:
    """The name of the timer for the rounds of a topic."""
    return ~topic - TOPICS


def topic_of_rounds(name: i64) -> i64:
    """The topic whose rounds have a timer of this name; below 0 if it is the name of another timer."""
    return ~(name + TOPICS) if name < -TOPICS else -1


@final
class TotalOptions:
    """How total order is made on topics: EpTO as in ``epto``, and by how many ticks clocks of nodes are wrong.

    ``skews`` are for nodes one after the other, and from the beginning again; clocks show multiples of
    ``granularity``.
    """

    def __init__(self, epto: EptoOptions, skews: list[i64], granularity: i64 = 1) -> None:
        self.epto: Final[EptoOptions] = epto
        self._skews: Final[list[i64]] = skews
        self._granularity: Final[i64] = granularity

    def new_clock(self, environment: Environment) -> EptoClock:
        """The clock of one node for one topic."""
        if self.epto.is_logical:
            return LogicalClock()
        skew = self._skews[environment.identifier % len(self._skews)] if len(self._skews) > 0 else 0
        return HostClock(environment, skew, 0, self._granularity)


@final
class Memory:
    """The memory of a node that leaves a topic: the clock, and its last delivery in total order."""

    def __init__(self, clock: EptoClock, last: KnownEvent | None) -> None:
        self.clock: Final[EptoClock] = clock
        self.last: Final[KnownEvent | None] = last


@final
class Relayed(Environment):
    """The environment of EpTO on a topic: what it lets go is not delivered yet, and what it misses not lost."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment.identifier)
        self._environment: Final[Environment] = environment
        # In order, and by name.
        self.released: Final[deque[Stamped]] = deque()
        self.names: Final[set[i64]] = set()
        self.refused: list[i64] = []

    def now(self) -> i64:
        return self._environment.now()

    def shared_time(self) -> i64:
        return self._environment.shared_time()

    def send(self, destination: i64, message: ProtocolMessage) -> None:
        self._environment.send(destination, message)

    def set_timer(self, delay: i64, name: i64) -> i64:
        return self._environment.set_timer(delay, name)

    def random(self) -> RandomStream:
        return self._environment.random()

    def deliver(self, publication: Publication) -> None:
        assert isinstance(publication, Stamped), "EpTO lets go what has a place in its order"
        self.released.append(publication)
        self.names.add(publication_key(publication.source, publication.sequence))

    def lost(self, topic: i64, source: i64, sequence: i64, is_late: bool = False) -> None:
        self.refused.append(publication_key(source, sequence))


@final
class CarriedPayloads(PayloadStore):
    """Payloads that come through trees; if one does not, the node that named it is asked, and then any node."""

    def __init__(self, environment: Environment, topic: i64, options: EptoOptions, streams: dict[i64, Stream]) -> None:
        super().__init__(environment, topic, options)
        self._streams: Final[dict[i64, Stream]] = streams

    def lookup(self, name: i64) -> Stamped | None:
        stream = self._streams.get(name & SOURCE_MASK)
        found = None if stream is None else stream.kept.get(name >> SOURCE_BITS)
        return found if isinstance(found, Stamped) else None

    def is_past(self, name: i64) -> bool:
        # A publication that has come and is not known has left, or came too late.
        stream = self._streams.get(name & SOURCE_MASK)
        return stream is not None and stream.is_here(name >> SOURCE_BITS)

    def has(self, publication: Stamped) -> None:
        self._missing.pop(publication_key(publication.source, publication.sequence), None)

    def ask(self, node: i64) -> None:
        for name in self._new:
            missing = self._missing.get(name)
            if missing is not None:
                missing.named_by = node
        self._new = []

    def ask_again(self, missing: Missing, sampling: PeerSampling) -> None:
        wanted = append(vec[i64](), missing.name >> SOURCE_BITS)
        for peer in [missing.named_by] if missing.questions % 2 == 0 else sampling.sample(1):
            self._environment.send(peer, FetchRequest(missing.name & SOURCE_MASK, self._topic, wanted))


@final
class KnownPeers(PeerSampling):
    """Samples of all nodes that the overlay of a topic knows: neighbours and others alike."""

    def __init__(self, overlay: PeerSampling) -> None:
        super().__init__(overlay.environment, overlay.topic, overlay.connections, overlay.listener)
        self._overlay: Final[PeerSampling] = overlay

    def neighbours(self) -> list[i64]:
        return self._overlay.neighbours()

    def sample(self, count: i64) -> list[i64]:
        neighbours = self._overlay.neighbours()
        others = self._overlay.sample(count)
        return draw_some(self.random, [*neighbours, *[peer for peer in others if peer not in neighbours]], count)


@final
class TopicTotals:
    """Total order on one topic at one node, from the moment it first hears of a total publication there."""

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: TotalOptions,
        overlay: PeerSampling,
        streams: dict[i64, Stream],
        memory: Memory | None,
    ) -> None:
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._peers: Final = KnownPeers(overlay)
        self._relayed: Final = Relayed(environment)
        self._clock: Final[EptoClock] = options.new_clock(environment) if memory is None else memory.clock
        self._counts: Final[bool] = options.epto.is_logical
        payloads = CarriedPayloads(environment, topic, options.epto, streams)
        self.balls: Final = EptoDissemination(self._relayed, topic, options.epto, False, EptoListener(), payloads)
        self.rounds: Final = Rounds(environment, topic, options.epto, rounds_timer(topic), self.balls)
        ordering = self.balls.ordering
        assert isinstance(ordering, KeyOrdering), "topics are ordered by whole keys"
        self._ordering: Final[KeyOrdering] = ordering
        # The key of what was delivered last, or counts as such.
        self.last_delivered: KnownEvent = KnownEvent(0, -1, None)
        if memory is not None and memory.last is not None:
            ordering.start_after(memory.last)
            self.last_delivered = memory.last
        # Own publications that have not been delivered here.
        self.own: i64 = 0

    def memory(self) -> Memory:
        """Everything that total order needs if this node comes back to the topic."""
        return Memory(self._clock, self._ordering.last())

    def reading(self) -> i64:
        """The time, for a newcomer."""
        return max(self._clock.reading(), self._ordering.last_stamp, 0)

    def begin_after(self, stamp: i64) -> None:
        """A neighbour has said the time."""
        self._clock.begin_after(stamp)

    def go_on_after(self, last: KnownEvent) -> None:
        """A neighbour has said what it has delivered last."""
        if self.last_delivered.is_before(last):
            self.last_delivered = last
            for event in self._ordering.start_after(last):
                self.balls.done(event)

    # Publications and messages that come in.

    def may_publish(self) -> bool:
        """Whether an own publication may begin now; by counting, only a node that has listened gives a stamp."""
        return not self._counts or self.rounds.has_listened()

    def publish(self, asked: QueuedRequest, payload: bytes, dependencies: vec[i64]) -> Stamped:
        """An own publication begins: it gets its stamp, and is in the next ball."""
        stamp = self._clock.stamp(self._ordering.last_stamp)
        event = Stamped(self._me, asked.sequence, asked.timestamp, payload, self._topic, stamp, dependencies)
        self.own += 1
        self.balls.broadcast(event)
        self.rounds.wake()
        return event

    def arrived(self, publication: Stamped) -> None:
        """A structure has brought a publication."""
        self._clock.on_stamp(publication.stamp)
        self.balls.arrived(publication)
        self.rounds.wake()

    def on_ball(self, sender: i64, ball: Ball) -> None:
        """A ball has come."""
        self._clock.on_stamp(ball.latest)
        self.balls.take(sender, ball)
        self.rounds.wake()

    def on_probe(self, sender: i64, probe: Probe) -> None:
        """Somebody measures, or answers."""
        self.rounds.probed(sender, probe)

    def round_passed(self) -> None:
        """The timer of rounds has run out."""
        self.rounds.begin_round()
        self.balls.run_round(self._peers)
        self.rounds.adapt(self._peers)
        self.rounds.schedule_next(self.is_idle())

    # Publications that go out.

    def refused(self) -> list[i64]:
        """The names of what will not be let go, or was before; told once."""
        found = self._relayed.refused
        if len(found) > 0:
            self._relayed.refused = []
        return found

    def payload(self, name: i64) -> Stamped | None:
        """A publication, if structures have brought it and it is kept."""
        return self.balls.payloads.lookup(name)

    def is_released(self, name: i64) -> bool:
        """Whether a publication was let go and has not been delivered."""
        return name in self._relayed.names

    def head(self) -> Stamped | None:
        """The publication that is to be delivered next, if it has been let go."""
        return self._relayed.released[0] if len(self._relayed.released) > 0 else None

    def delivered(self) -> None:
        """The next publication has been delivered."""
        publication = self._relayed.released.popleft()
        name = publication_key(publication.source, publication.sequence)
        self.last_delivered = KnownEvent(name, publication.stamp, None)
        self._relayed.names.remove(name)
        if publication.source == self._me:
            self.own -= 1

    def is_idle(self) -> bool:
        """Whether nothing is to be relayed or ordered; what waits for other publications needs no rounds."""
        return self.balls.is_idle()

    def unfinished(self) -> i64:
        """How many publications wait."""
        return self._ordering.count() + len(self._relayed.released)

    def tentative(self) -> list[Tentative]:
        """The waiting publications, and how likely each is to be stable."""
        return self.rounds.tentative()
