"""The table of cities: distances that atlases agree about, and delays that follow."""

from __future__ import annotations

import pytest

from antiphon.kernel import UsageError
from antiphon.placement.cities import CITIES, between_cities, delay_us, kilometres

BY_NAME = {city.name: city for city in CITIES}


def test_every_city_is_on_earth_and_there_once() -> None:
    assert len(BY_NAME) == len(CITIES) == 128
    assert all(-90 < city.latitude < 90 and -180 < city.longitude < 180 for city in CITIES)


@pytest.mark.parametrize(
    ("one", "other", "length_km"),
    [
        ("London", "Paris", 344),
        ("London", "New York", 5570),
        ("Tokyo", "San Francisco", 8280),
        ("Sydney", "Perth", 3290),
    ],
)
def test_known_distances(one: str, other: str, length_km: int) -> None:
    assert kilometres(BY_NAME[one], BY_NAME[other]) == pytest.approx(length_km, rel=0.02)


def test_delays_are_symmetric_and_no_shorter_than_light_in_glass() -> None:
    matrix = between_cities()
    for a, one in enumerate(CITIES):
        assert matrix.rows[a][a] == 0
        for b, other in enumerate(CITIES[:a]):
            assert matrix.rows[a][b] == matrix.rows[b][a] == delay_us(one, other) > 5 * kilometres(one, other)


@pytest.mark.parametrize("count", [1, 129])
def test_there_are_only_so_many(count: int) -> None:
    with pytest.raises(UsageError, match="choose from 2 to 128"):
        between_cities(count)
