"""Ascending waves of acknowledgements, in one integer per wave and node.

A node that hands a packet on to children opens a wave. The wave holds how many answers are missing, and the parent that
the node answers when the last one has arrived. A source has no parent; its wave ends with it (section 5.4 of the
thesis).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.integer_map import IntegerMap
from antiphon.kernel.process import NO_NODE

PARENT_BITS: Final = 32
PARENT_MASK: Final = (1 << 32) - 1

STILL_OPEN: Final[i64] = -2
NOT_OPEN: Final[i64] = -3


@final
@mypyc_attr(acyclic=True)
class Waves:
    """The waves that are open at one node, by key."""

    def __init__(self) -> None:
        self._open: Final = IntegerMap()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, key: i64, missing: i64, parent: i64) -> None:
        """Expect ``missing`` answers, at least one, before ``parent`` (or ``NO_NODE``) is told."""
        self._open.put(key, (missing << PARENT_BITS) | (parent & PARENT_MASK))

    def expect_more(self, key: i64, missing: i64) -> None:
        """Expect further answers in a wave that is open."""
        self._open.put(key, self._open.get(key, 0) + (missing << PARENT_BITS))

    def on_ack(self, key: i64) -> i64:
        """One answer has come: ``STILL_OPEN`` if others are missing, ``NOT_OPEN`` if none was expected, or the parent.

        The parent of the source's own wave is ``NO_NODE``. A wave that is complete is forgotten.
        """
        entry = self._open.get(key, 0)
        if entry == 0:
            return NOT_OPEN
        entry -= 1 << PARENT_BITS
        if entry >> PARENT_BITS > 0:
            self._open.put(key, entry)
            return STILL_OPEN
        self._open.remove(key)
        return NO_NODE if entry == PARENT_MASK else entry

    def state(self) -> str:
        """The open waves as text, to compare states."""
        return str(self._open.sorted_items())
