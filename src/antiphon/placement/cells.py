"""Cells of the plane: topics for messages that belong to a point, and the topics that cover an area. Pure.

The plane is all latitudes and longitudes. It is cut into four quarters, each of them into four again, and so on: a
quad-tree. A cell is named by its quarters from the outermost on, ``1.0.3``; 0 and 1 are south, 2 and 3 north, 0 and 2
west. A message is published on the topic of the cell of a fixed *level*, which is the number of quarters. So
``cars.1.0.3`` has the messages of one cell, and the pattern ``cars.1.0.>`` those of the cell around it.

An area is covered by patterns for cells that lie in it as a whole, and by finer cells at its border. The
subscriber removes messages of these cells that lie outside of the area.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import isfinite
from typing import Final, NamedTuple

from antiphon.kernel.errors import UsageError

DEEPEST: Final = 24
"""Cells of this level are some two metres wide."""

NORTH, EAST = 2, 1


class Point(NamedTuple):
    """A point in degrees; south and west are negative."""

    latitude: float
    longitude: float


class Area(NamedTuple):
    """All points between two latitudes and two longitudes, the edges included; it may cross the 180th meridian."""

    south: float
    west: float
    north: float
    east: float

    def contains(self, point: Point) -> bool:
        """Whether a point is in the area."""
        if not self.south <= point.latitude <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= point.longitude <= self.east
        return point.longitude >= self.west or point.longitude <= self.east

    def parts(self) -> list[Area]:
        """The area as parts that do not cross the 180th meridian."""
        if self.west <= self.east:
            return [self]
        return [self._replace(east=180.0), self._replace(west=-180.0)]


WHOLE: Final = Area(-90.0, -180.0, 90.0, 180.0)


class RegionCell(NamedTuple):
    """A cell with its quarters and its edges; a point on an edge belongs to the cell north or east of it."""

    quarters: tuple[int, ...]
    south: float
    west: float
    north: float
    east: float

    @property
    def level(self) -> int:
        """How often the plane was cut."""
        return len(self.quarters)

    def children(self) -> Iterator[RegionCell]:
        """Its four quarters."""
        middle_latitude = (self.south + self.north) / 2
        middle_longitude = (self.west + self.east) / 2
        for quarter in range(4):
            south, north = (middle_latitude, self.north) if quarter & NORTH else (self.south, middle_latitude)
            west, east = (middle_longitude, self.east) if quarter & EAST else (self.west, middle_longitude)
            yield RegionCell((*self.quarters, quarter), south, west, north, east)

    def meets(self, area: Area) -> bool:
        """Whether they have a point in common."""
        parts = area.parts()
        return any(self.meets_part(part) for part in parts)

    def meets_part(self, part: Area) -> bool:
        """The same for an area that does not cross the 180th meridian."""
        # The northern and eastern edges belong to other cells, but for those of the plane.
        below = self.north > part.south or self.north == WHOLE.north == part.south
        left = self.east > part.west or self.east == WHOLE.east == part.west
        return below and left and self.south <= part.north and self.west <= part.east

    def is_in(self, area: Area) -> bool:
        """Whether all of it lies in an area."""
        return any(
            part.south <= self.south and self.north <= part.north and part.west <= self.west and self.east <= part.east
            for part in area.parts()
        )


ROOT: Final = RegionCell((), *WHOLE)


def checked_point(latitude: float, longitude: float) -> Point:
    """A point on earth; an error says what one looks like."""
    if not (isfinite(latitude) and isfinite(longitude) and abs(latitude) <= 90 and abs(longitude) <= 180):
        raise UsageError(
            f"({latitude}, {longitude}) is no point; latitudes go from -90 to 90 degrees and longitudes from "
            "-180 to 180"
        )
    return Point(float(latitude), float(longitude))


def checked_area(area: Area) -> Area:
    """An area on earth; an error says what one looks like."""
    checked_point(area.south, area.west)
    checked_point(area.north, area.east)
    if area.south > area.north:
        raise UsageError(f"the south of an area is not north of its north: {area.south} is above {area.north}")
    return area


def checked_level(level: int) -> int:
    """A level of cells."""
    if not 1 <= level <= DEEPEST:
        raise UsageError(f"cells have a level from 1 to {DEEPEST}, not {level}; 6 is some hundred kilometres")
    return level


def cell_of(point: Point, level: int) -> tuple[int, ...]:
    """The quarters of the cell that has a point."""
    cell = ROOT
    for _ in range(level):
        *_, middle = cell.children()
        quarter = (NORTH if point.latitude >= middle.south else 0) | (EAST if point.longitude >= middle.west else 0)
        cell = next(each for each in cell.children() if each.quarters[-1] == quarter)
    return cell.quarters


def topic_of(prefix: str, quarters: tuple[int, ...]) -> str:
    """The topic of a cell."""
    return ".".join([prefix, *map(str, quarters)])


def patterns_for(prefix: str, area: Area, level: int, most: int) -> list[str]:
    """Topics and patterns that have all messages of an area, at most so many; the fewer, the more lies outside.

    The largest cells that are not wholly in the area are cut first.
    """
    if most < 1:
        raise UsageError(f"an area takes at least one subscription, not {most}")
    done: list[RegionCell] = []
    waiting: list[tuple[int, RegionCell]] = [(0, ROOT)]
    while waiting:
        _, cell = heappop(waiting)
        parts = [child for child in cell.children() if child.meets(area)]
        if cell.level == level or cell.is_in(area) or len(done) + len(waiting) + len(parts) > most:
            done.append(cell)
            continue
        for part in parts:
            heappush(waiting, (part.level, part))
    return sorted(
        topic_of(prefix, cell.quarters) if cell.level == level else f"{topic_of(prefix, cell.quarters)}.>"
        for cell in done
    )
