"""A matrix from what nodes have measured: measured where it can be, estimated elsewhere."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.kernel.randomness import RandomStream
from antiphon.placement.cities import between_cities
from antiphon.placement.measured import matrix_of


def test_a_round_trip_counts_for_both_directions_and_the_least_counts() -> None:
    matrix = matrix_of(["a", "b", "c"], {(0, 1): 100, (1, 0): 80, (2, 0): 4000, (1, 2): 5000})
    assert matrix.rows == [[0, 40, 2000], [40, 0, 2500], [2000, 2500, 0]]
    assert matrix.estimated == 0


def test_pairs_that_nobody_has_measured_are_estimated() -> None:
    """Each of 40 cities measures 12 others; half of the other pairs are estimated within a fifth or so."""
    cities = between_cities(40)
    random = RandomStream(4, 1)
    round_trips = {}
    for one in range(40):
        for _ in range(12):
            other = int(random.below(40))
            round_trips[one, other] = 2 * cities.rows[one][other]
    matrix = matrix_of(cities.names, round_trips)
    measured = {frozenset(pair) for pair in round_trips}
    errors = sorted(
        abs(matrix.rows[a][b] - cities.rows[a][b]) / cities.rows[a][b]
        for a in range(40)
        for b in range(a)
        if frozenset((a, b)) not in measured
    )
    assert matrix.estimated == 2 * len(errors) > 500
    assert errors[len(errors) // 2] < 0.25
    assert all(matrix.rows[a][b] == cities.rows[a][b] for a, b in round_trips)


def test_a_node_that_has_measured_nothing_is_named() -> None:
    with pytest.raises(UsageError, match="c has measured no round trip yet"):
        matrix_of(["a", "b", "c"], {(0, 1): 10})
