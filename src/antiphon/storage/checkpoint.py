"""Checkpoints of a node's frontier on each topic, in its log: a restarted node continues from them.

A node writes a checkpoint every so many batches, with the end of the log at that moment. It appends everything that it
delivers to the log, or to the log of publications that are not shown (:mod:`antiphon.storage.log_reader`). So the
checkpoint and the entries behind it are the whole frontier, and a crash between the two loses nothing. A checkpoint
also holds the batches of clients that have arrived, so that the node recognises a batch that a client hands in again
elsewhere, and the part of the frontier that is not in the log. A restart therefore reads little, however long the log
is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.api.batch import Batch
from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.message import Publication, publication_key
from antiphon.kernel.process import Process
from antiphon.sessions.dedup import Ranges
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from antiphon.storage.log_reader import passed_over_log
from antiphon.transport.codec import Codec

BATCHES_PER_CHECKPOINT: Final = 256
AUTHORS_PER_CHECKPOINT: Final = 512
"""A checkpoint holds the batches of so many authors: those whose batches arrived last."""


class Checkpoint(msgspec.Struct, array_like=True):
    """The frontier of a topic when its log ended at ``offset``, and the batches of clients that had arrived."""

    offset: int
    keys: list[int]
    seen: dict[int, Ranges] = {}
    passed_over_offset: int = 0
    # Sources for which the log is incomplete, with the numbers that it has held.
    unlike: dict[int, Ranges] = {}
    is_log_known: bool = True
    is_member: bool = True


class Checkpoints:
    """The checkpoints of one node; only where the process of its fabric continues from them."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._store: DurableLog | None = None
        self._commit: GroupCommit | None = None
        self.is_void = False
        # Batches delivered since the last checkpoint, by topic; the topics whose checkpoint is written next.
        self._unwritten: dict[LiveTopic, int] = {}
        self.due: set[LiveTopic] = set()

    def open(self, store: DurableLog, commit: GroupCommit) -> None:
        """The node has a log; without one it writes no checkpoints."""
        self._store = store
        self._commit = commit

    def void(self) -> None:
        """Ignore the checkpoints of earlier incarnations: they belong to another cluster."""
        self.is_void = True

    def delivered(self, topic: LiveTopic, publication: Publication) -> None:
        """A batch is appended to the log, or to the log of publications that are not shown."""
        topic.logged.add(publication.source, publication.sequence)
        count = self._unwritten.get(topic, 0) + 1
        self._unwritten[topic] = count
        if count >= BATCHES_PER_CHECKPOINT:
            self.due.add(topic)

    def changed(self, topic: LiveTopic) -> None:
        """The frontier has changed by something that is not in the log."""
        if self._store is not None:
            self.due.add(topic)

    def left(self, topic: LiveTopic) -> None:
        """The node has left a topic: its next incarnation does not continue there, but serves the log."""
        self.due.discard(topic)
        self._unwritten.pop(topic, None)
        if self._store is not None:
            self._put(self._store, topic, [], {}, is_member=False)

    def write(self, process: Process | None) -> None:
        """Write the checkpoints that are due, between two steps of the process."""
        store = self._store
        if not self.due or process is None or store is None:
            return
        due, self.due = self.due, set()
        for topic in due:
            self._unwritten.pop(topic, None)
            keys = [int(key) for key in process.frontier_keys(topic.number)]
            self._put(store, topic, keys, topic.seen.ranges(AUTHORS_PER_CHECKPOINT), is_member=True)
        if self._commit is not None:
            self._commit.soon()

    def _put(
        self, store: DurableLog, topic: LiveTopic, keys: list[int], seen: dict[int, Ranges], is_member: bool
    ) -> None:
        passed_over_offset, logged = store.latest(passed_over_log(topic.name)), topic.logged
        unlike = logged.unlike(keys)
        checkpoint = Checkpoint(topic.end_offset, keys, seen, passed_over_offset, unlike, logged.is_known, is_member)
        store.put(fact_of(topic.name), msgspec.msgpack.encode(checkpoint))

    def of(self, topic: LiveTopic) -> list[int] | None:
        """The frontier of an earlier incarnation on a topic; None if it had left the topic, or is not known."""
        store = self._store
        if store is not None and self.is_void and not topic.logged.is_known:
            # The numbers in the log are those of another cluster.
            topic.log_from, topic.logged.is_known = topic.end_offset, True
            topic.passed_over_from = store.latest(passed_over_log(topic.name))
        kept = None if store is None or self.is_void else store.get(fact_of(topic.name))
        if store is None or not kept:
            return None
        checkpoint = msgspec.msgpack.decode(kept, type=Checkpoint)
        topic.seen.merge(checkpoint.seen)
        topic.logged.restore(checkpoint.keys, checkpoint.unlike, checkpoint.is_log_known)
        passed_over = passed_over_log(topic.name)
        later: set[int] = set()
        for entry in (
            *store.read_between(topic.name, checkpoint.offset, topic.end_offset),
            *store.read_between(passed_over, checkpoint.passed_over_offset, store.latest(passed_over)),
        ):
            publication = self._codec.decode_publication(entry.batch)
            later.add(int(publication_key(publication.source, publication.sequence)))
            topic.logged.add(publication.source, publication.sequence)
            batch = Batch(topic.name, publication.source, "", entry.first_offset, publication.payload)
            if batch.client != 0:
                topic.seen.add(batch.author, batch.number)
        return [*checkpoint.keys, *(~key for key in sorted(later))] if checkpoint.is_member else None


def fact_of(topic: str) -> str:
    """The name of the fact that holds the checkpoint of a topic; it is part of the format on disk."""
    return f"past {topic}"
