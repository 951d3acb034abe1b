"""Runs many independent units of work: as tasks of Spark, or one after the other in this process.

A unit is one deterministic run: a cell of a sweep, or one measurement of an experiment. A job declares how a unit is
run and how the record of a finished one is read from disk; this module does the rest for all jobs.

Spark decides where and when: it gets one task per unit (small ones share one), the largest first so that no core is
idle at the end, and retries a task that fails or whose executor dies. A unit writes its results itself; only its record
passes through Spark. So all machines of a cluster must see the output directory under the same name.
"""

from __future__ import annotations

import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from antiphon.kernel.errors import AntiphonError, PeerError
from antiphon.pipeline import session
from antiphon.pipeline.atomic_output import running_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK_PER_TASK = 200_000
"""Units with less work than this (a fraction of a second) share a task: starting one costs tens of milliseconds."""
SECONDS_BETWEEN_LOOKS = 0.5
PAUSES_PER_LOOK = 50
"""The pause between two scans of the disk, as a multiple of the duration of a scan."""
TASKS_PER_SLOT = 4
SLOTS_OF_A_CLUSTER = 64
"""The assumed number of parallel tasks of a cluster, which is not known here; too large is better than too small."""
ANSWER = "unit long, record binary, failure string"
ANSWER_SCHEMA = pa.schema([("unit", pa.int64()), ("record", pa.binary()), ("failure", pa.string())])
OWN_ERROR = re.compile(r"antiphon\.kernel\.errors\.(\w+): (.+)")
PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)

Watcher = Callable[[int, int], None]
"""Called now and then with the numbers of finished and of running units."""


class Unit(Protocol):
    """One deterministic run. It can be pickled."""

    @property
    def number(self) -> int:
        """The number of the unit within its job."""

    @property
    def work(self) -> int:
        """An estimate in microseconds, to begin with the largest."""


UnitType = TypeVar("UnitType", bound=Unit)
RecordType = TypeVar("RecordType")


@dataclass(kw_only=True)
class Job(Generic[UnitType, RecordType]):
    """The units of a job, and the records of finished ones."""

    title: str
    """The name of the job in messages."""
    called: str
    """The name of its units in messages."""
    units: list[UnitType]
    out: Path
    read: Callable[[UnitType, Path], RecordType | None]
    """Reads the record of a finished unit; None if it must be run."""
    run: Callable[[UnitType, Path], RecordType]
    """Runs a unit, unless it is finished."""
    records: dict[int, RecordType] = field(default_factory=dict)
    """The records of finished units, by their number."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why units failed, after all attempts."""

    def poll(self) -> None:
        """Find out which of the remaining units are finished; writes nothing."""
        for unit in self.left():
            record = self.read(unit, self.out)
            if record is not None:
                self.records[unit.number] = record

    def left(self) -> list[UnitType]:
        """The unfinished units."""
        return [unit for unit in self.units if unit.number not in self.records]

    def state(self) -> str:
        """The progress as a sentence."""
        self.poll()
        return f"{len(self.records):,} of {len(self.units):,} {self.called} are finished"


def largest_first(units: list[UnitType]) -> list[UnitType]:
    """The units in the order in which they are started."""
    return sorted(units, key=lambda unit: (-unit.work, unit.number))


