"""The directory: which topics of a cluster have a history, under which number, and which nodes began to keep it.

It is a stream itself, without messages, with the number 0: its entries are commands, and whoever has applied them all
knows all topics. Numbers of streams are numbers of entries, so none is ever used twice: a topic that is removed and
made again is another stream, and a replica of the old one brings nothing back to life.

Its leader decides which nodes are to keep a stream. The first ones are its home: one that is away for longer than the
policy says is replaced by another node, and gets its place back when it returns. Nothing else moves, so a node that
joins takes over only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from antiphon.kernel.randomness import GOLDEN_GAMMA, product64
from antiphon.streams.requests import Policy, StreamInfo

DIRECTORY: Final = 0
"""The number of the directory among the streams."""


class AddStream(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A topic has a history from here on."""

    name: str
    policy: Policy
    voters: list[int]
    owner: str = ""
    """The identity that has begun its history."""


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
                self._put(StreamInfo(number, command.name, command.policy, command.voters, owner=command.owner))
        elif isinstance(command, ChangePolicy):
            if (found := self.by_number.get(command.number)) is not None:
                self._put(msgspec.structs.replace(found, policy=command.policy, changed=number))
        elif isinstance(command, AssignReplicas):
            if (found := self.by_number.get(command.number)) is not None:
                self._put(msgspec.structs.replace(found, assigned=command.nodes, changed=number))
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
        return product64(node ^ product64(number, GOLDEN_GAMMA), 0xBF58476D1CE4E5B9)

    return sorted(sorted(nodes), key=rank)[:count]


class Absences:
    """Since when other nodes are away. A node that this one has never seen is away since this one looked first."""

    def __init__(self) -> None:
        self._since_us: dict[int, int] = {}

    def look(self, identities: Iterable[int], is_present: Callable[[int], bool], now_us: int) -> None:
        """Note which of these nodes are here."""
        for each in identities:
            if is_present(each):
                self._since_us.pop(each, None)
            else:
                self._since_us.setdefault(each, now_us)

    def clear(self) -> None:
        """Begin anew: meanwhile nobody has looked."""
        self._since_us.clear()

    def away_us(self, identity: int, now_us: int) -> int:
        """For how long a node is away; 0 if it is here."""
        since_us = self._since_us.get(identity)
        return 0 if since_us is None else now_us - since_us


def keepers_of(info: StreamInfo, present: list[int], away_us: Callable[[int], int]) -> list[int]:
    """The nodes that are to keep a stream from now on. ``present`` are those that can, the best one first."""
    count = info.policy.replicas
    known = list(dict.fromkeys((*info.voters, *info.keepers)))
    staying = [each for each in known if away_us(each) < info.policy.replace_us]
    chosen = list(dict.fromkeys((*staying, *present)))[:count]
    # Better a node that is away than none: it may return.
    return chosen + [each for each in info.keepers if each not in chosen][: count - len(chosen)]
