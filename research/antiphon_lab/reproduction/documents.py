"""The published numbers as data, each with its place, its sentence and a tolerance.

One TOML file per document is in ``published/``. Experiments take their numbers from here and never hold copies, so each
comparison can be checked against the document without reading code.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec


class Tolerance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How near a measured value must be to count as reproduced; exactly one of the four is given.

    ``limit`` is for an upper or lower bound of a document instead of a value.
    """

    relative: float | None = None
    absolute: float | None = None
    deviations: float | None = None
    limit: Literal["upper", "lower"] | None = None

    def __post_init__(self) -> None:
        given = [bound for bound in (self.relative, self.absolute, self.deviations) if bound is not None]
        if len(given) + (self.limit is not None) != 1 or min(given, default=0) < 0:
            raise ValueError("a tolerance is one of relative, absolute or deviations, and not negative, or a limit")

    def allows(self, published: float, measured: float, deviation: float | None) -> bool:
        """Whether the difference is small enough; ``deviation`` is that between repetitions, None after only one."""
        if self.limit is not None:
            return measured <= published if self.limit == "upper" else measured >= published
        difference = abs(measured - published)
        if self.relative is not None:
            return difference <= self.relative * abs(published)
        if self.absolute is not None:
            return difference <= self.absolute
        assert self.deviations is not None, "one of the four is given"
        return difference <= self.deviations * (deviation or 0.0)

    def __str__(self) -> str:
        if self.relative is not None:
            return f"±{100 * self.relative:g} % of the published value"
        if self.absolute is not None:
            return f"±{self.absolute:g}" if self.absolute > 0 else "exact"
        if self.limit is not None:
            return "at most the published value" if self.limit == "upper" else "at least the published value"
        return f"±{self.deviations:g} standard deviations between repetitions"


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published number: ``where`` names its place in the document, ``says`` is its sentence."""

    value: float
    unit: str
    where: str
    says: str
    tolerance: Tolerance


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column of a published table."""

    values: tuple[float, ...]
    tolerance: Tolerance


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published table, valid for a system of ``nodes`` nodes."""

    where: str
    unit: str
    nodes: int
    rows: tuple[str, ...]
    columns: dict[str, Column]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column.values) != len(self.rows):
                raise ValueError(f"column {name!r} has {len(column.values)} values for {len(self.rows)} rows")

    def number(self, column: str, row: int) -> Number:
        """One cell as a number."""
        chosen = self.columns[column]
        says = f"{column}, row {self.rows[row]}"
        return Number(chosen.values[row], self.unit, self.where, says, chosen.tolerance)


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
    return msgspec.toml.decode(files("antiphon_lab").joinpath("published", f"{name}.toml").read_bytes(), type=Document)
