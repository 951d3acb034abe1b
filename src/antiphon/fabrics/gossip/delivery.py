"""Where publications of a topic leave for the application of one node, each in its order.

A publication that has come waits in the order of the topic (:mod:`antiphon.orders`). A total publication also waits for
its turn (:mod:`antiphon.fabrics.gossip.epto.topic`): those whose turn has come stand in one line, and only the
first of the line is handed to the order of the topic. So what comes before it in any sense is delivered before it, and
no later one overtakes it.

A publication that will never come is replaced by a :class:`~antiphon.fabrics.gossip.stream.Missed`, in its order too:
the application is told of it there.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.epto.messages import Ball, Probe, Stamped
from antiphon.fabrics.gossip.epto.order import KnownEvent
from antiphon.fabrics.gossip.epto.topic import TOPICS, Memory, TopicTotals
from antiphon.fabrics.gossip.messages import GossipFrontierResponse
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.sampling.service import PeerSampling
from antiphon.fabrics.gossip.stream import PASSED_AT_MOST, Missed, QueuedRequest, Stream, stream_of
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, TOTAL, Publication, publication_key
from antiphon.kernel.process import Environment
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import Order, Ordered, merged_frontiers


@final
class Departure:
    """The memory of a node that leaves a topic: what is past there, and what its next publication must name.

    ``total`` is the memory of total order, if there was something to order.
    """

    def __init__(self, past: vec[i64], barrier: vec[i64], total: Memory | None) -> None:
        self.past: Final[vec[i64]] = past
        self.barrier: Final[vec[i64]] = barrier
        self.total: Final[Memory | None] = total


@final
class GossipDelivery:
    """Delivers publications of one topic at one node, each in its order.

    Nothing is delivered to an application that is not subscribed.
    """

    def __init__(
        self,
        environment: Environment,
        topic: i64,
        options: BrisaOptions,
        overlay: PeerSampling,
        streams: dict[i64, Stream],
    ) -> None:
        self._environment: Final[Environment] = environment
        self._me: Final[i64] = environment.identifier
        self._topic: Final[i64] = topic
        self._options: Final[BrisaOptions] = options
        self._overlay: Final[PeerSampling] = overlay
        self._streams: Final[dict[i64, Stream]] = streams
        self.order: Final[Order] = options.new_order(self._me)
        self.totals: TopicTotals | None = None
        self._memory: Memory | None = None
        self.is_member: bool = False
        # Whether this node knows what counts as past, so that it can tell what it lacks.
        self.is_synchronised: bool = False
        # Whether total order waits, because this node reaches too few others.
        self.is_held: bool = False
        # Publications that were passed over: nobody has kept them, or they came after their turn.
        self.lost: i64 = 0
        # The publication that has been first in the line for some periods.
        self._first: Stamped | None = None
        self._first_for: i64 = 0

    # Publications of the application.

    def may_begin(self, asked: QueuedRequest) -> bool:
        """Whether what the application asks for may happen now; after a total publication all else waits for it.

        A total one that may not begin now is tried again after the next round.
        """
        if asked.order == TOTAL:
            return not self.is_held and self._ordered().may_publish()
        return self.totals is None or self.totals.own == 0

    def hold(self, is_held: bool) -> None:
        """Let total order wait, or go on."""
        self.is_held = is_held
        if self.totals is not None:
            self.totals.balls.is_held = is_held

    def may_probe(self) -> bool:
        """Whether there is something to order, so that it matters who is reached."""
        return self.totals is not None and (self.is_held or not self.totals.is_idle())

    def probe(self, peers: list[i64]) -> None:
        """Ask nodes for a sign of life."""
        for peer in peers:
            self._ordered().rounds.probe(peer)

    def begin(self, asked: QueuedRequest, payload: bytes) -> Publication:
        """Make an own publication; unless it is total it counts as delivered from now on."""
        if asked.order == TOTAL:
            return self._ordered().publish(asked, payload, self.order.barrier())
        dependencies = self.order.stamp(asked.sequence, asked.order)
        return Ordered(self._me, asked.sequence, asked.timestamp, payload, dependencies, self._topic, asked.order)

    # Publications and messages that come.

    def arrived(self, publication: Publication) -> None:
        """A publication has come, or will never come: deliver what may be delivered now."""
        if isinstance(publication, Stamped) and self.has_total_order():
            self._ordered().arrived(publication)
            self._settle()
        else:
            released = self.order.arrived(publication)
            if len(released) == 0:
                self._hear_of(publication.dependencies)
            self._hand_out(released)

    def _hear_of(self, dependencies: vec[i64]) -> None:
        """A publication waits for others, of which perhaps nobody tells any more: what is missing is asked for."""
        for key in dependencies:
            named = key if key >= 0 else ~key
            if named & SOURCE_MASK != self._me:
                stream_of(self._streams, named & SOURCE_MASK).hear(named >> SOURCE_BITS)

    def on_ball(self, sender: i64, ball: Ball) -> None:
        """A ball of EpTO has come."""
        if self.has_total_order():
            self._ordered().on_ball(sender, ball)
            self._settle()

    def on_probe(self, sender: i64, probe: Probe) -> None:
        """Somebody measures, asks for a sign of life, or answers."""
        if self.has_total_order():
            self._ordered().on_probe(sender, probe)

    def round_passed(self) -> None:
        """The timer of rounds has run out."""
        self._ordered().round_passed()
        self._settle()

    def _hand_out(self, released: list[Publication]) -> None:
        """Deliver, and what follows in the line if it may leave now."""
        while len(released) > 0:
            has_left = False
            for publication in released:
                if isinstance(publication, Stamped):
                    has_left = True
                    self._ordered().delivered()
                if not self.is_member:
                    continue
                if isinstance(publication, Missed):
                    self._report_lost(publication)
                else:
                    self._environment.deliver(publication)
            released = self._next_of_line() if has_left else []

    def _report_lost(self, missed: Missed) -> None:
        self.lost += 1
        self._environment.lost(self._topic, missed.source, missed.sequence, missed.is_late)

    # Total order.

    def has_total_order(self) -> bool:
        """Whether there is a total order on this topic."""
        return self._options.total is not None and self._topic < TOPICS

    def _ordered(self) -> TopicTotals:
        """Total order at this node, from the moment that there is something to order."""
        totals = self.totals
        if totals is None:
            options = self._options.total
            assert options is not None, "only where there is total order something comes that needs it"
            totals = TopicTotals(self._environment, self._topic, options, self._overlay, self._streams, self._memory)
            totals.balls.is_held = self.is_held
            self.totals = totals
        return totals

    def _settle(self) -> None:
        """Deliver what total order has let go, and tell of what it never will."""
        totals, order = self._ordered(), self.order
        assert isinstance(order, MixedOrder), "where there is total order there are others"
        for name in totals.refused():
            # One that has not come cannot take its place: it is passed over when trees bring it, or it is gone.
            late = totals.payload(name)
            if late is not None and not order.counts(name) and not totals.is_released(name):
                missed = Missed(late.source, late.sequence, self._topic, late.dependencies, True)
                self._hand_out(order.arrived(missed))
        self._hand_out(self._next_of_line())

    def _next_of_line(self) -> list[Publication]:
        """Hand in the first of the line; if it waits already, that changes nothing."""
        totals, order = self._ordered(), self.order
        assert isinstance(order, MixedOrder), "where there is total order there are others"
        first = totals.head()
        while first is not None and order.counts(publication_key(first.source, first.sequence)):
            # It was passed over before its turn came.
            totals.delivered()
            first = totals.head()
        return [] if first is None else order.arrived(first)

    def period_passed(self, longest: i64) -> None:
        """The first of the line must not wait for ever for what nobody has, such as what died with its publisher."""
        first = None if self.totals is None else self.totals.head()
        self._first_for = self._first_for + 1 if first is not None and first is self._first else 0
        self._first = first
        order = self.order
        if first is None or self._first_for <= longest or not isinstance(order, MixedOrder):
            return
        lacked = self.lacked_by(first, order)
        # If it waits for more than is passed over at a time, the rest follows in the next periods.
        self._first_for = 0 if len(lacked) < PASSED_AT_MOST else longest
        for key in lacked:
            self._hand_out(order.arrived(Missed(key & SOURCE_MASK, key >> SOURCE_BITS, self._topic)))

    def lacked_by(self, publication: Publication, order: MixedOrder) -> list[i64]:
        """The publications for which one waits: earlier ones of its source, and all that it names, with those before.

        These are at least as many as are passed over at a time, if it waits for so many.
        """
        found: list[i64] = []
        reached: dict[i64, i64] = {publication.source: publication.sequence - 1}
        for key in publication.dependencies:
            if key < 0:
                if not order.counts(~key):
                    found.append(~key)
            elif key & SOURCE_MASK != publication.source:
                reached[key & SOURCE_MASK] = key >> SOURCE_BITS
        for source, last in reached.items():
            sequence = order.past(source) + 1
            while sequence <= last and len(found) < PASSED_AT_MOST:
                key = publication_key(source, sequence)
                if not order.counts(key):
                    found.append(key)
                sequence += 1
        return found

    # Coming and going.

    def start_from(self, departure: Departure) -> None:
        """Go on after an earlier membership: what was past then is past now."""
        self.count_as_past(departure.past)
        self.order.adopt_barrier(departure.barrier)
        self._memory = departure.total

    def departure(self) -> Departure:
        """Everything that this node needs if it comes back."""
        total = self._memory if self.totals is None else self.totals.memory()
        return Departure(self.order.frontier(), self.order.barrier(), total)

    def count_as_past(self, frontier: vec[i64]) -> None:
        """Nothing of this will be delivered, or waited for."""
        self.order.start_from(merged_frontiers(self.order.frontier(), frontier))
        for key in self.order.frontier():
            if key >= 0:
                stream_of(self._streams, key & SOURCE_MASK).start_from(key >> SOURCE_BITS)
            else:
                stream_of(self._streams, ~key & SOURCE_MASK).skip(~key >> SOURCE_BITS)

    def welcome(self) -> GossipFrontierResponse:
        """Tells a newcomer what is past here, and where total order is, if there is any."""
        totals, frontier = self.totals, self.order.frontier()
        if totals is None:
            return GossipFrontierResponse(self._me, self._topic, frontier, 0)
        last = totals.last_delivered
        return GossipFrontierResponse(self._me, self._topic, frontier, totals.reading(), last.stamp, last.name)

    def welcomed(self, message: GossipFrontierResponse) -> None:
        """A neighbour has said what is past, and where its total order is."""
        self.count_as_past(message.frontier)
        if message.stamp > 0 and self.has_total_order():
            self._ordered().begin_after(message.stamp)
            self._ordered().go_on_after(KnownEvent(message.last_name, message.last_stamp, None))
        for stream in self._streams.values():
            if stream.source != self._me:
                stream.assume()
        self.is_synchronised = True

    def is_idle(self) -> bool:
        """Whether total order has nothing to do; other publications wait for nothing that this node could do."""
        return self.totals is None or self.totals.is_idle()

    def unfinished(self) -> i64:
        """How many publications wait."""
        waiting: i64 = self.order.waiting()
        return waiting if self.totals is None else waiting + self.totals.unfinished()
