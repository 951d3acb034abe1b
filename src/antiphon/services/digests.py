"""Digests of a replica's state by range of keys, by which replicas notice that they have parted.

A range is all keys whose hash begins with the same byte. The digest of a range changes with every value in it and does
not depend on the order of the changes, so it costs a hash for each change and no look at the rest. Two replicas compare
at any moment: each says which operations it has applied. They leave out the ranges that were touched by an operation
that only one of the two has applied. So a difference in another range does not come from an operation under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from antiphon.services.applied import Ranges, numbers_of

RANGES: Final = 256
EFFECTS_AT_MOST: Final = 8192
"""Of so many operations a replica remembers what they changed."""

MISSING_AT_MOST: Final = 4096
"""If two replicas are further apart than so many operations, they do not compare."""

OperationName = tuple[int, int]
"""The author of an operation, and the author's number for it."""


def range_of(key: bytes) -> int:
    """The range of a key."""
    return blake2b(key, digest_size=1).digest()[0]


def hash_of(key: bytes, value: bytes | None) -> int:
    """Stands for a key and its value; 0 for a key without one."""
    if value is None:
        return 0
    return int.from_bytes(blake2b(value, digest_size=8, key=blake2b(key, digest_size=32).digest()).digest(), "big") >> 2


class Effect(NamedTuple):
    """The effect of one operation: keys, and the hashes of their new values."""

    name: OperationName
    values: dict[bytes, int]


class DigestReport(msgspec.Struct, frozen=True, array_like=True):
    """The report of a replica to others about its state.

    ``touched`` are the ranges that its last operations changed.
    """

    replica: int
    applied: dict[int, Ranges]
    digests: list[int]
    touched: list[tuple[int, int, list[int]]]


class KeyReport(msgspec.Struct, frozen=True, array_like=True):
    """The keys of one range: the hash of each value, and of each key the operations that changed it, in their order."""

    hashes: dict[bytes, int]
    effects: dict[bytes, list[tuple[int, int, int]]]


class Divergence(NamedTuple):
    """A key whose value differs between two replicas, and the operation after which it does, if that is known."""

    key: str
    other: int
    operation: OperationName | None


class StateDigests:
    """The digests of one replica's state, and what its last operations changed."""

    def __init__(self, items: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.digests = [0] * RANGES
        self._effects: deque[Effect] = deque(maxlen=EFFECTS_AT_MOST)
        for key, value in items:
            self.change(key, None, value)

    def change(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """The value of a key is another one."""
        self.digests[range_of(key)] ^= hash_of(key, old) ^ hash_of(key, new)

    def add(self, name: OperationName, changes: dict[bytes, bytes | None]) -> None:
        """An operation was applied, and made these changes."""
        self._effects.append(Effect(name, {key: hash_of(key, value) for key, value in changes.items()}))

    def report(self, replica: int, applied: dict[int, Ranges]) -> DigestReport:
        """What others are told."""
        touched = [
            (*effect.name, sorted({range_of(key) for key in effect.values}))
            for effect in list(self._effects)[-MISSING_AT_MOST:]
        ]
        return DigestReport(replica, applied, list(self.digests), touched)

    def keys(self, items: Iterable[tuple[bytes, bytes]], place: int) -> KeyReport:
        """The keys of a range, of all that the state has."""
        hashes = {key: hash_of(key, value) for key, value in items if range_of(key) == place}
        effects: dict[bytes, list[tuple[int, int, int]]] = {}
        for effect in self._effects:
            for key, value in effect.values.items():
                if range_of(key) == place:
                    effects.setdefault(key, []).append((*effect.name, value))
        return KeyReport(hashes, effects)


def differing_ranges(one: DigestReport, other: DigestReport) -> list[int] | None:
    """The ranges in which two states differ though they come from the same operations; None if that cannot be said."""
    touched: set[int] = set()
    for here, there in ((one, other), (other, one)):
        ranges = {(author, number): places for author, number, places in here.touched}
        for name in only_in(here.applied, there.applied):
            if name is None or name not in ranges:
                return None
            touched.update(ranges[name])
    return [place for place in range(RANGES) if one.digests[place] != other.digests[place] and place not in touched]


def only_in(here: dict[int, Ranges], there: dict[int, Ranges]) -> list[OperationName | None]:
    """The operations that are in one set alone; None stands for very many."""
    found: list[OperationName | None] = []
    for author, ranges in here.items():
        numbers, others = numbers_of(ranges), numbers_of(there.get(author, []))
        for first, last in numbers.inside(1, numbers.highest()):
            for begin, end in others.outside(first, last):
                if len(found) + end - begin > MISSING_AT_MOST:
                    return [None]
                found += [(author, number) for number in range(begin, end + 1)]
    return found


def divergences(one: KeyReport, other: KeyReport, replica: int) -> list[Divergence]:
    """The keys of a range that differ, each with the first operation after which it did at both."""
    found: list[Divergence] = []
    for key in sorted(one.hashes.keys() | other.hashes.keys()):
        if one.hashes.get(key, 0) == other.hashes.get(key, 0):
            continue
        there = {(author, number): value for author, number, value in other.effects.get(key, [])}
        after = next(
            (
                (author, number)
                for author, number, value in one.effects.get(key, [])
                if there.get((author, number), value) != value
            ),
            None,
        )
        found.append(Divergence(key.decode(errors="replace"), replica, after))
    return found
