"""The bytes of calls and results of a service, and what happens when a replica applies a call.

A call is its name and its arguments by name, in MessagePack. Names, not places: two versions of a service understand
each other as long as calls have the same arguments. The same arguments are always the same bytes. A result is a value
of the type that the operation declares, or an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.services.description import ServiceCall, ServiceDescription, type_name
from antiphon.services.errors import ResultGoneError, ServiceError, UnknownOperationError
from antiphon.services.store import ServiceStore, decoder, encode

MOST_ERROR_CHARACTERS: Final = 2_000
"""Of the text of an exception, in its answer."""

RESULT_BYTES_AT_MOST: Final = 1 << 20
"""Of the result of an operation or query."""


class CallFrame(msgspec.Struct, frozen=True, array_like=True):
    """A call on its way."""

    name: str
    arguments: msgspec.Raw


class ResultFrame(msgspec.Struct, frozen=True, array_like=True):
    """A result on its way: its value, or the name, arguments and text of an exception."""

    value: msgspec.Raw
    error: str = ""
    text: str = ""


@dataclass(frozen=True)
class BoundCall:
    """A call with its arguments."""

    call: ServiceCall
    arguments: msgspec.Struct

    @property
    def keys(self) -> tuple[bytes, ...]:
        """What it is about."""
        return self.call.keys(self.arguments)

    def __str__(self) -> str:
        return f"{self.call.name}({', '.join(repr(value) for value in values_of(self.arguments))})"


def values_of(arguments: msgspec.Struct) -> list[Any]:
    """Arguments in the order of the parameters."""
    return [getattr(arguments, name) for name in arguments.__struct_fields__]


_frames: Final = msgspec.msgpack.Decoder(CallFrame)
_results: Final = msgspec.msgpack.Decoder(ResultFrame)


def bind(call: ServiceCall, arguments: tuple[Any, ...], named: dict[str, Any]) -> BoundCall:
    """Check the arguments of a call against its types, as its replicas will."""
    try:
        bound = call.signature.bind(*arguments, **named)
        bound.apply_defaults()
        return BoundCall(call, decoder(call.arguments).decode(encode(bound.arguments)))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise UsageError(f"{call.full_name} was called wrongly: {error}") from error


def encode_call(bound: BoundCall) -> bytes:
    """The bytes of a call."""
    return encode(CallFrame(bound.call.name, msgspec.Raw(encode(bound.arguments))))


def decode_call(description: ServiceDescription, payload: bytes) -> BoundCall:
    """The call in a message; :class:`UnknownOperationError` if it is of another version of the service."""
    try:
        frame = _frames.decode(payload)
    except msgspec.MsgspecError as error:
        raise PeerError(f"a message on the topic of {description.name} is not a call: {error}") from error
    call = description.calls.get(frame.name)
    if call is None:
        raise UnknownOperationError(
            f"{description.name} has no operation {frame.name!r} in this version; update this replica, or the client "
            "that called it"
        )
    try:
        return BoundCall(call, decoder(call.arguments).decode(frame.arguments))
    except msgspec.MsgspecError as error:
        raise UnknownOperationError(
            f"{call.full_name} has other arguments in this version ({error}); update this replica, or the client that "
            "called it"
        ) from error


def apply(service: Any, store: ServiceStore, bound: BoundCall) -> bytes:
    """Apply a call to a store; returns its result, or the exception that it raised.

    If it raises, or returns what cannot travel, it has changed nothing. A :class:`PeerError` is not the doing of the
    operation, for example a database that cannot be reached, and is raised here.
    """
    call = bound.call
    try:
        with store.attempt():
            return encode_value(call.method(service, store, *values_of(bound.arguments)))
    except PeerError:
        raise
    except Exception as error:  # whatever the application's code raises is an answer
        return encode_error(call, error)


def encode_value(value: Any) -> bytes:
    """The bytes of a result; :class:`UsageError` if it is too large to travel."""
    found = encode(ResultFrame(msgspec.Raw(encode(value))))
    if len(found) > RESULT_BYTES_AT_MOST:
        raise UsageError(f"the result has {len(found):,} bytes, and at most {RESULT_BYTES_AT_MOST:,} travel")
    return found


def encode_error(call: ServiceCall, error: Exception) -> bytes:
    """The bytes of an exception; those that the operation declares keep their arguments."""
    text = f"{type(error).__name__}: {error}"[:MOST_ERROR_CHARACTERS]
    for kind in call.mark.raises:
        if isinstance(error, kind):
            try:
                return encode(ResultFrame(msgspec.Raw(encode(list(error.args))), kind.__name__, text))
            except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
                return encode(ResultFrame(msgspec.Raw(encode([str(error)])), kind.__name__, text))
    return encode(ResultFrame(msgspec.Raw(encode([])), "ServiceError", text))


def is_error(payload: bytes) -> bool:
    """Whether a result is an exception."""
    return bool(_results.decode(payload).error)


def decode_result(call: ServiceCall, payload: bytes) -> Any:
    """The value of a result, or raises its exception."""
    try:
        frame = _results.decode(payload)
        if not frame.error:
            return decoder(call.result).decode(frame.value)
        for kind in call.mark.raises:
            if kind.__name__ == frame.error:
                raise kind(*decoder(list[Any]).decode(frame.value))
        if frame.error == ResultGoneError.__name__:
            raise ResultGoneError(f"{call.full_name}: {frame.text}")
    except msgspec.MsgspecError as error:
        raise ServiceError(
            f"{call.full_name} returned something else than {type_name(call.result)}: {error}"
        ) from error
    raise ServiceError(f"{call.full_name} failed: {frame.text}; nothing was changed")
