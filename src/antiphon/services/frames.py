"""The bytes that replicas and callers of a service send each other, around the bytes of calls and results."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from antiphon.kernel.errors import PeerError

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]

OPERATION: Final = 0
"""Every replica applies it."""

LATEST: Final = 1
"""A query at its place in total order; the replica that the caller uses answers, the others pass it over."""

MARK: Final = 2
"""Nothing but a place among the operations, by which replicas know how far they have come."""

BUNDLE: Final = 3
"""Several operations and queries of one caller, in total order about all of their keys: one place instead of many."""

RESULT_TOPICS: Final = 16
"""Results travel on so many topics beside that of the service; a caller listens on one of them."""


class ServiceFrame(msgspec.Struct, frozen=True, array_like=True):
    """A message on the topic of a service.

    ``caller`` and ``number`` name the call for its result, and ``home`` is the replica that is to send it. ``version``
    is that of the service at the caller. The caller needs the results of its operations up to ``done`` no more.
    """

    kind: Annotated[int, msgspec.Meta(ge=0, le=BUNDLE)]
    caller: Number
    number: Number
    home: Number
    version: Number
    body: bytes
    done: Number = 0


Authors = dict[Number, Number]
"""By author, the number of an operation: that one and those before it."""


class ResultsFrame(msgspec.Struct, frozen=True, array_like=True):
    """Results for one caller: the number of each call and the bytes of its result.

    ``seen`` names the operations that the replica has applied since it last sent something to this caller.
    """

    caller: Number
    replica: Number
    results: list[tuple[Number, bytes]]
    seen: Authors


class Answer(NamedTuple):
    """The result of a call, for the replica that is to send it."""

    caller: int
    number: int
    payload: bytes


class Inquiry(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=True):
    """A question to one replica, by request and reply."""


class AskReplica(Inquiry, frozen=True, array_like=True, tag="Hello"):
    """Which replica is this? The tag is what travels."""


class AskQuery(Inquiry, frozen=True, array_like=True):
    """Answer a query, when these operations are applied."""

    body: bytes
    seen: Authors
    seconds: float


class AskResults(Inquiry, frozen=True, array_like=True):
    """Send the results of these calls from now on: the replica that was to do so is gone."""

    caller: Number
    numbers: list[Number]


class AskState(Inquiry, frozen=True, array_like=True):
    """Asks for everything that a replica with the operations ``applied`` lacks up to the place of a mark.

    ``past`` are the publications that its node will not get any more, as keys of its process.
    """

    mark: Number
    applied: dict[Number, list[Number]]
    past: list[int]


class AskPiece(Inquiry, frozen=True, array_like=True):
    """The next part of a state."""

    transfer: Number
    part: Number


class AskKeys(Inquiry, frozen=True, array_like=True):
    """Which keys are in this range of keys, and what changed them?"""

    place: Number


class HelloReply(msgspec.Struct, frozen=True, array_like=True):
    """The replica that was asked, and how many operations it has applied."""

    replica: Number
    version: Number
    operations: Number


class StatePiece(msgspec.Struct, frozen=True, array_like=True):
    """A part of a state: operations that the asking replica lacks, or else keys and values of a snapshot.

    A snapshot has a ``position``, the same in all parts. ``refusal`` says why there can be none.
    """

    transfer: Number
    is_last: bool
    position: bytes = b""
    operations: list[tuple[Number, Number, bytes]] = []
    items: list[tuple[bytes, bytes]] = []
    refusal: str = ""


encode: Final = msgspec.msgpack.Encoder().encode
bundles: Final = msgspec.msgpack.Decoder(list[ServiceFrame])
frames: Final = msgspec.msgpack.Decoder(ServiceFrame)
results: Final = msgspec.msgpack.Decoder(ResultsFrame)
inquiries: Final = msgspec.msgpack.Decoder(AskReplica | AskQuery | AskResults | AskState | AskPiece | AskKeys)
hello_replies: Final = msgspec.msgpack.Decoder(HelloReply)
state_pieces: Final = msgspec.msgpack.Decoder(StatePiece)


def decode_frames(value: bytes) -> list[ServiceFrame]:
    """The frames of a message on the topic of a service; :class:`PeerError` if the message is of another kind."""
    try:
        frame = frames.decode(value)
        return bundles.decode(frame.body) if frame.kind == BUNDLE else [frame]
    except msgspec.MsgspecError as error:
        raise PeerError(f"a message on the topic of a service is none of a replica or proxy: {error}") from error


def result_topic(topic: str, caller: int) -> str:
    """Where a caller listens for its results."""
    return f"{topic}.results.{caller % RESULT_TOPICS}"


def replica_topic(topic: str) -> str:
    """Where replicas are asked."""
    return f"{topic}.replicas"
