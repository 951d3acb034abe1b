"""Every table of a report as CSV and Parquet: one of the rows of each experiment, and one of each of its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from antiphon_lab.report.stored import Result
from antiphon_lab.reproduction.figures import Figure, Series

ROWS = pa.schema(
    [
        ("experiment", pa.string()),
        ("label", pa.string()),
        ("unit", pa.string()),
        ("measured", pa.float64()),
        ("spread", pa.float64()),
        ("confidence", pa.float64()),
        ("repetitions", pa.int64()),
        ("published", pa.float64()),
        ("deviation", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("because", pa.string()),
        ("verdict", pa.string()),
        ("where", pa.string()),
        ("reason", pa.string()),
    ]
)
"""``spread`` is the standard deviation between repetitions, ``confidence`` half of the 95 % confidence interval of the
mean, ``deviation`` relative to the published value; ``low`` and ``high`` are the interval that agrees with it.
"""

POINTS = pa.schema(
    [
        ("series", pa.string()),
        ("system", pa.string()),
        ("published", pa.bool_()),
        ("x", pa.float64()),
        ("category", pa.string()),
        ("y", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("limit", pa.string()),
        ("label", pa.string()),
    ]
)


@dataclass(frozen=True)
class NamedTable:
    """A table and the name of its files, without the extension."""

    name: str
    table: pa.Table

    def write(self, folder: Path) -> None:
        """Write it in both forms."""
        pyarrow.csv.write_csv(self.table, folder / f"{self.name}.csv")
        pyarrow.parquet.write_table(self.table, folder / f"{self.name}.parquet")


def tables_of(result: Result) -> Iterator[NamedTable]:
    """All tables of one experiment."""
    yield NamedTable(result.slug, rows_table(result))
    for figure in result.figures:
        yield NamedTable(figure_file(result, figure), points_table(figure))


def figure_file(result: Result, figure: Figure) -> str:
    """The name of the files of a figure."""
    return f"{result.slug}_{figure.name}"


def rows_table(result: Result) -> pa.Table:
    """The rows of one experiment."""
    records = []
    for row in result.rows:
        low, high = row.interval or (None, None)
        named = {name: getattr(row, name) for name in ROWS.names[1:] if name not in ("low", "high")}
        records.append({"experiment": result.name, "low": low, "high": high, **named})
    return pa.Table.from_pylist(records, schema=ROWS)


def points_table(figure: Figure) -> pa.Table:
    """All points of a figure, measured and published, in the order in which they are drawn."""
    records = [record for series in figure.series for record in point_records(figure, series)]
    return pa.Table.from_pylist(records, schema=POINTS)


def point_records(figure: Figure, series: Series) -> Iterator[dict[str, object]]:
    """The points of one series."""
    for point in series.points:
        yield {
            "series": series.name,
            "system": series.system,
            "published": series.published,
            "x": point.x,
            "category": figure.x.categories[int(point.x)] if figure.x.categories else None,
            "y": point.y,
            "low": point.low,
            "high": point.high,
            "limit": point.limit,
            "label": point.label or None,
        }
