"""Schedules writes to connections: at once, after a pause in which more frames gather, or with other acknowledgements.

An application waits for its messages, but no application waits for a single acknowledgement. So acknowledgements wait a
few milliseconds for others and share a packet. At low rates this saves most of their packets; at full speed they do not
wait.
"""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.api.lifecycle import Lifecycle
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.message import ProtocolMessage
from antiphon.transport.framing import FrameWriter

CREDIT_SECONDS: Final = 0.004
CREDIT_FRAMES: Final = 16
"""The time that acknowledgements wait for others, and the number that leaves without waiting."""

GATHER_BYTES: Final = 64 << 10
"""So many bytes for one peer leave at once, whatever the setting ``gather_seconds``."""


class HeldCredit:
    """Acknowledgements with their destinations that are sent later: publishers would go on, and this node is behind."""

    def __init__(self) -> None:
        self._by_topic: dict[LiveTopic, list[tuple[int, ProtocolMessage]]] = {}
        self.for_disk: list[tuple[int, ProtocolMessage]] = []
        """Those of all topics, while too much waits for the disk."""

    def hold(self, topic: LiveTopic, destination: int, message: ProtocolMessage) -> None:
        """A subscriber to the topic is behind."""
        self._by_topic.setdefault(topic, []).append((destination, message))

    def take(self, topic: LiveTopic) -> list[tuple[int, ProtocolMessage]]:
        """Take the messages of a topic: its subscribers have caught up."""
        return self._by_topic.pop(topic, [])

    def take_for_disk(self) -> list[tuple[int, ProtocolMessage]]:
        """Take the messages that waited for the disk: it has caught up."""
        held, self.for_disk = self.for_disk, []
        return held


class WriteScheduler:
    """The connections of one node on which frames wait to be written."""

    def __init__(self, gather_seconds: float, lifecycle: Lifecycle) -> None:
        self._gather_seconds = gather_seconds
        self._lifecycle = lifecycle
        self._loop = asyncio.get_running_loop()
        # Connections that are written to when the node settles, and those that have acknowledgements only.
        self.dirty: set[FrameWriter] = set()
        self.with_credit: set[FrameWriter] = set()
        self.is_credit_scheduled = False
        self._gathering: set[FrameWriter] = set()
        self._is_gathering_scheduled = False

    def write_dirty(self) -> None:
        """Write to the connections that are due, or let their frames gather."""
        dirty, self.dirty = self.dirty, set()
        gathers = self._gather_seconds > 0
        for writer in dirty:
            if gathers and writer.queued_bytes < GATHER_BYTES:
                self._gathering.add(writer)
            else:
                writer.flush()
        if self._gathering and not self._is_gathering_scheduled:
            self._is_gathering_scheduled = True
            self._loop.call_later(self._gather_seconds, self._write_gathered)

    def schedule_credit(self) -> None:
        """Write the waiting acknowledgements after a short time."""
        self.is_credit_scheduled = True
        self._loop.call_later(CREDIT_SECONDS, self._write_credit)

    def _write_gathered(self) -> None:
        gathered, self._gathering = self._gathering, set()
        self._is_gathering_scheduled = False
        self._flush(gathered)

    def _write_credit(self) -> None:
        with_credit, self.with_credit = self.with_credit, set()
        self.is_credit_scheduled = False
        self._flush(with_credit)

    def _flush(self, writers: set[FrameWriter]) -> None:
        if not self._lifecycle.is_shut:
            for writer in writers:
                writer.flush()
