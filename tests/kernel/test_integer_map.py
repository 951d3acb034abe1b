"""The integer map does what a dictionary does."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.integer_map import SMALLEST, IntegerMap, home
from antiphon.kernel.message import publication_key
from tests.support import lists_up_to

LARGEST = (1 << 63) - 1
ABSENT = -77

# Keys that fall into few slots, so that runs of colliding entries form, also around the end of the array.
COLLIDING = st.builds(
    lambda slot, turn: turn * 1024 + slot, st.sampled_from([0, 1, 2, 5, 6, 7, 1022, 1023]), st.integers(0, 6)
)
KEYS = st.one_of(COLLIDING, st.integers(0, 20), st.integers(0, LARGEST))
VALUES = st.one_of(st.integers(-3, 3), st.integers(-LARGEST - 1, LARGEST))
OPERATIONS = lists_up_to(
    120, st.one_of(st.tuples(st.just("put"), KEYS, VALUES), st.tuples(st.just("remove"), KEYS, st.just(0)))
)


def agree(found: IntegerMap, expected: dict[int, int], keys: set[int]) -> None:
    assert len(found) == len(expected)
    assert {key: found.get(key, ABSENT) for key in keys} == {key: expected.get(key, ABSENT) for key in keys}
    assert found.sorted_items() == sorted(expected.items())


@given(OPERATIONS)
def test_any_operations_leave_what_they_leave_in_a_dictionary(operations: list[tuple[str, int, int]]) -> None:
    found = IntegerMap()
    expected: dict[int, int] = {}
    keys = {key for _, key, _ in operations} | {0, LARGEST}
    for operation, key, value in operations:
        if operation == "put":
            found.put(key, value)
            expected[key] = value
        else:
            found.remove(key)
            expected.pop(key, None)
        agree(found, expected, keys)


@given(st.permutations(range(5)), st.permutations(range(5)), st.integers(0, SMALLEST - 1))
def test_colliding_entries_survive_removals_in_any_order(put: list[int], removed: list[int], home: int) -> None:
    """Five entries with one home slot fill the smallest array to its limit and wrap around its end."""
    found = IntegerMap()
    expected: dict[int, int] = {}
    keys = {home + SMALLEST * turn for turn in range(6)}
    for turn in put:
        found.put(home + SMALLEST * turn, turn)
        expected[home + SMALLEST * turn] = turn
    for turn in removed:
        found.remove(home + SMALLEST * turn)
        del expected[home + SMALLEST * turn]
        agree(found, expected, keys)


@given(st.lists(st.integers(0, 3 * SMALLEST - 1), min_size=2, max_size=5, unique=True), st.data())
def test_entries_with_homes_around_a_hole_stay_reachable(keys: list[int], data: st.DataObject) -> None:
    """An entry may move up into a hole only if its home does not lie after the hole."""
    found = IntegerMap()
    for key in keys:
        found.put(key, -key)
    gone = data.draw(st.sampled_from(keys))
    found.remove(gone)
    agree(found, {key: -key for key in keys if key != gone}, set(range(3 * SMALLEST)))


def test_a_copy_goes_its_own_way() -> None:
    original = IntegerMap()
    for key in range(20):
        original.put(key, -key)
    twin = original.copy()
    twin.put(20, 5)
    twin.put(3, 7)
    original.remove(4)
    original.put(3, 8)
    agree(original, {key: -key for key in range(20) if key != 4} | {3: 8}, set(range(22)))
    agree(twin, {key: -key for key in range(20)} | {3: 7, 20: 5}, set(range(22)))
    agree(IntegerMap().copy(), {}, {0, 1})


def test_an_empty_map_has_nothing_and_forgets_nothing() -> None:
    empty = IntegerMap()
    assert len(empty) == 0
    assert empty.get(3, 42) == 42
    empty.remove(3)
    assert len(empty) == 0


def test_a_value_may_be_any_64_bit_integer() -> None:
    extremes = IntegerMap()
    for key, value in enumerate((-1, 0, LARGEST, -LARGEST - 1)):
        extremes.put(key, value)
    assert [extremes.get(key, 5) for key in range(4)] == [-1, 0, LARGEST, -LARGEST - 1]


def test_a_thousand_entries_come_and_go() -> None:
    """Growing keeps all entries; emptying leaves no marks behind that would stop a search."""
    found = IntegerMap()
    for key in range(1000):
        found.put(key * 7919, key)
    assert len(found) == 1000
    assert all(found.get(key * 7919, ABSENT) == key for key in range(1000))
    for key in range(1000):
        found.remove(key * 7919)
    assert len(found) == 0
    assert all(found.get(key * 7919, ABSENT) == ABSENT for key in range(1000))


def test_keys_are_not_negative() -> None:
    with pytest.raises(AssertionError, match="keys are not negative"):
        IntegerMap().put(-1, 0)


def test_nodes_live_side_by_side_and_publications_apart() -> None:
    """Views are read in the order of identifiers; of what is in flight, a few share a home by chance, not by source."""
    assert [home(node) for node in (0, 1, 2, 4095)] == [0, 1, 2, 4095]
    keys = [publication_key(source, sequence) for source in range(256) for sequence in range(1000, 1004)]
    shared = Counter(home(key) & 2047 for key in keys)
    assert max(shared.values()) <= 8
