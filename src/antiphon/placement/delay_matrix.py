"""Delays between places, as somebody measured them, read from text.

Two forms are understood; both are lines of values between commas, and the first line has names:

* **Pairs**: three columns, two places and a time: ``from,to,round_trip_ms`` or ``from,to,delay_ms``. Each ordered pair
  has a line of its own; the order of lines says nothing.
* **Square**: the first line has the names of the places, behind a first cell that is ``round_trip_ms`` or ``delay_ms``.
  Each further line has the name of a place and its times to all places.

A round trip counts as twice the delay of one direction. The time from a place to itself is not used, and may be
missing. Any other time that is missing is an error, unless the caller asks to have it estimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final, NamedTuple

from antiphon.kernel.errors import UsageError

ROUND_TRIP: Final = "round_trip_ms"
ONE_WAY: Final = "delay_ms"
UNITS: Final = {ROUND_TRIP: 500.0, ONE_WAY: 1000.0}
"""By the name of a column, the microseconds of one direction in each unit of it."""

LONGEST_MS: Final = 60_000.0
"""A longer time is no distance: somebody has taken another unit."""

MISSING: Final = -1
SHOWN: Final = 3
"""So many missing pairs are named in an error."""


class DelayMatrix(NamedTuple):
    """The delay in microseconds from each place to each other; ``estimated`` of them are not measured."""

    names: tuple[str, ...]
    rows: list[list[int]]
    estimated: int = 0

    def part(self, chosen: Sequence[int]) -> DelayMatrix:
        """The matrix of some of the places, in this order."""
        rows = [[self.rows[one][other] for other in chosen] for one in chosen]
        return DelayMatrix(tuple(self.names[one] for one in chosen), rows, self.estimated)

    def mean_us(self) -> float:
        """The mean delay between two places."""
        count = len(self.names)
        return sum(map(sum, self.rows)) / max(1, count * (count - 1))


def read_matrix(text: str, source: str, estimate: bool = False) -> DelayMatrix:
    """The matrix in a text; ``source`` is its name in errors. With ``estimate`` missing times are estimated."""
    lines = [(number, cells) for number, cells in cells_of(text) if any(cells)]
    if not lines:
        raise UsageError(f"{source} is empty; it needs a line of names and then delays")
    header = lines[0][1]
    if len(header) == 3 and header[2] in UNITS:
        matrix = read_pairs(lines, source)
    elif header[0] in UNITS:
        matrix = read_square(lines, source)
    else:
        raise UsageError(
            f"{source}, line {lines[0][0]}: the first line is 'from,to,{ROUND_TRIP}' for pairs, or '{ROUND_TRIP}' and "
            f"the names of all places for a square; '{ONE_WAY}' instead says that delays are of one direction"
        )
    if len(matrix.names) < 2:
        raise UsageError(f"{source} has {len(matrix.names)} place; a matrix needs two")
    missing = missing_pairs(matrix)
    if missing and not estimate:
        named = ", ".join(f"{matrix.names[one]} to {matrix.names[other]}" for one, other in missing[:SHOWN])
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise UsageError(f"{source} lacks {named}{more}; measure them, or ask to have missing delays estimated")
    return estimated(matrix, missing, source) if missing else matrix


def cells_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines with their numbers, as cells without blanks and quotes around them."""
    for number, line in enumerate(text.splitlines(), 1):
        yield number, [cell.strip().strip('"').strip() for cell in line.split(",")]


def read_pairs(lines: list[tuple[int, list[str]]], source: str) -> DelayMatrix:
    """A line for each ordered pair."""
    unit = UNITS[lines[0][1][2]]
    index: dict[str, int] = {}
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for number, cells in lines[1:]:
        where = f"{source}, line {number}"
        if len(cells) != 3:
            raise UsageError(f"{where}: a pair has three values, two places and a time, not {len(cells)}")
        if not cells[0] or not cells[1]:
            raise UsageError(f"{where}: the name of a place is missing")
        pair = index.setdefault(cells[0], len(index)), index.setdefault(cells[1], len(index))
        if pair in found:
            raise UsageError(
                f"{where}: {cells[0]} to {cells[1]} is there twice, first in line {found[pair][0]}; keep one of them"
            )
        found[pair] = number, microseconds_in(cells[2], unit, where)
    rows = [[MISSING] * len(index) for _ in index]
    for (one, other), (_, delay) in found.items():
        rows[one][other] = delay
    return DelayMatrix(tuple(index), without_diagonal(rows))


