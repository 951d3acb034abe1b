"""How messages of the protocols look on a link: derived from their classes, checked when they arrive.

A frame is a length in four bytes, least first, and that many bytes of MessagePack: an array that begins with the number
of the message's class and goes on with the arguments of its constructor, in order (:mod:`antiphon.transport.schema`).
msgspec refuses whatever does not fit, so a process never sees a malformed message. Arguments behind the last known one
are of a later version: the codec does not read them, and forwards them with the rest of the bytes.

Copies of one message are one object (:mod:`antiphon.kernel.message`), and a node forwards the object that it received.
So the codec remembers the last message with its bytes: forwarding to three children encodes nothing and copies once. A
message that is not forwarded is never copied as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Union

import msgspec
from librt.vecs import vec
from msgspec.structs import astuple
from mypy_extensions import i64

from antiphon.fabrics.tree import messages as tree
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.transport.schema import (
    ADDED,
    CHECKS,
    ENCLOSED,
    FIELDS,
    HELD_FIRST,
    KINDS,
    LISTS,
    NESTED,
    SPECIAL,
    SPECIALLY_NESTED,
    Integers,
    PayloadCheck,
    parameters,
)


class Kind:
    """How one class of messages is written and read."""

    def __init__(
        self, kind: type[Any], number: int, known: dict[type[Any], Kind], check_payload: PayloadCheck | None
    ) -> None:
        self.message = kind
        self.number = number
        self.names = parameters(kind)
        self._check_payload = check_payload if "payload" in self.names else None
        fields: list[Any] = []
        # The places of fields that a message and msgspec hold in different forms, and what turns them into each other.
        self._writers: list[tuple[int, Callable[[Any], Any]]] = []
        self._readers: list[tuple[int, Callable[[Any], Any]]] = []
        for place, name in enumerate(self.names):
            held = SPECIALLY_NESTED.get((kind, name), NESTED.get(name))
            if held is None:
                field = SPECIAL.get((kind, name)) or FIELDS[name]
                fields.append((name, field, ADDED[kind, name]) if (kind, name) in ADDED else (name, field))
                if field in (Integers, Integers | None):
                    self._writers.append((place, list_or_none))
                    self._readers.append((place, vec_or_none))
                continue
            shapes = tuple(known[nested].shape for nested in held)
            shape: Any = Union[shapes]  # noqa: UP007 (made at run time)
            is_list = name in LISTS
            fields.append((name, list[shape] if is_list else shape))
            by_type = {known[nested].message: known[nested] for nested in held}
            by_shape = {known[nested].shape: known[nested] for nested in held}
            self._writers.append((place, nested_writer(by_type, is_list)))
            self._readers.append((place, nested_reader(by_shape, is_list)))
        self.shape: type[msgspec.Struct] = msgspec.defstruct(
            f"{kind.__name__}OnTheWire", fields, array_like=True, tag=number, frozen=True
        )
        self._values_of = values_getter(self.names)
        self._check: Callable[[Any], None] | None = CHECKS.get(kind)

    def to_array(self, message: Any) -> list[Any]:
        """The message as msgspec writes it: the number of its class, and its fields."""
        fields = [self.number, *self._values_of(message)]
        for place, write in self._writers:
            fields[1 + place] = write(fields[1 + place])
        return fields

    def to_message(self, shape: Any, is_own: bool = False) -> Any:
        """The message that msgspec has read; what was written here needs no check of its payload."""
        if self._check is not None:
            self._check(shape)
        if self._check_payload is not None and not is_own:
            self._check_payload(shape.payload)
        if not self._readers:
            return self.message(*astuple(shape))
        fields = list(astuple(shape))
        for place, read in self._readers:
            fields[place] = read(fields[place])
        return self.message(*fields)


def values_getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads several attributes at once; the standard one gives no tuple for a single name."""
    if len(names) > 1:
        return attrgetter(*names)
    read = attrgetter(names[0])
    return lambda holder: (read(holder),)


def list_or_none(integers: Any) -> list[int] | None:
    """A flat array for msgspec."""
    return None if integers is None else list(integers)


def vec_or_none(integers: list[int] | None) -> Any:
    """A list from msgspec as a flat array."""
    return None if integers is None else vec[i64](integers)


def nested_writer(by_type: dict[type[Any], Kind], is_list: bool) -> Callable[[Any], Any]:
    """Writes a message inside a message, or a list of them."""

    def write(message: Any) -> list[Any]:
        return by_type[type(message)].to_array(message)

    return (lambda messages: [write(message) for message in messages]) if is_list else write


def nested_reader(by_shape: dict[type[msgspec.Struct], Kind], is_list: bool) -> Callable[[Any], Any]:
    """Reads a message inside a message, or a list of them."""

    def read(shape: msgspec.Struct) -> Any:
        return by_shape[type(shape)].to_message(shape)

    return (lambda shapes: [read(shape) for shape in shapes]) if is_list else read


