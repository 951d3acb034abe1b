"""The parts of a topic by themselves: when it falls silent, how it is entered, what is sent again and asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.gossip.application import Application
from antiphon.fabrics.gossip.delivery import GossipDelivery
from antiphon.fabrics.gossip.joining import UNHEARD_PERIODS, GossipJoining
from antiphon.fabrics.gossip.messages import (
    Activate,
    FetchRequest,
    FetchResponse,
    GossipFrontierRequest,
    GossipFrontierResponse,
    NotKept,
    Report,
    structure_key,
)
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.quiescence import Quiescence
from antiphon.fabrics.gossip.reach import Reach
from antiphon.fabrics.gossip.recovery import GAP_PATIENCE, Recovery
from antiphon.fabrics.gossip.retransmit import GossipRetransmission
from antiphon.fabrics.gossip.sampling.hyparview import HyParView, Join, NeighbourRequest
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling
from antiphon.fabrics.gossip.seeds import MOST_ATTEMPTS, Pulses, Seeds
from antiphon.fabrics.gossip.stream import PASSED_AT_MOST, Missed, QueuedRequest, Stream
from antiphon.fabrics.gossip.trees import Trees
from antiphon.kernel.message import FIFO, SOURCE_BITS, SOURCE_MASK, UNSPECIFIED, Publication, publication_key
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import Ordered
from antiphon.simulator.scenario.run import run_scenario
from antiphon.torture.schedules.gossip_rare import draw_any_gossip_schedule
from tests.support import Notebook

ME, SEED, PEER, SOURCE = 5, 0, 7, 3
PATIENCE = 8


class Bench(Notebook):
    """The parts of one topic at one node, and what they do to their host."""

    def __init__(self, seeds: tuple[int, ...] = (SEED,)) -> None:
        super().__init__(ME)
        self.timers: list[int] = []
        self.options = BrisaOptions(order="fifo", contacts=seeds, patience=PATIENCE)
        self.streams: dict[i64, Stream] = {}
        self.seeds = Seeds(ME, self.options.contacts)
        self.overlay: PeerSampling = HyParView(self, 0, Connections(self), Neighbourhood(), self.options.view)
        neighbours = self.overlay.neighbours()
        self.trees = Trees(self, 0, self.options, neighbours, self.streams)
        self.delivery = GossipDelivery(self, 0, self.options, self.overlay, self.streams)
        self.quiescence = Quiescence(self, 0, self.options, Reach(1000, 0))
        self.application = Application(
            self, 0, self.options, neighbours, self.streams, self.trees, self.delivery, self.quiescence
        )
        self.joining = GossipJoining(
            self, 0, self.options, self.overlay, self.seeds, self.delivery, self.application, self.quiescence
        )
        self.pulses = Pulses(ME, self.seeds)
        self.recovery = Recovery(
            self,
            0,
            self.options,
            self.overlay,
            self.seeds,
            self.pulses,
            self.streams,
            self.trees,
            self.delivery.order,
            self.application,
            self.quiescence,
        )

    def set_timer(self, delay: int, name: int) -> int:
        self.timers.append(int(delay))
        return len(self.timers)

    def sent_to(self, kind: type) -> list[int]:
        return [int(peer) for peer, message in self.sent if isinstance(message, kind)]


def numbered(sequence: int) -> Publication:
    return Ordered(SOURCE, sequence, 0, b"", vec[i64](), 0, FIFO)


def report(number: int) -> Report:
    return Report(vec[i64]([SOURCE, number]), vec[i64](), vec[i64](), [], vec[i64](), 0, 0, 1)


# Silence.


def test_anything_new_starts_the_timer_once_and_makes_a_comparison_necessary() -> None:
    bench = Bench()
    quiescence = bench.quiescence
    quiescence.wake()
    quiescence.wake()
    assert len(bench.timers) == 1 and quiescence.is_ticking
    question = quiescence.next_question()
    assert quiescence.has_asked()
    quiescence.wake()
    quiescence.nothing_missing(question)
    assert not quiescence.has_compared and not quiescence.has_asked(), "the answer is older than the news"
    quiescence.nothing_missing(quiescence.next_question())
    assert quiescence.has_compared


def test_comparisons_are_further_and_further_apart_and_end() -> None:
    quiescence = Bench().quiescence
    begun = []
    while not quiescence.has_given_up_comparing():
        quiescence.quiet += 1
        if quiescence.begin_comparison():
            begun.append(int(quiescence.quiet))
    assert len(begun) == MOST_ATTEMPTS
    assert [later - earlier for earlier, later in pairwise(begun)][:4] == [1, 2, 4, 8]


# GossipJoining.


def test_a_newcomer_asks_its_neighbour_what_is_past_and_after_some_periods_a_seed_again() -> None:
    bench = Bench()
    bench.overlay.receive(PEER, NeighbourRequest(PEER, 0, True))
    bench.quiescence.quiet = UNHEARD_PERIODS - 1
    bench.joining.ask_neighbour()
    assert (bench.sent_to(GossipFrontierRequest), bench.sent_to(Join)) == ([PEER], [])
    bench.quiescence.quiet = UNHEARD_PERIODS
    bench.joining.ask_neighbour()
    assert (bench.sent_to(GossipFrontierRequest), bench.sent_to(Join)) == ([PEER, PEER], [SEED])


def test_a_welcome_says_what_is_past_and_lets_the_application_begin() -> None:
    bench = Bench()
    bench.application.ask(QueuedRequest(0, 0, None, UNSPECIFIED))
    bench.application.ask(QueuedRequest(1, 0, b"first", FIFO))
    assert len(bench.application.queue) == 2 and bench.application.is_wanted()
    bench.joining.on_frontier_response(GossipFrontierResponse(PEER, 0, vec[i64]([publication_key(SOURCE, 4)]), 0))
    assert bench.delivery.is_member and len(bench.application.queue) == 0
    assert bench.streams[SOURCE].received.complete == 4 and bench.streams[ME].received.complete == 1


def test_a_node_gives_up_entering_until_the_application_wants_something() -> None:
    bench = Bench()
    while not bench.joining.has_given_up():
        bench.joining.enter()
    assert len(bench.sent_to(Join)) == MOST_ATTEMPTS
    bench.joining.on_wanted()
    assert not bench.joining.has_given_up()


# Recovery.


@pytest.mark.parametrize("fetch_after", [0, 1])
def test_what_a_neighbour_has_is_asked_for_when_it_is_missing_for_long_enough(fetch_after: int) -> None:
    bench = Bench()
    assert bench.recovery.learn(PEER, report(2), fetch_after)
    assert bench.sent_to(FetchRequest) == ([] if fetch_after else [PEER])
    bench.recovery.period_passed()
    bench.recovery.learn(PEER, report(2), fetch_after)
    assert bench.sent_to(FetchRequest) == ([PEER] if fetch_after else [PEER, PEER])
    bench.recovery.on_not_kept(PEER, NotKept(SOURCE, 2, 0))
    bench.recovery.period_passed()
    bench.recovery.learn(PEER, report(2), fetch_after)
    assert len(bench.sent_to(FetchRequest)) == (1 if fetch_after else 2), "it has not kept it"
    assert bench.recovery.unfinished() == 1


def test_a_gap_is_asked_for_when_more_comes_after_it() -> None:
    bench = Bench()
    stream = Stream(SOURCE)
    bench.streams[SOURCE] = stream
    for sequence in range(2, 2 + GAP_PATIENCE):
        assert bench.sent_to(FetchRequest) == []
        stream.take(numbered(sequence))
        bench.recovery.notice_gap(PEER, stream)
    assert bench.sent_to(FetchRequest) == [PEER]


# GossipRetransmission.


def test_a_new_child_and_a_node_that_asks_get_what_is_kept() -> None:
    bench = Bench()
    stream = Stream(SOURCE)
    for sequence in (1, 2, 3):
        stream.take(numbered(sequence))
    retransmission = GossipRetransmission(bench, 0, [i64(8), i64(9)], {SOURCE: stream}, 1000)
    retransmission.on_activate(PEER, Activate(structure_key(SOURCE, 0), 0, 1))
    retransmission.on_fetch(PEER, FetchRequest(SOURCE, 0, vec[i64]([1])))
    assert [int(message.sequence) for _, message in bench.sent if isinstance(message, FetchResponse)] == [2, 3, 1]
    del stream.kept[1]
    retransmission.on_fetch(PEER, FetchRequest(SOURCE, 0, vec[i64]([1]), 1))
    assert (bench.sent_to(NotKept), bench.sent_to(FetchRequest)) == ([PEER], [8, 9])
    retransmission.found(numbered(1))
    assert bench.sent_to(FetchResponse) == [PEER] * 4, "the node that asked gets what the neighbours had"


def test_what_may_begin_only_late_is_told_before_the_topic_falls_silent() -> None:
    """A publication and an unsubscription had to wait behind a total publication, until long after all was quiet."""
    result = run_scenario(draw_any_gossip_schedule(370, "total"))
    assert result.violations is not None and not any(result.violations.values()), result.judgement


# Delivery.


def test_what_a_total_publication_waits_for_in_vain_is_passed_over_in_portions() -> None:
    """It may name a number far ahead of all that anybody has kept."""
    bench, order = Bench(), MixedOrder(ME)
    last = 2 * PASSED_AT_MOST + 5
    waiting = Ordered(PEER, 3, 0, b"", vec[i64]([publication_key(SOURCE, last)]), 0, FIFO)
    portions = []
    while lacked := bench.delivery.lacked_by(waiting, order):
        portions.append(len(lacked))
        for key in lacked:
            order.arrived(Missed(key & SOURCE_MASK, key >> SOURCE_BITS, 0))
    assert portions == [PASSED_AT_MOST, PASSED_AT_MOST, 7]
    assert order.counts(publication_key(SOURCE, last)) and order.counts(publication_key(PEER, 2))
