"""The entries of a stream's index: which publication has which position, and what the replicas agreed on beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

OPENING: Final = 0
"""The first entry of a leader's term. It settles everything before it, because leaders settle entries of their own."""

DATA: Final = 1
"""A publication of the topic has the next positions."""

MEMBERS: Final = 2
"""The replicas are others from here on."""

COMMAND: Final = 3
"""Something that all replicas apply to their state in the same order, such as an acknowledgement of a consumer."""

TRIM: Final = 4
"""The stream begins later from here on: the messages before are no more (:mod:`antiphon.streams.retention`)."""


ReadEntries = Callable[[int, int], list["IndexEntry"]]
"""Reads entries from the disk: from a number on, at most so many."""


class IndexEntry(msgspec.Struct, frozen=True, array_like=True):
    """One entry. ``position`` is that of its first message; entries without messages carry the next free one."""

    term: int
    kind: int
    position: int
    count: int = 0
    source: int = 0
    sequence: int = 0
    payload: bytes = b""
    size: int = 0
    """The bytes of its messages."""
    time_us: int = 0
    """The time of day at which its leader placed it."""

    @property
    def end(self) -> int:
        """The first position behind it."""
        return self.position + self.count


class ReplicaSet(msgspec.Struct, frozen=True, array_like=True):
    """The replicas of a stream. Voters form majorities; learners catch up and do not count yet."""

    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()

    @property
    def all(self) -> tuple[int, ...]:
        """Everybody who gets the entries."""
        return (*self.voters, *self.learners)

    @property
    def majority(self) -> int:
        """How many voters are more than half of them."""
        return len(self.voters) // 2 + 1

    def is_one_step_from(self, other: ReplicaSet) -> bool:
        """Whether at most one voter differs, so that every majority of one meets every majority of the other."""
        return len(set(self.voters) ^ set(other.voters)) <= 1


def encode_set(replicas: ReplicaSet) -> bytes:
    """A set of replicas as the payload of an entry."""
    return msgspec.msgpack.encode(replicas)


def decode_set(payload: bytes) -> ReplicaSet:
    """The set of replicas in the payload of an entry."""
    return msgspec.msgpack.decode(payload, type=ReplicaSet)


class Index:
    """The entries of one replica. Those behind ``base`` are in memory, and the others on disk, down to ``floor``.

    Everything up to the base is settled, and part of a snapshot. ``read`` gives entries from the disk.
    """

    def __init__(self, base: int, base_term: int, next_position: int, floor: int, read: ReadEntries) -> None:
        self.base = base
        self.floor = floor
        self._read = read
        self.base_term = base_term
        self.base_position = next_position
        self._entries: list[IndexEntry] = []

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return self.base + len(self._entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def next_position(self) -> int:
        """The position that the next message gets."""
        return self._entries[-1].end if self._entries else self.base_position

    def term_at(self, number: int) -> int | None:
        """The term of an entry; None if it is not here any more, or not yet."""
        if number == self.base:
            return self.base_term
        if self.base < number <= self.last:
            return self.entry(number).term
        found = self._read(number, 1) if self.floor < number < self.base else []
        return found[0].term if found else 0 if number == self.floor == 0 else None

    def entry(self, number: int) -> IndexEntry:
        """The entry with a number behind the base."""
        return self._entries[number - self.base - 1]

    def slice(self, first: int, most: int) -> list[IndexEntry]:
        """At most so many entries, from a number on."""
        if first <= self.base:
            return self._read(first, min(most, self.base - first + 1))
        begin = first - self.base - 1
        return self._entries[begin : begin + most]

    def append(self, entry: IndexEntry) -> int:
        """Add an entry; gives its number."""
        self._entries.append(entry)
        return self.last

    def truncate(self, first: int) -> list[IndexEntry]:
        """Remove the entries from a number on; gives them."""
        begin = first - self.base - 1
        removed = self._entries[begin:]
        del self._entries[begin:]
        return removed

    def forget(self, number: int) -> None:
        """Make a settled entry the base: those up to it are part of a snapshot now."""
        if number <= self.base:
            return
        at = self.entry(number)
        del self._entries[: number - self.base]
        self.base, self.base_term, self.base_position = number, at.term, at.end
