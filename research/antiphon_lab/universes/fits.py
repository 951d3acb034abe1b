"""Distributions of popularity and activity: how they are fitted by power laws, and how uneven they are.

A distribution is two arrays: values in ascending order, and how many have each. Fits are those of A. Clauset, C.
Shalizi and M. Newman (Power-law distributions in empirical data, 2009) for whole numbers: the exponent is the most
likely one, and the tail begins where the fit is closest.
"""

from __future__ import annotations

import msgspec
import numpy as np

from antiphon_lab.universes.law import Integers, Reals

LEAST_EXPONENT, MOST_EXPONENT = 1.01, 6.0
STEPS = 40
"""Of the search for the exponent; each makes the interval smaller by a third."""
ZETA_TERMS = 16
SMALLEST_TAIL = 50
"""With fewer values in it the beginning of a tail is luck."""
MOST_BEGINNINGS = 40
TOP_SHARE = 0.1


class Fit(msgspec.Struct, frozen=True):
    """A power law: values from ``least`` on are as frequent as ``value ** -exponent``."""

    exponent: float
    least: int
    distance: float
    """The largest difference between the shares of values that are no larger (Kolmogorov and Smirnov)."""
    tail: int
    """How many values the fit is made from."""


class Distribution(msgspec.Struct, frozen=True):
    """How many have how much."""

    values: Integers
    counts: Integers

    @property
    def total(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """The mean."""
        return float((self.values * self.counts).sum() / self.total)

    @property
    def largest(self) -> int:
        """The largest value."""
        return int(self.values[-1])

    @property
    def median(self) -> int:
        """The value in the middle; of two the smaller."""
        return int(self.values[np.searchsorted(np.cumsum(self.counts), (self.total + 1) // 2)])

    @property
    def share_below_mean(self) -> float:
        """The share of those that have less than the mean."""
        return float(self.counts[self.values < self.mean].sum() / self.total)

    @property
    def top_share(self) -> float:
        """The share of everything that the top tenth has."""
        from_top, sizes = self.counts[::-1], self.values[::-1]
        wanted = TOP_SHARE * self.total
        taken = np.minimum(np.cumsum(from_top), wanted)
        return float((np.diff(taken, prepend=0.0) * sizes).sum() / (self.values * self.counts).sum())

    def fit(self, least: int | None = None) -> Fit | None:
        """The power law that fits best, from ``least`` on or from where it fits best; none if there is too little."""
        if least is not None:
            return fitted(self, least)
        beginnings = self.values[np.cumsum(self.counts[::-1])[::-1] >= SMALLEST_TAIL]
        if len(beginnings) > MOST_BEGINNINGS:
            places = np.unique(np.geomspace(1, len(beginnings), MOST_BEGINNINGS).astype(np.int64)) - 1
            beginnings = beginnings[places]
        fits = [one for beginning in beginnings if (one := fitted(self, int(beginning))) is not None]
        return min(fits, key=lambda one: one.distance, default=None)


def distribution_of(amounts: Integers) -> Distribution:
    """The distribution of positive amounts; zeros are left out."""
    values, counts = np.unique(amounts[amounts > 0], return_counts=True)
    return Distribution(values.astype(np.int64), counts.astype(np.int64))


def fitted(distribution: Distribution, least: int) -> Fit | None:
    """The most likely power law for values from ``least`` on; none if all of them are the same."""
    tail = distribution.values >= least
    values, counts = distribution.values[tail].astype(np.float64), distribution.counts[tail]
    if len(values) < 2:
        return None
    total = int(counts.sum())
    mean_log = float((counts * np.log(values)).sum() / total)
    low, high = LEAST_EXPONENT, MOST_EXPONENT
    for _ in range(STEPS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if left * mean_log + np.log(zeta(left, least)) <= right * mean_log + np.log(zeta(right, least)):
            high = right
        else:
            low = left
    exponent = (low + high) / 2
    expected = 1.0 - zeta(exponent, values + 1.0) / zeta(exponent, least)
    distance = float(np.abs(np.cumsum(counts) / total - expected).max())
    return Fit(exponent, least, distance, total)


def zeta(exponent: float, first: Reals | float) -> Reals:
    """The sum of ``(first + i) ** -exponent`` for all ``i`` from 0 (Hurwitz): terms, the rest by Euler-Maclaurin."""
    start = np.asarray(first, np.float64)
    found: Reals = ((start[..., np.newaxis] + np.arange(ZETA_TERMS)) ** -exponent).sum(axis=-1)
    end = start + ZETA_TERMS
    found += end ** (1.0 - exponent) / (exponent - 1.0) + 0.5 * end**-exponent
    found += exponent / 12.0 * end ** (-exponent - 1.0)
    found -= exponent * (exponent + 1) * (exponent + 2) / 720.0 * end ** (-exponent - 3.0)
    return found
