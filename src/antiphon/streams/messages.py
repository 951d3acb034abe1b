"""The messages between the replicas of a stream. Each names the stream by its number, which is never used again."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from antiphon.streams.entries import IndexEntry

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Publications = list[tuple[Count, Count]]
"""Publications by source and sequence number."""


NumberedEntry = tuple[Count, IndexEntry]
NamedContent = tuple[Count, Count, bytes]
"""The messages of a publication, with its source and sequence number."""


class StreamMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message of a replica. ``term`` counts leaders: whoever hears of a later one follows it."""

    stream: Count
    term: Count


class VoteRequest(StreamMessage, frozen=True, array_like=True, tag=0):
    """A candidate asks for a vote. A trial changes nothing: it asks whether a real request would be granted."""

    last: Count
    last_term: Count
    is_trial: bool


class VoteResponse(StreamMessage, frozen=True, array_like=True, tag=1):
    """The answer of a voter."""

    is_trial: bool
    is_granted: bool


class AppendRequest(StreamMessage, frozen=True, array_like=True, tag=2):
    """A leader sends the entries behind ``previous``, and says which are settled."""

    previous: Count
    previous_term: Count
    entries: list[IndexEntry]
    settled: Count
    knows_past: bool = False
    """Whether the leader has given places to everything that a replica may have missed while it was away."""


class AppendResponse(StreamMessage, frozen=True, array_like=True, tag=3):
    """A replica has these entries on disk, with their messages, up to ``held``; or it lacks what comes before.

    If ``is_matched`` is false, ``held`` is where the leader shall try next.
    """

    is_matched: bool
    held: Count
    matched: Count = 0
    is_whole: bool = True
    """Whether it has everything before its snapshot, too."""


class ResignedRequest(StreamMessage, frozen=True, array_like=True, tag=4):
    """The leader of this term leads no more; the others choose another one."""


class ContentRequest(StreamMessage, frozen=True, array_like=True, tag=5):
    """A replica has the positions of these publications and lacks their messages."""

    publications: Publications


class ContentResponse(StreamMessage, frozen=True, array_like=True, tag=6):
    """The messages of publications, as the log of the sender has them."""

    contents: list[NamedContent]


class SnapshotRequest(StreamMessage, frozen=True, array_like=True, tag=7):
    """A leader has forgotten the entries that a replica lacks, and sends the state after entry ``base`` instead."""

    base: Count
    base_term: Count
    position: Count
    state: bytes


class BackfillRequest(StreamMessage, frozen=True, array_like=True, tag=8):
    """A replica began with a snapshot and lacks the entries before ``below``; it has settled entries up to a number."""

    below: Count
    first: Count
    settled: Count


class BackfillResponse(StreamMessage, frozen=True, array_like=True, tag=9):
    """All entries from ``first`` on that are before ``below``, with their messages."""

    below: Count
    first: Count
    entries: list[NumberedEntry]
    contents: list[NamedContent]


PublicationLinks = tuple[int, int, list[int]]
"""The author's numbers of the first and last message of a publication; and those of other authors that it follows, as
pairs of an author and a number up to which it follows them."""


class UnplacedReport(StreamMessage, frozen=True, array_like=True, tag=10):
    """A replica tells its leader which publications were delivered to it and have no settled place, in the
    order of their delivery: each with its source, its number, its messages and its bytes.
    """

    publications: Annotated[list[tuple[Count, Count, Count, Count]], msgspec.Meta(max_length=65_536)]
    knows_past: bool = False
    """Whether everything that these follow is among them or has a place: the replica was not away when it came."""
    links: list[PublicationLinks] = []
    """What the publications say themselves, in the same order, if the replica may have missed what they follow."""


ReplicaMessage = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | ResignedRequest
    | ContentRequest
    | ContentResponse
    | SnapshotRequest
    | BackfillRequest
    | BackfillResponse
    | UnplacedReport
)

_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(ReplicaMessage)


def encode_message(message: StreamMessage) -> bytes:
    """A message as bytes."""
    return msgspec.msgpack.encode(message)


def decode_message(payload: bytes) -> StreamMessage:
    """The message in some bytes; ``msgspec.DecodeError`` if there is none."""
    message: StreamMessage = _DECODER.decode(payload)
    return message
