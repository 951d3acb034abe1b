"""The cost of Spark: the same sweep as tasks of Spark and in a plain pool of processes.

The two run the same cells with the same code, write the same files, and begin in the same order. A cell takes some
seconds and writes a row for every copy; all cells are equal, so that neither side gains by packing them better.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from antiphon.pipeline.grid import parse_grid
from antiphon.pipeline.jobs import largest_first, run_on_spark
from antiphon.pipeline.session import SessionOptions, spark_session
from antiphon.pipeline.sweep import Sweep, inspect
from antiphon.pipeline.sweep_cells import TRACES, CellRecord, run_cell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine = Literal["spark", "pool"]

NODES = 512
GRID = """
experiment = "bench"
repetitions = {cells}
[base]
nodes = {nodes}
workload = {{ kind = "rate", mean_gap = 20, count = {publications} }}
trace = {{ level = "everything" }}
"""


class SweepMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a sweep."""

    engine: str
    cores: int
    cells: int
    start_seconds: float
    """Until the session or the pool was there and its processes had done something that takes no time."""
    seconds: float
    """From then until the last cell was finished."""
    processor_seconds: float | None
    """Of this process and all that it began, in those seconds; unknown where the system does not tell."""
    others_seconds: float | None
    """The processor time of all other programs in those seconds; a measurement is good where this is small."""
    seconds_per_cell: float
    """The average time of a cell, wherever it ran."""
    trace_rows: int
    trace_bytes: int
    fingerprint: str
    """A fingerprint of all written files: the same sweep has the same one on Spark and in a pool."""

    @property
    def cells_per_hour(self) -> float:
        """Simulations per hour."""
        return self.cells / self.seconds * 3600

    @property
    def outside_seconds(self) -> float:
        """The time in which no cell ran: starting tasks, passing records, waiting for the last cell.

        Other programs slow down the cells, which is not part of it.
        """
        return self.seconds - self.cells * self.seconds_per_cell / self.cores

    @property
    def rows_per_second(self) -> float:
        """Rows of traces per second."""
        return self.trace_rows / self.seconds


def measure_sweep(engine: Engine, cores: int, cells: int, publications: int) -> SweepMeasurement:
    """Run the sweep once."""
    text = GRID.format(cells=cells, nodes=NODES, publications=publications)
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        sweep = inspect(parse_grid(text, Path("the grid of the benchmark")), Path(place))
        spent = (on_spark if engine == "spark" else in_pool)(sweep, cores)
        records = list(sweep.records.values())
        return SweepMeasurement(
            engine=engine,
            cores=cores,
            cells=len(records),
            start_seconds=spent.start_seconds,
            seconds=spent.seconds,
            processor_seconds=spent.processor_seconds,
            others_seconds=spent.others_seconds,
            seconds_per_cell=sum(record.result.seconds for record in records) / len(records),
            trace_rows=sum(record.result.trace_rows or 0 for record in records),
            trace_bytes=sum(record.trace_bytes for record in records),
            fingerprint=fingerprint_of(Path(place) / TRACES),
        )


class Stopwatch:
    """Measures first the start and then the work; stopped before anything that it measures has ended."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self.start_seconds = self.seconds = 0.0
        self.processor_seconds: float | None = None
        self.others_seconds: float | None = None

    def started(self) -> None:
        """The session or the pool is there."""
        now = time.perf_counter()
        self.start_seconds, self._begun = now - self._begun, now
        self._processor, self._machine = processor_seconds(), machine_seconds()

    def finished(self) -> None:
        """The work is done."""
        self.seconds = time.perf_counter() - self._begun
        own, machine = processor_seconds(), machine_seconds()
        if own is not None and self._processor is not None:
            self.processor_seconds = own - self._processor
            if machine is not None and self._machine is not None:
                self.others_seconds = max(0.0, machine - self._machine - self.processor_seconds)


def on_spark(sweep: Sweep, cores: int) -> Stopwatch:
    """Run a sweep on an embedded Spark."""
    watch = Stopwatch()
    with spark_session("antiphon bench spark", SessionOptions(master="local", cores=cores, brief=True)) as spark:
        warm(spark, cores)
        watch.started()
        run_on_spark(spark, sweep, ignore, cores)
        watch.finished()
    return watch


def warm(spark: SparkSession, cores: int) -> None:
    """Let a job that does nothing start the workers; a command pays for this once, as it does for the session."""
    spark.range(0, cores, 1, cores).mapInArrow(lambda batches: batches, "id long").collect()


def ignore(done: int, running: int) -> None:
    """Ignore progress: a benchmark has no watcher."""


def in_pool(sweep: Sweep, cores: int) -> Stopwatch:
    """Run a sweep in a pool of processes."""
    watch = Stopwatch()
    cells = largest_first(sweep.left())
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        # Processes are made when there is work for them, so give them some that takes no time.
        list(pool.map(abs, range(cores)))
        watch.started()
        records: list[CellRecord] = list(pool.map(partial(run_cell, out=sweep.out), cells))
        watch.finished()
    sweep.records |= {cell.number: record for cell, record in zip(cells, records, strict=True)}
    return watch


def processor_seconds() -> float | None:
    """The processor time of this process, its descendants, and those that have ended; None where the system does not
    report it.

    Elapsed time is unreliable on a shared machine.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field is a name in brackets, which may hold anything.
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(int(field) for field in fields[11:15])
    total = sum(used for process, used in ticks.items() if descends(process, os.getpid(), parents))
    return total / os.sysconf("SC_CLK_TCK") if ticks else None


def machine_seconds() -> float | None:
    """The processor time of all programs since the machine started; None where the system does not report it."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, words[1:9])
    return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")


def descends(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    """Whether a process is another one or descends from it."""
    while process != ancestor and process in parents:
        process = parents[process]
    return process == ancestor


def fingerprint_of(traces: Path) -> str:
    """A fingerprint of the traces of a sweep."""
    digest = hashlib.sha256()
    for path in sorted(traces.rglob("*.parquet")):
        digest.update(str(path.relative_to(traces)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
