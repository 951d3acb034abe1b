"""The content of a batch: a column of values, and others where messages have more; whose batch it is; receipts.

Apart from :mod:`antiphon.api.batch_codec` because msgspec reads the types of fields at run time, which compiled classes
do not have.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000_000)]
"""Since 1970, up to the end of the year 9999, behind which there are no dates."""

BATCH_MESSAGES_AT_MOST: Final = 1 << 17
"""How many messages one batch may hold, twice as many as an outbox makes: an empty one takes two bytes on its way, and
a hundred in a program."""

HEADERS_AT_MOST: Final = 1 << 16
"""How many headers one message may have; those that fit into the bytes that it may have beside its value are fewer."""

Headers = Annotated[dict[str, bytes], msgspec.Meta(max_length=HEADERS_AT_MOST)]
Count = msgspec.Meta(max_length=BATCH_MESSAGES_AT_MOST)

NEVER: Final = 0
"""In the column of expiry times: the message does not expire."""


FOLLOWED_AT_MOST: Final = 1 << 16
"""So many authors one message may name of those whose messages it follows."""

Followed = Annotated[list[Number], msgspec.Meta(max_length=2 * FOLLOWED_AT_MOST)]


class Follows(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The messages that one follows: for each topic, authors and their numbers for messages, by turns.

    The empty name stands for the topic of the message itself. A message follows all messages of these authors up to
    these numbers, and all that its own author published on the topic before it. A *narrowed* one follows these messages
    alone.
    """

    topics: Annotated[dict[str, Followed], msgspec.Meta(max_length=HEADERS_AT_MOST)]
    is_narrowed: bool = False


class Columns(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The content of a batch as it is written; a column that no message uses is missing.

    ``about`` is no column: the keys that all messages of the batch were published about with ``keys=``. Neither is
    ``author_sequence``: the number of the first message among those of the client that published them.
    """

    first_sequence: Number
    timestamp_us: Microseconds
    values: Annotated[list[bytes], Count]
    keys: Annotated[list[bytes | None], Count] | None = None
    headers: Annotated[list[Headers | None], Count] | None = None
    expires_us: Annotated[list[Number], Count] | None = None
    about: Annotated[list[bytes], Count] | None = None
    author_sequence: Number | None = None
    follows: Annotated[list[Follows | None], Count] | None = None
    """What each message follows beside all that its author published before it; None: no more than that."""


NOTHING: Final = msgspec.Raw(b"\xc0")


class UnreadColumns(msgspec.Struct, array_like=True):
    """The columns of a batch up to the headers, which are not decoded."""

    first_sequence: int
    timestamp_us: int
    values: msgspec.Raw
    keys: msgspec.Raw = NOTHING
    headers: msgspec.Raw = NOTHING


class Receipt(msgspec.Struct, frozen=True):
    """Of a message that was accepted: its author, and the author's own number for it on its topic, from 1.

    The author is the client that published it, or the node, if its own application did. Subscribers at every node see
    the same two numbers (``Message.author`` and ``Message.author_sequence``), also if the client has changed its node.
    """

    topic: str
    author: int
    sequence: int


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
