"""Plans a query: which log serves a topic, where reading starts and ends, and how the work is divided.

A *partition* is one topic in one log, and has the number of the log. With ``subscribe`` and ``subscribePattern`` each
topic is read from one log: the one that ``startingOffsets`` names, or else the one with the most messages. ``assign``
names the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from antiphon.kernel.errors import UsageError
from antiphon.sessions.client_messages import LogRange
from antiphon.spark.histories import find_histories
from antiphon.spark.logs import LogMemory, Logs, find_logs, run
from antiphon.spark.marks import WantedRows
from antiphon.spark.options import EARLIEST, LATEST, Bound, PartitionOffsets, ReadOptions


class Partition(NamedTuple):
    """One topic in one log."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"partition {self.number} of topic {self.topic!r}"


Positions = dict[Partition, int]

MARKS_KEY: Final = ""
"""The key under which a stream with failover stores the messages it has read; no topic has this name."""


@dataclass
class Piece(InputPartition):
    """The work of one task: offsets of one partition, from the start to below the end, at one node."""

    partition: Partition
    address: str
    start: int
    end: int
    wanted: WantedRows | None = None
    """The wanted rows of these, if not all."""

    def between(self, start: int, end: int) -> Piece:
        """The same partition at other offsets."""
        return Piece(self.partition, self.address, start, end, self.wanted)


def positions_from(offsets: PartitionOffsets) -> Positions:
    """Positions from the form that Spark stores, in which keys are strings."""
    return {
        Partition(topic, int(number)): offset
        for topic, partitions in offsets.items()
        if topic != MARKS_KEY
        for number, offset in partitions.items()
    }


