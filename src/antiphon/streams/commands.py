"""Commands on which the replicas of a stream agree, about its consumers, as payloads of entries."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Mode = Literal["any", "key", "causal"]

MODES: Final = ("any", "key", "causal")


class ConsumerSettings(msgspec.Struct, frozen=True, array_like=True):
    """How a consumer hands out messages, and how long their acknowledgements may take."""

    mode: Mode = "any"
    ack_us: Count = 30_000_000
    deliveries_at_most: Count = 0
    """After so many deliveries a message is buried, that is, it goes to the dead letters; 0: never."""
    pending_at_most: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 4096
    """So many messages may be handed out, or wait behind others, at one time."""


class CreateConsumer(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """There is a consumer from here on, which begins at a position."""

    name: Name
    start: Count
    settings: ConsumerSettings
    owner: str = ""
    """The identity that has made it."""


class RemoveConsumer(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """There is no such consumer any more."""

    name: Name


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Messages are done: ranges of positions, first and last by turns."""

    name: Name
    ranges: list[Count]


class Return(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A message was handed out, and is to be handed out again."""

    name: Name
    position: Count


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A member shares the work of a consumer from here on."""

    name: Name
    member: Count


class LeaveGroup(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A member does so no more."""

    name: Name
    member: Count


Command = CreateConsumer | RemoveConsumer | Acknowledge | Return | JoinGroup | LeaveGroup

_decoder = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    """A command as the payload of an entry."""
    return msgspec.msgpack.encode(command)


def decode_command(payload: bytes) -> Command:
    """The command in the payload of an entry."""
    command: Command = _decoder.decode(payload)
    return command
