"""Five verdicts on a measured value beside a published one, each with a definition that this module checks.

``reproduced``
    The measured mean lies in the interval that the document justifies, widened by the 95 % confidence interval of the
    mean over the repetitions. A statement of direction is reproduced if every repetition is on its side, or all of that
    confidence interval.
``fitted``
    The same, but a free parameter was chosen with this number in sight: no evidence. :class:`Fitted` names the
    parameter, and what else the choice predicts.
``derived``
    The same, but the number follows from inputs or by counting: no evidence either. A promise that must hold, such as
    no violation of order, is of this kind.
``refuted``
    The measured mean is outside, and a check that ran shows which statement of the document is inconsistent. The mean
    must also lie where the check expects it, so that nonsense is not refuted but differs.
``differs``
    Outside, and not understood.

The spread widens an interval by a quarter of the published value at most, and no interval reaches half or twice that
value. Fewer than :data:`LEAST_REPETITIONS` repetitions get no verdict, except what is derived: counting does not
scatter.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon_lab.reproduction.documents import Number

REPRODUCED = "reproduced"
FITTED = "fitted"
DERIVED = "derived"
REFUTED = "refuted"
DIFFERS = "differs"
VERDICTS = (REPRODUCED, FITTED, DERIVED, REFUTED, DIFFERS)

LEAST_REPETITIONS = 3
"""With fewer repetitions nothing is known about how they scatter."""

STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
STUDENT_AT_LEAST = 2.0
"""Student's t for 95 % and 1, 2, 3, ... degrees of freedom; beyond, two is near enough."""

MOST_WIDENING = 0.25
"""How much the spread may widen an interval, relative to the published value: what scatters more needs repetitions."""

CLOSE, INSIDE = 1e-9, 1e-6
"""Rounding of the arithmetic, and how far an end stays from half and twice the published value; relative."""


@dataclass(frozen=True)
class Fitted:
    """A free parameter that was chosen with the published number in sight, and what else that choice predicts."""

    parameter: str
    predicts: str

    def __str__(self) -> str:
        return f"{self.parameter}, chosen with this number in sight; the same choice predicts {self.predicts}"


@dataclass(frozen=True)
class Derived:
    """The inputs or the counting from which a number follows."""

    source: str

    def __str__(self) -> str:
        return f"follows from {self.source}"


@dataclass(frozen=True)
class Refutation:
    """A check that shows which statement of a document is inconsistent.

    ``holds`` is the outcome of the check. ``low`` and ``high`` are where the measured value then has to be.
    """

    statement: str
    check: str
    holds: bool
    low: float
    high: float

    def explains(self, measured: float) -> bool:
        """Whether the check holds and the measured value is where it has to be."""
        return self.holds and self.low <= measured <= self.high

    def __str__(self) -> str:
        return f"{self.statement} is inconsistent: {self.check} (expected {self.low:.4g} to {self.high:.4g})"


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean; None after only one repetition."""
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    factor = STUDENT[freedom - 1] if freedom <= len(STUDENT) else STUDENT_AT_LEAST
    return factor * statistics.stdev(values) / math.sqrt(len(values))


def accepted(number: Number, values: Sequence[float]) -> tuple[float, float]:
    """The interval that a measured mean must lie in: that of the document, widened by the spread of the repetitions."""
    half = half_width(values) or 0.0
    deviation = statistics.stdev(values) if len(values) > 1 else None
    low, high = number.interval.ends(number.value, deviation)
    if number.interval.side is not None or number.value == 0:
        return low, high
    size = abs(number.value)
    more = 0.0 if number.interval.deviations is not None else min(half, MOST_WIDENING * size)
    half_value, twice = sorted((number.value / 2, number.value * 2))
    return max(low - more, half_value + INSIDE * size), min(high + more, twice - INSIDE * size)


def agrees(number: Number, values: Sequence[float]) -> bool:
    """Whether the mean of the repetitions is in the interval."""
    low, high = accepted(number, values)
    mean = statistics.fmean(values)
    if number.interval.side is not None:
        half = half_width(values) or 0.0
        return all(low < value < high for value in values) or (low < mean - half and mean + half < high)
    slack = CLOSE * abs(number.value)
    return low - slack <= mean <= high + slack


def verdict_on(
    number: Number, values: Sequence[float], basis: Fitted | Derived | None, refutation: Refutation | None
) -> str | None:
    """The verdict on the repetitions of a measurement; None if there are too few of them."""
    if len(values) < LEAST_REPETITIONS and not isinstance(basis, Derived):
        return None
    if not all(math.isfinite(value) for value in values):
        return DIFFERS
    if agrees(number, values):
        return FITTED if isinstance(basis, Fitted) else DERIVED if isinstance(basis, Derived) else REPRODUCED
    explained = refutation is not None and refutation.explains(statistics.fmean(values))
    return REFUTED if explained else DIFFERS
