"""The rate at which schedules fail, with an exact interval (Clopper and Pearson 1934).

The interval holds for any number of failures, including none. It assumes only that schedules are drawn independently,
so it is meant for seeds that were never run before. Without failures the bound is one-sided: the largest rate at which
5 of 100 such campaigns would still see no failure, which is 3.0 divided by the number of schedules.
"""

from __future__ import annotations

import math
from typing import Any

CONFIDENCE = 0.95
TWO_SIDED = "two-sided 95 %"
ONE_SIDED = "one-sided 95 %"

HALVINGS = 200
"""Enough halvings to find a probability to the last digit."""

MOST_TERMS = 100_000
SMALLEST = 1e-300


def failure_rate(failures: int, schedules: int) -> dict[str, Any]:
    """The rate with its interval, and the kind of interval."""
    if schedules == 0:
        return {"rate": None, "low": 0.0, "high": 1.0, "interval": ONE_SIDED}
    low, high = clopper_pearson(failures, schedules)
    if failures == 0:
        return {"rate": 0.0, "low": 0.0, "high": upper_bound(0, schedules), "interval": ONE_SIDED}
    return {"rate": failures / schedules, "low": low, "high": high, "interval": TWO_SIDED}


def rate_text(failures: int, schedules: int) -> str:
    """The rate as text: one failure in so many schedules."""
    found = failure_rate(failures, schedules)
    if failures == 0:
        return f"0 of {schedules:,} schedules, below {found['high']:.2g} ({found['interval']})"
    interval = f"{found['low']:.2g} to {found['high']:.2g}"
    return f"{failures:,} of {schedules:,} schedules, {found['rate']:.2g} ({found['interval']}: {interval})"


def clopper_pearson(failures: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The two-sided interval of a probability that was observed ``failures`` times in ``trials``."""
    tail = (1 - confidence) / 2
    low = 0.0 if failures == 0 else 1 - solve(trials - failures, trials, tail)
    high = 1.0 if failures == trials else solve(failures, trials, tail)
    return low, high


def upper_bound(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided upper bound of a probability that was observed ``failures`` times in ``trials``."""
    return 1.0 if failures == trials else solve(failures, trials, 1 - confidence)


def solve(most: int, trials: int, tail: float) -> float:
    """The success probability at which ``most`` or fewer successes have the probability ``tail``."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if at_most(most, trials, middle) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def at_most(most: int, trials: int, probability: float) -> float:
    """The probability of ``most`` or fewer successes, by the binomial distribution."""
    return incomplete_beta(trials - most, most + 1, 1 - probability)


def incomplete_beta(first: float, second: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (first + 1) / (first + second + 2):
        return 1 - incomplete_beta(second, first, 1 - x)
    scale = math.lgamma(first + second) - math.lgamma(first) - math.lgamma(second)
    front = math.exp(scale + first * math.log(x) + second * math.log1p(-x)) / first
    return front * continued_fraction(first, second, x)


def continued_fraction(first: float, second: float, x: float) -> float:
    """The continued fraction in the incomplete beta function, evaluated until it converges (Lentz)."""
    numerator, denominator = 1.0, 1 / away_from_zero(1 - (first + second) * x / (first + 1))
    value = denominator
    for term in range(1, MOST_TERMS):
        even = term * (second - term) * x / ((first + 2 * term - 1) * (first + 2 * term))
        odd = -(first + term) * (first + second + term) * x / ((first + 2 * term) * (first + 2 * term + 1))
        change = 1.0
        for coefficient in (even, odd):
            denominator = 1 / away_from_zero(1 + coefficient * denominator)
            numerator = away_from_zero(1 + coefficient / numerator)
            change = numerator * denominator
            value *= change
        if abs(change - 1) < 1e-15:
            break
    return value


def away_from_zero(value: float) -> float:
    """The value, or the smallest number that can be a divisor instead of zero."""
    return value if abs(value) > SMALLEST else SMALLEST


def wilson(successes: int, trials: int, deviations: float = 1.96) -> tuple[float, float]:
    """The interval of a probability that was observed ``successes`` times in ``trials`` (Wilson 1927)."""
    share = successes / trials
    square = deviations * deviations / trials
    middle = (share + square / 2) / (1 + square)
    half = deviations / (1 + square) * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)
