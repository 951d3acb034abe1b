"""The content of a batch as it is written and read: a column of values, and others where messages have more.

Apart from :mod:`antiphon.live.batch` because msgspec reads the types of fields at run time, which compiled classes do
not have.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from antiphon.kernel.errors import ProtocolError

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000_000)]
"""Since 1970, up to the end of the year 9999, behind which there are no dates."""

NEVER: Final = 0
"""In the column of expiry times: the message does not expire."""


class Columns(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The content of a batch as it is written; a column that no message uses is missing.

    ``about`` is no column: the keys that all messages of the batch were published about with ``keys=``.
    """

    first_sequence: Number
    timestamp_us: Microseconds
    values: list[bytes]
    keys: list[bytes | None] | None = None
    headers: list[dict[str, bytes] | None] | None = None
    expires_us: list[Number] | None = None
    about: list[bytes] | None = None


COUNT_BYTES: Final = 4
HAS_AUTHOR: Final = 1 << 31
"""Added to the number of messages where the client that published them follows, and its own number for the batch."""

AUTHOR_BYTES: Final = 8
HEADER_BYTES: Final = COUNT_BYTES + 2 * AUTHOR_BYTES
NO_AUTHOR: Final = (0, 0)
COLUMNS_ENCODER: Final = msgspec.msgpack.Encoder()
COLUMNS_DECODER: Final = msgspec.msgpack.Decoder(Columns)


def encode_columns(columns: Columns, author: tuple[int, int] = NO_AUTHOR) -> bytes:
    """The payload of the publication that carries a batch: how many messages, whose they are, and then the columns.

    All but the columns stands apart because who only hands a batch on or stores it needs no more than that.
    """
    count = len(columns.values)
    if author == NO_AUTHOR:
        return count.to_bytes(COUNT_BYTES, "little") + COLUMNS_ENCODER.encode(columns)
    client, number = author
    return b"".join(
        (
            (count | HAS_AUTHOR).to_bytes(COUNT_BYTES, "little"),
            client.to_bytes(AUTHOR_BYTES, "little"),
            number.to_bytes(AUTHOR_BYTES, "little"),
            COLUMNS_ENCODER.encode(columns),
        )
    )


def count_messages(payload: bytes) -> int:
    """How many messages a payload says to hold."""
    return int.from_bytes(payload[:COUNT_BYTES], "little") & ~HAS_AUTHOR


def author_of(payload: bytes) -> tuple[int, int]:
    """The client that published a batch and its own number for it; ``NO_AUTHOR`` if a node's application did."""
    if len(payload) < HEADER_BYTES or payload[COUNT_BYTES - 1] < 128:
        return NO_AUTHOR
    client = int.from_bytes(payload[COUNT_BYTES : COUNT_BYTES + AUTHOR_BYTES], "little")
    number = int.from_bytes(payload[COUNT_BYTES + AUTHOR_BYTES : HEADER_BYTES], "little")
    return client, number


def decode_columns(payload: bytes) -> Columns:
    """The content of a batch; :class:`ProtocolError` if the payload holds none, or columns of different lengths."""
    try:
        has_author = payload[COUNT_BYTES - 1 : COUNT_BYTES] >= b"\x80"
        columns = COLUMNS_DECODER.decode(memoryview(payload)[HEADER_BYTES if has_author else COUNT_BYTES :])
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
