"""What the log of a node holds for those who were away: read backwards, and known without reading.

Some publications of a topic are not for subscribers: a client had handed in the same batch at another node, or it was
only to have its place. They have numbers like all others, so who was away lacks them too. They are kept in a log of
their own beside that of the topic, where nobody reads them by their offsets.
"""

from __future__ import annotations

from typing import Final

from antiphon.kernel.message import Message
from antiphon.kernel.process import LogReader
from antiphon.storage.log import DurableLog
from antiphon.transport.codec import Codec

MESSAGES_PER_PIECE: Final = 1024
"""How much of the log is read back at once."""

PASSED_OVER_AT_MOST: Final = 4096
"""So many of the last publications that were not for subscribers are given to those who were away."""

PASSED_OVER: Final = "passed over "
"""With these words the name of a log begins that is not for subscribers; names of topics have no spaces."""


JOURNAL: Final = "journal of this broker"
"""The log of what the process of a broker has written down."""


def passed_over_log(topic: str) -> str:
    """The name of the log of what was not for subscribers of a topic."""
    return PASSED_OVER + topic


def topics_in(log: DurableLog) -> list[str]:
    """The topics of which a log holds messages."""
    return [name for name in log.topics() if not name.startswith(PASSED_OVER) and name != JOURNAL]


class LogBackwards(LogReader):
    """Reads the log of one topic as it is now, and first what was not for subscribers."""

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

    def earlier(self) -> list[Message] | None:
        """The part before the one that was read last."""
        if self._passed_over_end > self._passed_over_begin:
            name = passed_over_log(self._topic)
            self._passed_over_end, found = self._piece(name, self._passed_over_begin, self._passed_over_end)
            return found
        begin = max(self._begin, self._log.earliest(self._topic))
        if self._end <= begin:
            return [] if begin == self._begin else None
        self._end, found = self._piece(self._topic, begin, self._end)
        return found

    def _piece(self, name: str, begin: int, end: int) -> tuple[int, list[Message]]:
        """Where the last piece before ``end`` begins, and what is in it."""
        entries = self._log.read_between(name, max(begin, end - MESSAGES_PER_PIECE), end)
        return entries[0].first_offset, [self._codec.decode_recorded(entry.batch) for entry in entries]
