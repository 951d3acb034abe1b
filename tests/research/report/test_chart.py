"""Pictures: what is drawn is where its values say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon_lab.report.chart import NARROW, WIDE, Size, svg
from antiphon_lab.report.scales import Ruler, linear_ticks, ruler_of, tick_text
from antiphon_lab.report.stored import Result
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Kind, Mark, Point, Series
from tests.research.report.markup import Element, parsed

TICKS = Axis("latency", "ticks")


def drawn(figure: Figure, size: Size = WIDE) -> Element:
    (picture,) = parsed(svg(figure, size, "figure")).all("svg")
    return picture


def line(*values: float, kind: Kind = "line", system: str = "VCube-PS", **more: object) -> Series:
    points = tuple(Point(2.0 ** (place + 3), value) for place, value in enumerate(values))
    return Series("a line", system, points, kind, **more)  # type: ignore[arg-type]


def centres(picture: Element, which: str = "dot") -> list[tuple[float, float]]:
    """Where marks are: middle of a circle, top of a bar, middle of a diamond's corners."""
    found = []
    for dot in picture.of_class(which):
        at = dot.attributes
        if dot.tag == "circle":
            found.append((float(at["cx"]), float(at["cy"])))
        elif dot.tag == "rect":
            found.append((float(at["x"]) + float(at["width"]) / 2, float(at["y"])))
        else:
            found.append(tuple(map(float, re.findall(r"-?[\d.]+", at["d"])[:2])))  # type: ignore[arg-type]
    return found


def test_equal_steps_are_equal_on_a_linear_axis_and_on_a_logarithmic_one() -> None:
    heights = [y for _, y in centres(drawn(Figure("f", "t", NODES, TICKS, (line(100, 200, 300),))))]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2) and heights[0] > heights[1]
    logarithmic = Axis("latency", scale="log10")
    picture = drawn(Figure("f", "t", NODES, logarithmic, (line(10, 100, 1000),)))
    places = centres(picture)
    assert places[0][1] - places[1][1] == pytest.approx(places[1][1] - places[2][1], abs=0.2)
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0], abs=0.2)


def test_bars_are_as_long_as_their_values_and_stand_on_zero() -> None:
    categories = Axis("x", categories=("a", "b", "c"))
    points = (Point(0, 10), Point(1, 40), Point(2, -20))
    picture = drawn(Figure("f", "t", categories, TICKS, (Series("s", "SRPT", points, "bars"),)))
    bars = [dot.attributes for dot in picture.of_class("dot")]
    heights = [float(bar["height"]) for bar in bars]
    assert heights[1] == pytest.approx(4 * heights[0], abs=0.4)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.4)
    zero = float(bars[0]["y"]) + heights[0]
    assert float(bars[2]["y"]) == pytest.approx(zero, abs=0.2)


def test_a_published_point_stands_at_the_bar_of_its_system() -> None:
    categories = Axis("x", categories=("a", "b"))
    series = [
        Series(system, system, (Point(0, 10), Point(1, 20)), "bars", variant)
        for system, variant in (("VCube-PS", 0), ("SRPT", 0), ("SRPT", 1))
    ]
    published = Series("published", "SRPT", (Point(0, 15), Point(1, 25)), "points", 1, published=True)
    picture = drawn(Figure("f", "t", categories, TICKS, (*series, published)))
    places = [x for x, _ in centres(picture)]
    assert places[6:] == pytest.approx(places[4:6], abs=0.2)
    assert len({round(place) for place in places[:6]}) == 6
    (group,) = picture.of_class("published")
    assert "orange" in group.attributes["class"]


def test_a_bound_points_to_where_the_truth_may_lie() -> None:
    def tip(limit: str) -> float:
        points = (Point(8, 10, limit=limit),)  # type: ignore[arg-type]
        series = (line(5, 20), Series("p", "VCube-PS", points, "points", published=True))
        (shape,) = [
            dot
            for group in drawn(Figure("f", "t", NODES, TICKS, series)).of_class("published")
            for dot in group.of_class("dot")
        ]
        foot, point = re.findall(r"M\S+ (\S+?)h.*L\S+ (\S+?)z", shape.attributes["d"])[0]
        return float(point) - float(foot)

    assert tip("upper") > 0 > tip("lower")


