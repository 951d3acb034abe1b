"""The newest message of each key among those that retention has removed: what a compacted history keeps of them.

The leader puts them into the entry that removes messages (:class:`antiphon.streams.retention.Trim`), so all replicas
keep the same, also a replica that has never had these messages. They keep their positions. A message without a value
removes its key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import msgspec

from antiphon.streams.entries import IndexEntry

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]

VALUES_BYTES_AT_MOST: Final = 16 << 20
"""A history keeps so many bytes of removed messages, because they are part of its snapshots. Then none are removed."""

BYTES_AT_ONCE: Final = 1 << 20
"""Messages of about so many bytes are removed at one time, because the entry may hold all of them."""


class LastValue(msgspec.Struct, frozen=True, array_like=True):
    """The newest removed message of a key, as a batch of its own; without a payload the key is removed, too."""

    key: bytes
    position: Count
    publisher: Count = 0
    sequence: Count = 0
    order: str = ""
    payload: bytes = b""

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return len(self.key) + len(self.payload)


class LastValues:
    """All of them, at one replica."""

    def __init__(self, values: Iterable[LastValue] = ()) -> None:
        self.by_key: dict[bytes, LastValue] = {}
        self.size = 0
        self._ordered: list[LastValue] | None = None
        self.apply(values)

    @property
    def is_full(self) -> bool:
        """Whether no more messages may be removed."""
        return self.size >= VALUES_BYTES_AT_MOST

    def apply(self, removed: Iterable[LastValue]) -> None:
        """Messages were removed; these are the newest of their keys among them."""
        for value in removed:
            before = self.by_key.pop(value.key, None)
            self.size -= 0 if before is None else before.size
            if value.payload:
                self.by_key[value.key] = value
                self.size += value.size
            self._ordered = None

    def after(self, position: int, most_bytes: int) -> list[LastValue]:
        """Those from a position on, in order: at least one if there is any, and not many more than so many bytes."""
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = sorted(self.by_key.values(), key=lambda each: each.position)
        first = last = bisect_left(ordered, position, key=lambda each: each.position)
        size = 0
        while last < len(ordered) and size <= most_bytes:
            size += ordered[last].size
            last += 1
        return ordered[first:last]

    def snapshot(self) -> bytes:
        """Everything, for a snapshot."""
        return msgspec.msgpack.encode([value for _, value in sorted(self.by_key.items())])

    @classmethod
    def restored(cls, state: bytes) -> LastValues:
        """Everything from a snapshot; nothing from one of before there were any."""
        return cls(msgspec.msgpack.decode(state, type=list[LastValue]) if state else ())


def newest_of(
    entries: Iterable[IndexEntry], keys_of: Callable[[IndexEntry], list[bytes] | None]
) -> dict[bytes, tuple[IndexEntry, int]] | None:
    """By key: the entry of its newest message, and the place there; None if the messages of an entry are not here.

    Messages without a key count for nothing.
    """
    found: dict[bytes, tuple[IndexEntry, int]] = {}
    for entry in entries:
        if not entry.count:
            continue
        keys = keys_of(entry)
        if keys is None:
            return None
        found.update({key: (entry, place) for place, key in enumerate(keys) if key})
    return found
