"""Network coordinates: an estimate of the round trip between any two nodes, from a few that were measured (Vivaldi).

Follows Dabek, Cox, Kaashoek and Morris, *Vivaldi: a decentralized network coordinate system* (2004), sections 3.3 and
5.4. A node has a point and a height. The estimate between two nodes is the distance of their points plus both heights;
the height is the way from the node to the long cables. With each measured round trip a node moves a little towards or
away from the other one, as if a spring between them had that length. It moves far if it is unsure itself, and little if
the other one is.

Departures: points have ``DIMENSIONS`` dimensions; a round trip is measured in microseconds, and ``LEAST_US`` is the
least that counts, because a node on the same machine would make all errors relative to almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Final, NamedTuple

from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import RandomStream

DIMENSIONS: Final = 3
LEAST_US: Final = 50.0
LEAST_HEIGHT_US: Final = 25.0
LARGEST_US: Final = 60_000_000.0
"""A round trip of a minute, and the size of the space."""

ERROR_GAIN: Final = 0.25
MOVE_GAIN: Final = 0.25
"""How much of a new measurement counts: the constants c_e and c_c of the paper."""

WORST_ERROR: Final = 1.0
LEAST_ERROR: Final = 0.02


class Coordinate(NamedTuple):
    """Where a node is, in microseconds, and the relative error that it expects of estimates."""

    point: tuple[float, ...]
    height_us: float
    error: float


START: Final = Coordinate((0.0,) * DIMENSIONS, LEAST_HEIGHT_US, WORST_ERROR)
"""Every node begins here, and expects nothing of it."""


def checked(coordinate: Coordinate) -> Coordinate:
    """A coordinate of another node, if it can be one."""
    values = (*coordinate.point, coordinate.height_us, coordinate.error)
    if len(coordinate.point) != DIMENSIONS or not all(isfinite(value) and abs(value) <= LARGEST_US for value in values):
        raise UsageError(f"a coordinate has {DIMENSIONS} finite numbers, a height and an error, not {coordinate}")
    if coordinate.height_us < 0 or coordinate.error < 0:
        raise UsageError("the height and the error of a coordinate are not negative; check who has sent it")
    return coordinate


def estimated_us(one: Coordinate, other: Coordinate) -> float:
    """The round trip between two nodes."""
    return distance(one.point, other.point) + one.height_us + other.height_us


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The distance of two points."""
    return sqrt(sum((here - there) ** 2 for here, there in zip(one, other, strict=True)))


def moved(mine: Coordinate, other: Coordinate, round_trip_us: float, random: RandomStream) -> Coordinate:
    """The own coordinate after a measured round trip to a node with another one."""
    measured = min(LARGEST_US, max(LEAST_US, round_trip_us))
    expected = estimated_us(mine, other)
    weight = mine.error / max(mine.error + other.error, LEAST_ERROR)
    error = abs(expected - measured) / measured
    share = ERROR_GAIN * weight
    new_error = min(WORST_ERROR, max(LEAST_ERROR, error * share + mine.error * (1 - share)))
    force_us = MOVE_GAIN * weight * (measured - expected)
    direction = direction_from(other.point, mine.point, random)
    length = distance(mine.point, other.point)
    between = length + mine.height_us + other.height_us
    # The spring pulls at the heights too, in proportion to their part of the way.
    height_us = max(LEAST_HEIGHT_US, mine.height_us + force_us * (mine.height_us + other.height_us) / between)
    point = tuple(
        min(LARGEST_US, max(-LARGEST_US, here + force_us * part))
        for here, part in zip(mine.point, direction, strict=True)
    )
    return Coordinate(point, min(LARGEST_US, height_us), new_error)


def direction_from(there: Sequence[float], here: Sequence[float], random: RandomStream) -> list[float]:
    """A step of length 1 away from a point; in a drawn direction where both are one."""
    length = distance(there, here)
    if length > 0:
        return [(to - at) / length for at, to in zip(there, here, strict=True)]
    drawn = [random.uniform() - 0.5 for _ in here]
    size = sqrt(sum(part * part for part in drawn)) or 1.0
    return [part / size for part in drawn]
