"""Sweeps: the cells of a grid as a job, and the table of their results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.kernel.errors import UsageError
from antiphon.pipeline import session
from antiphon.pipeline.atomic_output import directory_held, write_failed
from antiphon.pipeline.grid import Grid
from antiphon.pipeline.jobs import Job, Watcher, run_job
from antiphon.pipeline.sweep_cells import TRACES, Cell, CellRecord, read_record, run_cell

RESULTS = "results"
COLUMNS = "_columns.json"


@dataclass(kw_only=True)
class Sweep(Job[Cell, CellRecord]):
    """The cells of a grid, and the finished ones."""

    grid: Grid


def inspect(grid: Grid, out: Path) -> Sweep:
    """Find out which cells are finished; writes nothing."""
    sweep = Sweep(
        title=f"sweep {grid.experiment}",
        called="cells",
        units=grid.cells,
        out=out,
        read=read_record,
        run=run_cell,
        grid=grid,
    )
    sweep.poll()
    return sweep


@contextmanager
def held(grid: Grid, out: Path) -> Iterator[None]:
    """Lock a directory against other sweeps, and against grids with other parameters."""
    with directory_held(out):
        try:
            check_columns(grid, out)
        except OSError as error:
            raise write_failed(out, error) from error
        yield


def check_columns(grid: Grid, out: Path) -> None:
    """Check that an experiment has one set of parameters: directories with other parameters cannot be read as one
    table.
    """
    place = out / TRACES / f"experiment={grid.experiment}"
    try:
        known = msgspec.json.decode((place / COLUMNS).read_bytes(), type=list[str])
    except (FileNotFoundError, msgspec.DecodeError):
        known = grid.columns
        place.mkdir(parents=True, exist_ok=True)
        beside = place / f"{COLUMNS}.partial"
        beside.write_bytes(msgspec.json.encode(known))
        beside.replace(place / COLUMNS)
    if known != grid.columns:
        raise UsageError(
            f"{place} holds cells that differ in {', '.join(known)}, and this grid's differ in "
            f"{', '.join(grid.columns)}; give the experiment another name, or choose another --out"
        )


def run_sweep(sweep: Sweep, options: session.SessionOptions, watch: Watcher) -> None:
    """Run the unfinished cells and write the results. Call it while the directory is locked."""
    run_job(sweep, options, watch)
    write_results(sweep)


def write_results(sweep: Sweep) -> Path:
    """Write the table of results: a row per finished cell, with its parameters and its result."""
    directory = sweep.out / RESULTS / f"experiment={sweep.grid.experiment}"
    beside = directory / f".{RESULTS}.partial"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(results_table(sweep), beside, compression="zstd")
        beside.replace(directory / f"{RESULTS}.parquet")
    except OSError as error:
        raise write_failed(sweep.out, error) from error
    return directory


def results_table(sweep: Sweep) -> pa.Table:
    """One row per finished cell, in the order of the grid."""
    records = [sweep.records[cell.number] for cell in sweep.grid.cells if cell.number in sweep.records]
    columns: dict[str, pa.Array] = {name: pa.array(values(name, records)) for name in sweep.grid.columns}
    if records:
        for field in msgspec.structs.fields(type(records[0].result)):
            # Parameters first; the scenario's name repeats them.
            if field.name not in columns and field.name != "scenario":
                found = [getattr(record.result, field.name) for record in records]
                kind = pa.map_(pa.string(), pa.int64()) if field.name == "violations" else None
                columns[field.name] = pa.array(
                    [list(one.items()) if isinstance(one, dict) else one for one in found], kind
                )
        columns["trace_bytes"] = pa.array([record.trace_bytes for record in records], pa.int64())
    return pa.table(columns)


def values(column: str, records: list[CellRecord]) -> list[Any]:
    """The values of a parameter; integers and floats become one kind."""
    found = [record.parameters[column] for record in records]
    kinds = {type(value) for value in found}
    if kinds == {int, float}:
        return [float(value) for value in found]
    return found if len(kinds) <= 1 else [str(value) for value in found]
