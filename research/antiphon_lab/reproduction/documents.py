"""The published numbers as data, each with its place, its sentence and the interval that agrees with it.

One TOML file per document is in ``published/``. Experiments take their numbers from here and never hold copies, so each
comparison can be checked against the document without reading code.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from math import inf
from typing import Literal

import msgspec


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measured values that agree with a published number, and the reason for it.

    Exactly one form is given. ``relative`` and ``absolute`` are distances from the published value. ``low`` with
    ``high`` are the ends themselves. ``deviations`` is a multiple of the standard deviation between repetitions, for a
    number that a document took from a single run. ``side`` is for a statement of direction: the published value is a
    border, such as 1 for "A takes longer than B", and every repetition, or all of their confidence interval, lies on
    that side.
    """

    because: str
    relative: float | None = None
    absolute: float | None = None
    low: float | None = None
    high: float | None = None
    deviations: float | None = None
    side: Literal["above", "below"] | None = None

    def __post_init__(self) -> None:
        ends = (self.low is not None) + (self.high is not None)
        forms = [self.relative, self.absolute, self.deviations, self.side, True if ends == 2 else None]
        distances = [form for form in (self.relative, self.absolute, self.deviations) if form is not None]
        if ends == 1 or sum(form is not None for form in forms) != 1 or min(distances, default=0) < 0:
            raise ValueError("an interval is one of relative, absolute, deviations, low with high, or a side")
        if not self.because.strip():
            raise ValueError("an interval needs a reason; say it in because")

    def ends(self, published: float, deviation: float | None = None) -> tuple[float, float]:
        """The ends of the interval; ``deviation`` is that between repetitions."""
        if self.side is not None:
            # Ratios and times are positive: nothing at all is not less of something.
            return (published, inf) if self.side == "above" else (0.0 if published > 0 else -inf, published)
        if self.low is not None and self.high is not None:
            return self.low, self.high
        distance = (
            self.relative * abs(published)
            if self.relative is not None
            else self.absolute
            if self.absolute is not None
            else (self.deviations or 0.0) * (deviation or 0.0)
        )
        return published - distance, published + distance

    def __str__(self) -> str:
        if self.relative is not None:
            return f"±{100 * self.relative:g} %: {self.because}"
        if self.absolute is not None:
            return f"{f'±{self.absolute:g}' if self.absolute > 0 else 'exact'}: {self.because}"
        if self.side is not None:
            return f"{self.side} the published border: {self.because}"
        if self.deviations is not None:
            return f"±{self.deviations:g} standard deviations between repetitions: {self.because}"
        return f"{self.low:g} to {self.high:g}: {self.because}"


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published number: ``where`` names its place in the document, ``says`` is its sentence.

    ``unmeasured`` says why no experiment compares it. ``key`` is document and name, such as ``thesis:fig-3.1/vector``.
    """

    value: float
    unit: str
    where: str
    says: str
    interval: Interval
    unmeasured: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        low, high = self.interval.ends(self.value)
        if self.interval.side is None and not low <= self.value <= high:
            raise ValueError(f"the interval {low:g} to {high:g} does not hold the published {self.value:g}")
        half, twice = sorted((self.value / 2, self.value * 2))
        if self.interval.side is None and self.value != 0 and (low <= half or high >= twice):
            raise ValueError(
                f"the interval {low:g} to {high:g} admits half or twice the published {self.value:g}; narrow it, or "
                "state the border and the side of a mere direction"
            )


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column of a published table. ``intervals`` are those of rows that differ from ``interval``.

    ``unmeasured`` says of rows why no experiment compares them.
    """

    values: tuple[float, ...]
    interval: Interval
    intervals: dict[str, Interval] = {}
    unmeasured: dict[str, str] = {}


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published table, valid for a system of ``nodes`` nodes."""

    where: str
    unit: str
    nodes: int
    rows: tuple[str, ...]
    columns: dict[str, Column]
    unmeasured: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column.values) != len(self.rows):
                raise ValueError(f"column {name!r} has {len(column.values)} values for {len(self.rows)} rows")
            unknown = [row for row in (*column.intervals, *column.unmeasured) if row not in self.rows]
            if unknown:
                raise ValueError(f"column {name!r} speaks of {unknown[0]!r}, which is no row")

    def number(self, column: str, row: int) -> Number:
        """One cell as a number."""
        chosen = self.columns[column]
        says = f"{column}, row {self.rows[row]}"
        name = self.rows[row]
        interval = chosen.intervals.get(name, chosen.interval)
        key = f"{self.key}/{column}/{name}"
        reason = self.unmeasured or chosen.unmeasured.get(name, "")
        return Number(chosen.values[row], self.unit, self.where, says, interval, reason, key)

    def numbers(self) -> Iterator[Number]:
        """All cells."""
        for column in self.columns:
            for row in range(len(self.rows)):
                yield self.number(column, row)


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document and its published numbers, by names that begin with the figure or table."""

    title: str
    authors: str
    year: int
    numbers: dict[str, Number] = {}
    tables: dict[str, Table] = {}


@cache
def document(name: str) -> Document:
    """The document of this name, such as ``thesis``."""
    read = msgspec.toml.decode(files("antiphon_lab").joinpath("published", f"{name}.toml").read_bytes(), type=Document)
    return msgspec.structs.replace(
        read,
        numbers={key: msgspec.structs.replace(one, key=f"{name}:{key}") for key, one in read.numbers.items()},
        tables={key: msgspec.structs.replace(one, key=f"{name}:{key}") for key, one in read.tables.items()},
    )


def document_names() -> list[str]:
    """The names of all documents."""
    found = (entry.name for entry in files("antiphon_lab").joinpath("published").iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))
