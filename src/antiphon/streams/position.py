"""Positions: places in the history of a topic, which mean the same at every node."""

from __future__ import annotations

from antiphon.kernel.errors import UsageError


class Position(int):
    """A place in the history of a topic: a number from 0 on, which also knows of which history it is.

    A topic that is removed and made again has another history, of another ``generation``. The text of a position, such
    as ``7-1200``, names both.
    """

    generation: int
    """Which history of its topic it is of. Every history of a cluster has another number."""

    def __new__(cls, number: int, generation: int) -> Position:
        found = super().__new__(cls, number)
        found.generation = generation
        return found

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that a text names."""
        generation, mark, number = text.partition("-")
        if not (mark and generation.isdecimal() and number.isdecimal()):
            raise UsageError(f"a position is written like 7-1200, not {text!r}")
        return cls(int(number), int(generation))

    def __reduce__(self) -> tuple[type[Position], tuple[int, int]]:
        return Position, (int(self), self.generation)

    def __str__(self) -> str:
        return f"{self.generation}-{int(self)}"

    def __repr__(self) -> str:
        return f"Position({int(self)}, generation={self.generation})"


def generation_of(start: object) -> int:
    """The generation of a position; 0 of a plain number, which means any."""
    return start.generation if isinstance(start, Position) else 0
