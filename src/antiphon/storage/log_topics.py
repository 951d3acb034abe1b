"""The topics of a log: their state in memory, their retention, and the search for an offset or a time in the store."""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from msgspec import structs

from antiphon.kernel.errors import UsageError
from antiphon.storage.log_formats import (
    DamagedError,
    Entry,
    Header,
    OffsetRemovedError,
    TopicRecord,
    checked_entry,
    key_of,
    unpacked_header,
)
from antiphon.storage.sqlite import ReadConnection, Row, Store, errors_of

MAXIMAL_NAME_BYTES = 1024
MAXIMAL_BATCH_BYTES = 64 * 1024 * 1024
"""At least the size of a frame between nodes, so that every batch that arrives can be appended."""

REMOVED_PER_TRANSACTION = 1000
REMOVED_BYTES_PER_TRANSACTION = 64 * 1024 * 1024
"""Retention removes at most so many batches at once, or one more than so many bytes, so that a commit that waits for it
does not wait long."""

SET_BACKS_AT_MOST = 16
"""A topic remembers so many set-backs of the clock; older ones become one."""

first_offset_of = attrgetter("first_offset")


@dataclass(frozen=True)
class LogRetention:
    """How much of each topic is kept: so many bytes of batches, and batches not older than this. None: no limit."""

    bytes: int | None = None
    age_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("bytes", self.bytes), ("age_seconds", self.age_seconds)):
            if limit is not None and not limit > 0:
                raise UsageError(f"retention {name} must be more than 0, not {limit}; leave it out to keep everything")

    @property
    def age_us(self) -> int | None:
        """The age in microseconds."""
        return None if self.age_seconds is None else round(self.age_seconds * 1_000_000)


class TopicSize(NamedTuple):
    """The size of a topic in the log, with the messages that are not committed yet."""

    earliest: int
    latest: int
    batch_count: int
    byte_count: int


class LogTopic:
    """The state of a topic in memory."""

    __slots__ = (
        "earliest",
        "latest_at_us",
        "memory",
        "next_offset",
        "number",
        "oldest_at_us",
        "released",
        "set_backs",
        "stored",
    )

    def __init__(self, number: int, stored: TopicRecord, oldest_at_us: int) -> None:
        self.number = number
        self.stored = stored
        """The record in the store; replaced after each transaction that changed it."""
        self.oldest_at_us = oldest_at_us
        """The time of the first stored batch, if there is one."""
        self.earliest = stored.earliest
        """Ahead of the stored one while older entries are being removed."""
        self.memory: list[Entry] = []
        """The entries that are not stored yet; they continue where the stored ones end."""
        self.next_offset = stored.next_offset
        self.latest_at_us = stored.last_at_us
        self.set_backs = stored.set_backs
        self.released: int | None = None
        """If set, the node needs nothing before this offset and everything from it on, whatever the retention."""

    def key(self, offset: int) -> int:
        """The key of an offset."""
        return key_of(self.number, offset)

    def hole_end(self, offset: int) -> int | None:
        """The end of the hole that contains an offset; None if there is no hole."""
        return next((end for first, end in self.stored.holes if first <= offset < end), None)

    def last_end(self) -> int:
        """The offset behind the last entry that is stored."""
        holes = self.stored.holes
        return holes[-1][0] if holes and holes[-1][1] == self.stored.next_offset else self.stored.next_offset

    def time_at(self, offset: int, stamp_us: int) -> int:
        """The time of an entry, as later set-backs of the clock correct it; it never runs backwards."""
        for end, at_us in self.set_backs:
            if offset < end and at_us < stamp_us:
                stamp_us = at_us
        return stamp_us

    def is_too_old(self, offset: int, stamp_us: int, age_us: int | None, now_us: int) -> bool:
        """Whether an entry is older than this; only times of the future are corrected, so that less is removed."""
        if age_us is None:
            return False
        return (stamp_us if stamp_us <= now_us else self.time_at(offset, stamp_us)) < now_us - age_us

    def set_back(self, now_us: int) -> None:
        """The clock was ahead, and this is the right time."""
        set_backs = [(end, at_us) for end, at_us in self.set_backs if end > self.earliest]
        set_backs.append((self.next_offset, now_us))
        while len(set_backs) > SET_BACKS_AT_MOST:
            (_, first_us), (end, second_us), *others = set_backs
            set_backs = [(end, min(first_us, second_us)), *others]
        self.set_backs = tuple(set_backs)
        self.latest_at_us = now_us


class PendingBatch(NamedTuple):
    """A batch that waits for the next commit."""

    topic: LogTopic
    entry: Entry
    row: Row


def with_entries(topic: LogTopic, entries: list[Entry]) -> TopicRecord:
    """The record of a topic after these entries were added."""
    stored = topic.stored
    return TopicRecord(
        stored.name,
        stored.earliest,
        entries[-1].next_offset,
        stored.batch_count + len(entries),
        stored.byte_count + sum(len(entry.batch) for entry in entries),
        entries[-1].appended_at_us,
        topic.set_backs,
        stored.holes,
    )


def refuse_bad_name(name: str, what: str) -> None:
    """Refuse a name that is not text of a bounded length."""
    try:
        byte_count = len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of a {what} must be text, not {name!r}; use whole characters") from error
    if not 0 < byte_count <= MAXIMAL_NAME_BYTES:
        raise UsageError(
            f"the name of a {what} has 1 to {MAXIMAL_NAME_BYTES} bytes in UTF-8, not {byte_count}; choose another one"
        )


