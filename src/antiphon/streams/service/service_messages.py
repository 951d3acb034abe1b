"""Messages between nodes about the streams that they keep."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.streams.requests import Count, StreamInfo


class StreamGreeting(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The sender's number as a replica, 0 if it keeps no streams; the streams that it keeps."""

    identity: Count
    has_directory: bool
    kept: list[Count]


class KeepStream(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The leader of the directory asks a node to be a replica of a stream."""

    info: StreamInfo


class ForgetStreams(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The leader of the directory says that streams are no more."""

    numbers: list[Count]


ServiceMessage = StreamGreeting | KeepStream | ForgetStreams

_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(ServiceMessage)


def decode_service_message(payload: bytes) -> ServiceMessage:
    """The message in some bytes."""
    found: ServiceMessage = _DECODER.decode(payload)
    return found
