"""Total order at one process: on which side of a total publication a weaker one belongs, and what waits for it."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL, Publication, publication_key
from antiphon.orders import KeyedOrdered, Ordered, TotalOrder

ANNA, BEN = 7, 8
NO_NAMES: tuple[tuple[int, int], ...] = ()

Identity = tuple[int, int]


def about(
    key: int, source: int, sequence: int, order: int, names: tuple[Identity, ...] = NO_NAMES, also: int | None = None
) -> KeyedOrdered:
    """A publication about a key, or two, that names others."""
    named = vec[i64]([publication_key(*name) for name in names])
    keys = vec[i64]([key] if also is None else [key, also])
    return KeyedOrdered(source, sequence, 0, b"", named, 0, order, keys)


def feed(order: TotalOrder, *publications: Publication) -> list[Identity]:
    return [(one.source, one.sequence) for each in publications for one in order.arrived(each)]


def locked(*locks: tuple[int, int, int, int]) -> TotalOrder:
    """Process 0 with locks: key, source, number and place."""
    order = TotalOrder(0)
    for key, source, sequence, place in locks:
        order.lock(source, sequence, vec[i64]([key]), place)
    return order


def test_what_a_total_publication_names_goes_first_whatever_its_order() -> None:
    for weaker in (NONE, FIFO, CAUSAL):
        order = locked((ANNA, 1, 1, 1))
        total = about(ANNA, 1, 1, TOTAL, ((2, 1),))
        assert feed(order, total) == []
        assert feed(order, about(ANNA, 2, 1, weaker)) == [(2, 1), (1, 1)]


def test_what_it_does_not_name_waits_for_it_whatever_its_order() -> None:
    for weaker in (NONE, FIFO, CAUSAL):
        order = locked((ANNA, 1, 1, 1))
        assert feed(order, about(ANNA, 2, 1, weaker)) == []
        assert feed(order, about(ANNA, 1, 1, TOTAL)) == [(1, 1), (2, 1)]


def test_a_weaker_one_about_a_locked_key_waits_until_the_total_one_says_where_it_belongs() -> None:
    order = locked((ANNA, 1, 1, 1))
    assert feed(order, about(ANNA, 2, 1, NONE), about(ANNA, 3, 1, NONE)) == []
    assert feed(order, about(ANNA, 1, 1, TOTAL, ((2, 1),))) == [(2, 1), (1, 1), (3, 1)]


def test_other_keys_do_not_wait() -> None:
    order = locked((ANNA, 1, 1, 1))
    assert feed(order, about(BEN, 2, 1, NONE), about(BEN, 3, 1, CAUSAL)) == [(2, 1), (3, 1)]
    assert order.is_closed(vec[i64]([ANNA])) and not order.is_closed(vec[i64]([BEN]))


def test_what_names_no_key_is_about_one_that_all_such_share() -> None:
    order = locked((0, 1, 1, 1))
    plain = Ordered(2, 1, 0, b"", vec[i64](), 0, NONE)
    assert feed(order, plain, about(BEN, 3, 1, NONE)) == [(3, 1)]
    assert feed(order, about(0, 1, 1, TOTAL)) == [(1, 1), (2, 1)]


def test_a_publication_about_two_keys_waits_for_the_locks_of_both() -> None:
    order = locked((ANNA, 1, 1, 1), (BEN, 2, 1, 2))
    assert feed(order, about(ANNA, 3, 1, NONE, also=BEN)) == []
    assert feed(order, about(ANNA, 1, 1, TOTAL)) == [(1, 1)]
    assert feed(order, about(BEN, 2, 1, TOTAL)) == [(2, 1), (3, 1)]


def test_of_several_locks_on_a_key_the_lowest_place_decides() -> None:
    """The second names what the first does not: it belongs between them. Locks may be heard of in any order."""
    order = locked((ANNA, 2, 1, 2), (ANNA, 1, 1, 1))
    between = about(ANNA, 3, 1, NONE)
    assert feed(order, between, about(ANNA, 2, 1, TOTAL, ((1, 1), (3, 1)))) == []
    assert feed(order, about(ANNA, 1, 1, TOTAL)) == [(1, 1), (3, 1), (2, 1)]


def test_who_goes_before_the_first_lock_goes_before_all() -> None:
    """So nothing waits for a total publication that has not come if an earlier one has said enough."""
    order = locked((ANNA, 1, 1, 1), (ANNA, 2, 1, 2))
    assert feed(order, about(ANNA, 3, 1, NONE), about(ANNA, 1, 1, TOTAL, ((3, 1),))) == [(3, 1), (1, 1)]


def test_a_second_copy_does_not_pass_one_that_waits_though_an_earlier_lock_has_come_since() -> None:
    order = locked((ANNA, 1, 1, 2))
    weaker = about(ANNA, 2, 1, NONE)
    assert feed(order, weaker) == []
    order.lock(3, 1, vec[i64]([ANNA]), 1)
    earlier = about(ANNA, 3, 1, TOTAL, ((2, 1),))
    assert feed(order, earlier, weaker) == []
    assert feed(order, about(ANNA, 1, 1, TOTAL, ((3, 1),))) == [(2, 1), (3, 1), (1, 1)]


def test_late_word_of_an_earlier_grant_does_not_wait_for_a_publication_that_is_here() -> None:
    order = locked((ANNA, 1, 1, 9))
    assert feed(order, about(ANNA, 1, 1, TOTAL, ((2, 1),))) == []
    order.lock(1, 1, vec[i64]([ANNA]), 3)
    assert feed(order, about(ANNA, 3, 1, FIFO), about(BEN, 2, 1, FIFO)) == [(2, 1), (1, 1), (3, 1)]
    assert order.open_locks() == 0


def test_a_publisher_is_before_its_own_total_publication_or_after_it_by_its_numbers() -> None:
    order = locked((ANNA, 1, 2, 1))
    assert feed(order, about(ANNA, 1, 3, NONE)) == []
    assert feed(order, about(ANNA, 1, 1, NONE)) == [(1, 1)]
    assert feed(order, about(ANNA, 1, 2, TOTAL)) == [(1, 2), (1, 3)]


def test_a_total_publication_names_what_others_had_when_they_closed_and_all_that_was_seen() -> None:
    """Also what is here and waits: its publisher may have left, and nobody asks it any more."""
    order = TotalOrder(0)
    feed(order, about(ANNA, 1, 1, FIFO), about(ANNA, 2, 3, FIFO))
    assert order.waiting() == 1
    closed = vec[i64]([publication_key(0, 9), publication_key(1, 4), publication_key(3, 2)])
    named = [publication_key(1, 4), publication_key(2, 3), publication_key(3, 2)]
    assert list(order.everything_before(closed)) == named


def test_a_newcomer_forgets_locks_of_what_is_past() -> None:
    order = locked((ANNA, 1, 1, 1), (BEN, 2, 1, 2))
    order.start_from(vec[i64]([publication_key(1, 1)]))
    assert order.open_locks() == 1
    assert feed(order, about(ANNA, 3, 1, NONE)) == [(3, 1)]


def test_an_own_total_publication_is_not_listed_by_those_that_follow() -> None:
    order = locked((ANNA, 0, 1, 1))
    assert feed(order, about(ANNA, 1, 1, CAUSAL)) == []
    assert feed(order, about(ANNA, 0, 1, TOTAL, ((1, 1),))) == [(1, 1), (0, 1)]
    assert list(order.stamp(2, CAUSAL)) == []


def test_what_two_parts_began_without_knowing_of_each_other_goes_by_the_lowest_place() -> None:
    """1 wrote about Ben and then, in total order, about Anna; 2 the other way round, in another part of the system."""
    order = locked((ANNA, 1, 2, 5), (BEN, 2, 2, 9))
    first = about(BEN, 1, 1, FIFO), about(ANNA, 1, 2, TOTAL)
    second = about(ANNA, 2, 1, FIFO), about(BEN, 2, 2, TOTAL)
    assert feed(order, *second, *first) == []
    assert [(one.source, one.sequence) for one in order.break_circle()] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert order.waiting() == 0 and order.open_locks() == 0


def test_there_is_no_circle_while_something_is_missing() -> None:
    order = locked((ANNA, 1, 2, 5), (BEN, 2, 2, 9))
    assert feed(order, about(ANNA, 2, 1, FIFO), about(BEN, 2, 2, TOTAL), about(BEN, 1, 1, FIFO)) == []
    assert order.break_circle() == [], "the total publication about Anna has not come"
    order = locked((ANNA, 1, 2, 5))
    assert feed(order, about(ANNA, 2, 1, FIFO), about(ANNA, 1, 2, TOTAL)) == []
    assert order.break_circle() == [], "the first of 1 has not come"
    assert feed(order, about(BEN, 1, 1, FIFO)) == [(1, 1), (1, 2), (2, 1)]
