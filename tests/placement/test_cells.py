"""Cells of the plane: every point has one, and the patterns of an area match the topics of all its points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.topic_names import matches
from antiphon.kernel import UsageError
from antiphon.placement.cells import (
    WHOLE,
    Area,
    Point,
    cell_of,
    checked_area,
    checked_level,
    checked_point,
    patterns_for,
    topic_of,
)

LATITUDES = st.floats(-90, 90)
LONGITUDES = st.floats(-180, 180)
POINTS = st.builds(Point, LATITUDES, LONGITUDES)
AREAS = st.builds(
    lambda a, b, west, east: Area(min(a, b), west, max(a, b), east), LATITUDES, LATITUDES, LONGITUDES, LONGITUDES
)


def test_the_first_quarters_are_those_of_the_compass() -> None:
    assert [cell_of(Point(*point), 1) for point in ((-10, -10), (-10, 10), (10, -10), (10, 10))] == [
        (0,),
        (1,),
        (2,),
        (3,),
    ]
    assert topic_of("cars", cell_of(Point(52.5, 13.4), 4)) == "cars.3.2.0.0"


@given(POINTS, st.integers(1, 12))
def test_a_finer_cell_lies_in_the_coarser_one(point: Point, level: int) -> None:
    assert cell_of(point, level) == cell_of(point, level + 3)[:level]


@given(AREAS, st.floats(0, 1), st.floats(0, 1), st.integers(1, 7), st.integers(1, 40))
def test_an_area_has_patterns_for_each_of_its_points(
    area: Area, north: float, east: float, level: int, most: int
) -> None:
    width = area.east - area.west if area.west <= area.east else 360 - (area.west - area.east)
    longitude = area.west + east * width
    point = Point(
        min(area.north, area.south + north * (area.north - area.south)),
        longitude if longitude <= 180 else max(-180.0, longitude - 360),
    )
    patterns = patterns_for("x", area, level, most)
    assert 1 <= len(patterns) <= most
    assert len(set(patterns)) == len(patterns)
    topic = topic_of("x", cell_of(point, level))
    if area.contains(point):
        assert sum(topic == pattern or matches(pattern, topic) for pattern in patterns) == 1


@given(POINTS, st.integers(2, 6))
def test_with_enough_patterns_only_cells_at_the_border_bring_what_lies_outside(point: Point, level: int) -> None:
    area = Area(-30.0, -60.0, 50.0, 100.0)
    patterns = patterns_for("x", area, level, 4**level)
    if not any(matches(pattern, topic_of("x", cell_of(point, level))) for pattern in patterns):
        assert not area.contains(point)
    height, width = 180 / 2**level, 360 / 2**level
    near = Area(area.south - height, area.west - width, area.north + height, area.east + width)
    if not near.contains(point):
        assert not any(matches(pattern, topic_of("x", cell_of(point, level))) for pattern in patterns)


def test_a_whole_quarter_is_one_pattern() -> None:
    assert patterns_for("x", Area(0, 0, 90, 180), 5, 16) == ["x.3.>"]
    assert patterns_for("x", WHOLE, 5, 16) == ["x.>"]


def test_an_area_may_cross_the_180th_meridian() -> None:
    area = Area(-20, 170, -10, -170)
    assert area.contains(Point(-15, 179)) and area.contains(Point(-15, -179)) and not area.contains(Point(-15, 0))
    assert {pattern.split(".")[1] for pattern in patterns_for("fiji", area, 4, 16)} == {"0", "1"}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda: checked_point(91, 0), "is no point"),
        (lambda: checked_point(0, float("nan")), "is no point"),
        (lambda: checked_area(Area(10, 0, 5, 1)), "10 is above 5"),
        (lambda: checked_level(0), "a level from 1 to 24, not 0"),
        (lambda: patterns_for("x", WHOLE, 3, 0), "at least one subscription"),
    ],
)
def test_what_is_not_on_earth_is_refused(wrong: object, complaint: str) -> None:
    assert callable(wrong)
    with pytest.raises(UsageError, match=complaint):
        wrong()
