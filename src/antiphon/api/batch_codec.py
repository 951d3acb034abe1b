"""The content of a batch as it is written and read: a column of values, and others where messages have more.

Apart from :mod:`antiphon.api.batch` because msgspec reads the types of fields at run time, which compiled classes do
not have.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Annotated, Final, NamedTuple

import msgspec

from antiphon.kernel.errors import ProtocolError

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000_000)]
"""Since 1970, up to the end of the year 9999, behind which there are no dates."""

NEVER: Final = 0
"""In the column of expiry times: the message does not expire."""


class Columns(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The content of a batch as it is written; a column that no message uses is missing.

    ``about`` is no column: the keys that all messages of the batch were published about with ``keys=``. Neither is
    ``author_sequence``: the number of the first message among those of the client that published them.
    """

    first_sequence: Number
    timestamp_us: Microseconds
    values: list[bytes]
    keys: list[bytes | None] | None = None
    headers: list[dict[str, bytes] | None] | None = None
    expires_us: list[Number] | None = None
    about: list[bytes] | None = None
    author_sequence: Number | None = None


class Receipt(msgspec.Struct, frozen=True):
    """Of a message that was accepted: its author, and the author's own number for it on its topic, from 1.

    The author is the client that published it, or the node, if its own application did. Subscribers at every node see
    the same two numbers (``Message.author`` and ``Message.author_sequence``), also if the client has changed its node.
    """

    topic: str
    author: int
    sequence: int


COUNT_BYTES: Final = 4
HAS_AUTHOR: Final = 1 << 31
"""Added to the number of messages where the client that published them follows, and its own number for the batch."""

HAS_WRITER: Final = 1 << 30
"""Added, too, where the author is a lane of a writer, of which more follows (:mod:`antiphon.sessions.writers`)."""


class Author(NamedTuple):
    """Whose batch it is, and its number among theirs.

    If it is a lane of a writer, also which writer and lane, and a digest of what the lane has written in the series:
    with this batch, and before it.
    """

    client: int
    number: int
    writer: int = 0
    lane: int = 0
    digest: int = 0
    previous: int = 0


NO_AUTHOR: Final = Author(0, 0)
COUNT: Final = Layout("<I")
CLIENT_HEADER: Final = Layout("<IQQ")
WRITER_HEADER: Final = Layout("<IQQQQQQ")
CLIENT_AUTHOR: Final = Layout("<QQ")
WRITER_AUTHOR: Final = Layout("<QQQQQQ")
COLUMNS_ENCODER: Final = msgspec.msgpack.Encoder()
COLUMNS_DECODER: Final = msgspec.msgpack.Decoder(Columns)


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


def read_header(payload: bytes) -> tuple[int, int, Author]:
    """How many messages a payload says to hold, where its columns begin, and whose batch it is.

    The author is ``NO_AUTHOR`` if an application at a node published the batch.
    """
    word = int.from_bytes(payload[:COUNT_BYTES], "little")
    count = word & ~(HAS_AUTHOR | HAS_WRITER)
    if word < HAS_AUTHOR:
        return count, COUNT_BYTES, NO_AUTHOR
    layout = WRITER_AUTHOR if word & HAS_WRITER else CLIENT_AUTHOR
    end = COUNT_BYTES + layout.size
    return count, end, Author(*layout.unpack_from(payload, COUNT_BYTES)) if len(payload) >= end else NO_AUTHOR


def decode_columns(payload: bytes) -> Columns:
    """The content of a batch; :class:`ProtocolError` if the payload holds none, or columns of different lengths."""
    count, begin, _ = read_header(payload)
    return decode_after_header(payload, count, begin)


def decode_after_header(payload: bytes, count: int, begin: int) -> Columns:
    """The content of a batch whose header says how many messages it has, and where its columns begin."""
    try:
        columns = COLUMNS_DECODER.decode(memoryview(payload)[begin:])
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a publication of {len(payload)} bytes holds no batch of messages: {error}") from error
    for column in (columns.values, columns.keys, columns.headers, columns.expires_us):
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
