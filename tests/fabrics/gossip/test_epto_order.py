"""The ordering component of EpTO, and how the printed one breaks (thesis of M. Matos, Algorithm 5, section 5.2)."""

from __future__ import annotations

import pytest

from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.order import HostClock, KeyOrdering, KnownEvent, LogicalClock, Ordering
from antiphon.kernel import UsageError
from tests.fabrics.gossip.epto_worlds import Desk, known, options

YOUNG, OLD = 10, 1
"""Rounds of birth: with ``LIMIT`` as the latest one, the second is old enough."""
LIMIT = 5


def ordering(kind: str, desk: Desk | None = None, is_founder: bool = True) -> Ordering:
    return options(ordering=kind).new_ordering(desk or Desk(), 0, is_founder)


def names(events: list[KnownEvent]) -> list[tuple[int, int]]:
    return [(int(event.source()), int(event.sequence())) for event in events]


def test_events_leave_in_the_order_of_keys_when_old_enough() -> None:
    order = ordering("keys")
    for event in (known(1, 1, 30), known(2, 1, 10), known(3, 1, 20)):
        order.offer(event, OLD)
    assert names(order.release(LIMIT)) == [(2, 1), (3, 1), (1, 1)]


def test_nothing_overtakes_what_is_too_young() -> None:
    """Lines 15 to 26: the smallest that is too young is a barrier."""
    order = ordering("keys")
    order.offer(known(1, 1, 30), OLD)
    order.offer(known(2, 1, 10), OLD)
    order.offer(known(3, 1, 20), YOUNG)
    assert names(order.release(LIMIT)) == [(2, 1)]
    assert names(order.release(YOUNG)) == [(3, 1), (1, 1)]


def test_the_larger_age_counts() -> None:
    """Lines 11 and 12: an event that comes again along a quicker way is as old as that says."""
    order = ordering("keys")
    event = known(1, 1, 30)
    order.offer(event, YOUNG)
    order.offer(event, OLD)
    order.offer(event, YOUNG)
    assert names(order.release(LIMIT)) == [(1, 1)]


def test_what_comes_too_late_is_a_hole_and_is_reported_once() -> None:
    desk = Desk()
    order = ordering("keys", desk)
    order.offer(known(1, 1, 30), OLD)
    order.release(LIMIT)
    for _ in range(2):
        order.offer(known(2, 1, 10), OLD)
    assert order.release(LIMIT) == [] and desk.holes == [(2, 1)]
    order.offer(known(1, 1, 30), OLD)
    assert order.release(LIMIT) == [] and desk.holes == [(2, 1)], "a copy of what was delivered is no hole"


def test_who_goes_on_where_a_neighbour_is_refuses_what_waited_and_is_too_late_there() -> None:
    desk = Desk()
    order = ordering("keys", desk, is_founder=False)
    assert isinstance(order, KeyOrdering)
    for event in (known(1, 1, 10), known(2, 1, 20), known(3, 1, 30)):
        order.offer(event, YOUNG)
    assert names(order.start_after(known(2, 7, 20))) == [(1, 1), (2, 1)]
    order.offer(known(4, 1, 15), OLD)
    assert order.start_after(known(1, 1, 10)) == [], "what is before that is no news"
    assert names(order.release(YOUNG)) == [(3, 1)] and desk.holes == [(1, 1), (2, 1), (4, 1)]


def test_a_hole_is_reported_where_it_would_have_come() -> None:
    """Numbers of a source have ascending keys, so when the third leaves before the first two these never will."""
    desk = Desk()
    order = ordering("keys", desk)
    order.offer(known(4, 3, 30), OLD)
    order.release(LIMIT)
    assert desk.holes == [(4, 1), (4, 2)]
    newcomers_desk = Desk()
    newcomers = ordering("keys", newcomers_desk, is_founder=False)
    newcomers.offer(known(4, 3, 30), OLD)
    newcomers.release(LIMIT)
    assert newcomers_desk.holes == [], "who comes later has no right to what was before"


def in_two_orders(kind: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Two nodes meet the same three events, two of one stamp; at one of them the smaller source is young for long."""
    first, second = ordering(kind), ordering(kind)
    for order, birth in ((first, OLD), (second, YOUNG)):
        order.offer(known(3, 1, 7), birth)
        order.offer(known(9, 1, 7), OLD)
        order.offer(known(1, 1, 5), OLD)
    one = names(first.release(LIMIT))
    other = names(second.release(LIMIT)) + names(second.release(YOUNG))
    return one, other


@pytest.mark.parametrize("kind", ["keys", "strict"])
def test_equal_stamps_do_not_break_the_order(kind: str) -> None:
    one, other = in_two_orders(kind)
    assert one == other == [(1, 1), (3, 1), (9, 1)]


@pytest.mark.parametrize("kind", ["printed-ties", "printed-barrier"])
def test_the_printed_barrier_breaks_the_order_of_equal_stamps(kind: str) -> None:
    """Line 23 purges larger stamps only: one node delivers 9 before 3, the other 3 before 9, or not at all."""
    one, other = in_two_orders(kind)
    assert one.index((3, 1)) < one.index((9, 1))
    assert other.index((3, 1)) > other.index((9, 1))


def test_the_printed_comparison_delivers_nothing() -> None:
    """Line 9 accepts what is below the last delivered stamp, which is 0 at the start."""
    desk = Desk()
    order = ordering("printed-comparison", desk)
    order.offer(known(1, 1, 30), OLD)
    assert order.release(LIMIT) == []
    assert desk.holes == [(1, 1)]


def test_a_clock_that_is_behind_does_not_stamp_below_what_was_delivered() -> None:
    """Otherwise a node would refuse its own event, and validity would be lost."""
    desk = Desk()
    desk.time = 1000
    assert HostClock(desk, offset=-900).stamp(last=500) == 501
    assert HostClock(desk).stamp(last=500) == 1000
    assert HostClock(desk, granularity=300).stamp(last=500) == 900
    assert HostClock(desk, parts_per_million=10_000).stamp(last=500) == 1010


def test_the_logical_clock_is_ahead_of_everything_heard_of() -> None:
    """Figure 5.5(b)."""
    clock = LogicalClock()
    assert [clock.stamp(-1), clock.stamp(-1)] == [1, 2]
    clock.on_stamp(40)
    clock.on_stamp(20)
    assert clock.stamp(-1) == 41


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"fanout": 3, "ttl": 1}, "reaches all 100 nodes with .*; choose ttl = 8 or fanout = 99 or agreement = 0"),
        ({"fanout": 2, "ttl": 9}, r"choose ttl = \d+ or fanout = \d+"),
        ({"clock": "broken"}, "there is no clock 'broken'; choose from global, logical"),
        ({"ordering": "none"}, "there is no ordering 'none'; choose from keys"),
        ({"period": 0}, "period must be at least 1"),
        ({"drift": -1.0}, "cannot be negative"),
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, int], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        EptoOptions(100, **wrong)  # type: ignore[arg-type]


def test_a_missing_payload_among_equal_stamps_is_given_up() -> None:
    """Those that leave together wait for each other, so the one that lacks its payload must be found."""
    order = ordering("strict")
    order.offer(known(1, 1, 7), OLD)
    bare = known(2, 1, 7)
    bare.publication = None
    order.offer(bare, OLD)
    assert order.release(LIMIT) == []
    assert order.next() is bare
    order.give_up(bare)
    assert names(order.release(LIMIT)) == [(1, 1)]
