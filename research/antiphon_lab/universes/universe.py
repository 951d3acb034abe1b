"""Universes in memory: the subscriptions of systems with many topics, for experiments.

A universe is a set of processes, a set of topics and the subscriptions between them (thesis of M. Matos, section
3.3.1). Large ones are made and read by jobs on Spark (:mod:`antiphon_lab.universes.jobs`); those that fit into memory
are arrays here. Both have the same files: a directory with subscriptions as Parquet, columns ``process`` and ``topic``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.kernel.errors import PeerError, UsageError
from antiphon_lab.universes.files import ABOUT, SUBSCRIPTIONS, About, read_about, write_about
from antiphon_lab.universes.law import Integers, Population, Reals, law_named, power_law, stream

GRID_STREAM = 64
GRID_LEAST_RADIUS, GRID_RADIUS_EXPONENT, GRID_LARGEST_RADIUS = 0.03, 1.5, 0.8
GRID_POINTS_EXPONENT, GRID_MOST_POINTS = 2.5, 4
GRID_FEWEST_SUBSCRIBERS = 2
"""The grid of section 3.3.2, whose exponents the thesis does not give: these make views of the published size."""


@dataclass(frozen=True, eq=False)
class Universe:
    """Subscriptions from both sides: the topics of each process, and the processes of each topic.

    The entries of number ``i`` of one side are ``[offsets[i]:offsets[i + 1]]`` of the array, in ascending order. A
    process or topic may have none.
    """

    topic_offsets: Integers
    """Where the processes of each topic begin; one more than there are topics."""
    topic_processes: Integers
    process_offsets: Integers
    """Where the topics of each process begin; one more than there are processes."""
    process_topics: Integers

    @property
    def processes(self) -> int:
        """How many processes there are."""
        return len(self.process_offsets) - 1

    @property
    def topics(self) -> int:
        """How many topics there are."""
        return len(self.topic_offsets) - 1

    @property
    def subscriptions(self) -> int:
        """How many subscriptions there are."""
        return len(self.topic_processes)

    @property
    def popularity(self) -> Integers:
        """How many subscribers each topic has."""
        return np.diff(self.topic_offsets)

    @property
    def activity(self) -> Integers:
        """How many subscriptions each process has."""
        return np.diff(self.process_offsets)

    def topics_of(self, process: int) -> Integers:
        """The topics of a process, in ascending order."""
        return self.process_topics[self.process_offsets[process] : self.process_offsets[process + 1]]

    def processes_of(self, topic: int) -> Integers:
        """The subscribers of a topic, in ascending order."""
        return self.topic_processes[self.topic_offsets[topic] : self.topic_offsets[topic + 1]]

    def pairs(self) -> tuple[Integers, Integers]:
        """All subscriptions, by topic: processes and topics."""
        return self.topic_processes, np.repeat(np.arange(self.topics), self.popularity)


def universe_of(
    process: Integers, topic: Integers, processes: int | None = None, topics: int | None = None
) -> Universe:
    """The universe with these subscriptions, in any order; numbers begin at 0, and repetitions count once."""
    if len(process) != len(topic):
        raise UsageError(f"{len(process)} processes and {len(topic)} topics are no list of subscriptions")
    if len(process) and min(int(process.min()), int(topic.min())) < 0:
        raise UsageError("processes and topics are numbered from 0; there is a negative number")
    least_processes = int(process.max()) + 1 if len(process) else 0
    least_topics = int(topic.max()) + 1 if len(topic) else 0
    processes = least_processes if processes is None else processes
    topics = least_topics if topics is None else topics
    if processes < least_processes or topics < least_topics:
        raise UsageError(
            f"there are subscriptions of {least_processes} processes to {least_topics} topics, more than the "
            f"{processes} and {topics} of the universe"
        )
    # One number per subscription sorts faster than two.
    packed = np.unique(topic.astype(np.int64) * max(processes, 1) + process)
    by_topic, members = np.divmod(packed, max(processes, 1))
    by_process = np.argsort(members, kind="stable")
    return Universe(
        topic_offsets=offsets_of(by_topic, topics),
        topic_processes=members,
        process_offsets=offsets_of(members[by_process], processes),
        process_topics=by_topic[by_process],
    )


def offsets_of(ascending: Integers, count: int) -> Integers:
    """Where each of the numbers from 0 begins."""
    return np.searchsorted(ascending, np.arange(count + 1))


def correlation_matrix(universe: Universe, topics: Integers | None = None) -> Reals:
    """Pearson's coefficient of every pair of topics, or of some; ones on the diagonal."""
    matrix = np.zeros((universe.processes, universe.topics), np.float32)
    process, topic = universe.pairs()
    matrix[process, topic] = 1.0
    return np.atleast_2d(np.corrcoef(matrix if topics is None else matrix[:, topics], rowvar=False))


