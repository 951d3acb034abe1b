"""Which part of a stream is kept: the bounds of a policy, and the entry on which the replicas agree.

The leader looks from time to time whether the oldest messages are beyond a bound. If so it appends an entry that says
where the stream begins now. So the earliest position is the same at every replica, and each frees the space in its own
time. A message that a named consumer has not done is kept for longer, up to ``hold`` times the bounds.

A *compacted* history keeps the newest message of each key among those that are removed. The leader puts them into the
entry that removes messages, so all replicas keep the same, also a replica that has never had these messages. They keep
their positions. A message without a value removes its key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Annotated, Final, Protocol

import msgspec

from antiphon.streams.entries import TRIM, IndexEntry, ReadEntries

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]

UNBOUNDED: Final = 1 << 62
"""In the place of bytes: a history without a bound."""

CHECK_US: Final = 1_000_000
"""How often a leader looks whether messages are beyond a bound."""

ENTRIES_AT_ONCE: Final = 256
"""So many entries are removed at most at one time, so that no turn takes long."""


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


class Trim(msgspec.Struct, frozen=True, array_like=True):
    """The stream begins at a position, and at the entry with a number; so many bytes go.

    Messages before the position ``held`` go even if a consumer has not done them.
    """

    earliest: Count
    first: Count
    size: Count
    held: Count
    newest: list[LastValue] = []
    """Of a compacted history: the newest of these messages for each key, which are kept elsewhere."""


class KeptRange(msgspec.Struct, frozen=True, array_like=True):
    """The part of a stream that is kept, as all replicas know it.

    ``earliest`` is the first position, ``first`` the number of the first entry; before it are none with messages that
    are kept. ``size`` counts the bytes of all settled messages from there on.
    """

    earliest: int = 0
    first: int = 1
    size: int = 0

    def grown(self, size: int) -> KeptRange:
        """So many bytes more are settled."""
        return KeptRange(self.earliest, self.first, self.size + size)

    def trimmed(self, trim: Trim, not_done: Iterable[int]) -> KeptRange:
        """The stream begins later.

        Nothing changes if a consumer, which may be newer than the leader's plan, has not done all of it.
        """
        if trim.first <= self.first or (
            trim.held < trim.earliest and min(not_done, default=trim.earliest) < trim.earliest
        ):
            return self
        return KeptRange(trim.earliest, trim.first, self.size - trim.size)


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """How much of a stream is kept; 0 is no bound."""

    size: int = 0
    age_us: int = 0
    hold: float = 2.0
    is_compacted: bool = False
    """Whether the newest message of each key is kept nevertheless."""

    @property
    def is_bounded(self) -> bool:
        """Whether there is any bound."""
        return bool(self.size or self.age_us)

    @property
    def bytes_at_most(self) -> int:
        """How many bytes are kept in the end, or :data:`UNBOUNDED`."""
        return int(self.size * self.hold) if self.size else UNBOUNDED

    def held(self) -> Bounds:
        """The bounds for messages that a consumer has not done."""
        return Bounds(int(self.size * self.hold), int(self.age_us * self.hold), 1.0)

    def is_beyond(self, size: int, age_us: int) -> bool:
        """Whether the oldest message goes, if so many bytes are kept and it is so old."""
        return 0 < self.size < size or 0 < self.age_us < age_us


def planned(
    kept: KeptRange, settled: int, bounds: Bounds, now_us: int, not_done: Iterable[int], read: ReadEntries
) -> Trim | None:
    """The entries to remove now, at most ``ENTRIES_AT_ONCE`` entries; None if nothing is.

    If the history is compacted, they also have no more than about ``BYTES_AT_ONCE``.
    ``settled`` is the last entry that may go, and ``not_done`` the first position of each consumer that is not done.
    """
    held_from = min(not_done, default=None)
    patient = bounds.held()
    size, first, earliest, held = kept.size, kept.first, kept.earliest, kept.earliest
    last = min(settled, first + ENTRIES_AT_ONCE - 1)
    while first <= last:
        # Entries of before the snapshot are read from the disk, and the later ones from memory.
        for entry in read(first, last + 1 - first):
            age_us = now_us - entry.time_us
            is_held = held_from is not None and entry.end > held_from
            if entry.count and not (patient if is_held else bounds).is_beyond(size, age_us):
                last = 0
                break
            first += 1
            if bounds.is_compacted and kept.size - size + entry.size >= BYTES_AT_ONCE:
                last = 0
            if entry.count:
                held = entry.end if patient.is_beyond(size, age_us) else held
                earliest, size = entry.end, size - entry.size
            if last == 0:
                break
    return None if earliest == kept.earliest else Trim(earliest, first, kept.size - size, held)


def entries_between(first: int, end: int, read: ReadEntries) -> list[IndexEntry]:
    """The entries from a number up to another one, which is not among them; one reading may give fewer."""
    found: list[IndexEntry] = []
    while first + len(found) < end:
        found += read(first + len(found), end - first - len(found))
    return found


class TrimmedStream(Protocol):
    """The replica whose stream is kept within bounds."""

    def clock_us(self) -> int:
        """The time of day."""

    def bounds(self) -> Bounds:
        """The bounds of the topic's policy."""

    def not_done(self) -> Iterable[int]:
        """The first position of each consumer that is not done."""

    def kept(self) -> KeptRange:
        """The part that is kept."""

    def settled_entries(self) -> tuple[int, Callable[[int, int], list[IndexEntry]]]:
        """The number of the last settled entry, and a way to read entries."""

    def newest(self, entries: list[IndexEntry]) -> list[LastValue] | None:
        """The newest message of each key among some entries; None if their messages are not all here."""

    def has_room_for_values(self) -> bool:
        """Whether more messages may be removed from a compacted history."""

    def append(self, kind: int, payload: bytes) -> int | None:
        """Let all replicas know something; the number of its entry, or None if this replica does not lead."""

    def after(self, delay_us: int, call: Callable[[], object]) -> None:
        """Call something after a while."""


class Retention:
    """Keeps a stream within its bounds while this replica leads."""

    def __init__(self, stream: TrimmedStream) -> None:
        self._stream = stream
        # Each term of this replica has timers of its own.
        self._term = 0
        self._is_leading = False
        self._under_way = 0

    def opened(self) -> None:
        """This replica leads, and knows everything that is settled."""
        self._term += 1
        self._is_leading = True
        self._under_way = 0
        self._wait()

    def resigned(self) -> None:
        """This replica leads no more."""
        self._is_leading = False

    def _wait(self) -> None:
        term = self._term
        self._stream.after(CHECK_US, lambda: self._check(term))

    def _check(self, term: int) -> None:
        if term == self._term and self._is_leading:
            self.advance()
            self._wait()

    def advance(self) -> None:
        """Remove what is beyond a bound, unless the removal before is still under way."""
        stream = self._stream
        settled, read = stream.settled_entries()
        bounds = stream.bounds()
        if not bounds.is_bounded or settled < self._under_way:
            return
        kept = stream.kept()
        trim = planned(kept, settled, bounds, stream.clock_us(), stream.not_done(), read)
        if trim is not None and bounds.is_compacted:
            newest = stream.newest(entries_between(kept.first, trim.first, read))
            is_possible = newest is not None and stream.has_room_for_values()
            trim = msgspec.structs.replace(trim, newest=newest) if is_possible else None
        if trim is not None:
            self._under_way = stream.append(TRIM, msgspec.msgpack.encode(trim)) or 0

    def settled(self, number: int) -> None:
        """A removal is settled: there may be more to remove."""
        if self._is_leading and number == self._under_way:
            self.advance()
