"""The log of a node as its process uses it: it holds everything that the process delivers, and gives it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.api.batch import Batch
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.message import ORDER_NAMES, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import LogReader, Process
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.sessions.dedup import DedupTable
from antiphon.storage.checkpoint import Checkpoints
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import Entry, OffsetRemovedError
from antiphon.storage.log_reader import BackwardReader, passed_over_log
from antiphon.transport.codec import Codec

RECORDED_AT_MOST: Final = 8192
"""A node of a gossip cluster knows the offsets of so many publications of a topic in its log."""

SHOWN_MESSAGES_AT_MOST: Final = 512
SHOWN_BYTES_AT_MOST: Final = 4 << 20
SHOWN_MESSAGES_PER_PIECE: Final = 16
"""The part of the end of a log that a returning node shows to clients that come from elsewhere. If all nodes were
killed, a client lacks the messages that its node had not shown yet, so only the last moments count."""


class ProcessLog:
    """The log of one node; empty at a node without a data directory.

    With ``recalls``, other nodes ask for publications that are in no buffer any more. With ``checkpoints``, a restarted
    node continues from the frontier of its earlier incarnation.
    """

    def __init__(
        self, codec: Codec, topics: Mapping[int, LiveTopic], checkpoints: Checkpoints | None, recalls: bool
    ) -> None:
        self._codec = codec
        self._topics = topics
        self._checkpoints = checkpoints
        self._recalls = recalls
        self._store: DurableLog | None = None
        self._commit: GroupCommit | None = None
        self.is_continued = False

    def open(self, store: DurableLog, commit: GroupCommit, is_continued: bool) -> None:
        """The node has a log; ``is_continued`` says whether a returning node continues its earlier log."""
        self._store = store
        self.is_continued = is_continued
        self._commit = commit
        if self._checkpoints is not None:
            self._checkpoints.open(store, commit)

    def append(
        self,
        process: Process,
        topic: LiveTopic,
        count: int,
        publication: Publication,
        fact: tuple[str, bytes] | None,
    ) -> None:
        """Append a publication that is delivered, with the fact about its writer."""
        store = self._store
        assert store is not None, "only nodes with a log record"
        if self._checkpoints is not None:
            self._checkpoints.delivered(topic, publication)
        store.append(topic.name, count, wall_clock_us(), self._codec.encode(process.recorded(publication)), fact)
        if self._recalls:
            if not topic.recorded:
                topic.recorded = {}
            topic.recorded[int(publication_key(publication.source, publication.sequence))] = topic.end_offset
            if len(topic.recorded) > RECORDED_AT_MOST:
                del topic.recorded[next(iter(topic.recorded))]

    def pass_over(self, process: Process, topic: LiveTopic, publication: Publication) -> None:
        """Append a publication that is not shown, where returning nodes may miss it."""
        if self._checkpoints is None or self._store is None:
            return
        recorded = self._codec.encode(process.recorded(publication))
        self._store.append(passed_over_log(topic.name), 1, wall_clock_us(), recorded)
        self._checkpoints.delivered(topic, publication)
        if self._commit is not None:
            self._commit.soon()

    def take_last_shown(self, topic: LiveTopic) -> None:
        """Remember the last batches of an earlier incarnation of this node, as if it had shown them now.

        After all nodes were killed, a message may be in the log of one node and at no client. A client that comes to
        this node gets it from here. On a tree its publisher may hand it in again: then it is published, because other
        brokers do not get it from this log, but it is not logged twice.
        """
        store = self._store
        is_void = self._checkpoints is not None and self._checkpoints.is_void
        if store is None or not self.is_continued or is_void or topic.delivered_messages > 0:
            return
        now_us = wall_clock_us()
        age_us = now_us - monotonic_us()
        for entry in last_entries(store, topic):
            publication = self._codec.decode_publication(entry.batch)
            order, payload = ORDER_NAMES[publication.order], publication.payload
            batch = Batch(
                topic.name, publication.source, order, entry.first_offset, payload, sequence=publication.sequence
            )
            topic.replay_buffer.add(min(entry.appended_at_us, now_us) - age_us, batch)
            if batch.client != 0:
                if topic.logged_before is None:
                    topic.logged_before = DedupTable()
                topic.logged_before.add(batch.author, batch.number, batch.is_written)

    def log_reader(self, number: int) -> LogReader | None:
        """A reader of the log of a topic, from its end backwards; None without a log."""
        topic = self._topics.get(number)
        if topic is None or self._store is None:
            return None
        return BackwardReader(self._store, self._codec, topic.name, topic.log_from, topic.passed_over_from)

    def was_logged(self, number: int, source: int, sequence: int) -> bool:
        """Whether the log has ever held a publication; without a log this is not known."""
        topic = self._topics.get(number)
        if topic is None or self._checkpoints is None or self._store is None:
            return True
        return topic.logged.has(source, sequence)

    def read_logged(self, number: int, source: int, sequence: int) -> ProtocolMessage | None:
        """A publication that was delivered here, from the log."""
        topic = self._topics.get(number)
        offset = None if topic is None else topic.recorded.get(int(publication_key(source, sequence)))
        if topic is None or offset is None or self._store is None:
            return None
        entries = self._store.read(topic.name, offset, 1)
        # Retention may have removed it.
        is_there = len(entries) > 0 and entries[0].first_offset == offset
        return self._codec.decode_recorded(entries[0].batch) if is_there else None

    def restored_frontier(self, number: int) -> list[int] | None:
        """The frontier of an earlier incarnation of this node on a topic."""
        topic = self._topics.get(number)
        return None if topic is None or self._checkpoints is None else self._checkpoints.of(topic)


def last_entries(store: DurableLog, topic: LiveTopic) -> list[Entry]:
    """The end of the log of a topic, read backwards in small pieces because messages may be large."""
    found: list[Entry] = []
    position = topic.end_offset
    begin = max(store.earliest(topic.name), position - SHOWN_MESSAGES_AT_MOST)
    size_bytes = 0
    while position > begin and size_bytes < SHOWN_BYTES_AT_MOST:
        try:
            piece = store.read_between(topic.name, max(begin, position - SHOWN_MESSAGES_PER_PIECE), position)
        except OffsetRemovedError:
            break  # damaged, and left out by a repair
        found = piece + found
        position = piece[0].first_offset
        size_bytes += sum(len(entry.batch) for entry in piece)
    return found
