"""The trace of a live node: the same rows as a simulated run, so that the same judges read both.

One file per node, complete when the node has been closed; until then all rows but the latest are in a file beside it,
which is left behind if the node is killed. Times are microseconds of the monotonic clock, which all processes of one
machine share. Rows are about messages, not batches. A batch that a client handed in at two nodes is delivered twice by
the protocol, and stands here twice, though subscribers see it once. The number of a topic in a trace is 31 bits of the
one that protocols use. Losses are told by the number of a batch, of which the trace of its publisher says with which
message it begins.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from antiphon.api.batch import Batch
from antiphon.api.columns import Columns
from antiphon.api.topic_state import LiveTopic
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.message import UNSPECIFIED, Publication
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.trace.contract import PROMISED, TOLD_ALWAYS, Contract
from antiphon.trace.recorder import (
    BATCH,
    CRASH,
    DELIVER,
    END,
    JOIN,
    LOST,
    PUBLISH,
    SUBSCRIBED,
    UNSUBSCRIBE,
    UNSUBSCRIBED,
    Recorder,
)
from antiphon.trace.store import TraceWriter, partial_of

CHUNK_ROWS: Final = 1 << 16
TOPIC_MASK: Final = (1 << 31) - 1

TOPICS: Final = "topics"
"""What a trace calls the names of its topics, by their numbers."""

NAMES_AT_MOST: Final = 16_384
"""A trace says the names of so many topics."""

FLUSH_US: Final = 250_000
"""Rows that are older than this are written, so that they survive the process."""

BATCH_NUMBER: Final = 1
"""The value of a row about a loss whose number is that of a batch."""


def keep_earlier_life(path: Path) -> None:
    """If a node that wrote its trace here was killed, keep what it had written, under the number of its life."""
    left = partial_of(path)
    if not left.is_file():
        return
    life = 1
    while (kept := path.with_name(f".{path.stem}.life-{life}{left.suffix}")).exists():
        life += 1
    os.replace(left, kept)


class LiveTrace:
    """Writes what one node's application could see."""

    def __init__(self, path: str, fabric: str, is_strict: bool) -> None:
        about_fabric = FABRICS[fabric]
        promised = Contract(
            fabric,
            "",
            leavers=True,
            told=TOLD_ALWAYS,
            weaker_pass=about_fabric.may_pass_over,
            secured=about_fabric.is_secured,
            loose_sessions=not is_strict,
        )
        about = {"host": "live", "unit": "microseconds", "fabric": fabric, PROMISED: promised.as_metadata()}
        keep_earlier_life(Path(path))
        self._writer = TraceWriter(Path(path), "deliveries", about, CHUNK_ROWS, survives=True)
        self._writer.__enter__()
        self._node = -1
        self._flushed_us = 0
        self._names: dict[str, str] = {}
        self._writer.about_at_end[TOPICS] = self._names

    def _recorder(self, node: int, now: int) -> Recorder:
        """Where a row of a node is written now; its first says that it is there."""
        recorder = self._writer.recorder
        if now - self._flushed_us > FLUSH_US:
            self._flushed_us = now
            recorder.flush()
        if node != self._node:
            self._node = node
            recorder.record(now, JOIN, node, 1)
        return recorder

    def published(self, node: int, topic: LiveTopic, columns: Columns, order: int) -> None:
        """The application published a batch."""
        now = monotonic_us()
        recorder = self._recorder(node, now)
        number = topic.number & TOPIC_MASK
        for index, value in enumerate(columns.values):
            sequence = columns.first_sequence + index
            recorder.record_run(now, PUBLISH, node, node, sequence, 1, number, len(value), order)

    def numbered(self, node: int, topic: LiveTopic, columns: Columns, batch: int) -> None:
        """The process has given a batch a number."""
        now = monotonic_us()
        topic_number = topic.number & TOPIC_MASK
        recorder = self._recorder(node, now)
        recorder.record_run(now, BATCH, node, node, columns.first_sequence, 1, topic_number, batch, UNSPECIFIED)

    def delivered(self, node: int, topic: LiveTopic, batch: Batch, publication: Publication) -> None:
        """A batch was delivered."""
        now = monotonic_us()
        recorder = self._recorder(node, now)
        latency_us = max(0, wall_clock_us() - batch.columns.timestamp_us)
        first = batch.columns.first_sequence
        number = topic.number & TOPIC_MASK
        recorder.record_run(
            now,
            DELIVER,
            node,
            batch.publisher,
            first,
            batch.count,
            number,
            latency_us,
            publication.order,
            publication.total_order_keys(),
        )
        recorder.flush_if_full()

    def lost(self, node: int, topic: LiveTopic, source: int, batch: int) -> None:
        """A batch will never be delivered here."""
        now = monotonic_us()
        number = topic.number & TOPIC_MASK
        self._recorder(node, now).record_run(now, LOST, node, source, batch, 1, number, BATCH_NUMBER, UNSPECIFIED)

    def began_epoch(self, node: int, epoch: int, members: list[int], councils: list[list[int]]) -> None:
        """The node takes part in an epoch of total order; the one that orders says who else does."""
        now = monotonic_us()
        self._recorder(node, now).record_epoch(now, node, epoch, members, councils)

    def subscribed(self, node: int, topic: LiveTopic) -> None:
        """A membership is effective."""
        self._record_topic(SUBSCRIBED, node, self._name(topic))

    def leaving(self, node: int, topic: LiveTopic) -> None:
        """The end of a membership is asked for."""
        self._record_topic(UNSUBSCRIBE, node, topic.number & TOPIC_MASK)

    def unsubscribed(self, node: int, topic: LiveTopic) -> None:
        """A membership has ended."""
        self._record_topic(UNSUBSCRIBED, node, topic.number & TOPIC_MASK)

    def _record_topic(self, event: int, node: int, topic: int) -> None:
        now = monotonic_us()
        self._recorder(node, now).record_topic(now, event, node, topic)

    def _name(self, topic: LiveTopic) -> int:
        """The number of a topic in the trace, whose name the file says when it is complete."""
        number = topic.number & TOPIC_MASK
        if len(self._names) < NAMES_AT_MOST:
            self._names[str(number)] = topic.name
        return number

    def close(self, has_failed: bool = False) -> None:
        """Finish the file."""
        if self._node >= 0:
            self._writer.recorder.record(monotonic_us(), CRASH if has_failed else END, self._node, 0)
        self._writer.__exit__(None, None, None)