def offsets_from(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions in the form of Kafka's JSON, which Spark stores."""
    offsets: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(positions.items()):
        offsets.setdefault(partition.topic, {})[str(partition.number)] = offset
    return offsets


# Which logs.


def logs_for(options: ReadOptions, wanted: Iterable[Partition] = (), memory: LogMemory | None = None) -> Logs:
    """The logs of the topics to read; ``wanted`` partitions are read already."""
    if options.history:
        return run(find_histories(options.access, options.topics, options.pattern))
    memory = memory or LogMemory()
    bounds = (options.start, options.end)
    times_us = [bound.time_us for bound in bounds if bound.time_us is not None]
    named = {*named_partitions(options), *wanted}

    def lacks(found: Logs) -> bool:
        if any(found.range(topic, number) is None for topic, number in named):
            return True
        has_topics = {*options.topics, *(name for name in found.elsewhere if options.wants(name))} <= found.names()
        return not has_topics and memory.may_search()

    topics = None if options.pattern is not None else options.topics
    first = memory.first(options.access.servers, (number for _, number in named))
    logs = run(find_logs(options.access, topics, times_us, lacks, first))
    memory.learn(logs)
    return logs


def named_partitions(options: ReadOptions) -> list[Partition]:
    """The partitions that options name."""
    if options.assigned is not None:
        return [Partition(topic, number) for topic, numbers in options.assigned.items() for number in numbers]
    return list(positions_from(options.start.offsets)) if options.start.offsets is not None else []


def chosen_partitions(options: ReadOptions, logs: Logs) -> list[Partition]:
    """The partitions that a new query reads."""
    named = named_partitions(options)
    topics = sorted(name for name in logs.names() if options.wants(name)) if options.pattern else options.topics
    for topic in topics:
        if not logs.holding(topic):
            raise UsageError(no_such_topic(topic, logs))
    if not named:
        return [Partition(topic, held.number) for topic in topics if (held := logs.fullest(topic)) is not None]
    for partition in named:
        if partition.topic not in topics:
            raise UsageError(f"option 'startingOffsets' names topic {partition.topic!r}, which is not to be read")
        if logs.range(*partition) is None:
            numbers = ", ".join(str(held.number) for held in logs.holding(partition.topic))
            raise UsageError(
                f"no node that answers has {partition}; there are {numbers}{answers_lacking(logs)}; check the number"
            )
    unnamed = set(topics) - {topic for topic, _ in named}
    if unnamed:
        raise UsageError(
            f"option 'startingOffsets' does not name topic {min(unnamed)!r}; name all topics that are read"
        )
    return named


def no_such_topic(topic: str, logs: Logs) -> str:
    """The complaint about a topic that no node has."""
    if not logs.by_number:
        return (
            f"no node that answers keeps a log{answers_lacking(logs)}; start nodes with a data directory (data, --data)"
        )
    return (
        f"there is no topic {topic!r} in the logs of {len(logs.by_number)} nodes{answers_lacking(logs)}; check the "
        "name, or let a node keep it (keep) and publish on it first"
    )


def answers_lacking(logs: Logs) -> str:
    """The nodes that could not be asked, as a part of a sentence."""
    return f" ({logs.silence()})" if logs.silent else ""


# Start and end.


def resolved(options: ReadOptions, bound: Bound, partitions: Sequence[Partition], logs: Logs) -> Positions:
    """The offsets of a bound in each partition."""
    explicit = positions_from(bound.offsets) if bound.offsets is not None else {}
    for partition in explicit:
        if partition not in partitions:
            raise UsageError(
                f"option {bound.name!r} names {partition}, which is not read; the query reads {listed(partitions)}"
            )
    positions: Positions = {}
    for partition in partitions:
        found = logs.range(*partition)
        assert found is not None, "only partitions are chosen that somebody has"
        if bound.time_us is not None:
            # The requested times: first the start, if it has one.
            positions[partition] = found.at_times[0 if bound is options.start else -1]
            continue
        if bound.offsets is not None and partition not in explicit:
            raise UsageError(f"option {bound.name!r} does not name {partition}; name all partitions that are read")
        offset = explicit.get(partition, bound.everywhere)
        positions[partition] = {EARLIEST: found.first, LATEST: found.end}.get(offset, offset)
    return positions


def listed(partitions: Sequence[Partition]) -> str:
    """Partitions for a message."""
    return ", ".join(map(str, partitions[:8])) + (" and others" if len(partitions) > 8 else "")


def start_within(options: ReadOptions, partition: Partition, offset: int, found: LogRange) -> int:
    """The offset to start at, moved into the range of the log if retention removed it or it never existed."""
    if offset < found.first:
        options.lost(
            f"offset {offset} of {partition} was removed by retention; the earliest remaining one is {found.first}"
        )
        return found.first
    if offset > found.end:
        options.lost(
            f"offset {offset} of {partition} does not exist: the log ends at {found.end}; was the node's data replaced?"
        )
        return found.end
    return offset


def end_within(partition: Partition, offset: int, found: LogRange) -> int:
    """The offset to end at, which must exist."""
    if offset > found.end:
        raise UsageError(f"offset {offset} of {partition} does not exist yet; the latest is {found.end}: end there")
    return max(offset, found.first)


# Dividing.


def divided(pieces: Sequence[Piece], minimal: int | None) -> list[Piece]:
    """At least so many pieces, if there are so many offsets: long ranges are cut more often, as in Kafka's connector.

    Pieces of one partition follow each other in the order of its offsets.
    """
    whole = [piece for piece in pieces if piece.end > piece.start]
    total = sum(piece.end - piece.start for piece in whole)
    if minimal is None or len(whole) >= minimal:
        return whole
    cut: list[Piece] = []
    for piece in whole:
        length = piece.end - piece.start
        parts = min(length, max(1, round(length / total * minimal)))
        edges = [piece.start + length * part // parts for part in range(parts + 1)]
        cut += [piece.between(start, end) for start, end in pairwise(edges)]
    return cut


def piece_of(options: ReadOptions, logs: Logs, partition: Partition, start: int, end: int) -> Piece | None:
    """A piece of a partition at its present node; None if no node has it and data loss is accepted."""
    found = logs.range(*partition)
    if found is None:
        options.lost(unreachable(partition, logs))
        return None
    if end > found.end:
        # It existed when the plan was made.
        options.lost(f"offsets {found.end} to {end - 1} of {partition} are gone; was the node's data replaced?")
        end = found.end
    start = start_within(options, partition, start, found)
    return Piece(partition, logs.by_number[partition.number].address, start, max(start, end))


def unreachable(partition: Partition, logs: Logs) -> str:
    """The complaint about a log that no node has."""
    return (
        f"no node that answers has {partition}{answers_lacking(logs)}; restart that node with its data, and the query "
        "continues where it was"
    )
