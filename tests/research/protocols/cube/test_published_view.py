"""UPDATE of VCube-PS as published: of one node, the operation with the larger counter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import COUNTER_MASK, member_entry
from antiphon.fabrics.cube.view import View
from antiphon_lab.protocols.cube.published_messages import merged_entries
from antiphon_lab.protocols.cube.published_view import PublishedMemberView
from tests.support import lists_up_to

Tuple = tuple[int, int, bool]
"""Node, counter, and whether it is a SUB."""

updates = lists_up_to(40, st.tuples(st.integers(0, 7), st.integers(0, 9), st.booleans()))


def unpacked(entries: vec[i64]) -> list[Tuple]:
    return [(int(entry >> 39), int((entry >> 1) & COUNTER_MASK), entry & 1 == 1) for entry in entries]


def tuples_of(view: PublishedMemberView) -> list[Tuple]:
    """All tuples of a view, by node."""
    return sorted(unpacked(view.subscriptions()) + unpacked(view.tombstones()))


def latest(tuples: list[Tuple]) -> dict[int, Tuple]:
    """Of each node the tuple with the largest counter; the first of several."""
    kept: dict[int, Tuple] = {}
    for each in tuples:
        if each[0] not in kept or each[1] > kept[each[0]][1]:
            kept[each[0]] = each
    return kept


@given(updates)
def test_the_larger_counter_wins_and_a_tie_changes_nothing(tuples: list[Tuple]) -> None:
    view = PublishedMemberView(View(3, [1, 2, 3]), keeps_tombstones=True, returns_early=False)
    for node, counter, is_subscription in tuples:
        view.update(node, counter, is_subscription)
    expected = latest([(1, 0, True), (2, 0, True), (3, 0, True), *tuples])
    assert tuples_of(view) == [expected[node] for node in sorted(expected)]
    assert view.members() == sorted(node for node, _, is_subscription in expected.values() if is_subscription)
    assert [node for node in range(8) if view.contains(node)] == view.members()


@given(updates)
def test_without_tombstones_any_subscription_brings_back_who_has_left(tuples: list[Tuple]) -> None:
    view = PublishedMemberView(View(3), keeps_tombstones=False, returns_early=False)
    known: dict[int, int] = {}
    for node, counter, is_subscription in tuples:
        view.update(node, counter, is_subscription)
        if is_subscription:
            known[node] = max(counter, known.get(node, -1))
        elif known.get(node, -1) < counter:
            known.pop(node, None)
    assert tuples_of(view) == [(node, known[node], True) for node in sorted(known)]


def test_returning_early_compares_the_first_tuple_only() -> None:
    view = PublishedMemberView(View(3, [1, 2, 3]), keeps_tombstones=True, returns_early=True)
    view.update(3, 5, False)
    assert view.members() == [1, 2, 3]
    view.update(1, 5, False)
    assert view.members() == [2, 3]
    view.update(1, 4, True)
    assert view.members() == [2, 3]
    view.update(3, 6, True)
    assert tuples_of(view) == [(1, 5, False), (2, 0, True), (3, 5, False), (3, 6, True)]


def test_a_shared_view_stays_as_it_was_for_others() -> None:
    shared = View(3, range(8))
    one = PublishedMemberView(shared.copy(), keeps_tombstones=True, returns_early=False)
    other = PublishedMemberView(shared.copy(), keeps_tombstones=True, returns_early=False)
    one.update(5, 3, False)
    assert 5 not in one.members()
    assert other.members() == list(range(8))


@given(updates, updates)
def test_two_lists_of_entries_are_united_by_the_larger_counter(some: list[Tuple], others: list[Tuple]) -> None:
    def packed(tuples: list[Tuple]) -> vec[i64]:
        kept = latest(tuples)
        return vec[i64]([member_entry(*kept[node]) for node in sorted(kept)])

    united = unpacked(merged_entries(packed(some), packed(others)))
    candidates = [*latest(some).values(), *latest(others).values()]
    assert [each[0] for each in united] == sorted({each[0] for each in candidates})
    assert {each[:2] for each in united} == {each[:2] for each in latest(candidates).values()}
    assert set(united) <= set(candidates)
