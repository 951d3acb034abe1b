"""The topics of a log: their state in memory, their retention, and the search for an offset or a time in the store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from antiphon.kernel.errors import UsageError
from antiphon.storage.log_formats import DamagedError, Entry, Header, TopicRecord, key_of, unpacked_header
from antiphon.storage.sqlite import Row, Store, errors_of

MAXIMAL_NAME_BYTES = 1024
REMOVED_PER_TRANSACTION = 1000
"""Retention removes at most so many batches at once, so that a commit that waits for it does not wait long."""


@dataclass(frozen=True)
class Retention:
    """How much of each topic is kept: so many bytes of batches, and batches not older than this. None: no limit."""

    bytes: int | None = None
    age_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("bytes", self.bytes), ("age_seconds", self.age_seconds)):
            if limit is not None and not limit > 0:
                raise UsageError(f"retention {name} must be more than 0, not {limit}; leave it out to keep everything")

    def oldest_kept_us(self, now_us: int) -> int | None:
        """Batches appended before this time are too old."""
        return None if self.age_seconds is None else now_us - round(self.age_seconds * 1_000_000)


class TopicSize(NamedTuple):
    """The size of a topic in the log, with the messages that are not committed yet."""

    earliest: int
    latest: int
    batch_count: int
    byte_count: int


class Topic:
    """The state of a topic in memory."""

    __slots__ = (
        "earliest",
        "latest_at_us",
        "memory",
        "next_offset",
        "number",
        "oldest_at_us",
        "released",
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
        self.released: int | None = None
        """If set, the node needs nothing before this offset and everything from it on, whatever the retention."""

    def key(self, offset: int) -> int:
        """The key of an offset."""
        return key_of(self.number, offset)


class Pending(NamedTuple):
    """A batch that waits for the next commit."""

    topic: Topic
    entry: Entry
    row: Row


def with_entries(stored: TopicRecord, entries: list[Entry]) -> TopicRecord:
    """The record of a topic after these entries were added."""
    return TopicRecord(
        stored.name,
        stored.earliest,
        entries[-1].next_offset,
        stored.batch_count + len(entries),
        stored.byte_count + sum(len(entry.batch) for entry in entries),
        entries[-1].appended_at_us,
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


def search_stored(store: Store, topic_number: int, earliest: int, end: int, time_us: int) -> int:
    """The first stored offset at this time or later, or ``end``; times never run backwards."""
    low, high = earliest, end
    while low < high:
        middle = (low + high) // 2
        header = header_at(store, topic_number, earliest, middle, middle)
        if header.appended_at_us >= time_us:
            high = header.first_offset
        else:
            low = header.first_offset + header.count
    return low


def header_at(store: Store, topic_number: int, earliest: int, last: int, wanted: int) -> Header:
    """The header of the last stored entry from ``earliest`` to ``last``, which must contain the offset wanted."""
    row = store.header_at(key_of(topic_number, earliest), key_of(topic_number, last))
    if row is not None:
        header = unpacked_header(*row)
        if header.first_offset <= wanted < header.first_offset + header.count:
            return header
    raise DamagedError(f"topic number {topic_number} has no entry at offset {wanted}")


def without_oldest(
    store: Store, topic: Topic, limit: int | None, oldest_kept_us: int | None
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
            if header.first_offset != earliest:
                raise DamagedError(f"topic {stored.name!r} has no entry at offset {earliest}")
            oldest_at_us = header.appended_at_us
            too_much = limit is not None and byte_count > limit
            too_old = oldest_kept_us is not None and header.appended_at_us < oldest_kept_us
            is_released = topic.released is not None and header.first_offset < topic.released
            if not (too_much or too_old or is_released) or stored.batch_count - batch_count == REMOVED_PER_TRANSACTION:
                break
            earliest += header.count
            batch_count -= 1
            byte_count -= header.byte_count
    record = TopicRecord(stored.name, earliest, stored.next_offset, batch_count, byte_count, stored.last_at_us)
    return record, oldest_at_us
