"""Chooses one identifier for a newcomer, next to nodes that are near it; no other node gets another identifier.

A newcomer sends to and hears from the first node of each of its clusters (:mod:`antiphon.fabrics.cube.topology`). So a
free identifier is the better, the nearer these nodes are on average. That takes distances from the newcomer alone, and
the calculation costs little: for each candidate one look per cluster.

Among exactly as many identifiers as nodes the last newcomers would have no choice. So candidates are all identifiers of
a cube that has ``SPARE_BITS`` dimensions more than its nodes need. Unused identifiers cost nothing on the way: a tree
passes over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from mypy_extensions import i64

from antiphon.fabrics.cube.topology import MAXIMUM_DIMENSION, PartialCube, dimension_for
from antiphon.kernel.errors import UsageError
from antiphon.placement.tree_cost import TreeCost

SPARE_BITS: Final = 2
"""With 2 there are from four to eight identifiers for each node."""


def nearest_identifier(
    round_trips_us: Mapping[int, int], taken: Set[int] = frozenset(), spare_bits: int = SPARE_BITS
) -> int:
    """The free identifier whose neighbours are nearest on average; of several the lowest.

    ``round_trips_us`` has the round trip from the newcomer to each member. Identifiers of members are not free, and
    ``taken`` has others that are not.
    """
    if not round_trips_us:
        return min(set(range(len(taken) + 1)) - taken)
    dimension: i64 = min(MAXIMUM_DIMENSION, dimension_for(len(round_trips_us) + 1) + spare_bits)
    highest = dimension_for(max(round_trips_us) + 1)
    cube = PartialCube(max(dimension, highest), round_trips_us)
    best: i64 = -1
    least = 0.0
    candidate: i64 = 0
    while candidate < 1 << dimension:
        if not cube.contains(candidate) and candidate not in taken:
            mean_us = mean_to_neighbours(cube, candidate, round_trips_us)
            if best < 0 or mean_us < least:
                best, least = candidate, mean_us
        candidate += 1
    if best < 0:
        raise UsageError(f"all identifiers below {1 << dimension} are taken; allow more spare bits")
    return int(best)


def mean_to_neighbours(cube: PartialCube, identifier: i64, round_trips_us: Mapping[int, int]) -> float:
    """The mean round trip from a newcomer to its neighbours, if it took this identifier."""
    total: i64 = 0
    count: i64 = 0
    s: i64 = 1
    while s <= cube.dimension:
        first = cube.first(identifier, s)
        if first >= 0:
            total += i64(round_trips_us[int(first)])
            count += 1
        s += 1
    return float(total) / float(count)


def arrived(rows: list[list[int]], order: list[int], spare_bits: int = SPARE_BITS) -> dict[int, int]:
    """The identifiers of places whose nodes arrive in an order, each with those before it: the place of each."""
    place_of: dict[int, int] = {}
    for place in order:
        round_trips_us = {member: rows[place][at] + rows[at][place] for member, at in place_of.items()}
        place_of[nearest_identifier(round_trips_us, spare_bits=spare_bits)] = place
    return place_of


def cost_of_identifiers(place_of: Mapping[int, int], rows: list[list[int]]) -> tuple[TreeCost, list[int]]:
    """The trees among these identifiers, and the place of each member in ascending order."""
    members = sorted(place_of)
    cube = PartialCube(dimension_for(members[-1] + 1), members)
    return TreeCost(cube, rows), [place_of[member] for member in members]
