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

FIELD_BYTES: Final = 8
HEADER_BYTES: Final = COUNT_BYTES + 2 * FIELD_BYTES
WRITER_HEADER_BYTES: Final = HEADER_BYTES + 4 * FIELD_BYTES


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
AUTHOR_LAYOUTS: Final = {HEADER_BYTES: Layout("<QQ"), WRITER_HEADER_BYTES: Layout("<QQQQQQ")}
COLUMNS_ENCODER: Final = msgspec.msgpack.Encoder()
COLUMNS_DECODER: Final = msgspec.msgpack.Decoder(Columns)


def encode_columns(columns: Columns, author: Author = NO_AUTHOR) -> bytes:
    """The payload of the publication that carries a batch: how many messages, whose they are, and then the columns.

    All but the columns stands apart because who only hands a batch on or stores it needs no more than that.
    """
    count = len(columns.values)
    if author == NO_AUTHOR:
        return count.to_bytes(COUNT_BYTES, "little") + COLUMNS_ENCODER.encode(columns)
    flags = HAS_AUTHOR | HAS_WRITER if author.writer else HAS_AUTHOR
    fields = author if author.writer else author[:2]
    return b"".join(
        (
            (count | flags).to_bytes(COUNT_BYTES, "little"),
            *(field.to_bytes(FIELD_BYTES, "little") for field in fields),
            COLUMNS_ENCODER.encode(columns),
        )
    )


def count_messages(payload: bytes) -> int:
    """How many messages a payload says to hold."""
    return int.from_bytes(payload[:COUNT_BYTES], "little") & ~(HAS_AUTHOR | HAS_WRITER)


def header_bytes(payload: bytes) -> int:
    """Where the columns begin."""
    flags = payload[COUNT_BYTES - 1] if len(payload) >= COUNT_BYTES else 0
    if flags < HAS_AUTHOR >> 24:
        return COUNT_BYTES
    return WRITER_HEADER_BYTES if flags & HAS_WRITER >> 24 else HEADER_BYTES


def author_of(payload: bytes) -> Author:
    """The client that published a batch and its own number for it; ``NO_AUTHOR`` if a node's application did."""
    size = header_bytes(payload)
    if size == COUNT_BYTES or len(payload) < size:
        return NO_AUTHOR
    return Author(*AUTHOR_LAYOUTS[size].unpack_from(payload, COUNT_BYTES))


def decode_columns(payload: bytes) -> Columns:
    """The content of a batch; :class:`ProtocolError` if the payload holds none, or columns of different lengths."""
    try:
        columns = COLUMNS_DECODER.decode(memoryview(payload)[header_bytes(payload) :])
    except msgspec.DecodeError as error:
        raise ProtocolError(f"a publication of {len(payload)} bytes holds no batch of messages: {error}") from error
    count = count_messages(payload)
    for column in (columns.values, columns.keys, columns.headers, columns.expires_us):
        if column is not None and len(column) != count:
            raise ProtocolError(f"a batch of {count} messages has a column of {len(column)} entries")
    return columns


def check_payload(payload: bytes) -> None:
    """Refuse what a peer has sent if whoever shows it to an application would not find the messages that it announces.

    An empty one announces none, and is shown to nobody: processes use it where something only has to have its place.
    """
    if not payload:
        return
    decode_columns(payload)
    if any(number >> 62 for number in author_of(payload)):
        raise ProtocolError("a batch of messages has an author that no client can be")
