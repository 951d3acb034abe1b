"""A figure as SVG: sharp at every size, in colours of the page, and with text for screen readers.

Series of one figure at the same place are put side by side where there are bars or categories. A published series is at
the place of the measured one of its system and variant. Marks of points have a title, which browsers show as a hint and
the script of the page as a better one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import chain
from math import cos, radians, sin

from antiphon_lab.report.colours import colour_of, dash_of, shade_of
from antiphon_lab.report.scales import Ruler, ruler_of, tick_text
from antiphon_lab.reproduction.experiment import shown
from antiphon_lab.reproduction.figures import Figure, Mark, Point, Series

LETTER = 6.4
"""About how wide a letter is at the size of tick labels."""
LINE_HEIGHT = 15.0
TILT_DEGREES = 34
BAND_SHARE = 0.82
WIDEST_BAR = 46.0
MARKER = 3.4
PUBLISHED_MARKER = 6.2


@dataclass(frozen=True)
class Size:
    """How large a picture is, for which screens."""

    name: str
    width: float
    height: float

    @property
    def x_ticks(self) -> int:
        """How many ticks fit below."""
        return int(self.width // 62)


WIDE = Size("wide", 760, 400)
NARROW = Size("narrow", 330, 320)


def svg(figure: Figure, size: Size, identifier: str) -> str:
    """One figure; ``identifier`` is unique on the page."""
    chart = Chart(figure, size)
    title, description = f"{identifier}-{size.name}-t", f"{identifier}-{size.name}-d"
    parts = [
        f'<svg class="chart {size.name}" role="img" viewBox="0 0 {size.width:g} {size.height:g}" '
        f'aria-labelledby="{title} {description}">',
        f'<title id="{title}">{escape(figure.title)}</title>',
        f'<desc id="{description}">{escape(describe(figure))}</desc>',
        *chart.frame(),
        *chart.marks(),
        *chain.from_iterable(chart.drawn(series) for series in in_front_last(figure)),
        "</svg>",
    ]
    return "\n".join(parts)


def describe(figure: Figure) -> str:
    """The figure in words: axes, and where each series begins and ends."""
    said = [f"{figure.y.title()} by {figure.x.title()}."]
    for series in figure.series:
        if series.points:
            first, last = series.points[0], series.points[-1]
            ends = f"{x_text(figure, first)}: {shown(first.y)}"
            if len(series.points) > 1:
                ends += f" to {x_text(figure, last)}: {shown(last.y)}"
            said.append(f"{series.name}: {ends}.")
    return " ".join([*said, *(f"{mark.label}." for mark in figure.marks)])


def in_front_last(figure: Figure) -> list[Series]:
    """Bars, then lines, then published series."""
    return sorted(figure.series, key=lambda series: (series.published, series.kind != "bars"))


def x_text(figure: Figure, point: Point) -> str:
    """The name of the place of a point."""
    if figure.x.categories:
        return figure.x.categories[int(point.x)]
    return f"{tick_text(point.x)} {figure.x.unit}".strip()


class Chart:
    """Everything about one picture that has to be known before anything is drawn."""

    def __init__(self, figure: Figure, size: Size) -> None:
        self.figure = figure
        self.size = size
        self.banded = bool(figure.x.categories) or any(series.kind == "bars" for series in figure.series)
        points = [point for series in figure.series for point in series.points]
        values = [value for point in points for value in (point.y, point.low, point.high) if value is not None]
        values += [mark.value for mark in figure.marks if mark.axis == "y"]
        self.top = 12 + LINE_HEIGHT * sum(mark.axis == "x" for mark in figure.marks)
        self.labels = self._label_plan()
        self.bottom = size.height - self.labels.height - 30
        bars = any(series.kind == "bars" for series in figure.series)
        self.y = ruler_of(figure.y, values, self.bottom, self.top, from_zero=bars)
        self.y_ticks = self.y.ticks(6)
        widest = max((len(tick_text(tick)) for tick in self.y_ticks), default=1)
        self.left = 30 + LETTER * widest
        self.right = size.width - 10
        self.x = self._x_ruler([point.x for point in points])
        self.slots = slots_of(figure)

    def _x_ruler(self, values: list[float]) -> Ruler:
        """Bands around whole numbers, or an axis like the other."""
        if not self.banded:
            places = values + [mark.value for mark in self.figure.marks if mark.axis == "x"]
            return ruler_of(self.figure.x, places, self.left + 6, self.right - 6, from_zero=False)
        last = len(self.figure.x.categories) - 1 if self.figure.x.categories else max(values, default=0)
        first = 0.0 if self.figure.x.categories else min(values, default=0)
        return Ruler("linear", first - 0.5, last + 0.5, self.left, self.right)

    def _label_plan(self) -> LabelPlan:
        return label_plan(self.figure.x.categories, self.size)

    @property
    def band(self) -> float:
        """How much room there is for everything at one place."""
        return (self.right - self.left) / (self.x.high - self.x.low)

    def at(self, series: Series, point: Point) -> tuple[float, float]:
        """Where a point is on paper."""
        x = self.x.place(point.x)
        if self.banded:
            here = self.slots.at(point.x)
            x += (here.index((series.system, series.variant)) - (len(here) - 1) / 2) * self.bar_step
        return x, self.y.place(point.y)

    @property
    def bar_step(self) -> float:
        """From the middle of one bar to that of the next."""
        return min(WIDEST_BAR, BAND_SHARE * self.band / self.slots.most)

    # Behind the data.

    def frame(self) -> Iterator[str]:
        """Grid, ticks and the names of the axes."""
        yield '<g class="grid">'
        for tick in self.y_ticks:
            y = self.y.place(tick)
            kind = ' class="zero"' if tick == 0 and self.y.low < 0 else ""
            yield f'<line x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"{kind}/>'
        yield "</g>"
        yield '<g class="ticks">'
        for tick in self.y_ticks:
            yield text(self.left - 7, self.y.place(tick) + 4, tick_text(tick), "end")
        yield from self._x_labels()
        yield "</g>"
        yield f'<line class="axis" x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{self.bottom}" y2="{self.bottom}"/>'
        middle = (self.top + self.bottom) / 2
        yield (
            f'<text class="name" text-anchor="middle" transform="translate(13 {middle:.1f}) rotate(-90)">'
            f"{escape(self.figure.y.title())}</text>"
        )
        yield text((self.left + self.right) / 2, self.size.height - 8, self.figure.x.title(), "middle", "name")

    def _x_labels(self) -> Iterator[str]:
        """Categories, level or tilted, or ticks."""
        y = self.bottom + 17
        if not self.figure.x.categories:
            ticks = self.x.ticks(self.size.x_ticks)
            for tick in ticks if not self.banded else [tick for tick in ticks if tick == round(tick)]:
                yield text(self.x.place(tick), y, tick_text(tick), "middle")
            return
        for place in range(0, len(self.figure.x.categories), self.labels.every):
            x, name = self.x.place(place), self.figure.x.categories[place]
            if self.labels.tilted:
                yield (
                    f'<text text-anchor="end" transform="translate({x + 4:.1f} {self.bottom + 13}) '
                    f'rotate(-{TILT_DEGREES})">{escape(name)}</text>'
                )
            else:
                yield text(x, y, name, "middle")

    def marks(self) -> Iterator[str]:
        """Published values without a point."""
        vertical = [mark for mark in self.figure.marks if mark.axis == "x"]
        for number, mark in enumerate(vertical):
            yield from self._vertical(mark, 12 + LINE_HEIGHT * number)
        for number, mark in enumerate(mark for mark in self.figure.marks if mark.axis == "y"):
            y = self.y.place(mark.value)
            yield '<g class="mark">'
            yield f'<line x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield text(self.right - 4, y - 6 if number % 2 == 0 else y + 15, mark.label, "end")
            yield "</g>"

    def _vertical(self, mark: Mark, label_y: float) -> Iterator[str]:
        """A line or a band, with its words above the picture."""
        x = self.x.place(mark.value)
        yield '<g class="mark">'
        if mark.to is None:
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 4}" y2="{self.bottom}"/>'
            middle = x
        else:
            width = self.x.place(mark.to) - x
            yield f'<rect x="{x:.1f}" y="{self.top}" width="{width:.1f}" height="{self.bottom - self.top}"/>'
            middle = x + width / 2
        half = LETTER * len(mark.label) / 2
        middle = max(min(middle, self.right - half), self.left + half)
        yield text(middle, label_y, mark.label, "middle")
        yield "</g>"

    # The data.

    def drawn(self, series: Series) -> Iterator[str]:
        """One series, with its line if it has one."""
        shape = "published" if series.published else series.kind
        yield f'<g class="series {shape} {colour_of(series.system)}">'
        if series.kind in ("line", "steps") and not series.published:
            yield self._path(series)
        for point in series.points:
            yield from self._point(series, point)
        yield "</g>"

    def _path(self, series: Series) -> str:
        """Through all points, straight or in steps."""
        places = [self.at(series, point) for point in series.points]
        path = ""
        for x, y in places:
            if not path:
                path = f"M{x:.1f} {y:.1f}"
            else:
                path += f"H{x:.1f}V{y:.1f}" if series.kind == "steps" else f"L{x:.1f} {y:.1f}"
        dash = dash_of(series.variant)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<path d="{path}"{dashes}/>'

    def _point(self, series: Series, point: Point) -> Iterator[str]:
        """A point with its spread, its hint and its name."""
        x, y = self.at(series, point)
        hint = f"<title>{escape(self.hint(series, point))}</title>"
        if series.published:
            yield self._spread(x, point)
            shape = published_shape(x, y, point)
            yield f'<path class="halo" d="{shape}"/><path class="dot" d="{shape}">{hint}</path>'
        elif series.kind == "bars":
            yield self._bar(x, y, series.variant, hint)
            yield self._spread(x, point)
        else:
            yield self._spread(x, point)
            small = 0.5 if series.kind == "steps" else 1.0
            yield marker(x, y, series.variant, MARKER * small, hint)
        if point.label:
            near_the_end = x + 8 + LETTER * len(point.label) > self.right
            yield text(x + (4 if near_the_end else 8), y + 16, point.label, "end" if near_the_end else "start", "label")

    def _bar(self, x: float, y: float, variant: int, hint: str) -> str:
        """A bar from the zero of the axis, or from its foot where it has none."""
        foot = self.y.place(0.0) if self.figure.y.scale == "linear" else self.bottom
        width = max(1.5, 0.86 * self.bar_step)
        return (
            f'<rect class="dot" x="{x - width / 2:.1f}" y="{min(y, foot):.1f}" width="{width:.1f}" '
            f'height="{max(abs(foot - y), 0.6):.1f}" fill-opacity="{shade_of(variant):g}">{hint}</rect>'
        )

    def _spread(self, x: float, point: Point) -> str:
        """The line from low to high."""
        if point.low is None or point.high is None:
            return ""
        low, high = self.y.place(point.low), self.y.place(point.high)
        if low - high < 1:
            return ""
        cap = 3
        return (
            f'<path class="spread" d="M{x:.1f} {low:.1f}V{high:.1f}'
            f'M{x - cap:.1f} {low:.1f}h{2 * cap}M{x - cap:.1f} {high:.1f}h{2 * cap}"/>'
        )

    def hint(self, series: Series, point: Point) -> str:
        """The hint of a point."""
        bound = {"upper": "at most ", "lower": "at least ", None: ""}[point.limit]
        spread = "" if point.high is None else f" ± {shown(point.high - point.y)}"
        name = f"{series.name}, {point.label}" if point.label else series.name
        return f"{name}\n{x_text(self.figure, point)}: {bound}{shown(point.y)}{spread} {self.figure.y.unit}".rstrip()


@dataclass(frozen=True)
class LabelPlan:
    """How the categories of an axis are written."""

    tilted: bool
    every: int
    height: float


def label_plan(categories: tuple[str, ...], size: Size) -> LabelPlan:
    """Level if all fit, tilted if they are few, and otherwise not all of them."""
    if not categories:
        return LabelPlan(False, 1, 22)
    room = (size.width - 70) / len(categories)
    longest = LETTER * max(map(len, categories)) + 6
    if longest <= room:
        return LabelPlan(False, 1, 22)
    if len(categories) <= 10:
        return LabelPlan(True, 1, 12 + longest * sin(radians(TILT_DEGREES)) + 6 * cos(radians(TILT_DEGREES)))
    return LabelPlan(False, int(-(-longest // room)), 22)


@dataclass(frozen=True)
class Slots:
    """The series that are side by side, by place."""

    by_place: dict[float, list[tuple[str, int]]]

    def at(self, x: float) -> list[tuple[str, int]]:
        """The systems and variants at one place, from left to right."""
        return self.by_place[x]

    @property
    def most(self) -> int:
        """How many there are at the fullest place."""
        return max((len(slots) for slots in self.by_place.values()), default=1)


def slots_of(figure: Figure) -> Slots:
    """Every place has a slot for each system and variant that has a point there."""
    found: dict[float, list[tuple[str, int]]] = {}
    for series in figure.series:
        for point in series.points:
            here = found.setdefault(point.x, [])
            if (series.system, series.variant) not in here:
                here.append((series.system, series.variant))
    return Slots(found)


def text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """Some words."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(words)}</text>'


