"""How messages of the protocols look on a link: derived from their classes, checked when they arrive.

A frame is a length in four bytes, least first, and that many bytes of MessagePack: an array that begins with the number
of the message's class and goes on with the arguments of its constructor, in order. The layout is read off the
constructors, so a new message needs one line in ``KINDS``; what a field may hold follows from its name, which means
the same in all messages. msgspec refuses whatever does not fit, so a process never sees a malformed message.

Copies of one message are one object (:mod:`antiphon.kernel.message`), and what is handed on is what came in. So the
codec remembers the last message with its bytes: forwarding to three children encodes nothing and copies once. What
is not handed on is never copied as a whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, Final, Union

import msgspec
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import messages as cube
from antiphon.kernel.errors import ProtocolError
from antiphon.kernel.message import ORDER_NAMES, Message
from antiphon.orders.order import Ordered

LENGTH_BYTES: Final = 4
FRAME_BYTES_AT_MOST: Final = 64 << 20
"""A longer frame is refused: nothing that a node sends comes near it."""

FIRST_CONTROL: Final = 100

# A number stands for a class for ever: new classes are added at the end, numbers of deleted ones are not used again.
KINDS: Final[tuple[type[Message], ...]] = (
    Ordered,
    cube.Bundle,
    cube.Acknowledgement,
    cube.LeafCopy,
    cube.Refusal,
    cube.Subscribe,
    cube.Synchronise,
    cube.Answer,
    cube.Unsubscribe,
    cube.Register,
    cube.Registered,
    cube.Unregister,
    cube.Bequest,
)

Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Integers = list[Integer]

FIELDS: Final[dict[str, Any]] = {
    "source": Annotated[int, msgspec.Meta(ge=0, lt=1 << 22)],
    "sequence": Annotated[int, msgspec.Meta(ge=0, lt=1 << 41)],
    "topic": Number,
    "timestamp": Integer,
    "payload": bytes,
    "order": Annotated[int, msgspec.Meta(ge=0, lt=len(ORDER_NAMES))],
    "dependencies": Integers,
    "counter": Number,
    "was_leaf": bool,
    "targets": Integers | None,
    "entries": Integers,
    "members": Integers,
    "past": Integers,
}
"""What a field may hold, by its name."""

NESTED: Final = {"packet": (Ordered, cube.Bundle), "publications": (Ordered,)}
"""Fields that hold messages, or a list of them under a plural name."""


def parameters(kind: type[Message]) -> list[str]:
    """The names of a constructor's arguments, which are the fields of the message."""
    return list(inspect.signature(kind).parameters)


class Kind:
    """How one class of messages is written and read."""

    def __init__(self, kind: type[Message], number: int, known: dict[type[Message], Kind]) -> None:
        self.message = kind
        self.names = parameters(kind)
        fields = []
        self._writers: list[Callable[[Any], Any] | None] = []
        self._readers: list[Callable[[Any], Any] | None] = []
        for name in self.names:
            held = NESTED.get(name)
            if held is None:
                fields.append((name, FIELDS[name]))
                integers = FIELDS[name] in (Integers, Integers | None)
                self._writers.append(list_or_none if integers else None)
                self._readers.append(vec_or_none if integers else None)
                continue
            shapes = tuple(known[nested].shape for nested in held)
            shape: Any = Union[shapes]  # noqa: UP007 (made at run time)
            is_list = name.endswith("s")
            fields.append((name, list[shape] if is_list else shape))
            by_type = {known[nested].message: known[nested] for nested in held}
            by_shape = {known[nested].shape: known[nested] for nested in held}
            self._writers.append(nested_writer(by_type, is_list))
            self._readers.append(nested_reader(by_shape, is_list))
        self.shape: type[msgspec.Struct] = msgspec.defstruct(
            f"{kind.__name__}OnTheWire", fields, array_like=True, tag=number, frozen=True, forbid_unknown_fields=True
        )
        self._values_of = values_getter(self.names)
        self._is_plain = not any(self._writers)

    def to_shape(self, message: Message) -> msgspec.Struct:
        """The message as msgspec writes it."""
        values = self._values_of(message)
        if self._is_plain:
            return self.shape(*values)
        return self.shape(
            *[value if write is None else write(value) for value, write in zip(values, self._writers, strict=True)]
        )

    def to_message(self, shape: msgspec.Struct) -> Message:
        """The message that msgspec has read."""
        values = self._values_of(shape)
        if self._is_plain:
            return self.message(*values)
        return self.message(
            *[value if read is None else read(value) for value, read in zip(values, self._readers, strict=True)]
        )


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


def nested_writer(by_type: dict[type[Message], Kind], is_list: bool) -> Callable[[Any], Any]:
    """Writes a message inside a message, or a list of them."""

    def write(message: Message) -> msgspec.Struct:
        return by_type[type(message)].to_shape(message)

    return (lambda messages: [write(message) for message in messages]) if is_list else write


def nested_reader(by_shape: dict[type[msgspec.Struct], Kind], is_list: bool) -> Callable[[Any], Any]:
    """Reads a message inside a message, or a list of them."""

    def read(shape: msgspec.Struct) -> Message:
        return by_shape[type(shape)].to_message(shape)

    return (lambda shapes: [read(shape) for shape in shapes]) if is_list else read


def known_kinds() -> dict[type[Message], Kind]:
    """All classes; those that are held by others come first in ``KINDS``."""
    known: dict[type[Message], Kind] = {}
    for number, kind in enumerate(KINDS):
        known[kind] = Kind(kind, number, known)
    return known


class Codec:
    """Turns messages into bytes and back. One per node: it remembers the last message.

    ``controls`` are the structs that hosts exchange with each other, beside the messages of protocols; their tags
    begin at ``FIRST_CONTROL``.
    """

    def __init__(self, controls: tuple[type[msgspec.Struct], ...] = ()) -> None:
        self._kinds = known_kinds()
        self._by_shape = {kind.shape: kind for kind in self._kinds.values()}
        self._encode = msgspec.msgpack.Encoder().encode
        shapes = (*self._by_shape, *controls)
        self._decode = msgspec.msgpack.Decoder(Union[shapes]).decode  # noqa: UP007 (made at run time)
        self._last: Message | None = None
        self._last_bytes: bytes | memoryview = b""

    def encode(self, message: Message) -> bytes:
        """A message as bytes."""
        if message is self._last:
            encoded = self._last_bytes
            if isinstance(encoded, bytes):
                return encoded
            encoded = bytes(encoded)
        else:
            encoded = self._encode(self._kinds[type(message)].to_shape(message))
            self._last = message
        self._last_bytes = encoded
        return encoded

    def forget(self) -> None:
        """The bytes of the last message are about to be overwritten."""
        self._last = None
        self._last_bytes = b""

    def encode_control(self, control: msgspec.Struct) -> bytes:
        """A message of hosts as bytes."""
        return self._encode(control)

    def decode(self, data: bytes | memoryview) -> Message | msgspec.Struct:
        """Bytes as a message of a protocol or of hosts; :class:`ProtocolError` if they are none.

        Who passes a view of bytes that change later calls ``forget`` before they do.
        """
        try:
            shape: msgspec.Struct = self._decode(data)
            kind = self._by_shape.get(type(shape))
            if kind is None:
                return shape
            message = kind.to_message(shape)
        except (msgspec.DecodeError, ValueError, IndexError, TypeError, OverflowError) as error:
            raise ProtocolError(f"a peer sent {len(data)} bytes that are no message: {error}") from error
        self._last = message
        self._last_bytes = data
        return message
