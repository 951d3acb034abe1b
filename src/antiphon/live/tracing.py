"""The trace of a live node: the same rows as a simulated run, so that the same judges read both.

One file per node, complete when the node has been closed. Times are microseconds of the monotonic clock, which all
processes of one machine share. Rows are about messages, not batches. A batch that a client handed in at two nodes is
delivered twice by the protocol, and stands here twice, though subscribers see it once. The number of a topic in a
trace is 31 bits of the one that protocols use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from antiphon.kernel.message import Publication
from antiphon.live.batch import Batch
from antiphon.live.clocks import monotonic_us, wall_clock_us
from antiphon.live.columns import Columns
from antiphon.live.topics import LiveTopic
from antiphon.trace.recorder import DELIVER, PUBLISH, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED
from antiphon.trace.store import TraceWriter

CHUNK_ROWS: Final = 1 << 16
TOPIC_MASK: Final = (1 << 31) - 1


class LiveTrace:
    """Writes what one node's application could see."""

    def __init__(self, path: str, fabric: str) -> None:
        about = {"host": "live", "unit": "microseconds", "fabric": fabric}
        self._writer = TraceWriter(Path(path), "deliveries", about, CHUNK_ROWS)
        self._writer.__enter__()

    def published(self, node: int, topic: LiveTopic, columns: Columns, order: int) -> None:
        """The application published a batch."""
        recorder = self._writer.recorder
        now = monotonic_us()
        number = topic.number & TOPIC_MASK
        for index, value in enumerate(columns.values):
            sequence = columns.first_sequence + index
            recorder.record_run(now, PUBLISH, node, node, sequence, 1, number, len(value), order)

    def delivered(self, node: int, topic: LiveTopic, batch: Batch, publication: Publication) -> None:
        """A batch was delivered."""
        recorder = self._writer.recorder
        latency_us = max(0, wall_clock_us() - batch.columns.timestamp_us)
        first = batch.columns.first_sequence
        number = topic.number & TOPIC_MASK
        recorder.record_run(
            monotonic_us(),
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

    def subscribed(self, node: int, topic: LiveTopic) -> None:
        """A membership is effective."""
        self._writer.recorder.record_topic(monotonic_us(), SUBSCRIBED, node, topic.number & TOPIC_MASK)

    def leaving(self, node: int, topic: LiveTopic) -> None:
        """The end of a membership is asked for."""
        self._writer.recorder.record_topic(monotonic_us(), UNSUBSCRIBE, node, topic.number & TOPIC_MASK)

    def unsubscribed(self, node: int, topic: LiveTopic) -> None:
        """A membership has ended."""
        self._writer.recorder.record_topic(monotonic_us(), UNSUBSCRIBED, node, topic.number & TOPIC_MASK)

    def close(self) -> None:
        """Finish the file."""
        self._writer.__exit__(None, None, None)
