"""Universes as jobs on Spark: drawn by a law, or taken from raw subscriptions by the method of the thesis.

The method makes a hundred universes and keeps one. Here all of them are made in one go: a topic or a process has a
mask, with a bit for each candidate that it is in. A process is in those candidates in which one of its topics is a
seed, so its mask is the union of the masks of its topics; every step of the method is then one join and one aggregation
over the subscriptions, for a hundred candidates as for one. Nothing but counts comes to the driver.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from antiphon.kernel.errors import PeerError, UsageError
from antiphon_lab.universes.files import PROCESSES, SUBSCRIPTIONS, TOPICS, About, Candidate, write_about
from antiphon_lab.universes.law import Law, Population
from antiphon_lab.universes.method import Method, median_of, picked_positions, seed_topics
from antiphon_lab.universes.source import Source, distinct_pairs, format_of, numbered, read_names, told

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Step = Callable[[str], None]
"""Called after every step."""

WORK = "_work"
BITS = 63
"""Candidates per word of a mask; the sign is left alone."""
TOPICS_PER_TASK = 2000
ROWS_PER_BATCH = 1 << 16
PAIR = pa.schema([("process", pa.int64()), ("topic", pa.int64())])

STEPS_OF_GENERATE = 1
STEPS_OF_MAKE = 10


# Drawn by a law.


@cache
def population(law: Law, seed: int) -> Population:
    """All processes; made once in each worker."""
    return Population(law, seed)


def draw_topics(law: Law, seed: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Draw the subscriptions to the topics with the given numbers, in a worker of Spark."""
    people = population(law, seed)
    for batch in batches:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for topic in batch.column(0).to_pylist():
            members = people.subscribers(topic)
            waiting.append(pa.record_batch([members, np.full(len(members), topic)], schema=PAIR))
            rows += len(members)
            if rows >= ROWS_PER_BATCH:
                yield pa.concat_batches(waiting)
                waiting, rows = [], 0
        if waiting:
            yield pa.concat_batches(waiting)


