"""Reads the log of a topic backwards, for members that were away.

Some publications of a topic are not shown to subscribers: a client had handed in the same batch at another node, or the
publication is a barrier, which only has a place in the order. They have numbers like all others, so a returning node
misses them as well. A node keeps them in a second log beside the log of the topic, where no reader finds them by
offset.
"""

from __future__ import annotations

from typing import Final

from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import LogReader
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import OffsetRemovedError
from antiphon.transport.codec import Codec

MESSAGES_PER_PIECE: Final = 1024
"""The number of messages that are read back at once."""

PASSED_OVER_AT_MOST: Final = 4096
"""A returning node gets so many of the last publications that were not shown."""

PASSED_OVER: Final = "passed over "
"""The names of logs of publications that are not shown begin with this; names of topics have no spaces."""


JOURNAL: Final = "journal of this broker"
"""The name of the journal of a process."""


def passed_over_log(topic: str) -> str:
    """The name of the log of a topic's publications that are not shown."""
    return PASSED_OVER + topic


def topics_in(log: DurableLog) -> list[str]:
    """The topics of clients in a log: no journal, no log of publications that are not shown."""
    return [name for name in log.topics() if not is_internal(name)]


def is_internal(name: str) -> bool:
    """Whether a topic of a log is part of the node's own state, and not one of clients."""
    return name.startswith(PASSED_OVER) or name == JOURNAL


class BackwardReader(LogReader):
    """Reads the log of one topic as it is now, and before that the publications that were not shown."""

    def __init__(self, log: DurableLog, codec: Codec, topic: str, begin: int, passed_over_begin: int) -> None:
        super().__init__()
        self._log = log
        self._codec = codec
        self._topic = topic
        self._begin = begin
        self._end = log.latest(topic)
        passed_over = passed_over_log(topic)
        self._passed_over_end = log.latest(passed_over)
        latest = max(log.earliest(passed_over), self._passed_over_end - PASSED_OVER_AT_MOST)
        self._passed_over_begin = max(passed_over_begin, latest)

    def earlier(self) -> list[ProtocolMessage] | None:
        """Read the piece before the last one; None if it was removed or lost, an empty list at the beginning."""
        try:
            return self._earlier()
        except OffsetRemovedError:
            return None

    def _earlier(self) -> list[ProtocolMessage] | None:
        if self._passed_over_end > self._passed_over_begin:
            name = passed_over_log(self._topic)
            self._passed_over_end, found = self._piece(name, self._passed_over_begin, self._passed_over_end)
            return found
        begin = max(self._begin, self._log.earliest(self._topic))
        if self._end <= begin:
            return [] if begin == self._begin else None
        self._end, found = self._piece(self._topic, begin, self._end)
        return found

    def _piece(self, name: str, begin: int, end: int) -> tuple[int, list[ProtocolMessage]]:
        """Read the last piece before ``end``; gives the offset where it begins too."""
        entries = self._log.read_between(name, max(begin, end - MESSAGES_PER_PIECE), end)
        return entries[0].first_offset, [self._codec.decode_recorded(entry.batch) for entry in entries]
