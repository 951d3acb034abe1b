"""The order in which a new leader places what several replicas were delivered."""

from __future__ import annotations

import random

from antiphon.streams.leaders.merging import KnownList, in_order, merged

NAMES = [(source, sequence) for source in range(3) for sequence in range(6)]


def test_a_list_without_its_beginning_waits_for_the_others() -> None:
    whole = [(1, 1), (1, 2), (2, 1), (1, 3)]
    assert merged([[(1, 3)], whole], {}) == whole
    assert merged([whole, [(1, 3)]], {}) == whole
    assert merged([[(1, 3), (2, 1)], [], whole], {}) == whole


def test_names_that_follow_nothing_of_each_other_may_be_anywhere() -> None:
    one, other = [(1, 1), (2, 1)], [(2, 1), (1, 1)]
    assert merged([one, other], {}) == one


def test_random_lists_are_merged_into_an_order_that_extends_what_they_follow() -> None:
    draw = random.Random(7)
    for _ in range(300):
        # What a name follows: the earlier ones of its source, and some of others.
        follows = {name: {(name[0], number) for number in range(name[1])} for name in NAMES}
        for index, name in enumerate(sorted(NAMES, key=lambda each: each[1])):
            for other in sorted(NAMES, key=lambda each: each[1])[:index]:
                if draw.random() < 0.1:
                    follows[name] |= {other} | follows[other]
        for name in sorted(NAMES, key=lambda each: each[1]):
            for other in list(follows[name]):
                follows[name] |= follows[other]
        whole = any_extension(follows, draw)
        suffixes = [any_extension(follows, draw)[draw.randrange(len(NAMES)) :] for _ in range(2)]
        lists = [whole, *suffixes]
        draw.shuffle(lists)
        found = merged(lists, {})
        assert sorted(found) == sorted(NAMES)
        places = {name: place for place, name in enumerate(found)}
        broken = [name for name in found for other in follows[name] if places[other] > places[name]]
        assert not broken, (lists, broken)


def test_what_publications_say_orders_lists_that_lack_something() -> None:
    """Two replicas came back, and neither list has what the other one has."""
    one = KnownList([((1, 3), (1, 10)), ((2, 1), (1, 10))], False, [(5, 5, []), (1, 1, [1, 5])])
    other = KnownList([((1, 1), (2, 10)), ((1, 2), (1, 10))], False, [(1, 3, []), (4, 4, [3, 1])])
    alone = KnownList([((3, 1), (1, 10))], False, [(1, 1, [])])
    names = in_order([one, other, alone])
    assert names.index((3, 1)) < names.index((1, 2)) < names.index((1, 3)) < names.index((2, 1))
    assert names.index((1, 1)) < names.index((1, 2))


def test_a_list_that_lacks_nothing_comes_first() -> None:
    whole = KnownList([((1, 1), (1, 10))], True, [])
    other = KnownList([((2, number), (1, 10)) for number in (1, 2)], False, [])
    assert in_order([other, whole]) == [(1, 1), (2, 1), (2, 2)]


def any_extension(follows: dict[tuple[int, int], set[tuple[int, int]]], draw: random.Random) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < len(follows):
        found.append(draw.choice([name for name in follows if name not in found and follows[name] <= set(found)]))
    return found