def test_spreads_are_drawn_from_low_to_high() -> None:
    points = (Point(8, 100, 80, 120), Point(16, 100), Point(32, 140, 100, 180))
    picture = drawn(Figure("f", "t", NODES, TICKS, (Series("s", "SRPT", points),)))
    spreads = [re.match(r"M\S+ (\S+?)V(\S+?)M", path.attributes["d"]) for path in picture.of_class("spread")]
    lengths = [float(found[1]) - float(found[2]) for found in spreads if found]
    assert len(lengths) == 2 and lengths[1] == pytest.approx(2 * lengths[0], abs=0.3)


def test_what_has_no_logarithm_lies_at_the_foot() -> None:
    picture = drawn(Figure("f", "t", NODES, Axis("y", scale="log10"), (line(0, 10, 100),)))
    heights = [y for _, y in centres(picture)]
    assert heights[0] > heights[1] > heights[2]


def test_series_without_points_and_figures_with_one_point_are_drawn() -> None:
    assert not centres(drawn(Figure("f", "t", NODES, TICKS, (line(),))))
    assert len(centres(drawn(Figure("f", "t", NODES, TICKS, (line(5),))))) == 1
    assert len(centres(drawn(Figure("f", "t", NODES, TICKS, (line(0),))))) == 1


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: size.name)
def test_everything_stays_within_the_picture(results: list[Result], size: Size) -> None:
    """All of the real figures; letters are taken to be 7 wide."""
    for result in results:
        for figure in result.figures:
            picture = drawn(figure, size)
            for x, y in [*centres(picture), *centres(picture, "halo")]:
                assert 0 <= x <= size.width and 0 <= y <= size.height, (result.name, figure.name)
            for words in picture.all("text"):
                if "x" not in words.attributes or "label" in words.attributes.get("class", ""):
                    continue
                width = 6.4 * len(words.text())
                anchor = {"start": 0, "middle": 0.5, "end": 1}[words.attributes["text-anchor"]]
                left = float(words.attributes["x"]) - anchor * width
                assert left >= -12, (result.name, figure.name, words.text())
                assert left + width <= size.width + 12, (result.name, figure.name, words.text())


def test_marks_and_hints_say_what_they_are() -> None:
    marks = (Mark("x", 16, "published: here"), Mark("y", 50, "published: there"), Mark("x", 8, "from to", to=16))
    points = (Point(8, 10.04, 9, 11, label="first"), Point(16, 1234.5))
    picture = drawn(Figure("f", "t", NODES, TICKS, (Series("s", "SRPT", points),), marks))
    assert [mark.text() for mark in picture.of_class("mark")] == ["published: here", "from to", "published: there"]
    hints = [next(dot.all("title")).content[0] for dot in picture.of_class("dot")]
    assert hints == ["s, first\n8: 10 ± 0.96 ticks", "s\n16: 1234 ticks"]


@given(
    low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6), most=st.integers(2, 12)
)  # fmt: skip
def test_linear_ticks_are_few_round_and_inside(low: float, span: float, most: int) -> None:
    high = low + span
    ticks = linear_ticks(low, high, most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks)
    assert ticks == sorted(set(ticks))


@given(values=st.lists(st.floats(1e-3, 1e6), min_size=1), scale=st.sampled_from(["linear", "log2", "log10"]))
def test_a_ruler_holds_all_values_in_their_order(values: list[float], scale: str) -> None:
    ruler = ruler_of(Axis("x", scale=scale), values, 0.0, 100.0, from_zero=False)  # type: ignore[arg-type]
    places = [ruler.place(value) for value in sorted(values)]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= 100
    assert all(ruler.low <= tick * (1 + 1e-9) and tick <= ruler.high * (1 + 1e-9) for tick in ruler.ticks(6))


def test_ticks_of_nodes_are_powers_of_two_and_those_of_decades_are_round() -> None:
    assert Ruler("log2", 6, 5000, 0, 1).ticks(12) == [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    assert Ruler("log2", 6, 5000, 0, 1).ticks(5) == [8, 32, 128, 512, 2048]
    assert Ruler("log10", 80, 12000, 0, 1).ticks(6) == [100, 300, 1000, 3000, 10000]
    assert Ruler("log10", 90, 600, 0, 1).ticks(6) == [100, 200, 500]
    assert [tick_text(value) for value in (-5, 0.25, 1000000)] == ["\u22125", "0.25", "1\u202f000\u202f000"]
