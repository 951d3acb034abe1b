"""A matrix from the round trips that the nodes of a cluster measure; pairs without a measurement are estimated.

A node measures only those that it sends to: all others on a cube, few of many in gossip. Coordinates
(:mod:`antiphon.placement.vivaldi`) are learned from all measured round trips and say about how far the others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import RandomStream
from antiphon.placement.delay_matrix import DelayMatrix
from antiphon.placement.vivaldi import START, Coordinate, estimated_us, moved

ROUNDS: Final = 64
"""How often each measured round trip is learned."""

LEARNING_STREAM: Final = 35


def matrix_of(names: Sequence[str], round_trips_us: Mapping[tuple[int, int], int], seed: int = 1) -> DelayMatrix:
    """The delays between nodes, from round trips by pairs of their indices; both directions are one measurement."""
    count = len(names)
    least: dict[tuple[int, int], int] = {}
    for (one, other), measured in round_trips_us.items():
        pair = (min(one, other), max(one, other))
        if one != other:
            least[pair] = min(measured, least.get(pair, measured))
    alone = set(range(count)) - {end for pair in least for end in pair}
    if count < 2 or alone:
        name = names[min(alone)] if alone else "the only node"
        raise UsageError(f"{name} has measured no round trip yet; ask again when the nodes have exchanged messages")
    missing = [(one, other) for other in range(count) for one in range(other) if (one, other) not in least]
    known = dict(least)
    if missing:
        coordinates = learned(count, least, seed)
        known |= {pair: round(estimated_us(coordinates[pair[0]], coordinates[pair[1]])) for pair in missing}
    rows = [[0] * count for _ in range(count)]
    for (one, other), round_trip in known.items():
        rows[one][other] = rows[other][one] = round_trip // 2
    return DelayMatrix(tuple(names), rows, 2 * len(missing))


def learned(count: int, round_trips_us: Mapping[tuple[int, int], int], seed: int) -> list[Coordinate]:
    """The coordinates of nodes after each has learned all its round trips ``ROUNDS`` times, in a drawn order."""
    random = RandomStream(seed, LEARNING_STREAM)
    coordinates = [START] * count
    pairs = sorted(round_trips_us)
    for _ in range(ROUNDS):
        for at in range(len(pairs) - 1, 0, -1):
            other_at = int(random.below(at + 1))
            pairs[at], pairs[other_at] = pairs[other_at], pairs[at]
        for one, other in pairs:
            measured = float(round_trips_us[one, other])
            before = coordinates[one]
            coordinates[one] = moved(before, coordinates[other], measured, random)
            coordinates[other] = moved(coordinates[other], before, measured, random)
    return coordinates