def refuse_bad_batch(count: int, appended_at_us: int, byte_count: int) -> None:
    """Refuse a batch that is too large, or that has no message or no time."""
    if byte_count > MAXIMAL_BATCH_BYTES:
        raise UsageError(f"a batch has at most {MAXIMAL_BATCH_BYTES} bytes, not {byte_count}; make smaller ones")
    if count < 1 or not 0 <= appended_at_us < 1 << 62:
        raise UsageError(
            f"a batch has at least one message and a time in microseconds, not {count} and {appended_at_us}; "
            "pass what the batch holds"
        )


def read_stored(
    store: Store,
    guard: threading.Lock,
    topic: LogTopic,
    offset: int,
    room_bytes: int,
    has_some: bool,
    connection: ReadConnection | None = None,
) -> list[Entry]:
    """Read stored entries; fails if one of them is damaged or missing. ``guard`` protects the state of the topic."""
    with guard:
        earliest, end = topic.earliest, topic.stored.next_offset
        name = topic.stored.name
    if offset < earliest:
        raise OffsetRemovedError(name, offset, earliest)
    if (hole_end := topic.hole_end(offset)) is not None:
        raise OffsetRemovedError(name, offset, hole_end, is_damaged=True)
    found: list[Entry] = []
    expected = offset
    with (
        errors_of(store.directory, "reading"),
        closing(store.entries(topic.key(earliest), topic.key(offset), topic.key(end), connection)) as rows,
    ):
        for key, packed, batch in rows:
            header = unpacked_header(key, packed)
            if header.first_offset > expected or header.first_offset + header.count <= expected:
                break
            if (found or has_some) and header.byte_count > room_bytes:
                return found
            found.append(checked_entry(header, batch))
            room_bytes -= header.byte_count
            expected = header.first_offset + header.count
        if expected < end and topic.hole_end(expected) is None:
            if offset < topic.earliest:  # removed while it was read
                raise OffsetRemovedError(name, offset, topic.earliest)
            raise DamagedError(f"topic {name!r} has no entry at offset {expected}")
    return found


def search_stored(store: Store, topic: LogTopic, earliest: int, end: int, time_us: int) -> int:
    """The first stored offset at this time or later, or ``end``; times never run backwards."""
    low, high = earliest, end
    while low < high:
        middle = (low + high) // 2
        hole_end = topic.hole_end(middle)
        if hole_end is not None and hole_end >= high:
            high = next(first for first, end in topic.stored.holes if end == hole_end)
            continue
        header = header_at(store, topic.number, earliest, *(2 * [middle if hole_end is None else hole_end]))
        if topic.time_at(header.first_offset, header.appended_at_us) >= time_us:
            high = header.first_offset
        else:
            low = header.first_offset + header.count
    return topic.hole_end(low) or low


def header_at(store: Store, topic_number: int, earliest: int, last: int, wanted: int) -> Header:
    """The header of the last stored entry from ``earliest`` to ``last``, which must contain the offset wanted."""
    row = store.header_at(key_of(topic_number, earliest), key_of(topic_number, last))
    if row is not None:
        header = unpacked_header(*row)
        if header.first_offset <= wanted < header.first_offset + header.count:
            return header
    raise DamagedError(f"topic number {topic_number} has no entry at offset {wanted}")


def without_oldest(
    store: Store, topic: LogTopic, limit: int | None, age_us: int | None, now_us: int
) -> tuple[TopicRecord, int]:
    """The record of a topic without the batches that need not be kept, and the time of the first one that stays."""
    stored = topic.stored
    earliest, batch_count, byte_count = stored.earliest, stored.batch_count, stored.byte_count
    oldest_at_us = 0
    with (
        errors_of(store.directory, "trimming"),
        closing(store.headers(topic.key(earliest), topic.key(stored.next_offset))) as rows,
    ):
        for key, packed in rows:
            header = unpacked_header(key, packed)
            earliest = topic.hole_end(earliest) or earliest
            if header.first_offset != earliest:
                raise DamagedError(f"topic {stored.name!r} has no entry at offset {earliest}")
            oldest_at_us = header.appended_at_us
            too_much = limit is not None and byte_count > limit
            too_old = topic.is_too_old(earliest, oldest_at_us, age_us, now_us)
            is_released = topic.released is not None and header.first_offset < topic.released
            is_enough = (
                stored.batch_count - batch_count == REMOVED_PER_TRANSACTION
                or stored.byte_count - byte_count > REMOVED_BYTES_PER_TRANSACTION
            )
            if not (too_much or too_old or is_released) or is_enough:
                break
            earliest += header.count
            batch_count -= 1
            byte_count -= header.byte_count
    earliest = topic.hole_end(earliest) or earliest
    holes = tuple(hole for hole in stored.holes if hole[1] > earliest)
    record = structs.replace(
        stored,
        earliest=earliest,
        batch_count=batch_count,
        byte_count=byte_count,
        set_backs=topic.set_backs,
        holes=holes,
    )
    return record, oldest_at_us


def read_memory(memory: list[Entry], offset: int, room_bytes: int, has_some: bool) -> list[Entry] | None:
    """Read entries that are not stored yet; None if the offset is not among them."""
    if not memory or offset < memory[0].first_offset:
        return None
    found: list[Entry] = []
    for index in range(bisect_right(memory, offset, key=first_offset_of) - 1, len(memory)):
        entry = memory[index]
        if (found or has_some) and len(entry.batch) > room_bytes:
            break
        found.append(entry)
        room_bytes -= len(entry.batch)
    return found