def into_tasks(units: list[UnitType], slots: int) -> list[list[UnitType]]:
    """The units in tasks, the largest first; small units share a task, but each slot gets several tasks."""
    whole = min(WORK_PER_TASK, sum(unit.work for unit in units) // (slots * TASKS_PER_SLOT))
    tasks: list[list[UnitType]] = []
    room = 0
    for unit in largest_first(units):
        if unit.work > room:
            tasks.append([])
            room = whole
        tasks[-1].append(unit)
        room -= unit.work
    return tasks


def run_job(job: Job[UnitType, RecordType], options: session.SessionOptions, watch: Watcher) -> None:
    """Run the unfinished units; Spark starts only if there are any. Call it while the directory is locked."""
    if job.left():
        master = options.chosen_master()
        slots = session.local_cores(master) if session.is_local(master) else SLOTS_OF_A_CLUSTER
        with session.spark_session(f"antiphon {job.title}", options) as spark:
            run_on_spark(spark, job, watch, slots)


def run_here(job: Job[UnitType, RecordType], watch: Watcher) -> None:
    """Run the unfinished units in this process, without Spark."""
    for unit in largest_first(job.left()):
        watch(len(job.records), 1)
        record, failure = attempt(job.run, unit, job.out, last=True)
        note(job, unit.number, record, failure)
        watch(len(job.records), 0)


def note(job: Job[UnitType, RecordType], number: int, record: RecordType | None, failure: str | None) -> None:
    """Add the result of a unit."""
    if record is not None:
        job.records[number] = record
    elif failure is not None:
        job.failures[number] = failure


def run_on_spark(
    spark: SparkSession, job: Job[UnitType, RecordType], watch: Watcher, slots: int = SLOTS_OF_A_CLUSTER
) -> None:
    """Run the unfinished units in an existing session; results are added to the job even if it fails later."""
    from pyspark import cloudpickle

    tasks = into_tasks(job.left(), slots)
    # Packed one by one: a worker unpacks only its own tasks.
    packed: list[bytes] = [cloudpickle.dumps(task) for task in tasks]  # type: ignore[no-untyped-call]
    # One number per partition, in order: Spark starts partitions in order, so the largest units come first.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    frame = numbers.mapInArrow(partial(answer, packed, str(job.out.absolute()), job.run), ANSWER)
    try:
        for row in watched(frame.collect, job, watch):
            note(job, row.unit, None if row.record is None else pickle.loads(row.record), row.failure)
    except AntiphonError:
        raise
    except Exception as error:
        raise explained(error, job) from error
    watch(len(job.records), 0)


def answer(
    packed: list[bytes], out: str, run: Callable[[Any, Path], Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the tasks with the given numbers, in a worker of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    last = context is not None and context.attemptNumber() + 1 >= session.ATTEMPTS
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for unit in pickle.loads(packed[number]):
                record, failure = attempt(run, unit, Path(out), last)
                written = None if record is None else pickle.dumps(record)
                yield pa.record_batch([[unit.number], [written], [failure]], schema=ANSWER_SCHEMA)


def attempt(
    run: Callable[[UnitType, Path], RecordType], unit: UnitType, out: Path, last: bool
) -> tuple[RecordType | None, str | None]:
    """The record of a unit or, at the last attempt, why there is none: one bad unit must not stop the others.

    A disk error is never attributed to the unit: it would affect the others too, so the job ends.
    """
    try:
        return run(unit, out), None
    except PeerError:
        raise
    except Exception as error:
        if not last:
            raise
        return None, f"{type(error).__name__}: {error}"


def watched(work: Callable[[], list[Any]], job: Job[UnitType, RecordType], watch: Watcher) -> list[Any]:
    """Do the work on another thread, and scan the disk for finished units meanwhile."""
    results: list[Any] = []
    errors: list[Exception] = []

    def do() -> None:
        try:
            results.extend(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=do, name="spark-job", daemon=True)
    thread.start()
    pause = SECONDS_BETWEEN_LOOKS
    while thread.is_alive():
        thread.join(pause)
        begun = time.perf_counter()
        job.poll()
        waiting = {unit.number for unit in job.left()}
        took = time.perf_counter() - begun
        watch(len(job.records), len(running_in(job.out) & waiting))
        # Scanning many thousands of units takes time, which the tasks lose.
        pause = max(SECONDS_BETWEEN_LOOKS, PAUSES_PER_LOOK * took)
    if errors:
        raise errors[0]
    return results


def explained(error: Exception, job: Job[UnitType, RecordType]) -> AntiphonError:
    """A failed job in one sentence: the message of our own task, else the last message of Python or Java."""
    text = str(error)
    kept = f"{job.state()} and will not be run again"
    own = OWN_ERROR.search(text)
    if own is not None:
        return PeerError(f"{own[2]} ({kept})")
    said = PYTHON_ERROR.findall(text)
    what = said[-1] if said else session.first_line(text)
    return PeerError(f"the {job.title} stopped: {what}; {kept}")
