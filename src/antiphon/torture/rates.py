"""How often schedules fail, as a rate with an exact interval (Clopper and Pearson 1934).

The interval holds for any number of failures, none included, and assumes nothing but that schedules are drawn
independently: it is for seeds that nobody has run before. Where nothing failed the bound is one-sided: the largest rate
under which as many schedules would survive in 5 campaigns of 100, which is 3.0 divided by their number.
"""

from __future__ import annotations

import math
from typing import Any

CONFIDENCE = 0.95
TWO_SIDED = "two-sided 95 %"
ONE_SIDED = "one-sided 95 %"

HALVINGS = 200
"""More than enough to find a probability to the last digit."""

MOST_TERMS = 100_000
SMALLEST = 1e-300


def failure_rate(failures: int, schedules: int) -> dict[str, Any]:
    """The rate with its interval, and which kind of interval it is."""
    if schedules == 0:
        return {"rate": None, "low": 0.0, "high": 1.0, "interval": ONE_SIDED}
    low, high = clopper_pearson(failures, schedules)
    if failures == 0:
        return {"rate": 0.0, "low": 0.0, "high": upper_bound(0, schedules), "interval": ONE_SIDED}
    return {"rate": failures / schedules, "low": low, "high": high, "interval": TWO_SIDED}


def rate_text(failures: int, schedules: int) -> str:
    """The same for people, as one failure in so many schedules."""
    found = failure_rate(failures, schedules)
    if failures == 0:
        return f"0 of {schedules:,} schedules, below {found['high']:.2g} ({found['interval']})"
    interval = f"{found['low']:.2g} to {found['high']:.2g}"
    return f"{failures:,} of {schedules:,} schedules, {found['rate']:.2g} ({found['interval']}: {interval})"


def clopper_pearson(failures: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The two-sided interval in which a probability lies, by how often it came true."""
    tail = (1 - confidence) / 2
    low = 0.0 if failures == 0 else 1 - solve(trials - failures, trials, tail)
    high = 1.0 if failures == trials else solve(failures, trials, tail)
    return low, high


def upper_bound(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided bound below which a probability lies."""
    return 1.0 if failures == trials else solve(failures, trials, 1 - confidence)


def solve(most: int, trials: int, tail: float) -> float:
    """The probability under which so many successes or fewer have the probability ``tail``."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if at_most(most, trials, middle) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def at_most(most: int, trials: int, probability: float) -> float:
    """How likely so many successes or fewer are, by the binomial distribution."""
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
    """The fraction in the incomplete beta function, from its front to where it changes no more (Lentz)."""
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
    """The same, or what can be divided by."""
    return value if abs(value) > SMALLEST else SMALLEST
