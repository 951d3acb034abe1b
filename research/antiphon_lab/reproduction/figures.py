"""Figures as plain data: axes, measured and published series of points, independent of how they are drawn.

An experiment yields figures beside its rows, with the axes and series of the published ones. ``system`` of a series
decides its colour, the same in all figures; ``variant`` its line or shade among the series of one system. A published
series has the system and variant of the measured one that it is to be seen beside. Its points come from ``published/``
alone: a value that a document shows only in a plot without readable values is not in there, and so not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from antiphon_lab.reproduction.documents import Number

Scale = Literal["linear", "log2", "log10"]
Kind = Literal["line", "steps", "bars", "points"]
Limit = Literal["upper", "lower"]


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One axis. With ``categories`` positions are 0, 1, 2, ... and these are their names."""

    label: str
    unit: str = ""
    scale: Scale = "linear"
    categories: tuple[str, ...] = ()

    def title(self) -> str:
        """The title of the axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One point; ``low`` and ``high`` say how far repetitions scatter, ``limit`` that a document gives only a bound.

    ``label`` names a point where the series does not say enough.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    limit: Limit | None = None
    label: str = ""


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Points that belong together."""

    name: str
    system: str
    points: tuple[Point, ...]
    kind: Kind = "line"
    variant: int = 0
    published: bool = False


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that a document states without a point to put it at: a line across the figure, or a band up to ``to``."""

    axis: Literal["x", "y"]
    value: float
    label: str
    to: float | None = None


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One picture. ``name`` is unique in its experiment and fit for a file."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    caption: str = ""


NODES = Axis("number of nodes", scale="log2")
"""The axis of most figures."""


def published_point(x: float, number: Number, sign: int = 1) -> Point:
    """A published number at its place; ``sign`` is -1 where a figure shows a decrease as a negative increase."""
    limit = limit_of(number)
    if limit is not None and sign < 0:
        limit = "lower" if limit == "upper" else "upper"
    return Point(x, sign * number.value, limit=limit)


def limit_of(number: Number) -> Limit | None:
    """Whether a document gives a value, or only the most or the least of it."""
    low, high = number.interval.ends(number.value)
    if number.interval.low is not None and number.value in (low, high):
        return "upper" if number.value == high else "lower"
    return {"above": "lower", "below": "upper", None: None}[number.interval.side]


def published_series(
    name: str, system: str, points: Sequence[Point], variant: int = 0, kind: Kind = "points"
) -> tuple[Series, ...]:
    """The published points beside one measured series; empty where there is none."""
    if not points:
        return ()
    return (Series(f"{name}, published", system, tuple(points), kind, variant, published=True),)
