"""An interval set does what a plain set does, and needs memory for its gaps only."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.interval_set import IntervalSet
from tests.support import lists_up_to

NUMBERS = range(1, 41)
numbers = st.integers(1, 40)
ranges = st.tuples(numbers, numbers)


def content(found: IntervalSet) -> set[int]:
    return {number for number in NUMBERS if found.has(number)}


def spread(intervals: list[tuple[int, int]]) -> list[int]:
    return [number for first, last in intervals for number in range(first, last + 1)]


class Both:
    """An interval set and the plain set that it must equal."""

    def __init__(self) -> None:
        self.intervals = IntervalSet()
        self.plain: set[int] = set()

    def add(self, first: int, last: int) -> None:
        if first == last:
            assert self.intervals.add(first) == (first not in self.plain)
            self.plain.add(first)
        elif first == 1:
            self.intervals.complete_to(last)
            self.plain.update(range(1, last + 1))
        else:
            self.intervals.add_range(first, last)
            self.plain.update(range(first, last + 1))


def both_of(added: list[tuple[int, int]]) -> Both:
    both = Both()
    for first, last in added:
        both.add(first, last)
        assert content(both.intervals) == both.plain
    return both


steps = lists_up_to(40, st.one_of(ranges, numbers.map(lambda number: (number, number))))


@given(steps)
def test_it_holds_what_a_plain_set_holds(added: list[tuple[int, int]]) -> None:
    both = both_of(added)
    assert both.intervals.highest() == max(both.plain, default=0)
    assert both.intervals.has_gaps() == (len(both.plain) < max(both.plain, default=0))
    missing = next(number for number in range(1, 42) if number not in both.plain)
    assert both.intervals.complete == missing - 1
    assert both.intervals.beyond() == sorted(number for number in both.plain if number > missing)
    assert both.intervals.has(0) and not both.intervals.has(41)


@given(steps, numbers, numbers)
def test_inside_and_outside_are_what_is_in_the_set_and_what_is_not(
    added: list[tuple[int, int]], first: int, last: int
) -> None:
    both = both_of(added)
    between = range(first, last + 1)
    inside, outside = both.intervals.inside(first, last), both.intervals.outside(first, last)
    assert spread(inside) == [number for number in between if number in both.plain]
    assert spread(outside) == [number for number in between if number not in both.plain]
    # Neighbours are one interval.
    assert all(one[1] + 1 < other[0] for found in (inside, outside) for one, other in pairwise(found))


@given(steps, steps)
def test_an_update_adds_all_of_another_set(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    both, more = both_of(one), both_of(other)
    both.intervals.update(more.intervals)
    assert content(both.intervals) == both.plain | more.plain
    assert content(more.intervals) == more.plain


@given(steps, steps, st.integers(1, 3))
def test_an_update_closes_the_lowest_gaps_of_the_union_and_no_others(
    one: list[tuple[int, int]], other: list[tuple[int, int]], most_gaps: int
) -> None:
    bounded, more = IntervalSet(0, most_gaps), both_of(other)
    for first, last in one:
        bounded.add_range(first, last)
    union = content(bounded) | more.plain
    bounded.update(more.intervals)
    gaps = [number for number in NUMBERS if number not in union and number < max(union, default=0)]
    left = [number for number in gaps if not bounded.has(number)]
    assert content(bounded) - union == set(gaps) - set(left)
    assert len(bounded.outside(1, bounded.highest())) <= most_gaps
    assert left == gaps[len(gaps) - len(left) :]
    starts = [number for number in gaps if number - 1 not in gaps]
    assert len(bounded.outside(1, bounded.highest())) == min(len(starts), most_gaps)


@given(steps, st.integers(1, 3))
def test_too_many_gaps_are_closed_from_below(added: list[tuple[int, int]], most_gaps: int) -> None:
    bounded, both = IntervalSet(0, most_gaps), Both()
    for first, last in added:
        bounded.add_range(first, last)
        both.add(first, last)
        assert content(bounded) >= both.plain
        assert len(bounded.outside(1, bounded.highest())) <= most_gaps
    # What was closed lies below all that is exact.
    assert all(number in both.plain for number in NUMBERS if number > bounded.complete and bounded.has(number))


def test_the_lowest_gap_is_closed_when_there_is_one_too_many() -> None:
    found = IntervalSet(0, 2)
    assert [found.add(number) for number in (2, 4, 6)] == [True, True, True]
    assert (found.complete, found.outside(1, 7)) == (2, [(3, 3), (5, 5), (7, 7)])
    assert not found.add(1)


def test_a_long_sequence_beyond_a_gap_is_one_interval() -> None:
    found = IntervalSet()
    for number in range(2, 10_000):
        assert found.add(number)
    assert found.inside(1, 1 << 60) == [(2, 9_999)]
    assert found.add(1) and found.complete == 9_999 and not found.has_gaps()


def test_it_can_be_sent_to_another_process() -> None:
    found = IntervalSet(3)
    found.add(5)
    copy: IntervalSet = pickle.loads(pickle.dumps(found))
    assert copy.inside(1, 9) == [(1, 3), (5, 5)]
    assert copy.add(4) and (copy.complete, found.complete) == (5, 3)


@pytest.mark.parametrize("complete", [0, 7])
def test_nothing_is_missing_below_the_first(complete: int) -> None:
    assert IntervalSet(complete).has(0) and IntervalSet(complete).has(-5)
