"""The bytes of the durable log, each with a checksum: headers of entries, records, and the mark of what was promised.

The store below is SQLite. It finds torn writes and most damage to its own structure, but it has no checksum over the
pages of its main file, so everything the log puts there carries one:

- an **entry** is one batch. Its key is ``topic number << 43 | first offset``; beside the batch stands a header with
  the time, the number of messages, the length and checksum of the batch, and a checksum over all of that and the key.
  Times and lengths can be trusted without reading the batch.
- a **record** is one small thing that the log keeps in memory while it is open: the head (record 0), a topic, a fact.
- the **mark** is a file of its own that says which commit was promised last. A damaged write-ahead log looks to SQLite
  like one that was never written further. The mark tells the difference between a torn write, which was never
  promised, and lost entries.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TypeVar
from zlib import crc32

import msgspec

from antiphon.kernel.errors import PeerError, UsageError

OFFSET_BITS = 43
"""Almost nine million million messages per topic, and with the sign bit a million topics."""

MAXIMAL_OFFSET = (1 << OFFSET_BITS) - 1
MAXIMAL_TOPIC_COUNT = (1 << (63 - OFFSET_BITS)) - 1
FIRST_FACT = MAXIMAL_TOPIC_COUNT + 1
"""Records 1, 2, ... are topics by their number; facts begin here."""

FIRST_RECORD_KEY = -(1 << 40)
"""Records have keys below those of all entries."""

HEADER = Layout("<qqII")
"""Of an entry: time in microseconds, number of messages, bytes of the batch, checksum of the batch."""

CHECKED_HEADER = Layout("<qqIII")
"""The same with its own checksum, which covers the key too."""

NUMBER = Layout("<q")
CHECKSUM = Layout("<I")
SLOT = Layout("<8sqI")
SLOT_MAGIC = b"ANTIMARK"
SLOT_BYTES = 512
"""A sector for each slot of the mark, so that a torn write spoils one at most."""


class OffsetRemovedError(UsageError):
    """The offset was removed by retention, or was damaged; ``earliest`` is the first one behind it that is there."""

    def __init__(self, topic: str, offset: int, earliest: int, is_damaged: bool = False) -> None:
        if is_damaged:
            sentence = (
                f"offset {offset} of topic {topic!r} was damaged and is lost; the next one still there is {earliest}: "
                "go on from it"
            )
        else:
            sentence = (
                f"offset {offset} of topic {topic!r} was removed by retention; the earliest one still there is "
                f"{earliest}: start from it, or keep more"
            )
        super().__init__(sentence)
        self.earliest = earliest


class DamagedError(PeerError):
    """The files differ from what was written; ``errors_of`` adds the directory and the advice."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One batch of the log: the offset of its first message, its number of messages, its time, its bytes."""

    first_offset: int
    count: int
    appended_at_us: int
    batch: bytes

    @property
    def next_offset(self) -> int:
        """The offset behind its last message."""
        return self.first_offset + self.count


class Header(msgspec.Struct, frozen=True, gc=False):
    """The header of a stored batch, which is read without the batch."""

    first_offset: int
    count: int
    appended_at_us: int
    byte_count: int
    batch_checksum: int


def key_of(topic_number: int, offset: int) -> int:
    """The key of the entry that begins with this offset."""
    return topic_number << OFFSET_BITS | offset


def packed_header(key: int, entry: Entry) -> bytes:
    """The header of an entry, as it is stored."""
    header = HEADER.pack(entry.appended_at_us, entry.count, len(entry.batch), crc32(entry.batch))
    return header + CHECKSUM.pack(crc32(header, crc32(NUMBER.pack(key))))


def unpacked_header(key: int, packed: object) -> Header:
    """The header of the entry with this key; refused if a bit of either is wrong."""
    if not isinstance(packed, bytes) or len(packed) != CHECKED_HEADER.size:
        raise DamagedError("an entry has no header")
    appended_at_us, count, byte_count, batch_checksum, checksum = CHECKED_HEADER.unpack(packed)
    if crc32(packed[: HEADER.size], crc32(NUMBER.pack(key))) != checksum:
        raise DamagedError("the header of an entry does not match its checksum")
    return Header(key & MAXIMAL_OFFSET, count, appended_at_us, byte_count, batch_checksum)


def checked_entry(header: Header, batch: object) -> Entry:
    """The entry with its batch, if the batch is what was written."""
    if not isinstance(batch, bytes) or len(batch) != header.byte_count or crc32(batch) != header.batch_checksum:
        raise DamagedError("a batch does not match its checksum")
    return Entry(header.first_offset, header.count, header.appended_at_us, batch)


class HeadRecord(msgspec.Struct, array_like=True, frozen=True):
    """The number of the last transaction, and how many topics and facts there must be."""

    commit: int
    topic_count: int
    fact_count: int


class TopicRecord(msgspec.Struct, array_like=True, frozen=True):
    """A topic in the store: its range of offsets, its batches and bytes, and its latest time."""

    name: str
    earliest: int
    next_offset: int
    batch_count: int
    byte_count: int
    last_at_us: int
    set_backs: tuple[tuple[int, int], ...] = ()
    """Where the clock was set back: messages before this offset count as appended at this time, if not earlier."""

    holes: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets whose entries were damaged and left out by a repair, in order: the first, and the end."""


class FactRecord(msgspec.Struct, array_like=True, frozen=True):
    """A small fact of the node."""

    key: str
    value: bytes


Record = TypeVar("Record", HeadRecord, TopicRecord, FactRecord)


def record_row(number: int, record: HeadRecord | TopicRecord | FactRecord) -> tuple[int, bytes, bytes]:
    """A record as it is stored: its key, no header, and a checksum over its number and its body before the body."""
    body = msgspec.msgpack.encode(record)
    return FIRST_RECORD_KEY + number, b"", CHECKSUM.pack(crc32(body, crc32(NUMBER.pack(number)))) + body


def unpacked_record(number: int, packed: bytes | None, kind: type[Record]) -> Record:
    """The record with this number; refused if it is missing or a bit of it is wrong."""
    if packed is None or len(packed) < CHECKSUM.size:
        raise DamagedError(f"record {number} is missing")
    body = packed[CHECKSUM.size :]
    if CHECKSUM.pack(crc32(body, crc32(NUMBER.pack(number)))) != packed[: CHECKSUM.size]:
        raise DamagedError(f"record {number} does not match its checksum")
    return msgspec.msgpack.decode(body, type=kind)


def packed_slot(commit: int) -> bytes:
    """One slot of the mark."""
    body = SLOT.pack(SLOT_MAGIC, commit, 0)[: -CHECKSUM.size]
    return (body + CHECKSUM.pack(crc32(body))).ljust(SLOT_BYTES, b"\0")


def marked_commit(content: bytes) -> int:
    """The last commit that the mark names. One slot may be torn; the other is then one commit older at most."""
    commits: list[int] = []
    for start in (0, SLOT_BYTES):
        slot = content[start : start + SLOT.size]
        if len(slot) == SLOT.size:
            magic, commit, checksum = SLOT.unpack(slot)
            if magic == SLOT_MAGIC and crc32(slot[: -CHECKSUM.size]) == checksum:
                commits.append(commit)
    if not commits:
        raise DamagedError("the mark of the last commit cannot be read")
    return max(commits)
