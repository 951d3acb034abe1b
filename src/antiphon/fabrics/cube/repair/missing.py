"""The publications that other members count as past and this member lacks.

A newcomer counts as past what was delivered before it joined, and has none of it to give. A member that compares itself
only with newcomers therefore learns that it lacks something, and does not get it. When a whole round has not brought it
the member asks all nodes, once for each such publication: if one of them has it, it sends it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.fabrics.cube.repair.retransmit_buffer import Holdings
from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK, publication_key

FRESH: Final[i64] = 0
"""It has been noticed since the last round, and may be on its way."""

LASTING: Final[i64] = 2
"""It was lacking for a whole round: so it does not come by itself."""

ASKING: Final[i64] = 3
"""All nodes are asked for it."""

ASKED: Final[i64] = 4
"""Everybody within reach has answered and has not given it. A node that is found later compares itself anyway."""

NOTED_AT_MOST: Final[i64] = 1 << 16
"""So many are noted. There are about as many as publishers, unless a peer names publications that do not exist."""


def first_lacking(theirs: Holdings, mine: Holdings, source: i64, reached: i64) -> i64:
    """The first number behind ``reached`` that is in ``theirs`` alone, or 0. The gaps of a peer that lies are long."""
    number = reached + 1
    complete = theirs.counts.get(source, 0)
    while number <= complete:
        if not mine.holds(source, number):
            return number
        number += 1
    singles = [key >> SOURCE_BITS for key in theirs.singles if key & SOURCE_MASK == source]
    return min([each for each in singles if each > reached and not mine.holds(source, each)], default=0)


@final
class MissingPublications:
    """The first publication that one member lacks of each source, on one topic."""

    def __init__(self) -> None:
        self._stages: dict[i64, i64] = {}

    def note(self, theirs: Holdings, mine: Holdings) -> None:
        """Another member has all that is in ``theirs``."""
        for source, reached, _ in theirs.beyond(mine):
            number = first_lacking(theirs, mine, source, reached)
            if number > 0 and len(self._stages) < NOTED_AT_MOST:
                self._stages.setdefault(publication_key(source, number), FRESH)

    def next_round(self, mine: Holdings) -> None:
        """Forget what has come since the last round."""
        self._stages = {
            key: stage + 1 if stage < LASTING else stage
            for key, stage in self._stages.items()
            if not mine.holds(key & SOURCE_MASK, key >> SOURCE_BITS)
        }

    def is_empty(self) -> bool:
        """Whether nothing is lacking of which others have spoken."""
        return len(self._stages) == 0

    def is_young(self) -> bool:
        """Whether something is lacking that may be on its way."""
        return any(stage < LASTING for stage in self._stages.values())

    def is_lasting(self) -> bool:
        """Whether something is lacking that does not come by itself, and not everybody has answered."""
        return any(LASTING <= stage < ASKED for stage in self._stages.values())

    def ask(self) -> None:
        """All nodes are asked from now on."""
        self._advance(LASTING, ASKING)

    def all_have_answered(self) -> None:
        """All nodes have answered since they were asked."""
        self._advance(ASKING, ASKED)

    def _advance(self, before: i64, after: i64) -> None:
        for key, stage in list(self._stages.items()):
            if stage == before:
                self._stages[key] = after

    def text(self) -> str:
        """The state as text, to compare states."""
        return str(sorted(self._stages.items()))
