"""From values to places on paper, and which values get a tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10

from antiphon_lab.reproduction.figures import Axis, Scale

NARROW_SPACE = "\u202f"


def transformed(scale: Scale, value: float) -> float:
    """A value as its axis counts; on a logarithmic axis it must be positive."""
    if scale == "linear":
        return value
    return log2(value) if scale == "log2" else log10(value)


@dataclass(frozen=True)
class Ruler:
    """An axis of known range, from ``start`` to ``end`` on paper."""

    scale: Scale
    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """The position of a value; values beyond the range are at its border."""
        low, high = (transformed(self.scale, border) for border in (self.low, self.high))
        if self.scale != "linear" and value <= 0:
            return self.start
        share = (transformed(self.scale, value) - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Round values within the range, at most about so many."""
        if self.scale == "linear":
            return linear_ticks(self.low, self.high, most)
        if self.scale == "log2":
            powers = range(ceil(log2(self.low) - 1e-9), floor(log2(self.high) + 1e-9) + 1)
            step = max(1, ceil(len(powers) / most))
            return [2.0**power for power in powers[::step]]
        return decimal_ticks(self.low, self.high, most)


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    step = nice_step((high - low) / max(1, most))
    return [number * step for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def nice_step(least: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def decimal_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten; where these are few, also 2 and 5 times them."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            return ticks
    return ticks[:: ceil(len(ticks) / most)]


def ruler_of(axis: Axis, values: Sequence[float], start: float, end: float, from_zero: bool) -> Ruler:
    """An axis wide enough for all values; ``from_zero`` where lengths are compared and not only places."""
    if axis.scale != "linear":
        positive = [value for value in values if value > 0] or [1.0]
        low, high = min(positive), max(positive)
        if axis.scale == "log2":
            return Ruler(axis.scale, low / 1.25, high * 1.25, start, end)
        # Bars need some length to be seen, so the smallest of them does not end where the axis begins.
        return Ruler(axis.scale, low / (2 if from_zero else 1.3), high * 1.3, start, end)
    low, high = min(values, default=0.0), max(values, default=1.0)
    if from_zero or 0 <= low < 0.4 * high:
        low, high = min(0.0, low), max(0.0, high)
    if low == high:
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    margin = 0.06 * (high - low)
    # Zero is a border of its own; everything else has some air.
    return Ruler(axis.scale, low and low - margin, high and high + margin, start, end)


def tick_text(value: float) -> str:
    """A round number as people write it, with narrow spaces between thousands."""
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"
    return text.replace(",", NARROW_SPACE).replace("-", "\u2212")
