"""Identifiers of newcomers: free ones, near ones, and a gain over identifiers in the order of arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.placement.assignment import at_random
from antiphon.placement.cities import between_cities
from antiphon.placement.newcomers import arrived, cost_of_identifiers, nearest_identifier


def test_the_first_node_has_the_lowest_identifier() -> None:
    assert nearest_identifier({}) == 0
    assert nearest_identifier({}, taken={0, 1}) == 2


def test_a_newcomer_becomes_a_neighbour_of_the_nearest_node() -> None:
    # Nodes 0 and 4 are far from each other; a newcomer is nearer on the cube to the one that it is near to.
    for near, far in ((0, 4), (4, 0)):
        identifier = nearest_identifier({near: 100, far: 9000})
        assert identifier ^ near < identifier ^ far


@given(
    st.dictionaries(st.one_of(st.integers(0, 40), st.integers(1 << 21, 1 << 22)), st.integers(1, 10**6), max_size=12),
    st.sets(st.integers(0, 40), max_size=12),
)
def test_an_identifier_is_free_and_no_other_free_one_has_nearer_neighbours(
    round_trips_us: dict[int, int], taken: set[int]
) -> None:
    def mean(identifier: int) -> float:
        """By the definition: the member of least difference among those with the same highest bit of difference."""
        differences = sorted(identifier ^ member for member in round_trips_us)
        heads = {difference.bit_length(): difference for difference in reversed(differences)}
        return sum(round_trips_us[identifier ^ difference] for difference in heads.values()) / max(1, len(heads))

    found = nearest_identifier(round_trips_us, taken, spare_bits=4)
    free = set(range(16 if round_trips_us else 1)) - taken - set(round_trips_us)
    assert found not in taken | set(round_trips_us)
    assert all(mean(found) <= mean(other) for other in free)


def test_cities_that_come_one_after_the_other_are_twenty_percent_nearer_than_at_random() -> None:
    places = 40
    rows = between_cities(places).rows
    usual, chosen = 0.0, 0.0
    for seed in range(4):
        order = at_random(places, seed)
        for total, place_of in ((0, dict(enumerate(order))), (1, arrived(rows, order))):
            assert sorted(place_of.values()) == list(range(places))
            cost, place_at = cost_of_identifiers(place_of, rows)
            mean_us = cost.mean_us(vec[i64](place_at))
            usual, chosen = (usual, chosen + mean_us) if total else (usual + mean_us, chosen)
    assert chosen < 0.8 * usual
