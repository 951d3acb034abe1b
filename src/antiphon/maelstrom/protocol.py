"""Maelstrom's messages: JSON objects on lines, with a source, a destination and a body.

Requests of clients have a ``type`` and a ``msg_id``, and are answered with ``in_reply_to``; errors have a code that
says whether the operation can have happened. Nodes exchange bodies of their own, a :class:`Frame` here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError

TIMEOUT: Final = 0
NOT_SUPPORTED: Final = 10
TEMPORARILY_UNAVAILABLE: Final = 11
MALFORMED_REQUEST: Final = 12
"""Codes of errors, as Maelstrom's documentation numbers them."""

DEFINITE: Final = frozenset({1, NOT_SUPPORTED, TEMPORARILY_UNAVAILABLE, MALFORMED_REQUEST, 14, 20, 21, 22, 30})
"""After these codes an operation has not happened and never will; after others it may have."""

FRAME: Final = "antiphon"
"""The type of frames between our nodes."""


class Frame(msgspec.Struct, frozen=True, tag_field="type", tag=FRAME, omit_defaults=True):
    """Some messages of processes, and the fields that a link needs to lose none of them and to keep their order.

    ``mine`` and ``yours`` count how often each end has begun anew, as far as the sender knows; frames with other counts
    are ignored. ``number`` counts frames with messages, from 1; a frame without messages has number 0. All frames up to
    ``got`` have arrived. ``asks`` requests an answer now. With a ``gap`` the frame of that number has arrived and some
    before it have not: they must be sent again.
    """

    mine: int
    yours: int
    number: int = 0
    got: int = 0
    messages: list[bytes] = []
    asks: bool = False
    gap: int = 0


class Envelope(msgspec.Struct, frozen=True):
    """A line with its source and destination; the body is decoded when its kind is known."""

    src: str
    dest: str
    body: msgspec.Raw


class Outgoing(msgspec.Struct, frozen=True):
    """A line to be written."""

    src: str
    dest: str
    body: Any


class RequestError(Exception):
    """A request that cannot be served; the client is told with a code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code: Final = code
        self.text: Final = text


_read_envelope = msgspec.json.Decoder(Envelope).decode
_read_body = msgspec.json.Decoder(dict[str, Any]).decode
_read_frame = msgspec.json.Decoder(Frame).decode
_write = msgspec.json.Encoder().encode


def read_line(line: bytes) -> Envelope:
    """Parse a line of standard input; :class:`PeerError` if it is not a message."""
    try:
        return _read_envelope(line)
    except msgspec.DecodeError as error:
        raise PeerError(f"a line is not a message of Maelstrom: {error}; it needs src, dest and body") from error


def read_body(envelope: Envelope) -> dict[str, Any]:
    """The body of a message."""
    try:
        return _read_body(envelope.body)
    except msgspec.DecodeError as error:
        raise PeerError(f"the body of a message from {envelope.src} is not an object: {error}") from error


def read_frame(envelope: Envelope) -> Frame:
    """The body of a frame of another node of ours."""
    try:
        return _read_frame(envelope.body)
    except msgspec.DecodeError as error:
        raise PeerError(
            f"{envelope.src} does not send frames of Antiphon: {error}; run only one kind of node"
        ) from error


def write_line(source: str, destination: str, body: object) -> bytes:
    """A message as a line."""
    return _write(Outgoing(source, destination, body)) + b"\n"


def field(body: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """A field of a request; the client is told if it is missing or has another type."""
    if name not in body:
        raise RequestError(MALFORMED_REQUEST, f"a request of type {body.get('type')!r} needs {name!r}")
    value = body[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestError(MALFORMED_REQUEST, f"{name!r} is a {kind.__name__} in requests, not {value!r}")
    return value
