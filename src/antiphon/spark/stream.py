"""Reads topics in a stream: offsets that Spark stores, limits per micro-batch, and topics that appear later.

The offsets of a stream are those of Kafka's connector, ``{"room": {"17": 23}}``: by topic and partition, the next one
to read. A partition names its log, so a restarted query finds the same messages at the same offsets, wherever the node
with that log runs then. The messages of a micro-batch are fixed when its offsets are stored, before it is read; they
are the same whenever it is read again. This holds for topics that appear later, too: the first micro-batch with a new
topic only stores where it begins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from antiphon.kernel.errors import DeniedError, PeerError
from antiphon.runtime.logging import logger
from antiphon.spark.failover import another_log, marks_at, marks_before, marks_in, same_batch_elsewhere, texts_of
from antiphon.spark.logs import LogMemory, Logs
from antiphon.spark.marks import WantedRows
from antiphon.spark.options import DataLossError, ReadOptions
from antiphon.spark.plan import (
    Partition,
    Piece,
    Positions,
    chosen_partitions,
    divided,
    logs_for,
    named_partitions,
    offsets_from,
    piece_of,
    positions_from,
    resolved,
    start_within,
    unreachable,
)
from antiphon.spark.reader import read_piece

FRESH_SECONDS: Final = 10.0
"""How long answers of nodes remain good enough to find a log."""


LOOK_SECONDS: Final = 0.25
"""The interval at which to look for a missing node."""

log = logger("spark")


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports how far a stream can be read, plans micro-batches, and reads them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        # The end of a query that stops at the present end; None if it does not stop.
        self._target: Positions | None = None
        self._latest: Positions | None = None
        self._logs: Logs | None = None
        self._memory = LogMemory()
        self._asked_at = 0.0

    # Offsets.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The offsets at which a new query starts."""
        options = self._options
        logs = self._ask()
        partitions = chosen_partitions(options, logs)
        starts = resolved(options, options.start, partitions, logs)
        found = {partition: logs.range(*partition) for partition in partitions}
        positions = {
            partition: start_within(options, partition, starts[partition], bounds)
            for partition, bounds in found.items()
            if bounds is not None
        }
        return self._written(positions, positions, {})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The offsets up to which the next micro-batch reads."""
        give_up_at = time.monotonic() + self._options.patience_seconds
        while True:
            try:
                return self._decide(start, limit)
            except (DeniedError, DataLossError):
                raise
            except PeerError as error:
                # A node may go away while it is asked; the next attempt finds it gone.
                if time.monotonic() >= give_up_at:
                    raise
                log.warning("a node went away while it was asked", reason=str(error))
                time.sleep(LOOK_SECONDS)

    def _decide(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # The options of a restarted query may leave topics out.
        starts = {each: offset for each, offset in positions_from(start).items() if is_wanted(self._options, each)}
        moved: Positions = {}
        ends = self._ends(starts, moved)
        self._latest = dict(ends)
        if self._target is not None:
            # A log that was missing when the query began is read up to its end when it is found.
            ends = {partition: min(end, self._target.setdefault(partition, end)) for partition, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        # A missing or shortened log was reported; nothing is read of it now.
        ends = {partition: max(end, starts[partition]) for partition, end in ends.items()}
        return self._written(starts, ends | self._beginnings(starts) | moved, start, moved)

    def _written(
        self, starts: Positions, ends: Positions, start: dict[str, Any], moved: Iterable[Partition] = ()
    ) -> dict[str, Any]:
        """Offsets as Spark stores them and, with failover, the messages that will have been read."""
        offsets: dict[str, Any] = offsets_from(ends)
        if not self._options.failover:
            return offsets
        logs = self._logs or self._ask(starts)
        read = marks_in(start)
        for partition, offset in starts.items():
            if partition.topic not in read:
                read[partition.topic] = marks_before(self._options, logs, partition, offset)
        marks = marks_at(self._options, logs, read, starts, ends)
        for topic, _ in moved:
            marks[topic].is_moved = True
        return offsets | texts_of(marks)

    def _ends(self, starts: Positions, moved: Positions) -> Positions:
        """The ends of all partitions that are read; ``moved`` gets the new positions of topics whose logs are gone."""
        options = self._options
        logs = self._ask(starts)
        ends: Positions = {}
        for partition, start in starts.items():
            found = logs.range(*partition)
            other = another_log(logs, partition) if found is None and options.failover else {}
            if other:
                moved |= other
            elif found is None:
                options.lost(unreachable(partition, logs))
                ends[partition] = start
            else:
                start_within(options, partition, start, found)
                ends[partition] = found.end
        return ends

    def _beginnings(self, starts: Positions) -> Positions:
        """The beginnings of partitions that are new to the query; a query that will stop takes only those that existed
        at its start.
        """
        logs, target = self._logs, self._target
        if logs is None:
            return {}
        beginnings: Positions = {}
        for partition in new_partitions(self._options, logs, starts):
            found = logs.range(*partition)
            if found is not None and (target is None or partition in target):
                beginnings[partition] = found.first
        return beginnings

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """At most ``maxOffsetsPerTrigger`` rows."""
        most = self._options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """The offsets up to which it could be read without a limit."""
        return None if self._latest is None else offsets_from(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Remember the present ends."""
        logs = self._ask()
        self._target = {
            Partition(topic, held.number): found.end
            for held in logs.by_number.values()
            for topic, found in held.topics.items()
        }

    # Reading.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Piece]:
        """The pieces of a micro-batch."""
        starts, ends = positions_from(start), positions_from(end)
        logs = self._ask(ends, FRESH_SECONDS)
        read, batch = marks_in(start), marks_in(end)
        pieces = []
        for partition, last in ends.items():
            # A partition that was not read before begins where this micro-batch ends.
            first = starts.get(partition, last)
            if first >= last:
                continue
            topic = partition.topic
            piece = None
            if logs.range(*partition) is None and topic in read and topic in batch:
                piece = same_batch_elsewhere(self._options, logs, topic, read[topic], batch[topic])
            if piece is None:
                piece = piece_of(self._options, logs, partition, first, last)
            if piece is not None:
                if piece.wanted is None and topic in read and read[topic].is_moved:
                    piece.wanted = WantedRows(read[topic])
                pieces.append(piece)
        return divided(pieces, self._options.minimal_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        assert isinstance(partition, Piece), "Spark hands back what it was given"
        return read_piece(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the node keeps the log as long as its retention says."""

    def stop(self) -> None:
        """Nothing to do: connections last as long as a question."""

    # Asking nodes.

    def _ask(self, wanted: Positions | None = None, fresh_seconds: float = 0.0) -> Logs:
        """The logs of nodes; recent answers if those are enough and name everything wanted."""
        partitions = list(wanted or ())
        logs = self._logs
        is_known = logs is not None and all(logs.range(*partition) is not None for partition in partitions)
        if logs is None or not is_known or time.monotonic() - self._asked_at > fresh_seconds:
            logs = self._logs = self._wait_for(partitions)
            self._asked_at = time.monotonic()
        return logs

    def _wait_for(self, partitions: list[Partition]) -> Logs:
        """The logs of nodes, after waiting for a needed node that may be restarting."""
        options = self._options
        give_up_at = time.monotonic() + (options.patience_seconds if options.fail_on_data_loss else 0)
        while True:
            failure: PeerError | None = None
            try:
                logs = logs_for(options, partitions, self._memory)
                if all(logs.range(*partition) is not None for partition in partitions):
                    return logs
            except DeniedError:
                raise
            except PeerError as error:
                failure = error
            if time.monotonic() >= give_up_at:
                if failure is not None:
                    raise failure
                return logs
            log.warning("waiting for a node whose log is read")
            time.sleep(LOOK_SECONDS)


def is_wanted(options: ReadOptions, partition: Partition) -> bool:
    """Whether a partition with a stored position is still to be read."""
    if options.assigned is not None:
        return partition.number in options.assigned.get(partition.topic, ())
    return options.wants(partition.topic)


def new_partitions(options: ReadOptions, logs: Logs, starts: Positions) -> list[Partition]:
    """Partitions that a query should read and does not: new topics, and topics that a restart added."""
    if options.assigned is not None:
        return [partition for partition in named_partitions(options) if partition not in starts]
    known = {partition.topic for partition in starts}
    fresh = sorted(name for name in logs.names() if options.wants(name) and name not in known)
    return [Partition(topic, held.number) for topic in fresh if (held := logs.fullest(topic)) is not None]


def limited(starts: Positions, ends: Positions, most: int) -> Positions:
    """Ends that are at most so many offsets away; each partition has a share by its size, as in Kafka's connector."""
    sizes = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return ends
    found: Positions = {}
    for partition, size in sizes.items():
        share = most * size / total
        # A small partition must not wait for ever behind large ones.
        rows = math.ceil(share) if share < 1 else math.floor(share)
        found[partition] = min(ends[partition], starts[partition] + rows)
    return found