def known_kinds(check_payload: PayloadCheck | None) -> dict[type[Any], Kind]:
    """All classes; those that are held by others come first, as they mostly do in ``KINDS``."""
    known: dict[type[Any], Kind] = {}
    numbers = {kind: number for number, kind in enumerate(KINDS)}
    for kind in (*HELD_FIRST, *KINDS):
        if kind not in known:
            known[kind] = Kind(kind, numbers[kind], known, check_payload)
    return known


class Codec:
    """Turns messages into bytes and back. One per node: it remembers the last message.

    ``controls`` are the structs that hosts exchange with each other, beside the messages of protocols; their tags
    begin at ``FIRST_CONTROL``. ``kinds`` are the classes that its fabric sends: a node understands no others.
    ``check_payload`` raises for payloads that nobody could read, so that they come no further than to the first node.
    """

    def __init__(
        self,
        controls: tuple[type[msgspec.Struct], ...] = (),
        kinds: tuple[type[Any], ...] = KINDS,
        check_payload: PayloadCheck | None = None,
    ) -> None:
        self._kinds = known_kinds(check_payload)
        self._by_shape = {self._kinds[kind].shape: self._kinds[kind] for kind in kinds}
        self._encode = msgspec.msgpack.Encoder().encode
        self.encode_control: Callable[[msgspec.Struct], bytes] = self._encode
        """A message of hosts as bytes."""
        shapes = (*self._by_shape, *controls)
        self._decode = msgspec.msgpack.Decoder(Union[shapes]).decode  # noqa: UP007 (made at run time)
        self._last: object = None
        self._last_bytes: bytes | memoryview = b""

    def encode(self, message: object) -> bytes:
        """A message, or what travels inside one, as bytes."""
        if message is self._last:
            encoded = self._last_bytes
            if isinstance(encoded, bytes):
                return encoded
            encoded = bytes(encoded)
        else:
            encoded = self._encode(self._kinds[type(message)].to_array(message))
            self._last = message
        self._last_bytes = encoded
        return encoded

    def forget(self) -> None:
        """The bytes of the last message are about to be overwritten."""
        self._last = None
        self._last_bytes = b""

    def decode(self, data: bytes | memoryview) -> ProtocolMessage | msgspec.Struct:
        """Bytes as a message of a protocol or of hosts; :class:`ProtocolError` if they are none.

        A caller that passes a view of bytes calls ``forget`` before the bytes change.
        """
        try:
            shape: msgspec.Struct = self._decode(data)
            kind = self._by_shape.get(type(shape))
            if kind is None:
                return shape
            message = kind.to_message(shape)
        except UNREADABLE as error:
            raise unreadable(data, error) from error
        if not isinstance(message, ProtocolMessage) or type(message) in ENCLOSED:
            raise ProtocolError(f"a peer sent a {type(message).__name__} by itself; it is a part of messages only")
        self._last = message
        self._last_bytes = data
        return message

    def decode_recorded(self, data: bytes) -> Publication | tree.Item:
        """An entry of a log, as the process recorded it."""
        recorded = self._decode_own(data)
        if not isinstance(recorded, Publication | tree.Item):
            raise ProtocolError(f"{len(data)} bytes hold a {type(recorded).__name__} and no publication")
        return recorded

    def decode_own(self, data: bytes) -> ProtocolMessage:
        """A message that this node has written down itself."""
        message = self._decode_own(data)
        if not isinstance(message, ProtocolMessage):
            raise ProtocolError(f"{len(data)} bytes hold a {type(message).__name__} and no message")
        return message

    def decode_publication(self, data: bytes) -> Publication:
        """The publication in an entry of a log."""
        recorded = self.decode_recorded(data)
        return recorded.publication if isinstance(recorded, tree.Item) else recorded

    def _decode_own(self, data: bytes) -> Any:
        """A message that this node has encoded itself: its payloads have been checked."""
        try:
            shape: msgspec.Struct = self._decode(data)
            kind = self._by_shape.get(type(shape))
            return shape if kind is None else kind.to_message(shape, is_own=True)
        except UNREADABLE as error:
            raise ProtocolError(
                f"the log holds an entry of {len(data)} bytes that this version cannot read: {error}; use the version "
                "of Antiphon that wrote it"
            ) from error


UNREADABLE: Final = (msgspec.DecodeError, ValueError, IndexError, TypeError, OverflowError, RecursionError)
"""What decoding raises for bytes that are no message."""


def unreadable(data: bytes | memoryview, error: Exception) -> ProtocolError:
    """The error for bytes that are no message."""
    return ProtocolError(f"a peer sent {len(data)} bytes that are no message: {error}")
