"""The sink: rows of Spark become messages of topics, each exactly once.

A partition of a batch is written by a lane of a writer (:mod:`antiphon.sessions.writers`): the writer is the query,
identified by its checkpoint, the lane is the partition, and the series is the batch. So everything that Spark repeats
after the death of a task, a worker, the driver or a node has the same numbers, and every node drops what its log has
already.

A task has succeeded when all members of the topics have all its rows. When all tasks have, the driver checks whether
partitions that do not exist this time have written anything in the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from antiphon.client.client import LiveClient
from antiphon.client.idempotent_producer import ConflictError, Lane, lane_states_of_series
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.spark.logs import connect
from antiphon.spark.options import Access
from antiphon.spark.sink_options import WriteOptions, write_options
from antiphon.spark.sink_rows import Cutter, Layout

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""The property in which Spark names the query and the batch to its tasks."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The output of a task: the number of pieces on each topic, with their digests."""

    writer: str
    lane: int
    series: int
    pieces: dict[str, tuple[int, int]]
    rows: int


@dataclass(frozen=True)
class Work:
    """The identity of a task's work, the same for all attempts."""

    writer: str
    lane: int
    series: int
    attempt: int = 0


class TopicWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        Layout(schema, options.topic)
        # Made once for all tasks of the write and all their attempts.
        self._write_id = options.write_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = task_context()
        query, batch = task.getLocalProperty(QUERY_PROPERTY), task.getLocalProperty(BATCH_PROPERTY)
        if self._options.write_id is not None and query is not None and batch is not None:
            # Inside foreachBatch, the same write of the same batch is the same work.
            work = Work(f"{query}/{self._write_id}", task.partitionId(), int(batch), task.attemptNumber())
        else:
            work = Work(f"write/{self._write_id}", task.partitionId(), 0, task.attemptNumber())
        return asyncio.run(write_partition(self._options, self._schema, work, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        asyncio.run(check_lanes(self._options, messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: written rows stay, and are recognised if the write is run again under the same ``writeId``."""


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        Layout(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = task_context()
        query, batch = task.getLocalProperty(QUERY_PROPERTY), task.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise PeerError("Spark does not name the query and batch of this task; use Spark 4.2 or later")
        work = Work(query, task.partitionId(), int(batch), task.attemptNumber())
        return asyncio.run(write_partition(self._options, self._schema, work, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        asyncio.run(check_lanes(self._options, messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Do nothing: written rows stay, and are recognised when the batch is run again."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicWriter:
    """The writer of ``write``."""
    if overwrite:
        raise UsageError("a topic cannot be overwritten: it only grows; use mode('append')")
    return TopicWriter(write_options(options, is_stream=False), schema)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> TopicStreamWriter:
    """The writer of ``writeStream``; in the output mode ``complete`` each batch publishes the whole result."""
    del overwrite
    return TopicStreamWriter(write_options(options, is_stream=True), schema)


def task_context() -> TaskContext:
    """The task that runs here."""
    task = TaskContext.get()
    if task is None:
        raise UsageError("rows are written by tasks of Spark; call write or writeStream")
    return task


async def write_partition(
    options: WriteOptions, schema: StructType, work: Work, iterator: Iterator[pa.RecordBatch]
) -> Written:
    """Publish all rows of a partition, and wait until all members of their topics have them."""
    layout = Layout(schema, options.topic)
    cutter = Cutter(options.order == "total")
    topics = [] if options.topic is None else [options.topic]
    client = await connected(options.access, work)
    try:
        lane = await bounded(
            Lane.open(client, work.writer, work.lane, work.series, options.order, topics, options.durable), options
        )
        # A thread waits for Spark, so that the loop can talk to the node meanwhile.
        while (batch := await asyncio.to_thread(next, iterator, None)) is not None:
            for topic, row in layout.rows(batch):
                piece = cutter.add(topic, row)
                if piece is not None:
                    await bounded(lane.write(topic, piece.columns(), tuple(sorted(piece.about))), options)
        for topic, piece in cutter.rest():
            await bounded(lane.write(topic, piece.columns(), tuple(sorted(piece.about))), options)
        pieces = await bounded(lane.finish(), options)
    finally:
        await client.abandon()
    return Written(work.writer, work.lane, work.series, pieces, cutter.rows)


async def connected(access: Access, work: Work) -> LiveClient:
    """A client of a node that answers. The lanes of a query spread over all nodes; another attempt begins with another
    node.
    """
    chosen = blake2b(f"{work.writer}/{work.lane}".encode(), digest_size=4).digest()
    first = (int.from_bytes(chosen, "big") + work.attempt) % len(access.servers)
    servers = (*access.servers[first:], *access.servers[:first])
    # The client must not reconnect by itself: Spark repeats the write.
    return await connect(access, servers)


async def bounded(work: Awaitable[Result], options: WriteOptions) -> Result:
    """Wait for the answer of a node, or report that there is none."""
    try:
        async with asyncio.timeout(options.timeout_seconds):
            return await work
    except TimeoutError as error:
        raise PeerError(
            f"a node has not answered in {options.timeout_seconds} seconds; rows are recognised when they are "
            "written again (check /ready of the nodes, or raise timeoutSeconds)"
        ) from error


async def check_lanes(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Check that all nodes have exactly the rows of a batch that its tasks have written.

    If the work was divided differently in an earlier attempt, lanes that do not exist now may have written rows that
    other lanes have written again.
    """
    written = {message.lane: message for message in messages if isinstance(message, Written)}
    if not written:
        return
    some = next(iter(written.values()))
    client = await connected(options.access, Work(some.writer, 0, some.series))
    try:
        for position in await bounded(lane_states_of_series(client, some.writer, some.series), options):
            lane = written.get(position.lane)
            if lane is None or position.topic not in lane.pieces:
                raise ConflictError(
                    f"batch {some.series} of {some.writer!r} has {len(written)} partitions, and an earlier attempt has "
                    f"published rows on {position.topic!r} from partition {position.lane}, which has none there now: "
                    "some rows of this batch may be published twice. Keep the number of partitions and what is in them "
                    "when a batch is run again; continue with another checkpoint or writeId"
                )
    finally:
        await client.abandon()
