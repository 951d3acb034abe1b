"""What the log of a node holds for those who were away: read backwards, and known without reading.

Some publications of a topic are not for subscribers: a client had handed in the same batch at another node, or it was
only to have its place. They have numbers like all others, so who was away lacks them too. They are kept in a log of
their own beside that of the topic, where nobody reads them by their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, Message
from antiphon.kernel.process import LogReader
from antiphon.live.log.durable import DurableLog
from antiphon.live.seen import Ranges, Seen
from antiphon.live.wire import Codec

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


class Logged:
    """Which publications of a topic the log of a node has ever held, by source and number."""

    def __init__(self) -> None:
        # Whether all that was appended before is known here.
        self.is_known = True
        self._of: dict[int, Seen] = {}

    def add(self, source: int, sequence: int) -> None:
        """A publication is appended."""
        seen = self._of.get(source)
        if seen is None:
            seen = self._of[source] = Seen()
        seen.add(sequence)

    def has(self, source: int, sequence: int) -> bool:
        """Whether the log has held a publication, or may have."""
        seen = self._of.get(source)
        return not self.is_known or (seen is not None and seen.has(sequence))

    def unlike(self, keys: Iterable[int]) -> dict[int, Ranges]:
        """Where this differs from a set of publications, given by its keys: the numbers of those sources."""
        counts = counts_in(keys)
        found = {source: [0] for source in counts if source not in self._of}
        for source, seen in self._of.items():
            ranges = seen.ranges()
            if ranges != [counts.get(source, 0)]:
                found[source] = ranges
        return found

    def restore(self, keys: Iterable[int], unlike: dict[int, Ranges], is_known: bool) -> None:
        """Begin with a set of publications, except for some sources."""
        ranges = {source: [count] for source, count in counts_in(keys).items()} | unlike
        self._of = {source: Seen(one) for source, one in ranges.items()}
        self.is_known = is_known


def counts_in(keys: Iterable[int]) -> dict[int, int]:
    """By source up to which number a set of publications holds all, from its keys."""
    return {key & SOURCE_MASK: key >> SOURCE_BITS for key in keys if key >= 0}
