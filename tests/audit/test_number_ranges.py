"""The judges' set of numbers does what a plain set does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.audit.number_ranges import NumberRanges

numbers = st.lists(st.integers(1, 30), max_size=40)


def filled(added: list[int]) -> NumberRanges:
    found, plain = NumberRanges(), set[int]()
    for number in added:
        assert found.add(number) == (number not in plain)
        plain.add(number)
    return found


def content(found: NumberRanges) -> set[int]:
    return {number for number in range(1, 32) if number in found}


@given(numbers, numbers)
def test_it_holds_what_a_plain_set_holds(one: list[int], other: list[int]) -> None:
    found = filled(one)
    copy = found.copy()
    copy.add_all(filled(other))
    assert (content(found), content(copy)) == (set(one), {*one, *other})
    # Equal sets are equal ranges.
    assert copy == filled(sorted({*one, *other}))


@given(numbers, st.integers(0, 30))
def test_what_is_removed_reaches_to_the_next_gap(added: list[int], up_to: int) -> None:
    found = filled(added)
    last = up_to
    while last + 1 in added:
        last += 1
    assert found.remove_up_to(up_to) == last
    assert content(found) == {number for number in added if number > last}


def test_the_lowest_of_too_many_ranges_is_forgotten() -> None:
    found = NumberRanges()
    for number in (1, 3, 5):
        assert found.add(number, most_ranges=2)
    assert found.ranges == [[3, 3], [5, 5]]