def read_square(lines: list[tuple[int, list[str]]], source: str) -> DelayMatrix:
    """A line for each place, which begins with its name."""
    number, header = lines[0]
    unit, names = UNITS[header[0]], header[1:]
    seen: dict[str, int] = {}
    for column, name in enumerate(names, 2):
        if not name:
            raise UsageError(f"{source}, line {number}: column {column} has no name")
        if name in seen:
            raise UsageError(
                f"{source}, line {number}: {name} names columns {seen[name]} and {column}; names are unique"
            )
        seen[name] = column
    by_name: dict[str, list[int]] = {}
    for line, cells in lines[1:]:
        where = f"{source}, line {line}"
        if cells[0] not in seen:
            raise UsageError(f"{where}: {cells[0]!r} is not among the names of the first line")
        if cells[0] in by_name:
            raise UsageError(f"{where}: {cells[0]} has a second line; names are unique")
        if len(cells) != len(header):
            raise UsageError(
                f"{where}: {cells[0]} has {len(cells) - 1} delays and there are {len(names)} places; a matrix is square"
            )
        delays = zip(names, cells[1:], strict=True)
        by_name[cells[0]] = [microseconds_in(cell, unit, f"{where}, {cells[0]} to {name}") for name, cell in delays]
    without = [name for name in names if name not in by_name]
    if without:
        raise UsageError(
            f"{source} has {len(names)} columns and {len(by_name)} lines of delays; {without[0]} has no line, and a "
            "matrix is square"
        )
    return DelayMatrix(tuple(names), without_diagonal([by_name[name] for name in names]))


def microseconds_in(cell: str, unit: float, where: str) -> int:
    """The delay of a cell; ``MISSING`` if it is empty."""
    if cell in ("", "-", "nan", "NaN"):
        return MISSING
    try:
        value = float(cell)
    except ValueError:
        raise UsageError(f"{where}: {cell!r} is not a time in milliseconds") from None
    if value < 0:
        raise UsageError(f"{where}: {cell} ms is negative; if it means that nothing was measured, leave the cell empty")
    if not isfinite(value) or value > LONGEST_MS:
        raise UsageError(f"{where}: {cell} ms is more than {LONGEST_MS:g}; times are milliseconds")
    return round(value * unit)


def without_diagonal(rows: list[list[int]]) -> list[list[int]]:
    """The rows with 0 from each place to itself."""
    for place, row in enumerate(rows):
        row[place] = 0
    return rows


def missing_pairs(matrix: DelayMatrix) -> list[tuple[int, int]]:
    """The ordered pairs without a delay."""
    return [(one, other) for one, row in enumerate(matrix.rows) for other, delay in enumerate(row) if delay == MISSING]


def estimated(matrix: DelayMatrix, missing: list[tuple[int, int]], source: str) -> DelayMatrix:
    """The matrix with estimates: the delay of the other direction, else the shortest way over a third place."""
    names, known = matrix.names, [list(row) for row in matrix.rows]
    for one, other in missing:
        known[one][other] = matrix.rows[other][one]
    rows = [list(row) for row in known]
    for one, other in missing:
        if known[one][other] != MISSING:
            continue
        ways = [known[one][via] + known[via][other] for via in range(len(names)) if both_known(known, one, via, other)]
        if not ways:
            raise UsageError(
                f"{source}: {names[one]} to {names[other]} cannot be estimated, since no third place has delays to "
                "both; measure it, or leave one of them out"
            )
        rows[one][other] = min(ways)
    return DelayMatrix(names, rows, len(missing))


def both_known(rows: list[list[int]], one: int, via: int, other: int) -> bool:
    """Whether the way over a third place is measured."""
    return via not in (one, other) and rows[one][via] != MISSING and rows[via][other] != MISSING
