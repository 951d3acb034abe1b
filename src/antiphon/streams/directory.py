"""The directory: which topics of a cluster have a history, under which number, and which nodes began to keep it.

It is a stream itself, without messages, with the number 0: its entries are commands, and whoever has applied them all
knows all topics. Numbers of streams are numbers of entries, so none is ever used twice: a topic that is removed and
made again is another stream, and a replica of the old one brings nothing back to life.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.streams.requests import Policy, StreamInfo

DIRECTORY: Final = 0
"""The number of the directory among the streams."""


class AddStream(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A topic has a history from here on."""

    name: str
    policy: Policy
    voters: list[int]


class DropStream(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A stream is no more."""

    number: int


class ChangePolicy(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A stream is kept differently from here on."""

    number: int
    policy: Policy


class AssignReplicas(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Other nodes are to keep a stream."""

    number: int
    nodes: list[int]


DirectoryCommand = AddStream | DropStream | ChangePolicy | AssignReplicas

_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(DirectoryCommand)


class StreamDirectory:
    """All streams of a cluster, as one replica of the directory knows them."""

    def __init__(self) -> None:
        self.by_name: dict[str, StreamInfo] = {}
        self.by_number: dict[int, StreamInfo] = {}
        self.last = 0

    def apply(self, number: int, payload: bytes) -> None:
        """Apply a settled command. The first of two that make a topic wins."""
        command: DirectoryCommand = _DECODER.decode(payload)
        self.last = number
        if isinstance(command, AddStream):
            if command.name not in self.by_name:
                self._put(StreamInfo(number, command.name, command.policy, command.voters))
        elif isinstance(command, ChangePolicy):
            if (found := self.by_number.get(command.number)) is not None:
                self._put(StreamInfo(found.number, found.name, command.policy, found.voters, found.assigned))
        elif isinstance(command, AssignReplicas):
            if (found := self.by_number.get(command.number)) is not None:
                self._put(StreamInfo(found.number, found.name, found.policy, found.voters, command.nodes))
        else:
            dropped = self.by_number.pop(command.number, None)
            if dropped is not None:
                del self.by_name[dropped.name]

    def _put(self, info: StreamInfo) -> None:
        self.by_name[info.name] = self.by_number[info.number] = info

    def snapshot(self) -> bytes:
        """Everything, for a snapshot."""
        return msgspec.msgpack.encode((self.last, list(self.by_number.values())))

    def restore(self, state: bytes) -> None:
        """Take everything from a snapshot."""
        self.last, found = msgspec.msgpack.decode(state, type=tuple[int, list[StreamInfo]])
        self.by_number = {info.number: info for info in found}
        self.by_name = {info.name: info for info in found}


def replicas_for(number: int, nodes: list[int], count: int) -> list[int]:
    """Some of the nodes that keep streams, chosen evenly: by a hash of the stream and the node."""

    def rank(node: int) -> int:
        # A multiplicative hash: repeatable, and different for each stream.
        return ((node ^ (number * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)

    return sorted(sorted(nodes), key=rank)[:count]