def synthetic_universe(kind: str, processes: int | None = None, seed: int = 1, topics: int | None = None) -> Universe:
    """A universe like those of Wikipedia or LiveJournal: ``kind`` is ``wikipedia`` or ``livejournal``.

    Without a number of processes it is as large as W8 or L8 of Table 3.1; other sizes keep the communities and the
    number of topics per process. The same job on Spark draws the same universe.
    """
    law = law_named(kind)
    if processes is not None or topics is not None:
        law = law.scaled(law.processes if processes is None else processes, topics)
    members, numbers = Population(law, seed).subscriptions(0, law.topics)
    return universe_of(members, numbers, law.processes, law.topics)


def grid_universe(processes: int, topics: int, seed: int = 1) -> Universe:
    """The synthetic workload of section 3.3.2: interests as circles on a square, topics as points.

    Topics that fewer than two processes care for have no subscribers.
    """
    random = stream(seed, GRID_STREAM)
    places = random.random((processes, 2))
    radius = power_law(random.random(processes), GRID_LEAST_RADIUS, GRID_RADIUS_EXPONENT, GRID_LARGEST_RADIUS)
    points = power_law(random.random(topics), 1.0, GRID_POINTS_EXPONENT, GRID_MOST_POINTS).astype(np.int64)
    lists: list[Integers] = []
    for count in points:
        spots = random.random((int(count), 2))
        apart: Reals = np.linalg.norm(places[:, None, :] - spots[None, :, :], axis=2)
        near = np.flatnonzero((apart <= radius[:, None]).any(axis=1))
        lists.append(near if len(near) >= GRID_FEWEST_SUBSCRIBERS else near[:0])
    numbers = np.repeat(np.arange(topics), [len(one) for one in lists])
    return universe_of(np.concatenate([np.empty(0, np.int64), *lists]), numbers, processes, topics)


def write_universe(universe: Universe, directory: Path, source: str) -> None:
    """Write a universe as the jobs on Spark do; ``source`` is its origin."""
    process, topic = universe.pairs()
    place = directory / SUBSCRIPTIONS
    try:
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"process": process, "topic": topic}), place / "part-0.parquet", compression="zstd")
        write_about(directory, About(source, universe.processes, universe.topics, universe.subscriptions))
    except OSError as error:
        raise PeerError(f"cannot write {directory}: {error.strerror or error}; choose another place") from error


def read_universe(directory: Path) -> Universe:
    """Read a universe that was written here or by a job on Spark."""
    about = read_about(directory)
    try:
        table = pq.read_table(directory / SUBSCRIPTIONS, columns=["process", "topic"])
    except (OSError, pa.ArrowInvalid) as error:
        raise PeerError(f"{directory / SUBSCRIPTIONS} cannot be read: {error}; make the universe again") from error
    process, topic = (table[name].to_numpy().astype(np.int64) for name in ("process", "topic"))
    if len(process) != about.subscriptions:
        raise PeerError(
            f"{directory} has {len(process):,} subscriptions and {ABOUT} says {about.subscriptions:,}; make it again"
        )
    return universe_of(process, topic, about.processes, about.topics)
