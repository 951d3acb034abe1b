"""Sets of messages that were read, by publisher and sequence number, which mean the same in every log.

An offset is valid in one log only. So a stream that must survive the loss of a node records, beside its offsets, the
set of messages that it has read; nearly all of it is one range per publisher. Another log then serves every message
outside of the set. Messages from the first log precede them in every promised order, because the deliveries of a node
are closed under everything they follow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

Range = tuple[int, int]
"""The first and the last number."""


MOVED: Final = ""
"""The key of the flag that not all messages were read from one log; no publisher has this name."""


class Marks:
    """A set of messages that were read; ``is_moved`` if they are not from one log alone."""

    def __init__(self, ranges: Mapping[int, Sequence[Range]] | None = None, is_moved: bool = False) -> None:
        self._ranges: dict[int, list[Range]] = {each: list(found) for each, found in (ranges or {}).items()}
        self.is_moved = is_moved

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marks) and (self._ranges, self.is_moved) == (other._ranges, other.is_moved)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Marks({self.as_texts()})"

    def add(self, publisher: int, first: int, last: int) -> None:
        """Add the messages of a publisher from one number to another."""
        ranges = self._ranges.setdefault(publisher, [])
        # Ranges that touch the new one are merged with it.
        place = bisect_right(ranges, first, key=lambda each: each[0])
        low = place - 1 if place > 0 and ranges[place - 1][1] >= first - 1 else place
        high = low
        while high < len(ranges) and ranges[high][0] <= last + 1:
            high += 1
        touched = ranges[low:high]
        start = min([first, *(each[0] for each in touched)])
        end = max([last, *(each[1] for each in touched)])
        ranges[low:high] = [(start, end)]

    def with_all(self, other: Marks) -> Marks:
        """The union of both, with the origin of this one."""
        both = Marks(self._ranges, self.is_moved)
        for publisher, ranges in other._ranges.items():
            for first, last in ranges:
                both.add(publisher, first, last)
        return both

    def within(self, publisher: int, first: int, last: int) -> list[Range]:
        """The messages of a publisher between two numbers that are in the set."""
        ranges = self._ranges.get(publisher, ())
        return [(max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first]

    def holds(self, other: Marks) -> bool:
        """Whether all messages of another set are in this one."""
        return all(
            self.within(publisher, first, last) == [(first, last)]
            for publisher, ranges in other._ranges.items()
            for first, last in ranges
        )

    def has_any_of(self, other: Marks) -> bool:
        """Whether some message is in both."""
        return any(
            self.within(publisher, first, last) for publisher, ranges in other._ranges.items() for first, last in ranges
        )

    def __len__(self) -> int:
        return sum(last - first + 1 for ranges in self._ranges.values() for first, last in ranges)

    def as_texts(self) -> dict[str, str]:
        """The form that Spark stores: by publisher, ``1-500,502-510``."""
        texts = {
            str(publisher): ",".join(f"{first}-{last}" for first, last in ranges)
            for publisher, ranges in sorted(self._ranges.items())
        }
        return texts | ({MOVED: "moved"} if self.is_moved else {})


def marks_from(texts: Mapping[str, str]) -> Marks:
    """A set from the form that Spark stores."""
    marks = Marks(is_moved=MOVED in texts)
    for publisher, text in texts.items():
        if publisher == MOVED:
            continue
        for each in text.split(","):
            first, _, last = each.partition("-")
            marks.add(int(publisher), int(first), int(last))
    return marks


class WantedRows:
    """The wanted rows of a log: those that were not read before and, if ``batch`` is given, belong to it."""

    def __init__(self, read: Marks, batch: Marks | None = None) -> None:
        self.read = read
        self.batch = batch

    def places(self, publisher: int, sequence: int, count: int) -> list[Range]:
        """The wanted messages of a publisher with numbers from ``sequence`` on, by index from 0."""
        last = sequence + count - 1
        inside = [(sequence, last)] if self.batch is None else self.batch.within(publisher, sequence, last)
        for low, high in self.read.within(publisher, sequence, last):
            inside = [
                part
                for first, end in inside
                for part in ((first, min(end, low - 1)), (max(first, high + 1), end))
                if part[0] <= part[1]
            ]
        return [(first - sequence, end - sequence) for first, end in inside]
