"""Files that are no whole trace: one clear sentence each, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antiphon.audit.spark.traces import describe
from antiphon.audit.total_order import circle_in
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.trace.store import SCHEMA, TraceWriter


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    with TraceWriter(path, "deliveries", {"host": "live"}) as writer:
        for sequence in range(1, 400):
            writer.recorder.record_run(sequence, 4, 1, 1, sequence, 1, 0, 5, 2)
    return path


def test_a_whole_trace_is_described(trace: Path) -> None:
    about, rows = describe(trace)
    assert about["host"] == "live"
    assert rows == 399


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no trace at .*nowhere.parquet; check the name"):
        describe(tmp_path / "nowhere.parquet")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_half_written_file(trace: Path, share: float) -> None:
    whole = trace.read_bytes()
    trace.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(PeerError, match=r"is not a readable trace: .*; write it again") as error:
        describe(trace)
    assert "\n" not in str(error.value)


def test_a_missing_column(trace: Path) -> None:
    table = pq.read_table(trace).drop_columns(["source", "sequence"])
    pq.write_table(table, trace)
    with pytest.raises(UsageError, match="lacks the columns sequence, source; a trace has time, event, "):
        describe(trace)


def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(SCHEMA.empty_table(), path)
    with pytest.raises(UsageError, match="is not an Antiphon trace"):
        describe(path)


def test_an_arrow_file_is_described_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.arrow"
    with TraceWriter(path, "deliveries", {"host": "live"}) as writer:
        writer.recorder.record_run(1, 4, 1, 1, 1, 3, 0, 5, 2)
    assert describe(path)[1] == 3


def test_orders_without_and_with_a_circle() -> None:
    first, second, third = (1, 1), (2, 1), (3, 1)
    assert circle_in([]) == []
    assert circle_in([(first, second), (second, third), (first, third)]) == []
    assert circle_in([(first, second), (second, first)]) == [first, second]
    assert circle_in([(first, second), (second, third), (third, first)]) == [first, second, third]
    # What hangs on a circle is no part of it, and the shortest is told.
    hanging = (4, 1)
    pairs = [(first, second), (second, third), (third, first), (third, second), (third, hanging)]
    assert circle_in(pairs) == [second, third]
