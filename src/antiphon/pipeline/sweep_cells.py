"""Cells of a sweep on disk: how one is stored and run, and how a finished one is recognised.

A cell has a directory whose name spells its parameters as a Spark partition::

    traces/experiment=order-and-size/nodes=64/scenario_order=causal/seed=1/trace.parquet

The record has the result of the run, its scenario, and the length of the trace. A cell without a record, with the
record of another scenario, or with a trace of another length than recorded, is not finished and is run again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from antiphon.pipeline.atomic_output import attempt_in
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import Scenario

Scalar = str | int | float | bool

TRACES = "traces"
TRACE = "trace.parquet"
RECORD = "_cell.json"
"""Spark ignores files that begin with an underscore."""
END_OF_PARQUET = b"PAR1"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One deterministic simulation of a sweep."""

    number: int
    parameters: dict[str, Scalar]
    scenario: Scenario
    directory: str
    """The directory of its trace, below the directory of traces."""
    digest: str
    """Changes whenever the run would."""
    work: int
    """An estimate, to begin with the largest."""


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cell."""

    digest: str
    parameters: dict[str, Scalar]
    result: Result
    trace_bytes: int


def read_record(cell: Cell, out: Path) -> CellRecord | None:
    """The record of a finished cell; None if it must be run."""
    directory = out / TRACES / cell.directory
    try:
        record = msgspec.json.decode((directory / RECORD).read_bytes(), type=CellRecord)
        if record.digest != cell.digest or (
            record.result.trace is not None and not is_whole(directory / TRACE, record.trace_bytes)
        ):
            return None
    except (OSError, msgspec.DecodeError):
        # Running the cell again repairs any damage, or reports why it cannot.
        return None
    return record


def is_whole(trace: Path, expected_bytes: int) -> bool:
    """Whether a Parquet file has the expected length and a footer."""
    with trace.open("rb") as file:
        if file.seek(0, os.SEEK_END) != expected_bytes or expected_bytes < len(END_OF_PARQUET):
            return False
        file.seek(-len(END_OF_PARQUET), os.SEEK_END)
        return file.read() == END_OF_PARQUET


def run_cell(cell: Cell, out: Path) -> CellRecord:
    """Run a cell and put its trace and its record into place; do nothing if it is finished."""
    record = read_record(cell, out)
    if record is not None:
        return record
    with attempt_in(out, cell.number) as attempt:
        return run_attempt(cell, out, attempt)


def run_attempt(cell: Cell, out: Path, attempt: Path) -> CellRecord:
    """Run a cell in its own directory, and move its files into place."""
    writes = cell.scenario.trace.level != "counts"
    result = run_scenario(cell.scenario, attempt / TRACE if writes else None)
    directory = out / TRACES / cell.directory
    # An absolute path would name the place of the run, not of the cell.
    result = msgspec.structs.replace(result, trace=f"{TRACES}/{cell.directory}/{TRACE}" if writes else None)
    size = (attempt / TRACE).stat().st_size if writes else 0
    record = CellRecord(digest=cell.digest, parameters=cell.parameters, result=result, trace_bytes=size)
    (attempt / RECORD).write_bytes(msgspec.json.encode(record))
    directory.mkdir(parents=True, exist_ok=True)
    # The record of another scenario must not be beside the new trace, not even for a moment.
    if read_record(cell, out) is None:
        (directory / RECORD).unlink(missing_ok=True)
    if writes:
        (attempt / TRACE).replace(directory / TRACE)
    else:
        (directory / TRACE).unlink(missing_ok=True)
    (attempt / RECORD).replace(directory / RECORD)
    return record
