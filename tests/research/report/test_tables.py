"""CSV and Parquet hold the same, and what they hold is the result."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.report.stored import Result
from antiphon_lab.report.tables import POINTS, ROWS
from antiphon_lab.report.write import folder_of, write_results


def read_csv(file: Path, schema: pa.Schema) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(file, parse_options=parse, convert_options=options)


def test_csv_parquet_and_result_are_the_same(tmp_path: Path, results: list[Result], hostile: Result) -> None:
    path = tmp_path / "deep" / "report.html"
    write_results([*results, hostile], path)
    folder = folder_of(path)
    expected = set()
    for result in [*results, hostile]:
        rows = pyarrow.parquet.read_table(folder / f"{result.slug}.parquet")
        assert rows.equals(read_csv(folder / f"{result.slug}.csv", ROWS))
        assert rows["label"].to_pylist() == [row.label for row in result.rows]
        for column in (
            "measured",
            "spread",
            "confidence",
            "published",
            "deviation",
            "because",
            "verdict",
            "unit",
            "reason",
        ):
            assert rows[column].to_pylist() == [getattr(row, column) for row in result.rows]
        expected.add(result.slug)
        for figure in result.figures:
            name = f"{result.slug}_{figure.name}"
            points = pyarrow.parquet.read_table(folder / f"{name}.parquet")
            assert points.equals(read_csv(folder / f"{name}.csv", POINTS))
            drawn = [(series, point) for series in figure.series for point in series.points]
            assert points["series"].to_pylist() == [series.name for series, _ in drawn]
            assert points["published"].to_pylist() == [series.published for series, _ in drawn]
            for column in ("x", "y", "low", "high", "limit"):
                assert points[column].to_pylist() == [getattr(point, column) for _, point in drawn]
            if figure.x.categories:
                names = [figure.x.categories[int(point.x)] for _, point in drawn]
                assert points["category"].to_pylist() == names
            expected.add(name)
    assert {file.name for file in folder.iterdir()} == {
        f"{name}.{kind}" for name in expected for kind in ("csv", "parquet")
    }


def test_where_nothing_can_be_written_there_is_one_sentence(tmp_path: Path, hostile: Result) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot write the report to .*; choose another place"):
        write_results([hostile], tmp_path / "file" / "report.html")
