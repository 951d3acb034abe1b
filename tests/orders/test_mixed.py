"""Publications of different orders on one topic: each waits for what its own order says, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import CAUSAL, FIFO, NONE, Publication, publication_key
from antiphon.orders import MixedOrder, Ordered
from antiphon.orders.order import merged_frontiers
from tests.orders.model import Identity, Model, Sent, Step, World, identity_of, schedules
from tests.support import lists_up_to

PROCESSES = 4

orders = st.lists(st.sampled_from([NONE, FIFO, CAUSAL]), min_size=1, max_size=12)


class MixedModel(Model):
    """By definition: all that the publication follows has been delivered. ``past`` of what is sent is that set."""

    def may_be_delivered(self, sent: Sent) -> bool:
        return sent.past <= self.seen - {waiting.identity for waiting in self.pending}


class MixedWorld(World):
    """Publications draw their orders, one after the other, from a list that begins anew at its end."""

    def __init__(self, drawn: list[int]) -> None:
        super().__init__(PROCESSES, MixedOrder, MixedModel)
        self.drawn: Iterator[int] = cycle(drawn)

    def publish(self, me: int) -> Sent:
        order = next(self.drawn)
        before = {NONE: [], FIFO: [each for each in self.delivered[me] if each[0] == me], CAUSAL: self.delivered[me]}
        vector = self.models[me].published(me)
        dependencies = self.orders[me].stamp(vector[me], order)
        publication = Ordered(me, vector[me], 0, b"", dependencies, 0, order)
        sent = Sent(publication, vector, frozenset(before[order]))
        self.sent[sent.identity] = sent
        self.delivered[me].append(sent.identity)
        for other, copies in enumerate(self.on_the_way):
            if other != me:
                copies.append(sent)
        return sent


@given(schedules(PROCESSES), orders)
def test_each_is_delivered_exactly_when_its_order_allows(schedule: list[Step], drawn: list[int]) -> None:
    """Same deliveries at every arrival, duplicates included; in the end everything exactly once, everywhere."""
    system = MixedWorld(drawn)
    system.run(schedule)
    system.drain()
    for order, delivered in zip(system.orders, system.delivered, strict=True):
        assert sorted(delivered) == sorted(system.sent)
        assert order.waiting() == 0


@given(schedules(PROCESSES), orders)
def test_what_counts_as_past_is_what_was_delivered(schedule: list[Step], drawn: list[int]) -> None:
    """No more and no less: a newcomer that starts from it gets the rest, in order, and nothing of it again."""
    system = MixedWorld(drawn)
    system.run(schedule)
    for order, delivered in zip(system.orders, system.delivered, strict=True):
        newcomer = MixedOrder(PROCESSES)
        newcomer.start_from(order.frontier())
        got = [one for sent in system.sent.values() for one in newcomer.arrived(sent.publication)]
        assert sorted(map(identity_of, got)) == sorted(set(system.sent) - set(delivered))
        assert newcomer.waiting() == 0


def of(source: int, sequence: int, order: int, *keys: int) -> Publication:
    return Ordered(source, sequence, 0, b"", vec[i64](list(keys)), 0, order)


def feed(order: MixedOrder, *publications: Publication) -> list[Identity]:
    return [identity_of(released) for publication in publications for released in order.arrived(publication)]


def test_without_order_nothing_waits_and_fifo_waits_for_it() -> None:
    order = MixedOrder(0)
    assert feed(order, of(1, 3, NONE), of(1, 4, FIFO), of(1, 2, NONE)) == [(1, 3), (1, 2)]
    assert feed(order, of(1, 1, CAUSAL)) == [(1, 1), (1, 4)]


def test_a_gap_that_closes_releases_all_that_waited_for_what_lay_beyond() -> None:
    """One waits for the end of what is complete now, one for its middle, one for its own predecessor."""
    order = MixedOrder(0)
    waiting = [
        of(2, 1, CAUSAL, publication_key(1, 3)),
        of(3, 1, CAUSAL, publication_key(1, 2)),
        of(1, 4, FIFO),
        of(4, 1, CAUSAL, publication_key(2, 1), publication_key(3, 1)),
    ]
    assert feed(order, of(1, 3, NONE), of(1, 2, NONE), *waiting) == [(1, 3), (1, 2)]
    assert order.waiting() == 4
    assert feed(order, of(1, 1, FIFO)) == [(1, 1), (3, 1), (2, 1), (1, 4), (4, 1)]
    assert (order.waiting(), order.held_total, order.held_peak) == (0, 4, 4)


def test_what_waits_for_one_beyond_a_gap_does_not_wait_for_the_gap() -> None:
    order = MixedOrder(0)
    assert feed(order, of(2, 1, CAUSAL, ~publication_key(1, 3))) == []
    assert feed(order, of(1, 3, NONE)) == [(1, 3), (2, 1)]


def test_what_is_passed_over_releases_what_waited_for_its_first_numbers_first() -> None:
    """Number 2 of 1 may follow what waited for number 1; so number 3, which follows 2, comes last."""
    order = MixedOrder(0)
    assert feed(order, of(2, 1, CAUSAL, publication_key(1, 1)), of(1, 3, CAUSAL), of(2, 2, FIFO)) == []
    assert [identity_of(each) for each in order.pass_over(1, 2)] == [(2, 1), (2, 2), (1, 3)]


def test_what_was_delivered_beyond_a_gap_is_named_when_the_gap_is_passed_over() -> None:
    order = MixedOrder(0)
    feed(order, of(1, 3, NONE), of(1, 4, CAUSAL), of(2, 1, CAUSAL, ~publication_key(1, 3)))
    assert [identity_of(each) for each in order.pass_over(1, 2)] == [(1, 4)]
    assert list(order.stamp(1, CAUSAL)) == [publication_key(1, 4), publication_key(2, 1)]


def test_duplicates_are_dropped_below_and_beyond_a_gap_and_while_they_wait() -> None:
    order = MixedOrder(0)
    assert feed(order, of(1, 1, NONE), of(1, 3, NONE), of(1, 4, FIFO)) == [(1, 1), (1, 3)]
    assert feed(order, of(1, 1, NONE), of(1, 3, NONE), of(1, 4, FIFO)) == []
    assert feed(order, of(1, 2, CAUSAL)) == [(1, 2), (1, 4)]
    assert feed(order, of(1, 3, NONE), of(1, 4, FIFO), of(1, 2, CAUSAL)) == []


def test_a_weaker_publication_names_nothing_and_the_next_causal_one_all() -> None:
    order = MixedOrder(0)
    feed(order, of(1, 1, CAUSAL), of(2, 1, FIFO))
    assert [list(order.stamp(1, NONE)), list(order.stamp(2, FIFO))] == [[], []]
    assert list(order.stamp(3, CAUSAL)) == [publication_key(1, 1), publication_key(2, 1)]
    assert list(order.stamp(4, CAUSAL)) == []


def test_what_lies_beyond_a_gap_is_named_alone_until_the_gap_is_closed() -> None:
    order = MixedOrder(0)
    feed(order, of(1, 2, NONE), of(1, 4, NONE))
    assert list(order.barrier()) == [~publication_key(1, 2), ~publication_key(1, 4)]
    feed(order, of(1, 1, FIFO))
    assert list(order.stamp(1, CAUSAL)) == [publication_key(1, 2), ~publication_key(1, 4)]
    # What has been named is implied by the own predecessor.
    feed(order, of(1, 3, FIFO))
    assert list(order.stamp(2, CAUSAL)) == [publication_key(1, 3)]


def test_who_names_a_publication_need_not_name_what_it_names_and_must_name_the_rest() -> None:
    """Naming one beyond a gap implies that one alone: who has all up to it must go on to name all up to it."""
    answer = of(2, 1, CAUSAL, ~publication_key(1, 2))
    has_a_gap, is_complete = MixedOrder(0), MixedOrder(0)
    feed(has_a_gap, of(1, 2, NONE), answer)
    assert list(has_a_gap.stamp(1, CAUSAL)) == [publication_key(2, 1)]
    feed(is_complete, of(1, 1, FIFO), of(1, 2, NONE), answer)
    assert list(is_complete.stamp(1, CAUSAL)) == [publication_key(1, 2), publication_key(2, 1)]


def test_the_next_membership_goes_on_with_what_lies_beyond_gaps() -> None:
    before, after = MixedOrder(0), MixedOrder(0)
    feed(before, of(1, 2, NONE), of(2, 1, CAUSAL))
    after.start_from(before.frontier())
    after.adopt_barrier(before.barrier())
    assert (list(after.frontier()), list(after.barrier())) == (list(before.frontier()), list(before.barrier()))
    assert feed(after, of(1, 2, NONE), of(1, 1, FIFO)) == [(1, 1)]
    assert list(after.frontier()) == [publication_key(1, 2), publication_key(2, 1)]


numbers = st.tuples(st.integers(0, 3), st.integers(1, 6))


@given(lists_up_to(4, lists_up_to(12, numbers)))
def test_the_union_of_frontiers_is_that_of_the_sets(pasts: list[list[Identity]]) -> None:
    union = vec[i64]()
    for past in pasts:
        member = MixedOrder(9)
        feed(member, *(of(source, sequence, NONE) for source, sequence in past))
        union = merged_frontiers(union, member.frontier())
    together, newcomer = MixedOrder(9), MixedOrder(9)
    feed(together, *(of(source, sequence, NONE) for past in pasts for source, sequence in past))
    newcomer.start_from(union)
    assert list(newcomer.frontier()) == list(together.frontier())


def test_the_state_says_what_lies_beyond_a_gap() -> None:
    one, other = MixedOrder(0), MixedOrder(0)
    one.start_from(vec[i64]([~publication_key(1, 2)]))
    other.start_from(vec[i64]([~publication_key(1, 3)]))
    assert one.state() != other.state()