def marker(x: float, y: float, variant: int, radius: float, inside: str) -> str:
    """Circle, square, diamond or triangle."""
    if variant % 4 == 0:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">{inside}</circle>'
    r = radius * 1.15
    shapes = {
        1: f"M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}z",
        2: f"M{x:.1f} {y - 1.3 * r:.1f}l{1.3 * r:.1f} {1.3 * r:.1f}l{-1.3 * r:.1f} {1.3 * r:.1f}"
        f"l{-1.3 * r:.1f} {-1.3 * r:.1f}z",
        3: f"M{x:.1f} {y - 1.3 * r:.1f}l{1.3 * r:.1f} {2.3 * r:.1f}h{-2.6 * r:.1f}z",
    }
    return f'<path class="dot" d="{shapes[variant % 4]}">{inside}</path>'


def published_shape(x: float, y: float, point: Point) -> str:
    """A hollow diamond; a triangle that points to where the truth may lie if the document gives only a bound."""
    r = PUBLISHED_MARKER
    if point.limit is None:
        return f"M{x:.1f} {y - r:.1f}L{x + r:.1f} {y:.1f}L{x:.1f} {y + r:.1f}L{x - r:.1f} {y:.1f}z"
    sign = 1 if point.limit == "upper" else -1
    return f"M{x - r:.1f} {y:.1f}h{2 * r:.1f}L{x:.1f} {y + sign * 1.6 * r:.1f}z"
