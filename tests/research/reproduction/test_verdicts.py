"""The five verdicts: each definition, and what no verdict may accept."""

from __future__ import annotations

from math import inf, nan

import pytest

from antiphon_lab.reproduction.documents import Interval, Number
from antiphon_lab.reproduction.verdicts import (
    DERIVED,
    DIFFERS,
    FITTED,
    REFUTED,
    REPRODUCED,
    Derived,
    Fitted,
    Refutation,
    accepted,
    half_width,
    verdict_on,
)

TENTH = Interval("a test", relative=0.1)
ABOVE, BELOW = Interval("a test", side="above"), Interval("a test", side="below")
CHECK = Refutation("a statement", "a check", True, 5, 10)


def number(value: float, interval: Interval = TENTH) -> Number:
    return Number(value, "ticks", "somewhere", "a sentence", interval)


def verdict(published: Number, *values: float, refutation: Refutation | None = None) -> str | None:
    return verdict_on(published, values, None, refutation)


def test_the_confidence_interval_is_that_of_student() -> None:
    assert half_width((4.0,)) is None
    assert half_width((4.0, 4.0)) == 0
    assert half_width((1.0, 2.0, 3.0)) == pytest.approx(4.303 / 3**0.5)
    assert half_width(tuple(range(100))) == pytest.approx(2 * 29.011491 / 10)


def test_reproduced_is_inside_the_interval_of_the_document() -> None:
    assert verdict(number(100), 109, 109, 109) == REPRODUCED
    assert verdict(number(100), 111, 111, 111) == DIFFERS


def test_the_spread_widens_the_interval_by_a_quarter_at_most() -> None:
    assert accepted(number(100), (111, 112, 113)) == pytest.approx((90 - 2.48434, 110 + 2.48434))
    assert verdict(number(100), 111, 112, 113) == REPRODUCED
    assert accepted(number(100), (0, 100, 200)) == pytest.approx((65, 135))


def test_no_spread_lets_half_or_twice_the_value_in() -> None:
    one_run = number(19, Interval("one run", deviations=2.5))
    low, high = accepted(one_run, (0, 38, 76))
    assert 9.5 < low < 9.6 and 37.9 < high < 38
    assert verdict(one_run, 0, 38, 76) == DIFFERS
    assert verdict(number(-100), -111, -112, -113) == REPRODUCED
    assert verdict(number(-100), 100, 100, 100) == DIFFERS


def test_nothing_widens_an_interval_around_zero() -> None:
    assert verdict(number(0, Interval("none", absolute=0)), 0, 0, 3) == DIFFERS
    assert verdict(number(0, Interval("none", absolute=0)), 0, 0, 0) == REPRODUCED


def test_a_direction_needs_every_repetition_or_the_whole_confidence_interval_on_its_side() -> None:
    assert verdict(number(1, ABOVE), 1.1, 1.2, 9.0) == REPRODUCED
    assert verdict(number(1, ABOVE), 0.9, 1.2, 1.3) == DIFFERS
    assert verdict(number(1, ABOVE), *(1.5,) * 30, 0.9) == REPRODUCED
    assert verdict(number(1, ABOVE), 1.3, 1.31, 1.32) == REPRODUCED
    assert verdict(number(1, ABOVE), 1, 1, 1) == DIFFERS
    assert verdict(number(1, BELOW), 0.9, 0.91, 0.92) == REPRODUCED
    assert verdict(number(1, BELOW), 1.1, 1.1, 1.1) == DIFFERS
    assert verdict(number(1, BELOW), 0, 0, 0) == DIFFERS


def test_fewer_than_three_repetitions_get_no_verdict_unless_it_follows_by_counting() -> None:
    assert verdict(number(100), 100, 100) is None
    assert verdict(number(100), 500) is None
    assert verdict_on(number(100), (100,), Fitted("a", "b"), None) is None
    assert verdict_on(number(100), (100,), Derived("counting"), None) == DERIVED
    assert verdict_on(number(100), (500,), Derived("counting"), None) == DIFFERS


def test_what_was_chosen_or_follows_is_no_evidence_and_can_fail() -> None:
    assert verdict_on(number(100), (101,) * 3, Fitted("a window", "the rest"), None) == FITTED
    assert verdict_on(number(100), (150,) * 3, Fitted("a window", "the rest"), None) == DIFFERS
    assert verdict_on(number(100), (101,) * 3, Derived("inputs"), None) == DERIVED


def test_refuted_needs_the_check_to_hold_and_the_value_to_be_where_it_says() -> None:
    assert verdict(number(100), 7, 7, 7, refutation=CHECK) == REFUTED
    assert verdict(number(100), 0, 0, 0, refutation=CHECK) == DIFFERS
    assert verdict(number(100), 11, 11, 11, refutation=CHECK) == DIFFERS
    assert verdict(number(100), 101, 101, 101, refutation=CHECK) == REPRODUCED
    failed = Refutation("a statement", "a check", False, 5, 10)
    assert verdict(number(100), 7, 7, 7, refutation=failed) == DIFFERS


def test_what_is_no_number_differs() -> None:
    for odd in (nan, inf, -inf):
        assert verdict(number(100), odd, 100, 100) == DIFFERS
        assert verdict(number(1, ABOVE), odd, 2, 2) == DIFFERS


def test_reasons_say_what_they_rest_on() -> None:
    assert (
        str(Fitted("a window", "the rest"))
        == "a window, chosen with this number in sight; the same choice predicts the rest"
    )
    assert str(Derived("counting")) == "follows from counting"
    assert str(CHECK) == "a statement is inconsistent: a check (expected 5 to 10)"
