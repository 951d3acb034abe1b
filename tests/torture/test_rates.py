"""Rates of failures and their exact intervals."""

from __future__ import annotations

import math

import pytest

from antiphon.torture.rates import ONE_SIDED, TWO_SIDED, clopper_pearson, failure_rate, rate_text, upper_bound


@pytest.mark.parametrize("trials", [1, 10, 5000, 60_000, 200_000])
def test_where_nothing_fails_the_bound_is_three_in_so_many(trials: int) -> None:
    assert upper_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-9)
    assert clopper_pearson(0, trials)[1] == pytest.approx(1 - 0.025 ** (1 / trials), rel=1e-9)
    found = failure_rate(0, trials)
    assert (found["rate"], found["low"], found["interval"]) == (0.0, 0.0, ONE_SIDED)
    assert found["high"] <= 3.0 / trials


def test_sixty_thousand_without_a_failure_show_less_than_one_in_twenty_thousand() -> None:
    assert failure_rate(0, 60_000)["high"] < 1 / 20_000


def test_intervals_are_those_of_tables() -> None:
    """Of 20 trials with 5 and of 10 with 1, as tables of the interval have them."""
    assert clopper_pearson(5, 20) == pytest.approx((0.0866, 0.4910), abs=5e-5)
    assert clopper_pearson(1, 10) == pytest.approx((0.0025, 0.4450), abs=5e-5)
    assert clopper_pearson(10, 10) == pytest.approx((0.025**0.1, 1.0))


@pytest.mark.parametrize(("failures", "trials"), [(1, 7), (3, 40), (39, 40)])
def test_an_interval_ends_where_the_tails_are_small(failures: int, trials: int) -> None:
    def tail(counts: range, probability: float) -> float:
        return sum(math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in counts)

    low, high = clopper_pearson(failures, trials)
    assert tail(range(failures, trials + 1), low) == pytest.approx(0.025, rel=1e-6)
    assert tail(range(failures + 1), high) == pytest.approx(0.025, rel=1e-6)


def test_people_read_which_interval_it_is() -> None:
    assert rate_text(0, 60_000) == "0 of 60,000 schedules, below 5e-05 (one-sided 95 %)"
    assert rate_text(3, 5000) == "3 of 5,000 schedules, 0.0006 (two-sided 95 %: 0.00012 to 0.0018)"
    assert failure_rate(3, 5000)["interval"] == TWO_SIDED
    assert failure_rate(0, 0) == {"rate": None, "low": 0.0, "high": 1.0, "interval": ONE_SIDED}
