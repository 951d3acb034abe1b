"""Running many independent units of work: as tasks of Spark, or one after the other in this process.

A unit is one deterministic run: a cell of a sweep, or one measurement of an experiment. Whoever declares a job says how
a unit is run and how the record of a finished one is read from disk; everything else is done here, once for all.

Spark decides where and when: it gets one task per unit (small ones share one), the largest first so that no core is
idle at the end, and tries a task again that fails or whose executor dies. A unit writes its results itself; what goes
through Spark is its record. All machines of a cluster must therefore see the output directory under the same name.
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
from antiphon.pipeline.attempts import running_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK_PER_TASK = 200_000
"""Units with less work than this (a fraction of a second) share a task: starting one costs tens of milliseconds."""
SECONDS_BETWEEN_LOOKS = 0.5
PAUSES_PER_LOOK = 50
"""How many times as long as it takes to look at the disk is waited before the next time."""
TASKS_PER_SLOT = 4
SLOTS_OF_A_CLUSTER = 64
"""Nobody here knows how many tasks a cluster can run at a time; more is better than less."""
ANSWER = "unit long, record binary, failure string"
ANSWER_SCHEMA = pa.schema([("unit", pa.int64()), ("record", pa.binary()), ("failure", pa.string())])
OWN_ERROR = re.compile(r"antiphon\.kernel\.errors\.(\w+): (.+)")
PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)

Watcher = Callable[[int, int], None]
"""Told now and then how many units are done and how many are running."""


class Unit(Protocol):
    """One deterministic run. Can be pickled."""

    @property
    def number(self) -> int:
        """Tells it from the others of its job."""

    @property
    def work(self) -> int:
        """An estimate, about a microsecond each, to begin with the largest."""


UnitType = TypeVar("UnitType", bound=Unit)
RecordType = TypeVar("RecordType")


@dataclass(kw_only=True)
class Job(Generic[UnitType, RecordType]):
    """What there is to do, and what is done."""

    title: str
    """What messages call it."""
    called: str
    """What messages call its units."""
    units: list[UnitType]
    out: Path
    read: Callable[[UnitType, Path], RecordType | None]
    """The record of a finished unit; none if it must be run."""
    run: Callable[[UnitType, Path], RecordType]
    """Runs a unit, unless it is finished."""
    records: dict[int, RecordType] = field(default_factory=dict)
    """Of the units that are finished, by their number."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why units failed, after all attempts."""

    def look(self) -> None:
        """Find out which of the others are finished; writes nothing."""
        for unit in self.left():
            record = self.read(unit, self.out)
            if record is not None:
                self.records[unit.number] = record

    def left(self) -> list[UnitType]:
        """The units that are not finished."""
        return [unit for unit in self.units if unit.number not in self.records]

    def state(self) -> str:
        """How far it came, for people."""
        self.look()
        return f"{len(self.records):,} of {len(self.units):,} {self.called} are finished"


def largest_first(units: list[UnitType]) -> list[UnitType]:
    """The units in the order in which they are begun."""
    return sorted(units, key=lambda unit: (-unit.work, unit.number))


def into_tasks(units: list[UnitType], slots: int) -> list[list[UnitType]]:
    """The units in tasks, those with most work first; small ones share one, but each slot gets several tasks."""
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
    """Run what is left; starts Spark only if there is something. Call it while the directory is held."""
    if job.left():
        master = options.chosen_master()
        slots = session.local_cores(master) if session.is_local(master) else SLOTS_OF_A_CLUSTER
        with session.spark_session(f"antiphon {job.title}", options) as spark:
            run_on_spark(spark, job, watch, slots)


def run_here(job: Job[UnitType, RecordType], watch: Watcher) -> None:
    """Run what is left in this process, without Spark."""
    for unit in largest_first(job.left()):
        watch(len(job.records), 1)
        record, failure = attempt(job.run, unit, job.out, last=True)
        note(job, unit.number, record, failure)
        watch(len(job.records), 0)


def note(job: Job[UnitType, RecordType], number: int, record: RecordType | None, failure: str | None) -> None:
    """Add what came of a unit."""
    if record is not None:
        job.records[number] = record
    elif failure is not None:
        job.failures[number] = failure


def run_on_spark(
    spark: SparkSession, job: Job[UnitType, RecordType], watch: Watcher, slots: int = SLOTS_OF_A_CLUSTER
) -> None:
    """Run what is left in a session that is there; results are added to the job as far as it came."""
    from pyspark import cloudpickle

    tasks = into_tasks(job.left(), slots)
    # Each apart: a worker unpacks the tasks that it gets, and not those of all.
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
    """Run the tasks with the numbers that come; this is what happens in a worker of Spark."""
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

    What the disk did wrong is never put down to the unit: the others will meet it too, so the job ends.
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
    pause = SECONDS_BETWEEN_LOOKS
    while thread.is_alive():
        thread.join(pause)
        begun = time.perf_counter()
        job.look()
        waiting = {unit.number for unit in job.left()}
        took = time.perf_counter() - begun
        watch(len(job.records), len(running_in(job.out) & waiting))
        # Looking at many thousands of units takes a while, which is the tasks' while too.
        pause = max(SECONDS_BETWEEN_LOOKS, PAUSES_PER_LOOK * took)
    if errors:
        raise errors[0]
    return results


def explained(error: Exception, job: Job[UnitType, RecordType]) -> AntiphonError:
    """A failed job in one sentence: what a task of ours said, else the last thing that Python or Java said."""
    text = str(error)
    kept = f"{job.state()} and will not be run again"
    own = OWN_ERROR.search(text)
    if own is not None:
        return PeerError(f"{own[2]} ({kept})")
    said = PYTHON_ERROR.findall(text)
    what = said[-1] if said else session.first_line(text)
    return PeerError(f"the {job.title} stopped: {what}; {kept}")
