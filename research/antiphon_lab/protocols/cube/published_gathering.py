"""The entries of acknowledgements that a node of VCube-PS as published has gathered, while a wave of it is open."""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.integer_map import IntegerMap

NO_PLACE: Final[i64] = -1


@final
class Gathering:
    """The entries of the acknowledgements of an open wave so far, and how often the view had been reset by then."""

    def __init__(self, entries: vec[i64], resets: i64) -> None:
        self.entries: vec[i64] = entries
        self.resets: i64 = resets


@final
class Gatherings:
    """The gatherings of one node, by the key of their wave.

    Nearly every acknowledgement looks for one, in tables that no cache holds, so keys are in a flat map.
    """

    def __init__(self) -> None:
        self._places: Final = IntegerMap()
        self._gatherings: Final[list[Gathering | None]] = []
        self._free: Final[list[i64]] = []

    def get(self, key: i64) -> Gathering | None:
        """The entries of a wave so far; none if there are no entries."""
        place = self._places.get(key, NO_PLACE)
        return None if place == NO_PLACE else self._gatherings[place]

    def put(self, key: i64, gathering: Gathering) -> None:
        """The first entries of a wave have come."""
        if len(self._free) > 0:
            place = self._free.pop()
            self._gatherings[place] = gathering
        else:
            place = len(self._gatherings)
            self._gatherings.append(gathering)
        self._places.put(key, place)

    def remove(self, key: i64) -> None:
        """A wave is over."""
        place = self._places.get(key, NO_PLACE)
        assert place != NO_PLACE, "nobody asks about a wave without entries"
        self._gatherings[place] = None
        self._free.append(place)
        self._places.remove(key)

    def state(self) -> list[tuple[int, list[int]]]:
        """The content by key, to compare states."""
        found: list[tuple[int, list[int]]] = []
        for key, place in self._places.sorted_items():
            gathering = self._gatherings[place]
            if gathering is not None:
                found.append((int(key), [int(entry) for entry in gathering.entries]))
        return found
