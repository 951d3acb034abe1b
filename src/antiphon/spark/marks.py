"""Which messages have been read, told by publisher and sequence number: that means the same in every log.

An offset means something in one log only. A stream that is to survive the loss of a node therefore writes down, beside
its offsets, the set of messages that it has read; nearly all of it is one range per publisher. Another log then has
everything that is not in the set, and what was read from the first one comes before it in every order that was
promised: what a node has delivered is closed under all that it follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.kernel.interval_set import IntervalSet

Range = tuple[int, int]
"""The first and the last number."""


MOVED: Final = ""
"""Where it is written that not all of it was read from one log; no publisher is called so."""


class Marks:
    """A set of messages that were read; ``is_moved`` if it was not from one log alone."""

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
        """The messages of both, as this one has come about."""
        both = Marks(self.is_moved)
        for marks in (self, other):
            for publisher, numbers in marks._numbers.items():
                both._of(publisher).update(numbers)
        return both

    def within(self, publisher: int, first: int, last: int) -> list[Range]:
        """Which of the messages of a publisher between two numbers are in the set."""
        found = self._numbers.get(publisher)
        return [] if found is None else found.inside(first, last)

    def without(self, publisher: int, first: int, last: int) -> list[Range]:
        """Which of the messages of a publisher between two numbers are not in the set."""
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
        """In the form that Spark keeps: by publisher, ``1-500,502-510``."""
        texts = {
            str(publisher): ",".join(f"{first}-{last}" for first, last in ranges)
            for publisher, ranges in self.ranges().items()
        }
        return texts | ({MOVED: "moved"} if self.is_moved else {})


def marks_from(texts: Mapping[str, str]) -> Marks:
    """A set from the form that Spark keeps."""
    marks = Marks(is_moved=MOVED in texts)
    for publisher, text in texts.items():
        if publisher == MOVED:
            continue
        for each in text.split(","):
            first, _, last = each.partition("-")
            marks.add(int(publisher), int(first), int(last))
    return marks


class Wanted:
    """Which rows of a log are wanted: those that were not read before and, if that is said, belong to a batch."""

    def __init__(self, read: Marks, batch: Marks | None = None) -> None:
        self.read = read
        self.batch = batch

    def places(self, publisher: int, sequence: int, count: int) -> list[Range]:
        """Of messages of a publisher with numbers from ``sequence`` on, those that are wanted, by place from 0."""
        last = sequence + count - 1
        inside = [(sequence, last)] if self.batch is None else self.batch.within(publisher, sequence, last)
        wanted = [part for first, end in inside for part in self.read.without(publisher, first, end)]
        return [(first - sequence, end - sequence) for first, end in wanted]
