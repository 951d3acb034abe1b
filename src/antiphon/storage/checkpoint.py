"""What counts as past at a node on its topics, kept beside its log: from there its next life goes on.

A note is taken every so many batches, with the offset at which the log was then. Since everything that is delivered is
appended to the log, or to the one beside it (:mod:`antiphon.storage.log_reader`), the note and what the log holds
behind it are the whole; and a crash between the two loses nothing. It says too which batches of clients have come, so
that one that a client hands in again elsewhere is still recognised, and what of all that counts is not in the log. So
little is read when a node comes back, however long its log.
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

BATCHES_PER_NOTE: Final = 256
AUTHORS_PER_NOTE: Final = 512
"""Whose batches are noted as seen: those of whom something came last."""


class Note(msgspec.Struct, array_like=True):
    """What counted as past when the log had come so far, and what had come of clients."""

    offset: int
    keys: list[int]
    seen: dict[int, Ranges] = {}
    passed_over_offset: int = 0
    # Of which sources the log has not held all that counted, and what it has held of them.
    unlike: dict[int, Ranges] = {}
    is_log_known: bool = True
    is_member: bool = True


class Pasts:
    """The notes of one node; they are taken only where a process goes on from them."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._store: DurableLog | None = None
        self._commit: GroupCommit | None = None
        self.is_void = False
        # Topics by how many batches were delivered since the last note; those that are due at the next pause.
        self._unnoted: dict[LiveTopic, int] = {}
        self.due: set[LiveTopic] = set()

    def open(self, store: DurableLog, commit: GroupCommit) -> None:
        """The node has a log; without one nothing is noted."""
        self._store = store
        self._commit = commit

    def void(self) -> None:
        """Notes of earlier lives mean nothing here."""
        self.is_void = True

    def delivered(self, topic: LiveTopic, publication: Publication) -> None:
        """A batch is appended to the log, or to that of what is not for subscribers."""
        topic.logged.add(publication.source, publication.sequence)
        count = self._unnoted.get(topic, 0) + 1
        self._unnoted[topic] = count
        if count >= BATCHES_PER_NOTE:
            self.due.add(topic)

    def changed(self, topic: LiveTopic) -> None:
        """Something counts as past that is not in the log."""
        if self._store is not None:
            self.due.add(topic)

    def left(self, topic: LiveTopic) -> None:
        """The next life is not to go on with this topic, but may be asked for what the log holds."""
        self.due.discard(topic)
        self._unnoted.pop(topic, None)
        if self._store is not None:
            self._put(self._store, topic, [], {}, is_member=False)

    def note(self, process: Process | None) -> None:
        """Between two steps of the process: write down what is due."""
        store = self._store
        if not self.due or process is None or store is None:
            return
        due, self.due = self.due, set()
        for topic in due:
            self._unnoted.pop(topic, None)
            keys = [int(key) for key in process.counted(topic.number)]
            self._put(store, topic, keys, topic.seen.ranges(AUTHORS_PER_NOTE), is_member=True)
        if self._commit is not None:
            self._commit.soon()

    def _put(
        self, store: DurableLog, topic: LiveTopic, keys: list[int], seen: dict[int, Ranges], is_member: bool
    ) -> None:
        passed_over_offset, logged = store.latest(passed_over_log(topic.name)), topic.logged
        note = Note(topic.end_offset, keys, seen, passed_over_offset, logged.unlike(keys), logged.is_known, is_member)
        store.put(fact_of(topic.name), msgspec.msgpack.encode(note))

    def of(self, topic: LiveTopic) -> list[int] | None:
        """What an earlier life had delivered on a topic that it had not left."""
        store = self._store
        if store is not None and self.is_void and not topic.logged.is_known:
            # Numbers in it are those of another cluster.
            topic.log_from, topic.logged.is_known = topic.end_offset, True
            topic.passed_over_from = store.latest(passed_over_log(topic.name))
        kept = None if store is None or self.is_void else store.get(fact_of(topic.name))
        if store is None or not kept:
            return None
        note = msgspec.msgpack.decode(kept, type=Note)
        topic.seen.merge(note.seen)
        topic.logged.restore(note.keys, note.unlike, note.is_log_known)
        passed_over = passed_over_log(topic.name)
        later: set[int] = set()
        for entry in (
            *store.read_between(topic.name, note.offset, topic.end_offset),
            *store.read_between(passed_over, note.passed_over_offset, store.latest(passed_over)),
        ):
            publication = self._codec.decode_publication(entry.batch)
            later.add(int(publication_key(publication.source, publication.sequence)))
            topic.logged.add(publication.source, publication.sequence)
            batch = Batch(topic.name, publication.source, "", entry.first_offset, publication.payload)
            if batch.client != 0:
                topic.seen.add(batch.author, batch.number)
        return [*note.keys, *(~key for key in sorted(later))] if note.is_member else None


def fact_of(topic: str) -> str:
    """The name of the fact."""
    return f"past {topic}"
