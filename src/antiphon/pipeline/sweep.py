"""Running the cells of a grid as tasks of Spark.

Spark decides where and when: it gets one task per cell (small cells share one), the largest first so that no core is
idle at the end, and tries a task again that fails or whose executor dies. A task runs its simulation and writes the
trace, Arrow batch by Arrow batch, as Parquet; what goes through Spark is the record of each cell. All machines of a
cluster must therefore see the output directory under the same name.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.kernel.errors import AntiphonError, PeerError, UsageError
from antiphon.pipeline import session
from antiphon.pipeline.cells import ATTEMPTS, Cell, Record, read_record, run_cell, write_failed
from antiphon.pipeline.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = "results"
LOCK = "_lock"
COLUMNS = "_columns.json"
WORK_PER_TASK = 200_000
"""Cells with less work than this (a fraction of a second) share a task: starting one costs tens of milliseconds."""
SECONDS_BETWEEN_LOOKS = 0.5
PAUSES_PER_LOOK = 50
"""How many times as long as it takes to look at the disk is waited before the next time."""
TASKS_PER_SLOT = 4
SLOTS_OF_A_CLUSTER = 64
"""Nobody here knows how many tasks a cluster can run at a time; more is better than less."""
ANSWER = "cell long, record string, failure string"
ANSWER_SCHEMA = pa.schema([("cell", pa.int64()), ("record", pa.string()), ("failure", pa.string())])
OWN_ERROR = re.compile(r"antiphon\.kernel\.errors\.(\w+): (.+)")
PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)

Run = Callable[[Cell, Path], Record]
Watcher = Callable[[int, int], None]
"""Told now and then how many cells are done and how many are running."""


class Sweep(msgspec.Struct, kw_only=True):
    """What is there and what is still to do."""

    grid: Grid
    out: Path
    records: dict[int, Record]
    """Of the cells that are finished, by their number."""
    failures: dict[int, str]
    """Why cells failed, after all attempts."""

    def left(self) -> list[Cell]:
        """The cells that are not finished."""
        return [cell for cell in self.grid.cells if cell.number not in self.records]


def look(grid: Grid, out: Path) -> Sweep:
    """Find out which cells are finished; writes nothing."""
    found = {cell.number: read_record(cell, out) for cell in grid.cells}
    records = {number: record for number, record in found.items() if record is not None}
    return Sweep(grid=grid, out=out, records=records, failures={})


def into_tasks(cells: list[Cell], slots: int) -> list[list[Cell]]:
    """The cells in tasks, those with most work first; small cells share one, but each slot gets several tasks."""
    whole = min(WORK_PER_TASK, sum(cell.work for cell in cells) // (slots * TASKS_PER_SLOT))
    tasks: list[list[Cell]] = []
    room = 0
    for cell in sorted(cells, key=lambda cell: (-cell.work, cell.number)):
        if cell.work > room:
            tasks.append([])
            room = whole
        tasks[-1].append(cell)
        room -= cell.work
    return tasks


@contextmanager
def held(grid: Grid, out: Path) -> Iterator[None]:
    """Keep other sweeps out of a directory, and what dead ones left behind."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("w", encoding="ascii")
    except OSError as error:
        raise write_failed(out, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            check_columns(grid, out)
            shutil.rmtree(out / ATTEMPTS, ignore_errors=True)
        except BlockingIOError as error:
            raise PeerError(f"another sweep is writing to {out}; wait for it or choose another --out") from error
        except OSError as error:
            raise write_failed(out, error) from error
        yield
        shutil.rmtree(out / ATTEMPTS, ignore_errors=True)


def check_columns(grid: Grid, out: Path) -> None:
    """One experiment has one set of parameters: directories that differ in them cannot be read as one table."""
    place = out / "traces" / f"experiment={grid.experiment}"
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
    """Run what is left; starts Spark only if there is something. Call it while the directory is held."""
    if sweep.left():
        master = options.chosen_master()
        slots = session.local_cores(master) if session.is_local(master) else SLOTS_OF_A_CLUSTER
        with session.spark_session(f"antiphon sweep {sweep.grid.experiment}", options) as spark:
            run_on_spark(spark, sweep, watch, slots)
    write_results(sweep)


def run_on_spark(
    spark: SparkSession, sweep: Sweep, watch: Watcher, slots: int = SLOTS_OF_A_CLUSTER, run: Run = run_cell
) -> None:
    """Run what is left in a session that is there; results are added to the sweep as far as it came."""
    tasks = into_tasks(sweep.left(), slots)
    encoded = [msgspec.json.encode(task) for task in tasks]
    # One number per partition, in order: Spark starts partitions in order, so the largest cells come first.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    frame = numbers.mapInArrow(partial(answer, encoded, str(sweep.out.absolute()), run), ANSWER)
    try:
        for row in watched(frame.collect, sweep, watch):
            if row.failure is None:
                sweep.records[row.cell] = msgspec.json.decode(row.record, type=Record)
            else:
                sweep.failures[row.cell] = row.failure
    except AntiphonError:
        raise
    except Exception as error:
        raise explained(error, sweep) from error


def answer(encoded: list[bytes], out: str, run: Run, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks with the numbers that come; this is what happens in a worker of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    last = context is not None and context.attemptNumber() + 1 >= session.ATTEMPTS
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for cell in msgspec.json.decode(encoded[number], type=list[Cell]):
                record, failure = attempt(cell, Path(out), run, last)
                yield pa.record_batch([[cell.number], [record], [failure]], schema=ANSWER_SCHEMA)


def attempt(cell: Cell, out: Path, run: Run, last: bool) -> tuple[str | None, str | None]:
    """The record of a cell or, at the last attempt, why there is none: one bad cell must not stop the others.

    What the disk did wrong is never put down to the cell: the others will meet it too, so the sweep ends.
    """
    try:
        return msgspec.json.encode(run(cell, out)).decode(), None
    except PeerError:
        raise
    except Exception as error:
        if not last:
            raise
        return None, f"{type(error).__name__}: {error}"


def watched(work: Callable[[], list[Any]], sweep: Sweep, watch: Watcher) -> list[Any]:
    """Do the work on another thread and look meanwhile at what appears on disk."""
    results: list[Any] = []
    errors: list[Exception] = []

    def do() -> None:
        try:
            results.extend(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=do, name="spark-job", daemon=True)
    thread.start()
    waiting = sweep.left()
    done = len(sweep.records)
    pause = SECONDS_BETWEEN_LOOKS
    while thread.is_alive():
        thread.join(pause)
        begun = time.perf_counter()
        still = [cell for cell in waiting if read_record(cell, sweep.out) is None]
        done += len(waiting) - len(still)
        waiting = still
        watch(done, len(running_in(sweep.out) & {cell.number for cell in waiting}))
        # Looking at many thousands of cells takes a while, which is the tasks' while too.
        pause = max(SECONDS_BETWEEN_LOOKS, PAUSES_PER_LOOK * (time.perf_counter() - begun))
    if errors:
        raise errors[0]
    return results


def running_in(out: Path) -> set[int]:
    """The numbers of cells that somebody began; those who died are among them until the sweep ends."""
    try:
        return {int(entry.name.partition("-")[0]) for entry in os.scandir(out / ATTEMPTS)}
    except OSError:
        return set()


def explained(error: Exception, sweep: Sweep) -> AntiphonError:
    """A failed job in one sentence: what a task of ours said, else the last thing that Python or Java said."""
    text = str(error)
    finished = len(look(sweep.grid, sweep.out).records)
    kept = f"{finished} of {len(sweep.grid.cells)} cells are finished and will not be run again"
    own = OWN_ERROR.search(text)
    if own is not None:
        return PeerError(f"{own[2]} ({kept})")
    said = PYTHON_ERROR.findall(text)
    what = said[-1] if said else session.first_line(text)
    return PeerError(f"the sweep stopped: {what}; {kept}")


def write_results(sweep: Sweep) -> Path:
    """Write the table of results: a row per finished cell, with its parameters and what came of it."""
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


def values(column: str, records: list[Record]) -> list[Any]:
    """The values of a parameter; numbers of both kinds become one kind."""
    found = [record.parameters[column] for record in records]
    kinds = {type(value) for value in found}
    if kinds == {int, float}:
        return [float(value) for value in found]
    return found if len(kinds) <= 1 else [str(value) for value in found]
