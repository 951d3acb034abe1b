"""Continues a stream with another log: the messages that it has read are recorded beside its offsets, in terms that all
logs share.

The offsets of such a stream have one more entry, under a name that no topic has: by topic and publisher, the numbers of
the messages that were read. Nodes report which numbers a range of their log has, so the messages of a micro-batch are
known before it is read. When the node of a log stays away,

- the next micro-batch only records that the topic is read from another log, from its beginning; messages that were read
  before are dropped from then on;
- a micro-batch that was planned and not completed is read from another log as well: exactly the messages that belong to
  it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from antiphon.client.remote_log import RemoteLog
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.runtime.logging import logger
from antiphon.spark.logs import HeldLog, Logs, connect, run
from antiphon.spark.marks import Marks, WantedRows, marks_from
from antiphon.spark.options import ReadOptions
from antiphon.spark.plan import MARKS_KEY, Partition, Piece, Positions

MARKS_SECONDS = 30.0
"""The longest time for a node to scan a few megabytes."""

MarksByTopic = dict[str, Marks]

log = logger("spark")


def marks_in(offsets: Mapping[str, Any]) -> MarksByTopic:
    """The messages read up to some offsets, as Spark has stored them."""
    return {topic: marks_from(texts) for topic, texts in offsets.get(MARKS_KEY, {}).items()}


def texts_of(marks: MarksByTopic) -> dict[str, dict[str, dict[str, str]]]:
    """The same in the form that Spark stores."""
    return {MARKS_KEY: {topic: found.as_texts() for topic, found in sorted(marks.items())}}


def marks_between(options: ReadOptions, held: HeldLog, topic: str, start: int, end: int) -> Marks:
    """The messages that a log has from one offset to below another."""

    async def ask() -> Marks:
        marks = Marks()
        position = start
        client = await connect(options.access, held.address)
        try:
            while position < end:
                async with asyncio.timeout(MARKS_SECONDS):
                    answer = await RemoteLog(client).marks(held.number, topic, position, end)
                if not position < answer.next_offset <= end:
                    raise PeerError(f"the node at {held.address} cannot report the messages after offset {position}")
                for publisher, first, last in answer.marks:
                    marks.add(publisher, first, last)
                position = answer.next_offset
        except TimeoutError as error:
            raise PeerError(f"the node at {held.address} gave no answer in {MARKS_SECONDS:g} seconds") from error
        finally:
            await client.abandon()
        return marks

    return run(ask()) if start < end else Marks()


def marks_before(options: ReadOptions, logs: Logs, partition: Partition, start: int) -> Marks:
    """The messages before an offset, in a log of which nothing is recorded yet."""
    found = logs.range(*partition)
    if found is None:
        return Marks()
    return marks_between(options, logs.by_number[partition.number], partition.topic, found.first, start)


def marks_at(options: ReadOptions, logs: Logs, read: MarksByTopic, starts: Positions, ends: Positions) -> MarksByTopic:
    """The messages that will have been read at the end of a micro-batch."""
    marks: MarksByTopic = {partition.topic: read.get(partition.topic, Marks()) for partition in ends}
    for partition, end in ends.items():
        start = starts.get(partition, end)
        held = logs.by_number.get(partition.number)
        if held is not None and start < end:
            more = marks_between(options, held, partition.topic, start, end)
            before = marks[partition.topic]
            if not before.is_moved and before.has_any_of(more):
                raise UsageError(
                    f"{partition} has two messages of one publisher with the same number, as when a tree without a "
                    "quorum was restarted: messages could not be told apart; leave out failover"
                )
            marks[partition.topic] = before.with_all(more)
    return marks


def another_log(logs: Logs, partition: Partition) -> Positions:
    """The position from which to continue when the log of a topic is gone: the beginning of another log; empty if there
    is none.
    """
    held = logs.fullest(partition.topic)
    if held is None:
        return {}
    log.warning("continuing with another log", topic=partition.topic, lost=partition.number, log=held.number)
    return {Partition(partition.topic, held.number): held.topics[partition.topic].first}


def same_batch_elsewhere(options: ReadOptions, logs: Logs, topic: str, read: Marks, batch: Marks) -> Piece | None:
    """The messages of a micro-batch in another log, if one log has them all."""
    for held in logs.holding(topic):
        found = held.topics[topic]
        there = marks_between(options, held, topic, found.first, found.end)
        if there.with_all(read).holds(batch):
            log.warning("a batch is read from another log", topic=topic, log=held.number)
            return Piece(Partition(topic, held.number), held.address, found.first, found.end, WantedRows(read, batch))
    return None
