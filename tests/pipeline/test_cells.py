"""Cells on disk: whole or not there, whatever happens on the way."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.kernel.errors import PeerError
from antiphon.pipeline.atomic_output import ATTEMPTS
from antiphon.pipeline.grid import parse_grid
from antiphon.pipeline.sweep_cells import RECORD, TRACE, TRACES, Cell, read_record, run_cell
from antiphon.trace.store import about_trace, read_trace

TEXT = """experiment = "try"
seeds = [1, 2]
[base]
nodes = 16
workload = { kind = "once", window = 100 }
"""


def cells(text: str = TEXT) -> list[Cell]:
    return parse_grid(text, Path("grid.toml")).cells


def trace_of(cell: Cell, out: Path) -> Path:
    return out / TRACES / cell.directory / TRACE


def test_a_cell_leaves_its_trace_and_its_record_and_nothing_else(tmp_path: Path) -> None:
    cell = cells()[0]
    assert read_record(cell, tmp_path) is None
    record = run_cell(cell, tmp_path)
    assert read_record(cell, tmp_path) == record
    table = read_trace(trace_of(cell, tmp_path))
    assert table.num_rows == record.result.trace_rows == 16 + record.result.deliveries + len(["end"])
    assert about_trace(table)["scenario"] == msgspec.to_builtins(cell.scenario)
    assert sorted(path.name for path in trace_of(cell, tmp_path).parent.iterdir()) == [RECORD, TRACE]
    assert list((tmp_path / ATTEMPTS).iterdir()) == []


def test_a_finished_cell_is_not_run_again(tmp_path: Path) -> None:
    cell = cells()[0]
    first = run_cell(cell, tmp_path)
    written = trace_of(cell, tmp_path).stat().st_mtime_ns
    assert run_cell(cell, tmp_path) == first
    assert trace_of(cell, tmp_path).stat().st_mtime_ns == written


def test_the_same_cell_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = cells()
    for place in ("a", "b"):
        run_cell(one, tmp_path / place)
    run_cell(other, tmp_path / "a")
    bytes_of = trace_of(one, tmp_path / "a").read_bytes()
    assert trace_of(one, tmp_path / "b").read_bytes() == bytes_of
    assert trace_of(other, tmp_path / "a").read_bytes() != bytes_of


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "end", "record", "no record"])
def test_what_an_earlier_crash_left_is_run_again(tmp_path: Path, damage: str) -> None:
    cell = cells()[0]
    run_cell(cell, tmp_path)
    trace = trace_of(cell, tmp_path)
    whole = trace.read_bytes()
    record = trace.with_name(RECORD)
    if damage == "cut":
        trace.write_bytes(whole[:-100])
    elif damage == "empty":
        trace.write_bytes(b"")
    elif damage == "gone":
        trace.unlink()
    elif damage == "end":
        trace.write_bytes(whole[:-4] + bytes(4))
    elif damage == "record":
        record.write_bytes(record.read_bytes()[:-5])
    else:
        record.unlink()
    assert read_record(cell, tmp_path) is None
    run_cell(cell, tmp_path)
    assert trace.read_bytes() == whole
    assert read_record(cell, tmp_path) is not None


def test_a_changed_scenario_is_run_again_in_the_same_place(tmp_path: Path) -> None:
    before, after = cells()[0], cells(TEXT.replace("100", "200"))[0]
    assert before.directory == after.directory
    run_cell(before, tmp_path)
    assert read_record(after, tmp_path) is None
    run_cell(after, tmp_path)
    assert read_record(before, tmp_path) is None
    assert about_trace(read_trace(trace_of(after, tmp_path)))["scenario"] == msgspec.to_builtins(after.scenario)


def test_counts_leave_no_trace_not_even_an_old_one(tmp_path: Path) -> None:
    run_cell(cells()[0], tmp_path)
    counting = cells(TEXT + 'trace = { level = "counts" }')[0]
    record = run_cell(counting, tmp_path)
    assert record.result.trace is None
    assert record.trace_bytes == 0
    assert not trace_of(counting, tmp_path).exists()
    assert read_record(counting, tmp_path) == record


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PeerError, match=r"cannot write to .*file: Not a directory; free some space or choose another"):
        run_cell(cells()[0], tmp_path / "file")


FULL = """
import resource, signal, sys
from pathlib import Path
from antiphon.kernel.errors import PeerError
from antiphon.pipeline.sweep_cells import run_cell
from antiphon.pipeline.grid import load_grid

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
try:
    run_cell(load_grid(Path(sys.argv[1])).cells[1], Path(sys.argv[2]))
except PeerError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit of file sizes here")
def test_a_full_disk_is_one_sentence_and_leaves_finished_cells_alone(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(TEXT)
    first, second = cells()
    run_cell(first, tmp_path / "out")
    kept = trace_of(first, tmp_path / "out").read_bytes()
    assert len(kept) > 3000, "else the limit is none"
    done = subprocess.run(
        [sys.executable, "-c", FULL, grid, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert read_record(second, tmp_path / "out") is None
    assert list((tmp_path / "out" / ATTEMPTS).iterdir()) == []
    assert trace_of(first, tmp_path / "out").read_bytes() == kept
    run_cell(second, tmp_path / "out")
    assert read_record(second, tmp_path / "out") is not None
