"""Fitted power laws, and what distributions say (section 3.3.2 of the thesis of M. Matos)."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon_lab.universes.fits import Distribution, distribution_of, zeta
from antiphon_lab.universes.law import power_law


def test_the_sum_of_powers_is_that_of_hurwitz() -> None:
    assert float(zeta(2.0, 1.0)) == pytest.approx(np.pi**2 / 6, rel=1e-9)
    assert float(zeta(4.0, 1.0)) == pytest.approx(np.pi**4 / 90, rel=1e-9)
    assert float(zeta(2.5, 7.0)) == pytest.approx(float(zeta(2.5, 8.0)) + 7.0**-2.5, rel=1e-9)


@pytest.mark.parametrize("exponent", [1.8, 2.5, 3.2])
def test_an_exponent_that_was_put_in_comes_out(exponent: float) -> None:
    """Whole numbers of a power law, drawn by inverting its sums; the beginning of the tail is found too."""
    values = np.arange(5, 20_000)
    chances = values**-exponent / (values**-exponent).sum()
    drawn = np.random.default_rng(4).choice(values, 20_000, p=chances)
    below = np.random.default_rng(5).integers(1, 5, 4000)
    fit = distribution_of(np.concatenate((drawn, below))).fit()
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=0.05)
    assert fit.least <= 8
    assert fit.distance < 0.02


def test_what_is_no_power_law_is_far_from_one() -> None:
    fit = distribution_of(np.random.default_rng(1).poisson(100, 5000)).fit(least=60)
    assert fit is not None
    assert fit.distance > 0.2


def test_a_distribution_in_a_few_numbers() -> None:
    one = distribution_of(np.array([1, 1, 1, 0, 2, 2, 1, 1, 1, 1, 19]))
    assert (one.total, one.mean, one.median, one.largest) == (10, 3.0, 1, 19)
    assert one.share_below_mean == 0.9
    assert one.top_share == pytest.approx(19 / 30)
    assert one.fit() is None, "ten values are too few"


def test_equal_values_have_no_exponent() -> None:
    assert Distribution(np.array([4]), np.array([1000])).fit() is None


def test_numbers_of_a_power_law_stay_within_their_bounds() -> None:
    drawn = power_law(np.array([0.0, 0.5, 0.999999]), 30.0, 2.0, 900.0)
    assert drawn.tolist() == [30.0, 60.0, 900.0]
