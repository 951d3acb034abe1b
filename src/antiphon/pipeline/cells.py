"""Cells of a sweep on disk: what one is, how it is run, and how one knows that it is finished.

A cell has a directory whose name spells its parameters the way Spark expects partitions::

    traces/experiment=order-and-size/nodes=64/scenario_order=causal/seed=1/trace.parquet

The record says what came of the run and of which scenario, and how long the trace is. A cell with no record, with the
record of another scenario, or with a trace of another length than its record says, is not finished and is run (again).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from antiphon.pipeline.attempts import attempt_in
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import Scenario

Scalar = str | int | float | bool

TRACES = "traces"
TRACE = "trace.parquet"
RECORD = "_cell.json"
"""Spark does not read what begins with an underscore."""
END_OF_PARQUET = b"PAR1"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One deterministic simulation of a sweep."""

    number: int
    parameters: dict[str, Scalar]
    scenario: Scenario
    directory: str
    """Where its trace is, below the directory of traces."""
    digest: str
    """Changes whenever the run would."""
    work: int
    """An estimate, to begin with the largest."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell."""

    digest: str
    parameters: dict[str, Scalar]
    result: Result
    trace_bytes: int


def read_record(cell: Cell, out: Path) -> Record | None:
    """The record of a finished cell; none if it must be run."""
    directory = out / TRACES / cell.directory
    try:
        record = msgspec.json.decode((directory / RECORD).read_bytes(), type=Record)
        if record.digest != cell.digest or (
            record.result.trace is not None and not is_whole(directory / TRACE, record.trace_bytes)
        ):
            return None
    except (OSError, msgspec.DecodeError):
        # Whatever is wrong with it, running the cell again puts it right, or says why it cannot.
        return None
    return record


def is_whole(trace: Path, expected_bytes: int) -> bool:
    """Whether a Parquet file has the length it should have and an end."""
    with trace.open("rb") as file:
        if file.seek(0, os.SEEK_END) != expected_bytes or expected_bytes < len(END_OF_PARQUET):
            return False
        file.seek(-len(END_OF_PARQUET), os.SEEK_END)
        return file.read() == END_OF_PARQUET


def run_cell(cell: Cell, out: Path) -> Record:
    """Run a cell and put its trace and its record into place; a finished cell is left alone."""
    record = read_record(cell, out)
    if record is not None:
        return record
    with attempt_in(out, cell.number) as attempt:
        return run_attempt(cell, out, attempt)


def run_attempt(cell: Cell, out: Path, attempt: Path) -> Record:
    """Run a cell apart, and move what it wrote into place."""
    writes = cell.scenario.trace.level != "counts"
    result = run_scenario(cell.scenario, attempt / TRACE if writes else None)
    directory = out / TRACES / cell.directory
    # An absolute path would say where the cell was run, not where it is.
    result = msgspec.structs.replace(result, trace=f"{TRACES}/{cell.directory}/{TRACE}" if writes else None)
    size = (attempt / TRACE).stat().st_size if writes else 0
    record = Record(digest=cell.digest, parameters=cell.parameters, result=result, trace_bytes=size)
    (attempt / RECORD).write_bytes(msgspec.json.encode(record))
    directory.mkdir(parents=True, exist_ok=True)
    # The record of another scenario must not stand beside the new trace, not even for a moment.
    if read_record(cell, out) is None:
        (directory / RECORD).unlink(missing_ok=True)
    if writes:
        (attempt / TRACE).replace(directory / TRACE)
    else:
        (directory / TRACE).unlink(missing_ok=True)
    (attempt / RECORD).replace(directory / RECORD)
    return record
