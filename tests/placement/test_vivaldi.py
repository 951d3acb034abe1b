"""Network coordinates: they learn distances, heights and cities from pairs that are measured now and then."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.kernel.randomness import RandomStream
from antiphon.placement.cities import between_cities
from antiphon.placement.vivaldi import DIMENSIONS, START, Coordinate, checked, distance, estimated_us, moved


def learned(rows: list[list[int]], rounds: int, seed: int) -> list[Coordinate]:
    """Coordinates after each node has measured so many round trips to others that are drawn."""
    random = RandomStream(seed, 1)
    coordinates = [START] * len(rows)
    for _ in range(rounds):
        for node in range(len(rows)):
            other = int(random.below(len(rows)))
            if other != node:
                round_trip = rows[node][other] + rows[other][node]
                coordinates[node] = moved(coordinates[node], coordinates[other], round_trip, random)
    return coordinates


def relative_errors(rows: list[list[int]], coordinates: list[Coordinate]) -> list[float]:
    return sorted(
        abs(estimated_us(coordinates[a], coordinates[b]) - 2 * rows[a][b]) / (2 * rows[a][b])
        for a in range(len(rows))
        for b in range(a)
    )


def test_points_of_a_plane_are_found_again() -> None:
    random = RandomStream(3, 2)
    points = [(100 + int(random.below(50_000)), int(random.below(50_000))) for _ in range(20)]
    rows = [[round(((a - c) ** 2 + (b - d) ** 2) ** 0.5) + 500 for c, d in points] for a, b in points]
    errors = relative_errors(rows, learned(rows, 300, 1))
    assert errors[len(errors) // 2] < 0.08
    assert errors[-len(errors) // 10] < 0.3


def test_a_slow_access_line_becomes_height() -> None:
    rows = [[0 if a == b else 10_000 + 20_000 * ((a == 0) + (b == 0)) for b in range(8)] for a in range(8)]
    coordinates = learned(rows, 400, 2)
    others = [coordinates[node].height_us for node in range(1, 8)]
    assert coordinates[0].height_us > 1.3 * max(others)


def test_cities_are_estimated_from_a_few_measurements_of_each() -> None:
    rows = between_cities(40).rows
    start = relative_errors(rows, learned(rows, 1, 5))
    errors = relative_errors(rows, learned(rows, 60, 5))
    assert errors[len(errors) // 2] < 0.2 < start[len(start) // 2]


def test_a_node_that_is_sure_moves_little_for_one_that_is_not() -> None:
    sure = Coordinate((0.0,) * DIMENSIONS, 100.0, 0.1)
    unsure = Coordinate((10_000.0, 0.0, 0.0), 100.0, 0.9)
    random = RandomStream(2)
    small = distance(moved(sure, unsure, 50_000, random).point, sure.point)
    large = distance(moved(unsure, sure, 50_000, random).point, unsure.point)
    assert 0 < 5 * small < large


def test_the_error_says_how_good_a_coordinate_is() -> None:
    rows = between_cities(20).rows
    assert START.error == 1.0
    errors = sorted(coordinate.error for coordinate in learned(rows, 60, 6))
    assert errors[len(errors) // 2] < 0.4


@pytest.mark.parametrize("round_trip_us", [0.0, 1e12])
def test_impossible_measurements_move_a_node_only_so_far(round_trip_us: float) -> None:
    there = moved(START, START, round_trip_us, RandomStream(1))
    assert checked(there) == there


def test_a_coordinate_of_nonsense_is_refused() -> None:
    for wrong in (
        Coordinate((0.0,), 1.0, 1.0),
        Coordinate((float("nan"),) * DIMENSIONS, 1.0, 1.0),
        Coordinate((1e30,) * DIMENSIONS, 1.0, 1.0),
        Coordinate((0.0,) * DIMENSIONS, -1.0, 1.0),
        Coordinate((0.0,) * DIMENSIONS, 1.0, -0.5),
    ):
        with pytest.raises(UsageError):
            checked(wrong)
