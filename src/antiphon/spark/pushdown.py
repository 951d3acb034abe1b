"""Filters that the source applies itself in a batch query: on topics, partitions, offsets and times.

They narrow topics and ranges of logs before anything is read, and nodes skip batches of other times. Spark does not
check a filter again that is applied exactly in this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from antiphon.spark.plan import Piece

NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "publisher", "sequence", "order"})

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NAME_TESTS: Final[dict[type[Filter], Callable[[str, Any], bool]]] = {
    EqualTo: lambda name, value: name == value,
    EqualNullSafe: lambda name, value: name == value,
    In: lambda name, values: name in values,
    StringStartsWith: lambda name, value: name.startswith(value),
    StringEndsWith: lambda name, value: name.endswith(value),
    StringContains: lambda name, value: value in name,
}


@dataclass
class NumberRange:
    """Integers from the first to below the end."""

    first: int = 0
    end: int | None = None

    def narrow(self, wanted: Filter, number_of: Callable[[Any], int | None]) -> bool:
        """Apply a comparison; whether it is applied completely."""
        value = None if isinstance(wanted, In) else number_of(getattr(wanted, "value", None))
        if isinstance(wanted, In):
            values = [number_of(each) for each in wanted.value]
            known = [each for each in values if each is not None]
            if known:
                self._between(min(known), max(known) + 1)
            return False
        if value is None:
            return False
        if isinstance(wanted, (EqualTo, EqualNullSafe)):
            self._between(value, value + 1)
        elif isinstance(wanted, GreaterThanOrEqual):
            self._between(value, None)
        elif isinstance(wanted, GreaterThan):
            self._between(value + 1, None)
        elif isinstance(wanted, LessThan):
            self._between(0, value)
        elif isinstance(wanted, LessThanOrEqual):
            self._between(0, value + 1)
        else:
            return False
        return True

    def _between(self, first: int, end: int | None) -> None:
        self.first = max(self.first, first)
        if end is not None:
            self.end = max(0, end) if self.end is None else min(self.end, max(0, end))


@dataclass
class Pushed:
    """The topics, partitions, offsets and times that the filters leave to be read."""

    names: list[Filter] = field(default_factory=list)
    partitions: list[Filter] = field(default_factory=list)
    offsets: NumberRange = field(default_factory=NumberRange)
    times_us: NumberRange = field(default_factory=NumberRange)

    def take(self, wanted: Filter) -> bool:
        """Apply a filter; whether Spark need not check it any more."""
        attribute: tuple[str, ...] = getattr(wanted, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else None
        if isinstance(wanted, IsNotNull):
            return column in NEVER_NULL
        if column == "topic" and type(wanted) in NAME_TESTS:
            self.names.append(wanted)
            return True
        if column == "partition" and isinstance(wanted, (EqualTo, EqualNullSafe, In)):
            self.partitions.append(wanted)
            return True
        if column == "offset":
            return self.offsets.narrow(wanted, lambda value: value if isinstance(value, int) else None)
        if column == "timestamp":
            return self.times_us.narrow(wanted, microseconds_of)
        return False

    def wants(self, topic: str, partition: int) -> bool:
        """Whether anything of a partition is left."""
        by_name = all(NAME_TESTS[type(each)](topic, each.value) for each in self.names)  # type: ignore[attr-defined]
        return by_name and all(
            partition in each.value if isinstance(each, In) else partition == each.value  # type: ignore[attr-defined]
            for each in self.partitions
        )

    def cut(self, piece: Piece) -> Piece:
        """The remaining part of a piece; its end may be before its start."""
        end = piece.end if self.offsets.end is None else min(piece.end, self.offsets.end)
        return piece.between(max(piece.start, self.offsets.first), end)


def microseconds_of(value: object) -> int | None:
    """A time as microseconds since 1970; None for another type. Times without a zone count as UTC."""
    if not isinstance(value, datetime):
        return None
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    difference = aware - EPOCH
    return (difference.days * 86_400 + difference.seconds) * 1_000_000 + difference.microseconds
