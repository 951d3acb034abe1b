"""Councils: whose majority may order totally, and how one council follows another."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.tree.quorum import NOBODY, Council, is_majority

brokers = st.sets(st.integers(0, 9), min_size=1, max_size=7)


@given(brokers, brokers, brokers)
def test_of_two_majorities_somebody_is_in_both(body: set[int], one: set[int], other: set[int]) -> None:
    if is_majority(sorted(body), one) and is_majority(sorted(body), other):
        assert one & other & body


@given(brokers)
def test_a_part_and_the_rest_are_never_both_a_majority(body: set[int]) -> None:
    for size in range(len(body) + 1):
        for part in combinations(sorted(body), size):
            assert is_majority(sorted(body), set(part)) != is_majority(sorted(body), body - set(part))


def test_half_is_enough_with_the_lowest_number() -> None:
    assert is_majority([1, 2, 3, 4], {1, 4})
    assert not is_majority([1, 2, 3, 4], {2, 3})


def test_where_nobody_is_asked_everybody_may_order() -> None:
    assert NOBODY.is_held_by({5})


def test_a_proposal_needs_both_majorities() -> None:
    council = Council(1, [[0, 1, 2, 3, 4]]).proposing({0, 1, 2})
    assert council.is_held_by({0, 1, 3})
    assert not council.is_held_by({2, 3, 4})
    assert not council.is_held_by({0, 1})
    assert not council.is_exactly({0, 1, 2})


def test_what_is_agreed_on_replaces_what_was_proposed() -> None:
    """Otherwise a proposal that was given up would be in the way for ever."""
    proposed = Council(1, [[0, 1, 2, 3, 4]]).proposing({0, 3, 4})
    agreed = Council(1, [[0, 1, 2, 3, 4]]).proposing({0, 1, 2}).followed_by({0, 1, 2})
    assert agreed.is_exactly({0, 1, 2})
    for merged in (proposed.merged(agreed), agreed.merged(proposed)):
        assert (merged.number, merged.bodies) == (2, [[0, 1, 2]])


def test_two_who_know_different_proposals_know_both() -> None:
    council = Council(1, [[0, 1, 2, 3, 4]])
    one, other = council.proposing({0, 1, 2}), council.proposing({2, 3, 4})
    assert one.merged(other).bodies == other.merged(one).bodies
    assert not one.merged(other).is_held_by({0, 1, 2})
    assert one.merged(other).is_held_by({0, 2, 3, 1})


@given(st.lists(st.tuples(brokers, st.booleans()), max_size=6))
def test_no_two_councils_follow_each_other_unknown(steps: list[tuple[set[int], bool]]) -> None:
    """Parts that meet at random and change the council in two steps: of two that may order, somebody is in both.

    A part is a set of brokers that know the same after they have met. It proposes itself if it holds what it knows,
    and half of the time also agrees. Whoever may order now and whoever may order then must have somebody in common, or
    know of each other.
    """
    everybody = set(range(10))
    knows = {broker: Council(1, [sorted(everybody)]) for broker in everybody}
    for part, agrees in steps:
        council = Council(0, [])
        for broker in part:
            council = council.merged(knows[broker])
        if council.is_held_by(part):
            following = council.to_follow(part)
            council = council.proposing(following)
            if agrees and council.is_held_by(part):
                council = council.followed_by(following)
        for broker in part:
            knows[broker] = council
        able = {
            frozenset(group)
            for size in range(1, 11)
            for group in combinations(sorted(everybody), size)
            if able_to_order(group, knows)
        }
        # Each of the others contains one of these.
        smallest = [one for one in able if not any(one - {broker} in able for broker in one)]
        assert all(one & other for one in smallest for other in smallest)


@given(brokers, brokers)
def test_what_follows_is_no_smaller_and_is_held_by_those_who_are_there(body: set[int], present: set[int]) -> None:
    council = Council(1, [sorted(body)])
    following = council.to_follow(present)
    assert present <= following <= present | body
    assert len(following) == max(len(body), len(present))
    if council.is_held_by(present):
        assert council.proposing(following).is_held_by(present)


@given(brokers, st.lists(brokers, max_size=6))
def test_no_minority_ends_a_council_whoever_was_away(founders: set[int], parts: list[set[int]]) -> None:
    """Brokers part and meet in any way: whatever became of the council, any majority of the founders holds it."""
    knows = {broker: Council(1, [sorted(founders)]) for broker in founders}
    for part in (together & founders for together in parts):
        council = Council(0, [])
        for broker in part:
            council = council.merged(knows[broker])
        if council.is_held_by(part):
            council = council.proposing(council.to_follow(part))
            council = council.followed_by(council.to_follow(part))
        for broker in part:
            knows[broker] = council
    minority = (len(founders) - 1) // 2
    for failed in combinations(sorted(founders), minority):
        assert able_to_order(tuple(founders - set(failed)), knows)


def test_a_newcomer_takes_the_place_of_a_member_that_is_away() -> None:
    council = Council(1, [[0, 1, 2, 3, 4]])
    assert council.to_follow({0, 1, 2, 9}) == {0, 1, 2, 3, 9}
    assert council.to_follow({0, 1, 2, 3, 4, 9}) == {0, 1, 2, 3, 4, 9}


def test_an_operator_may_say_who_is_gone() -> None:
    council = Council(3, [[0, 1, 2, 3], [0, 1, 2, 3, 4]]).without({2, 3, 4})
    assert (council.number, council.bodies) == (4, [[0, 1]])


def able_to_order(group: tuple[int, ...], knows: dict[int, Council]) -> bool:
    """Whether brokers that met now could order totally."""
    council = Council(0, [])
    for broker in group:
        council = council.merged(knows[broker])
    return council.is_held_by(set(group))
