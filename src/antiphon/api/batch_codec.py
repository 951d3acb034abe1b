"""Batches as bytes: the payload of a publication is a count, the author, and the columns of its messages."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

import msgspec
from mypy_extensions import i64

from antiphon.api.columns import NO_AUTHOR, Author, Columns, Follows, UnreadColumns
from antiphon.kernel.errors import ProtocolError

COUNT_BYTES: Final = 4
HAS_AUTHOR: Final = 1 << 31
"""Added to the number of messages where the client that published them follows, and its own number for the batch."""

HAS_WRITER: Final = 1 << 30
"""Added, too, where the author is a lane of a writer, of which more follows (:mod:`antiphon.sessions.writers`)."""


HAS_SPACE: Final = 1 << 29
"""Added, too, where a header of a space stands before the columns (:mod:`antiphon.spaces.header`), after its length."""

SPACE_LENGTH: Final = Layout("<I")

SCANNED_BYTES: Final = 1 << 20
"""Longer batches are looked through before they are decoded: their headers may be far more objects than messages."""

BATCH_HEADERS_AT_MOST: Final = 1 << 18
"""How many headers all messages of a long batch may have together."""

COUNT: Final = Layout("<I")
CLIENT_HEADER: Final = Layout("<IQQ")
WRITER_HEADER: Final = Layout("<IQQQQQQ")
CLIENT_AUTHOR: Final = Layout("<QQ")
WRITER_AUTHOR: Final = Layout("<QQQQQQ")
HEADER_BYTES: Final = 3
"""The shortest header."""

SHORT_TABLE: Final = 0x8
TABLES: Final = {0xDE: 2, 0xDF: 4}
TABLE_HEAD_BYTES: Final = 5
COLUMNS_ENCODER: Final = msgspec.msgpack.Encoder()
COLUMNS_DECODER: msgspec.msgpack.Decoder[Columns] = msgspec.msgpack.Decoder(Columns)


UNREAD_DECODER: msgspec.msgpack.Decoder[UnreadColumns] = msgspec.msgpack.Decoder(UnreadColumns)
ENTRIES_DECODER: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])


def check_headers(encoded: memoryview) -> None:
    """Refuse columns with too many headers, which is seen by the sizes of the tables and without decoding these."""
    headers = UNREAD_DECODER.decode(encoded).headers
    if memoryview(headers).nbytes <= HEADER_BYTES * BATCH_HEADERS_AT_MOST:
        return
    found = sum(table_size(bytes(memoryview(table)[:TABLE_HEAD_BYTES])) for table in ENTRIES_DECODER.decode(headers))
    if found > BATCH_HEADERS_AT_MOST:
        raise ProtocolError(f"a batch has {found} headers; at most {BATCH_HEADERS_AT_MOST} are allowed")


def table_size(head: bytes) -> int:
    """How many entries a table of MessagePack has, by its first bytes; 0 if it is none."""
    if head[0] >> 4 == SHORT_TABLE:
        return head[0] & 0x0F
    width = TABLES.get(head[0], 0)
    return int.from_bytes(head[1 : 1 + width], "big")


def encode_columns(columns: Columns, author: Author = NO_AUTHOR) -> bytes:
    """The payload of the publication that carries a batch: how many messages, whose they are, and then the columns.

    Count and author stand apart from the columns because a node that forwards or stores a batch needs no more.
    """
    count = len(columns.values)
    if author.writer:
        header = WRITER_HEADER.pack(count | HAS_AUTHOR | HAS_WRITER, *author)
    elif author.client or author.number:
        header = CLIENT_HEADER.pack(count | HAS_AUTHOR, author.client, author.number)
    else:
        header = COUNT.pack(count)
    return header + COLUMNS_ENCODER.encode(columns)


def single_message(columns: Columns, index: int, author: Author) -> bytes:
    """The payload of a batch with one message of another batch, which keeps its numbers, key and headers."""
    first = columns.author_sequence
    alone = Columns(
        columns.first_sequence + index,
        columns.timestamp_us,
        [columns.values[index]],
        None if columns.keys is None else [columns.keys[index]],
        None if columns.headers is None else [columns.headers[index]],
        None if columns.expires_us is None else [columns.expires_us[index]],
        columns.about,
        None if first is None else first + index,
        None if columns.follows is None else [columns.follows[index]],
    )
    return encode_columns(alone, author)


def read_header(payload: bytes) -> tuple[int, int, Author]:
    """How many messages a payload says to hold, where its columns begin, and whose batch it is.

    The author is ``NO_AUTHOR`` if an application at a node published the batch.
    """
    if len(payload) < COUNT_BYTES:
        return int.from_bytes(payload, "little"), COUNT_BYTES, NO_AUTHOR
    word = payload[0] | payload[1] << 8 | payload[2] << 16 | payload[3] << 24
    count = word & ~(HAS_AUTHOR | HAS_WRITER | HAS_SPACE)
    if word < HAS_SPACE:
        return count, COUNT_BYTES, NO_AUTHOR
    end, author = COUNT_BYTES, NO_AUTHOR
    if word & HAS_AUTHOR:
        layout = WRITER_AUTHOR if word & HAS_WRITER else CLIENT_AUTHOR
        end = COUNT_BYTES + layout.size
        if len(payload) >= end:
            author = Author(*layout.unpack_from(payload, COUNT_BYTES))
    if word & HAS_SPACE and len(payload) >= end + SPACE_LENGTH.size:
        end += SPACE_LENGTH.size + SPACE_LENGTH.unpack_from(payload, end)[0]
    return count, end, author


def with_space_header(payload: bytes, header: bytes) -> bytes:
    """The payload of a batch, with the header of its space before its columns."""
    word = COUNT.unpack_from(payload)[0]
    _, begin, _ = read_header(payload)
    start = COUNT.pack(word | HAS_SPACE) + payload[COUNT_BYTES:begin]
    return start + SPACE_LENGTH.pack(len(header)) + header + payload[begin:]


def space_header(payload: bytes) -> bytes:
    """The header of its space that a batch carries; empty if it carries none."""
    word = COUNT.unpack_from(payload)[0] if len(payload) >= COUNT_BYTES else 0
    if not word & HAS_SPACE:
        return b""
    begin = COUNT_BYTES
    if word & HAS_AUTHOR:
        begin += WRITER_AUTHOR.size if word & HAS_WRITER else CLIENT_AUTHOR.size
    begin += SPACE_LENGTH.size
    return payload[begin : read_header(payload)[1]]


def decode_columns(payload: bytes) -> Columns:
    """The content of a batch; :class:`ProtocolError` if the payload holds none, or columns of different lengths."""
    count, begin, _ = read_header(payload)
    return decode_after_header(payload, count, begin)


def decode_after_header(payload: bytes, count: int, begin: int) -> Columns:
    """The content of a batch whose header says how many messages it has, and where its columns begin."""
    try:
        if len(payload) > SCANNED_BYTES:
            check_headers(memoryview(payload)[begin:])
        columns = COLUMNS_DECODER.decode(memoryview(payload)[begin:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a publication of {len(payload)} bytes holds no batch of messages: {error}") from error
    for column in (columns.values, columns.keys, columns.headers, columns.expires_us, columns.follows):
        if column is not None and len(column) != count:
            raise ProtocolError(f"a batch of {count} messages has a column of {len(column)} entries")
    return columns


def decode_checked(payload: bytes) -> Columns | None:
    """The content of a batch that a peer has sent; :class:`ProtocolError` if an application could not be shown it.

    An empty payload holds no messages and is shown to nobody: a process publishes it to take a place in an order.
    """
    if not payload:
        return None
    count, begin, author = read_header(payload)
    columns = decode_after_header(payload, count, begin)
    if max(author) >> 62:
        raise ProtocolError("a batch of messages has an author that no client can be")
    return columns


def check_payload(payload: bytes) -> None:
    """Refuse a payload from a peer that cannot be decoded."""
    decode_checked(payload)


def size_of_follows(follows: Follows) -> i64:
    """How many bytes the names of those that a message follows take, about."""
    size: i64 = 0
    for name, pairs in follows.topics.items():
        size += len(name) + 9 * len(pairs)
    return size


def size_beside_value(key: bytes | None, headers: dict[str, bytes] | None) -> i64:
    """How many bytes a message holds beside its value."""
    size: i64 = 0 if key is None else len(key)
    if headers is not None:
        for name, content in headers.items():
            size += len(name) + len(content)
    return size
