"""Sets of messages that were read, by publisher and sequence number, which mean the same in every log.

An offset is valid in one log only. So a stream that must survive the loss of a node records, beside its offsets, the
set of messages that it has read; nearly all of it is one range per publisher. Another log then serves every message
outside of the set. Messages from the first log precede them in every promised order, because the deliveries of a node
are closed under everything they follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.kernel.interval_set import IntervalSet

Range = tuple[int, int]
"""The first and the last number."""


MOVED: Final = ""
"""The key of the flag that not all messages were read from one log; no publisher has this name."""


class Marks:
    """A set of messages that were read; ``is_moved`` if they are not from one log alone."""

    def __init__(self, is_moved: bool = False) -> None:
        self._numbers: dict[int, IntervalSet] = {}
        self.is_moved = is_moved

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marks) and self.as_texts() == other.as_texts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Marks({self.as_texts()})"

    def _of(self, publisher: int) -> IntervalSet:
        return self._numbers.setdefault(publisher, IntervalSet())

    def ranges(self) -> dict[int, list[Range]]:
        """All messages, by publisher."""
        return {each: found.inside(1, found.highest()) for each, found in sorted(self._numbers.items())}

    def add(self, publisher: int, first: int, last: int) -> None:
        """Add the messages of a publisher from one number to another."""
        self._of(publisher).add_range(first, last)

    def with_all(self, other: Marks) -> Marks:
        """The union of both, with the origin of this one."""
        both = Marks(self.is_moved)
        for marks in (self, other):
            for publisher, numbers in marks._numbers.items():
                both._of(publisher).update(numbers)
        return both

    def within(self, publisher: int, first: int, last: int) -> list[Range]:
        """The messages of a publisher between two numbers that are in the set."""
        found = self._numbers.get(publisher)
        return [] if found is None else found.inside(first, last)

    def without(self, publisher: int, first: int, last: int) -> list[Range]:
        """The messages of a publisher between two numbers that are not in the set."""
        found = self._numbers.get(publisher)
        return [(first, last)] if found is None else found.outside(first, last)

    def holds(self, other: Marks) -> bool:
        """Whether all messages of another set are in this one."""
        return not any(
            self.without(publisher, first, last)
            for publisher, ranges in other.ranges().items()
            for first, last in ranges
        )

    def has_any_of(self, other: Marks) -> bool:
        """Whether some message is in both."""
        return any(
            self.within(publisher, first, last)
            for publisher, ranges in other.ranges().items()
            for first, last in ranges
        )

    def __len__(self) -> int:
        return sum(last - first + 1 for ranges in self.ranges().values() for first, last in ranges)

    def as_texts(self) -> dict[str, str]:
        """The form that Spark stores: by publisher, ``1-500,502-510``."""
        texts = {
            str(publisher): ",".join(f"{first}-{last}" for first, last in ranges)
            for publisher, ranges in self.ranges().items()
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
        wanted = [part for first, end in inside for part in self.read.without(publisher, first, end)]
        return [(first - sequence, end - sequence) for first, end in wanted]
