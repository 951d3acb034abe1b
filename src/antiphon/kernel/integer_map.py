"""A map from integers to integers in one flat array.

State per (node, publication) is what a large simulation touches at random for every event, so its cost is the number
of cache lines it touches. A dictionary of integers touches four (index, entry, key object, value object); this open
addressing table keeps key and value side by side and touches one, in an eighth of the memory.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import SOURCE_BITS, SOURCE_MASK

EMPTY: Final[i64] = -1
SMALLEST: Final = 4
"""The first table has so many places; one of them at least stays empty, or else a search would not end."""

SEQUENCE_MASK: Final = 0xFFFFFF
SCATTER: Final = 0x9E3779B1
OTHER_SCATTER: Final = 0x85EBCA6B
LOW_BITS: Final = 15


def home(key: i64) -> i64:
    """Where a key would like to be, before masking.

    Node identifiers are their own homes, side by side as they are looked up. Publications
    (:func:`antiphon.kernel.message.publication_key`) are scattered: with a few in flight from each source they would
    otherwise queue for the place of their source, and form one run that every removal has to walk through. Look-ups ask
    here for publications only.
    """
    sequence = key >> SOURCE_BITS
    if sequence == 0:
        return key
    return ((key & SOURCE_MASK) * SCATTER + (sequence & SEQUENCE_MASK) * OTHER_SCATTER) >> LOW_BITS


@final
@mypyc_attr(acyclic=True)
class IntegerMap:
    """Keys are integers from 0 up, values any 64-bit integers. Listed only by key: nothing can depend on hashing."""

    def __init__(self) -> None:
        # Nothing is allocated before the first entry: most nodes of a huge simulation never need one.
        self._cells: vec[i64] = vec[i64]()
        self._mask: i64 = -1
        self.count: i64 = 0
        """The number of entries; only the map changes it."""

    def __len__(self) -> int:
        return int(self.count)

    def get(self, key: i64, default: i64) -> i64:
        """The value of ``key``, or ``default``."""
        mask = self._mask
        if mask < 0:
            return default
        cells = self._cells
        slot = (key if key <= SOURCE_MASK else home(key)) & mask
        while True:
            found = cells[slot << 1]
            if found == key:
                return cells[(slot << 1) | 1]
            if found == EMPTY:
                return default
            slot = (slot + 1) & mask

    def put(self, key: i64, value: i64) -> None:
        """Set the value of ``key``."""
        assert key >= 0, "keys are not negative"
        if self.count * 8 >= (self._mask + 1) * 5:
            self._grow()
        slot = self._slot(key)
        if self._cells[slot << 1] == EMPTY:
            self._cells[slot << 1] = key
            self.count += 1
        self._cells[(slot << 1) | 1] = value

    def remove(self, key: i64) -> None:
        """Forget ``key``, which may be missing. Later entries of the same run move up, so no marks are left behind."""
        mask = self._mask
        if mask < 0:
            return
        cells = self._cells
        hole = self._slot(key)
        if cells[hole << 1] == EMPTY:
            return
        self.count -= 1
        slot = hole
        while True:
            slot = (slot + 1) & mask
            found = cells[slot << 1]
            if found == EMPTY:
                break
            # An entry may move into the hole unless its home lies after the hole, on the way to where it is now.
            if ((slot - home(found)) & mask) >= ((slot - hole) & mask):
                cells[hole << 1] = found
                cells[(hole << 1) | 1] = cells[(slot << 1) | 1]
                hole = slot
        cells[hole << 1] = EMPTY

    def copy(self) -> IntegerMap:
        """Another map with the same entries."""
        twin = IntegerMap()
        twin._cells = vec[i64](self._cells)
        twin._mask = self._mask
        twin.count = self.count
        return twin

    def sorted_items(self) -> list[tuple[i64, i64]]:
        """All keys with their values, by key."""
        items: list[tuple[i64, i64]] = []
        position: i64 = 0
        while position < len(self._cells):
            if self._cells[position] != EMPTY:
                items.append((self._cells[position], self._cells[position + 1]))
            position += 2
        items.sort()
        return items

    def _slot(self, key: i64) -> i64:
        """Where ``key`` is, or the empty slot where it belongs."""
        mask = self._mask
        cells = self._cells
        slot = (key if key <= SOURCE_MASK else home(key)) & mask
        while True:
            found = cells[slot << 1]
            if found == key or found == EMPTY:  # noqa: SIM109 (a tuple would box both)
                return slot
            slot = (slot + 1) & mask

    def _grow(self) -> None:
        old = self._cells
        size = SMALLEST if self._mask < 0 else (int(self._mask) + 1) * 2
        self._cells = vec[i64]([-1] * (size * 2))
        self._mask = size - 1
        self.count = 0
        position: i64 = 0
        while position < len(old):
            if old[position] != EMPTY:
                self.put(old[position], old[position + 1])
            position += 2