def drawn(session: SparkSession, law: Law, seed: int) -> DataFrame:
    """All subscriptions of a synthetic universe."""
    tasks = max(1, -(-law.topics // TOPICS_PER_TASK))
    numbers = session.range(0, law.topics, 1, tasks)
    return numbers.mapInArrow(partial(draw_topics, law, seed), "process bigint, topic bigint")


def generate(session: SparkSession, law: Law, seed: int, out: Path, step: Step) -> About:
    """Draw a universe and write it."""
    about = About(
        source=f"synthetic, like {law.name}; no trace",
        processes=law.processes,
        topics=law.topics,
        subscriptions=int(population(law, seed).popularity.sum()),
        parameters={"law": asdict(law), "seed": seed},
    )
    with told(f"cannot draw into {out}"):
        drawn(session, law, seed).write.mode("overwrite").parquet(str(out / SUBSCRIPTIONS))
    step("drawn")
    finish(out, about)
    return about


def claim(out: Path) -> None:
    """Make an output directory; one that holds something is left alone."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there already; choose another place, or remove it first")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PeerError(f"cannot write to {out}: {error.strerror or error}; choose another place") from error


@contextmanager
def removed_if_broken(out: Path) -> Iterator[None]:
    """Leave nothing behind that is not finished, so that the same command can be given again."""
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def finish(out: Path, about: About) -> None:
    """Write the description of a directory, as the last step."""
    try:
        shutil.rmtree(out / WORK, ignore_errors=True)
        write_about(out, about)
    except OSError as error:
        raise PeerError(f"cannot write to {out}: {error.strerror or error}; free some space") from error


# Taken from raw subscriptions.


@dataclass(frozen=True)
class Masks:
    """The columns of a mask for some candidates."""

    candidates: int

    @property
    def words(self) -> list[str]:
        """The names of its columns."""
        return [f"mask_{number}" for number in range(-(-self.candidates // BITS))]

    @property
    def schema(self) -> str:
        """Rows of a topic and its mask, for Spark."""
        return ", ".join(["topic bigint", *(f"{word} bigint" for word in self.words)])

    def union(self, rows: DataFrame, key: str) -> DataFrame:
        """The masks of rows with the same key as one."""
        from pyspark.sql import functions as f

        return rows.groupBy(key).agg(*(f.bit_or(word).alias(word) for word in self.words))

    def bit(self, candidate: int) -> Column:
        """One if the candidate is in the mask, else zero."""
        from pyspark.sql import functions as f

        return f.getbit(self.words[candidate // BITS], f.lit(candidate % BITS)).cast("bigint")

    def counts(self, rows: DataFrame) -> list[int]:
        """For each candidate, in how many masks it is."""
        from pyspark.sql import functions as f

        found = rows.agg(*(f.sum(self.bit(number)).alias(str(number)) for number in range(self.candidates))).first()
        assert found is not None, "an aggregate over everything has one row"
        return [int(count or 0) for count in found]

    def table(self, topics: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> pa.RecordBatch:
        """Masks from the topics of each candidate, every topic once."""
        whose = np.repeat(np.arange(len(topics)), [len(one) for one in topics])
        together = np.concatenate([np.empty(0, np.int64), *topics])
        order = np.argsort(together, kind="stable")
        distinct, starts = np.unique(together[order], return_index=True)
        columns: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = [distinct]
        for number in range(len(self.words)):
            bits = np.where(whose[order] // BITS == number, np.int64(1) << (whose[order] % BITS), 0)
            columns.append(np.bitwise_or.reduceat(bits, starts) if len(starts) else bits)
        return pa.record_batch(columns, names=["topic", *self.words])


def draw_seeds(
    masks: Masks, method: Method, topics: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The seed sets of the candidates with the numbers that come, as masks of topics."""
    for batch in batches:
        numbers = set(batch.column(0).to_pylist())
        if numbers:
            nothing = np.empty(0, np.int64)
            yield masks.table(
                [
                    seed_topics(method, number, topics) if number in numbers else nothing
                    for number in range(masks.candidates)
                ]
            )


def pick_topics(masks: Masks, method: Method, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of every process a random topic for each candidate that it is in, as masks of topics.

    Rows have a process, its topics as a list, and its mask.
    """
    for batch in batches:
        process = batch.column(0).to_numpy()
        lists = batch.column(1)
        offsets, topics = lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy()
        degrees = np.diff(offsets)
        words = [batch.column(2 + number).to_numpy() for number in range(len(masks.words))]
        found = []
        for candidate in range(masks.candidates):
            inside = np.flatnonzero(words[candidate // BITS] >> (candidate % BITS) & 1)
            places = picked_positions(method, candidate, process[inside], degrees[inside])
            found.append(np.unique(topics[offsets[inside] + places]))
        yield masks.table(found)


class Making:
    """One run of the method. The working directory keeps the result of every step, so nothing is done twice."""

    def __init__(self, session: SparkSession, method: Method, out: Path, step: Step) -> None:
        self._session = session
        self._method = method
        self._out = out
        self._step = step

    def run(self, source: Source) -> About:
        """Read, make all candidates, write the median one."""
        names = read_names(self._session, source)
        # A universe has every subscription once.
        self._number(names if format_of(source) == "universe" else distinct_pairs(names))
        topics = self._topics.count()
        self._masks = Masks(self._method.distinct_candidates(topics))
        seeds = self._seeds(topics)
        first = self._kept("first", self._subscribers(seeds), "subscribers of the seeds")
        enlarged = self._masks.union(seeds.unionByName(self._added(first)), "topic")
        enlarged = self._kept("enlarged", enlarged, "seed sets enlarged")
        if self._method.members == "enlarged":
            members = self._kept("members", self._subscribers(enlarged), "subscribers of the enlarged sets")
        else:
            members = first
            self._step("subscribers of the seeds stay")
        left = self._kept("left", self._pruned(enlarged, members), "topics pruned")
        reached = self._kept("reached", self._both(self._subscribers(left), members), "processes left")
        counts = zip(self._masks.counts(left), self._masks.counts(reached), strict=True)
        candidates = [Candidate(*count) for count in counts]
        chosen = median_of(candidates)
        self._step(f"candidate {chosen} of {len(candidates)} is the median")
        return self._write(source, candidates, chosen, left, reached)

    def _kept(self, name: str, frame: DataFrame, what: str | None = None) -> DataFrame:
        """Write a result, and continue from the file."""
        place = str(self._out / WORK / name)
        with told(f"{what or name}: this failed"):
            frame.write.mode("overwrite").parquet(place)
        if what is not None:
            self._step(what)
        return self._session.read.parquet(place)

    def _number(self, names: DataFrame) -> None:
        """Number processes and topics, and write subscriptions as numbers."""
        from pyspark.sql import functions as f

        pairs = self._kept("pairs", names, "subscriptions read")
        if pairs.isEmpty():
            raise UsageError("no row of the source has a process and a topic; check --process, --topic and --where")
        with told("numbering failed"):
            self._processes, self._topics = (
                self._kept(f"{name}_numbers", numbered(self._session, pairs, name, self._out / WORK / f"{name}_names"))
                for name in ("process", "topic")
            )
        by_process = self._processes.select(f.col("name").alias("process"), f.col("number").alias("by"))
        by_topic = self._topics.select(f.col("name").alias("topic"), f.col("number").alias("to"))
        joined = pairs.join(by_topic, "topic").join(by_process, "process")
        joined = joined.select(f.col("by").alias("process"), f.col("to").alias("topic"))
        self._pairs = self._kept("subscriptions", joined, "processes and topics numbered")

    def _seeds(self, topics: int) -> DataFrame:
        """The masks of seeds."""
        numbers = self._session.range(0, self._masks.candidates, 1, min(self._masks.candidates, 16))
        drawing = partial(draw_seeds, self._masks, self._method, topics)
        found = self._masks.union(numbers.mapInArrow(drawing, self._masks.schema), "topic")
        return self._kept("seeds", found, "seeds drawn")

    def _subscribers(self, topics: DataFrame) -> DataFrame:
        """The masks of processes: the union of those of their topics."""
        return self._masks.union(self._pairs.join(topics, "topic"), "process")

    def _added(self, first: DataFrame) -> DataFrame:
        """The topics that the subscribers of the seeds add, as masks."""
        from pyspark.sql import functions as f

        words = self._masks.words
        if self._method.enlarge == "own":
            own = self._processes.withColumnRenamed("number", "process").join(
                self._topics.withColumnRenamed("number", "topic"), "name"
            )
            if own.isEmpty():
                raise UsageError("no topic has the name of a process, so there are no journals; use --enlarge random")
            return first.join(own, "process").select("topic", *words)
        lists = self._pairs.groupBy("process").agg(f.sort_array(f.collect_list("topic")).alias("topics"))
        rows = lists.join(first, "process").select("process", "topics", *words)
        return rows.mapInArrow(partial(pick_topics, self._masks, self._method), self._masks.schema)

    def _pruned(self, enlarged: DataFrame, members: DataFrame) -> DataFrame:
        """The masks of topics that have enough subscribers."""
        from pyspark.sql import functions as f

        fewest = self._method.fewest_subscribers
        if self._method.prune_by == "source" or self._method.members == "enlarged":
            # All subscribers of a topic of the enlarged set are members: there are as many as in the source.
            enough = self._pairs.groupBy("topic").count().where(f.col("count") >= fewest).select("topic")
            return enlarged.join(enough, "topic")
        inside = self._both(self._pairs.join(enlarged, "topic"), members)
        numbers = range(self._masks.candidates)
        counts = inside.groupBy("topic").agg(*(f.sum(self._masks.bit(number)).alias(str(number)) for number in numbers))
        left = [
            sum(
                (
                    f.when(f.col(str(number)) >= fewest, f.lit(1 << number % BITS)).otherwise(f.lit(0))
                    for number in numbers
                    if number // BITS == place
                ),
                f.lit(0).cast("bigint"),
            ).alias(word)
            for place, word in enumerate(self._masks.words)
        ]
        return counts.select("topic", *left)

    def _both(self, rows: DataFrame, members: DataFrame) -> DataFrame:
        """Rows of processes, with the common part of their masks and those of the members."""
        from pyspark.sql import functions as f

        words = self._masks.words
        other = members.select("process", *(f.col(word).alias(f"member_{word}") for word in words))
        common = [f.col(word).bitwiseAND(f.col(f"member_{word}")).alias(word) for word in words]
        kept = [name for name in rows.columns if name not in words]
        return rows.join(other, "process").select(*kept, *common)

    def _write(
        self, source: Source, candidates: list[Candidate], chosen: int, left: DataFrame, reached: DataFrame
    ) -> About:
        """Write the chosen candidate, renumbered in the old order."""
        from pyspark.sql import functions as f

        sides = {}
        for key, rows, names, place in (
            ("process", reached, self._processes, PROCESSES),
            ("topic", left, self._topics, TOPICS),
        ):
            inside = rows.where(self._masks.bit(chosen) == 1).select(key)
            new = numbered(self._session, inside, key, self._out / WORK / f"new_{place}")
            named = new.withColumnRenamed("name", "old").join(names.withColumnRenamed("number", "old"), "old")
            with told(f"cannot write {place}"):
                named.select(f.col("number").alias(key), "name", "old").write.parquet(str(self._out / place))
            sides[key] = self._session.read.parquet(str(self._out / place))
        by_process = sides["process"].select(f.col("process").alias("by"), f.col("old").alias("process"))
        by_topic = sides["topic"].select(f.col("topic").alias("to"), f.col("old").alias("topic"))
        pairs = self._pairs.join(by_topic, "topic").join(by_process, "process")
        with told("cannot write subscriptions"):
            place = str(self._out / SUBSCRIPTIONS)
            pairs.select(f.col("by").alias("process"), f.col("to").alias("topic")).write.parquet(place)
            count = self._session.read.parquet(place).count()
        self._step("written")
        about = About(
            source=source.path,
            processes=candidates[chosen].processes,
            topics=candidates[chosen].topics,
            subscriptions=count,
            parameters={**asdict(self._method), "chosen": chosen},
            candidates=candidates,
        )
        finish(self._out, about)
        return about


def make(session: SparkSession, source: Source, method: Method, out: Path, step: Step) -> About:
    """Take a universe from raw subscriptions and write it."""
    return Making(session, method, out, step).run(source)
