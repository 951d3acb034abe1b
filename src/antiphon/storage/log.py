"""The log of one node: batches appended per topic, durable after a commit, read by offset and by time.

Offsets count the messages of a topic from 0 and never change; a batch is read and removed as a whole. Times never run
backwards within a topic: a batch that claims to be older than its predecessor gets the predecessor's time, so that the
first offset at or after a time is one well-defined place. If the clock turns out to have been ahead
(:mod:`antiphon.storage.trusted_clock`), earlier batches count as appended at that moment at the latest.

Two threads may work on it. The event loop appends and reads; another thread commits and trims. Further threads may
read. ``append``, ``put`` and the reads never wait for a running commit: batches that are not stored yet are in memory,
and stored ones are read through a connection that does not wait for the writer. A guard protects the state that the
threads share. It is held for a few steps, never across input or output.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage.log_formats import (
    FIRST_FACT,
    MAXIMAL_OFFSET,
    MAXIMAL_TOPIC_COUNT,
    DamagedError,
    Entry,
    FactRecord,
    HeadRecord,
    TopicRecord,
    key_of,
    packed_header,
    record_row,
    unpacked_record,
)
from antiphon.storage.log_topics import (
    MAXIMAL_BATCH_BYTES,
    LogRetention,
    LogTopic,
    PendingBatch,
    TopicSize,
    header_at,
    read_memory,
    read_stored,
    refuse_bad_batch,
    refuse_bad_name,
    search_stored,
    with_entries,
    without_oldest,
)
from antiphon.storage.space import Space
from antiphon.storage.sqlite import ReadConnection, Row, Store, errors_of
from antiphon.storage.trusted_clock import JUMP_US

MAXIMAL_FACT_BYTES = 1024 * 1024
MAXIMAL_FACT_COUNT = 65536
READ_BYTES = 1 << 20
"""The bytes that ``read_between`` reads at once."""


class DurableLog:
    """The log in a directory; see the module. Made by ``open``, and a context manager that closes itself."""

    def __init__(
        self, store: Store, head: HeadRecord, retention: LogRetention, sync: bool, pending_limit: int | None
    ) -> None:
        self.pending_bytes = 0
        """Bytes of batches that were appended and are not durable yet."""
        self._store = store
        self._space = Space(store)
        self.retention = retention
        self._sync = sync
        self._pending_limit_bytes = pending_limit
        self._commit = head.commit
        self._promised = -1
        self._stored_topic_count = head.topic_count
        self._stored_fact_count = head.fact_count
        self._topics: dict[str, LogTopic] = {}
        self._facts: dict[str, bytes] = {}
        self._fact_numbers: dict[str, int] = {}
        self._pending: list[PendingBatch] = []
        self._changed_facts: dict[str, bytes] = {}
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        retention: LogRetention | None = None,
        sync: bool = True,
        pending_limit_bytes: int | None = 256 * 1024 * 1024,
    ) -> DurableLog:
        """Open the log in a directory, or make one in an empty or new directory.

        With ``sync=False`` a commit is written but not synced. Then a process that dies loses nothing. A machine that
        loses power may lose the last commits, and the log cannot tell such a loss from damage. A damaged log is refused
        and left as it is. With ``pending_limit_bytes=None`` the caller bounds the bytes that are pending.
        """
        store = Store(Path(directory))
        try:
            head = store.open_for_reading()
            log = cls(store, head, retention or LogRetention(), sync, pending_limit_bytes)
            with errors_of(store.directory, "opening"):
                log._load(head)
            store.open_for_writing(sync, head.commit)
            log._promised = head.commit
        except BaseException:
            store.close()
            raise
        return log

    def _load(self, head: HeadRecord) -> None:
        """Read all records, and check that the first and the last entry of every topic are in their places."""
        for number, body in self._store.records(1, head.topic_count):
            stored = unpacked_record(number, body, TopicRecord)
            topic = LogTopic(number, stored, 0)
            end = topic.last_end()
            if end > stored.earliest:
                first = header_at(self._store, number, stored.earliest, stored.earliest, stored.earliest)
                topic.oldest_at_us = first.appended_at_us
                last = header_at(self._store, number, stored.earliest, MAXIMAL_OFFSET, end - 1)
                if last.first_offset + last.count != end:
                    raise DamagedError(f"the end of topic {stored.name!r} is not where it should be")
            elif self._store.header_at(key_of(number, 0), key_of(number, MAXIMAL_OFFSET)) is not None:
                raise DamagedError(f"topic {stored.name!r} should be empty")
            self._topics[stored.name] = topic
        for number, body in self._store.records(FIRST_FACT, head.fact_count):
            fact = unpacked_record(number, body, FactRecord)
            self._facts[fact.key] = fact.value
            self._fact_numbers[fact.key] = number

    def close(self) -> None:
        """Commit everything pending and close. If the commit fails, the files are closed and the error is raised."""
        with self._guard:
            if self._closed:
                return
        try:
            self.commit()
            with self._writing, errors_of(self._store.directory, "closing"):
                self._store.make_everything_durable(self._commit)
        finally:
            with self._writing, self._guard:
                self._closed = True
                self._store.close()

    def __enter__(self) -> DurableLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Appending

    def append(
        self, topic: str, count: int, appended_at_us: int, batch: bytes, fact: tuple[str, bytes] | None = None
    ) -> int:
        """Append a batch of ``count`` messages, and give the offset of the first; durable after the next commit.

        A fact that belongs to the batch is put with it: a commit stores both or neither.
        """
        byte_count = len(batch)
        refuse_bad_batch(count, appended_at_us, byte_count)
        if self._pending_limit_bytes is not None and self.pending_bytes + byte_count > self._pending_limit_bytes:
            raise PeerError(
                f"the disk does not keep up: {self.pending_bytes} bytes wait to be committed and more than "
                f"{self._pending_limit_bytes} are not held in memory; commit, then append again"
            )
        state = self._topics.get(topic)
        if state is None:
            state = self._new_topic(topic)
        first = state.next_offset
        if first + count > MAXIMAL_OFFSET:
            raise UsageError(f"topic {topic!r} has used up its offsets at {first}; go on with another topic")
        entry = Entry(first, count, max(appended_at_us, state.latest_at_us), batch)
        key = state.key(first)
        pending = PendingBatch(state, entry, (key, packed_header(key, entry), batch))
        with self._guard:
            self._refuse_if_closed()
            if fact is not None:
                self._put(*fact)
            self._topics[topic] = state
            state.memory.append(entry)
            state.next_offset = first + count
            state.latest_at_us = entry.appended_at_us
            self._pending.append(pending)
            self.pending_bytes += byte_count
        return first

    def _new_topic(self, name: str) -> LogTopic:
        """A topic that is appended to for the first time."""
        refuse_bad_name(name, "topic")
        number = len(self._topics) + 1
        if number > MAXIMAL_TOPIC_COUNT:
            raise UsageError(f"a log holds at most {MAXIMAL_TOPIC_COUNT} topics; use fewer")
        return LogTopic(number, TopicRecord(name, 0, 0, 0, 0, 0), 0)

    def put(self, key: str, value: bytes) -> None:
        """Keep a small fact of the node; ``get`` gives it at once, and the next commit makes it durable."""
        with self._guard:
            self._refuse_if_closed()
            self._put(key, value)

    def _put(self, key: str, value: bytes) -> None:
        """Keep a fact; the caller holds the guard."""
        refuse_bad_name(key, "fact")
        if len(value) > MAXIMAL_FACT_BYTES:
            raise UsageError(
                f"fact {key!r} has {len(value)} bytes, more than {MAXIMAL_FACT_BYTES}; append it to a topic"
            )
        if key not in self._fact_numbers:
            if len(self._fact_numbers) >= MAXIMAL_FACT_COUNT:
                raise UsageError(f"a log holds at most {MAXIMAL_FACT_COUNT} facts; use fewer keys")
            self._fact_numbers[key] = FIRST_FACT + len(self._fact_numbers)
        self._facts[key] = value
        self._changed_facts[key] = value

    def get(self, key: str) -> bytes | None:
        """The fact last put under this key."""
        return self._facts.get(key)

    # Committing and trimming

    def commit(self) -> int:
        """Make everything durable that was appended and put before this call, atomically; gives the number of batches.

        If it fails, everything is still in memory, and the next commit tries again.
        """
        with self._writing:
            with self._guard:
                self._refuse_if_closed()
                group = self._pending[:]
                facts = dict(self._changed_facts)
                fact_count = len(self._fact_numbers)
            if group or facts:
                self._commit_group(group, facts, fact_count)
            if self._sync and self._promised != self._commit:
                self._store.promise(self._commit)
                self._promised = self._commit
            return len(group)

    def _commit_group(self, group: list[PendingBatch], facts: dict[str, bytes], fact_count: int) -> None:
        """Store batches and facts in one transaction, then remove them from memory."""
        by_topic: dict[LogTopic, list[Entry]] = {}
        for topic, entry, _ in group:
            by_topic.setdefault(topic, []).append(entry)
        topics = {topic: with_entries(topic, entries) for topic, entries in by_topic.items()}
        topic_count = max((topic.number for topic in topics), default=0)
        topic_count = max(topic_count, self._stored_topic_count)
        rows = [self._next_head(topic_count, fact_count)]
        rows += [record_row(topic.number, record) for topic, record in topics.items()]
        rows += [record_row(self._fact_numbers[key], FactRecord(key, value)) for key, value in facts.items()]
        rows += [pending.row for pending in group]
        self._store.write(rows)
        self._commit += 1
        self._stored_topic_count = topic_count
        self._stored_fact_count = fact_count
        with self._guard:
            del self._pending[: len(group)]
            for topic, entries in by_topic.items():
                if topic.stored.next_offset == topic.stored.earliest:
                    topic.oldest_at_us = entries[0].appended_at_us
                topic.stored = topics[topic]
                del topic.memory[: len(entries)]
                self.pending_bytes -= sum(len(entry.batch) for entry in entries)
            for key, value in facts.items():
                if self._changed_facts[key] is value:
                    del self._changed_facts[key]

    def _next_head(self, topic_count: int, fact_count: int) -> Row:
        return record_row(0, HeadRecord(self._commit + 1, topic_count, fact_count))

    def trim(self, now_us: int) -> int:
        """Remove committed batches that retention does not keep; gives their number. No offset changes."""
        return sum(self.trim_steps(now_us))

    def trim_steps(self, now_us: int, settled_us: int | None = None) -> Iterator[int]:
        """Trim in steps, between which others may write, and give space back; the number of batches of each step.

        ``settled_us`` is the time if it is certain that batches with later times carry times of the future.
        """
        for topic in list(self._topics.values()):
            if settled_us is not None and topic.latest_at_us > settled_us + JUMP_US:
                self._set_back(topic, settled_us)
            while (step := self._trim_step(topic, now_us)) > 0:
                yield step
            yield 0
        while self._give_back():
            yield 0

    def _give_back(self) -> bool:
        with self._writing:
            self._refuse_if_closed()
            return self._space.give_back()

    def _set_back(self, topic: LogTopic, now_us: int) -> None:
        """Let the times of a topic go on from now, though later ones were written."""
        with self._writing:
            self._refuse_if_closed()
            with self._guard:
                topic.set_back(now_us)
            if topic.number <= self._stored_topic_count:
                self._write_record(topic, replace(topic.stored, set_backs=topic.set_backs, last_at_us=now_us))

    def _write_record(self, topic: LogTopic, record: TopicRecord) -> None:
        """Write the record of a topic, and remove the entries before its earliest; the caller may write."""
        rows = [self._next_head(self._stored_topic_count, self._stored_fact_count), record_row(topic.number, record)]
        self._store.remove(topic.key(topic.stored.earliest), topic.key(record.earliest), rows)
        self._commit += 1
        topic.stored = record

    def newest_us(self) -> int:
        """The newest time of any topic; 0 for an empty log."""
        return max((topic.latest_at_us for topic in self._topics.values()), default=0)

    def release(self, topic: str, offset: int) -> None:
        """Let ``trim`` remove the entries of a topic before an offset, and no others, whatever the retention."""
        state = self._topics.get(topic)
        if state is not None:
            state.released = offset

    def _trim_step(self, topic: LogTopic, now_us: int) -> int:
        """Remove the oldest batches of a topic, a bounded number in one transaction."""
        with self._writing:
            self._refuse_if_closed()
            age_us, limit = self.retention.age_us, self.retention.bytes
            stored = topic.stored
            if topic.released is not None:
                limit, age_us = None, None
            too_much = limit is not None and stored.byte_count > limit
            too_old = topic.is_too_old(stored.earliest, topic.oldest_at_us, age_us, now_us)
            is_released = topic.released is not None and stored.earliest < min(topic.released, stored.next_offset)
            if not (too_much or too_old or is_released) or stored.batch_count == 0:
                return 0
            record, oldest_at_us = without_oldest(self._store, topic, limit, age_us, now_us)
            removed = stored.batch_count - record.batch_count
            with self._guard:
                # Before the entries are removed: a reader must learn that they were removed, not that they are missing.
                topic.earliest = record.earliest
            self._write_record(topic, record)
            topic.oldest_at_us = oldest_at_us
            return removed

    # Reading

    def topics(self) -> dict[str, TopicSize]:
        """The topics of the log by name, with the size of each."""
        with self._guard:
            return {
                name: TopicSize(
                    topic.earliest,
                    topic.next_offset,
                    topic.stored.batch_count + len(topic.memory),
                    topic.stored.byte_count + sum(len(entry.batch) for entry in topic.memory),
                )
                for name, topic in self._topics.items()
            }

    def earliest(self, topic: str) -> int:
        """The first offset that is still there; 0 for a topic that is not known."""
        state = self._topics.get(topic)
        return 0 if state is None else state.earliest

    def latest(self, topic: str) -> int:
        """The offset that the next message gets; 0 for a topic that is not known."""
        state = self._topics.get(topic)
        return 0 if state is None else state.next_offset

    def read(self, topic: str, offset: int, max_bytes: int) -> list[Entry]:
        """The entries from the one that contains ``offset`` on, up to ``max_bytes`` of batches but at least one.

        None at the end of the topic. A batch can be read as soon as it is appended, before it is durable.
        """
        self._refuse_if_closed()
        latest = self.latest(topic)
        if not 0 <= offset <= latest:
            raise UsageError(
                f"topic {topic!r} has no offset {offset}; the latest is {latest}, the next message gets it"
            )
        found: list[Entry] = []
        room_bytes = max_bytes
        position = offset
        while position < latest and (room_bytes > 0 or not found):
            state = self._topics[topic]
            with self._guard:
                part = read_memory(state.memory, position, room_bytes, bool(found))
            if part is None and found and state.hole_end(position) is not None:
                break
            if part is None:
                part = read_stored(self._store, self._guard, state, position, room_bytes, bool(found))
            if not part:
                break
            found += part
            room_bytes -= sum(len(entry.batch) for entry in part)
            position = found[-1].next_offset
        return found

    def read_between(self, topic: str, offset: int, end: int) -> list[Entry]:
        """The entries from the one that contains ``offset``, or from the first that is left, to that before ``end``."""
        found: list[Entry] = []
        position = max(offset, self.earliest(topic))
        while position < end:
            found += self.read(topic, position, READ_BYTES)
            position = found[-1].next_offset
        return [entry for entry in found if entry.first_offset < end]

    def has(self, topic: str) -> bool:
        """Whether anything was ever appended to a topic."""
        return topic in self._topics

    def durable_end(self, topic: str) -> int:
        """The offset behind the last committed message; 0 for a topic that is not known."""
        state = self._topics.get(topic)
        return 0 if state is None else state.stored.next_offset

    def connect_reader(self) -> ReadConnection:
        """A connection for ``read_durable`` in a thread of its own; the caller closes it before the log."""
        self._refuse_if_closed()
        return self._store.connect_reader()

    def read_durable(self, topic: str, offset: int, max_bytes: int, connection: ReadConnection) -> list[Entry]:
        """Like ``read``, but only committed entries, and other threads can read meanwhile."""
        self._refuse_if_closed()
        end = self.durable_end(topic)
        if not 0 <= offset <= end:
            raise UsageError(f"topic {topic!r} has no offset {offset} on disk; the latest is {end}")
        if offset == end:
            return []
        return read_stored(self._store, self._guard, self._topics[topic], offset, max_bytes, False, connection)

    def offset_at(self, topic: str, time_us: int) -> int:
        """The first offset that was appended at this time or later; the next offset if there is none yet."""
        self._refuse_if_closed()
        state = self._topics.get(topic)
        if state is None:
            return 0

        def is_at(entry: Entry) -> bool:
            return state.time_at(entry.first_offset, entry.appended_at_us) >= time_us

        while True:
            with self._guard:
                earliest, end, latest = state.earliest, state.stored.next_offset, state.next_offset
                later = next((each.first_offset for each in state.memory if is_at(each)), latest)
            with errors_of(self._store.directory, "reading"):
                try:
                    found = search_stored(self._store, state, earliest, end, time_us)
                except DamagedError:
                    if state.earliest == earliest:
                        raise
                    continue  # removed while it was searched
            return found if found < end else later

    def verify(self) -> int:
        """Read everything and compare it with its checksums; gives the number of batches."""
        count = 0
        for name in list(self._topics):
            topic, offset = self._topics[name], self.earliest(name)
            offset = topic.hole_end(offset) or offset
            while entries := self.read(name, offset, MAXIMAL_BATCH_BYTES):
                offset = topic.hole_end(entries[-1].next_offset) or entries[-1].next_offset
                count += len(entries)
        return count

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise UsageError("the log is closed; open it again")
