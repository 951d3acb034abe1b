"""Total order: all nodes deliver what they deliver of a topic and key in one order.

Nodes need not deliver the same things. They agree if the relation "some node delivered this directly before that" has
no circle. Publications that name keys are ordered under each of them, those that name none are ordered together. Each
node adds one pair per delivery and equal pairs count once, so where all is well there are hardly more pairs than
publications.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from antiphon.pipeline.traces import POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Name = tuple[int, int]
"""Source and number of a publication."""

FOUND = "topic int, violations bigint, example string"
STARTS = 64
"""From how many publications of a circle a shorter one is looked for."""


def circle_in(pairs: Iterable[tuple[Name, Name]]) -> list[Name]:
    """A short circle among pairs "this before that"; empty if there is none."""
    after: dict[Name, list[Name]] = {}
    before: dict[Name, int] = {}
    for one, other in pairs:
        after.setdefault(one, []).append(other)
        before[other] = before.get(other, 0) + 1
        before.setdefault(one, 0)
    ready = deque(name for name, count in before.items() if count == 0)
    while ready:
        name = ready.popleft()
        del before[name]
        for other in after.get(name, ()):
            before[other] -= 1
            if before[other] == 0:
                ready.append(other)
    # What is left lies on circles or behind them.
    circles = (shortest_circle(start, after, before) for start in sorted(before)[:STARTS])
    return min((circle for circle in circles if circle), key=len, default=[])


def shortest_circle(start: Name, after: dict[Name, list[Name]], left: dict[Name, int]) -> list[Name]:
    """The shortest way from a publication back to it."""
    came_from: dict[Name, Name] = {}
    reached = deque([start])
    while reached:
        name = reached.popleft()
        for other in after.get(name, ()):
            if other == start:
                way = [name]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if other in left and other not in came_from:
                came_from[other] = name
                reached.append(other)
    return []


def judge_key(table: pa.Table) -> pa.Table:
    """The pairs of one topic and key: is there one order?"""
    columns = (table[name].to_pylist() for name in ("source", "sequence", "next_source", "next_sequence"))
    circle = circle_in(((one, two), (three, four)) for one, two, three, four in zip(*columns, strict=True))
    topic, key = table["topic"][0].as_py(), table["key"][0].as_py()
    if not circle:
        return pa.table(
            {
                "topic": pa.array([], pa.int32()),
                "violations": pa.array([], pa.int64()),
                "example": pa.array([], pa.string()),
            }
        )
    names = [f"{sequence} of node {source}" for source, sequence in [*circle, circle[0]]]
    place = f"topic {topic}" if key is None else f"key {key} of topic {topic}"
    text = f"on {place} nodes delivered " + ", ".join(f"{one} before {other}" for one, other in pairwise(names))
    return pa.table({"topic": pa.array([topic], pa.int32()), "violations": [1], "example": [text]})


def judge_total_order(frame: DataFrame) -> tuple[int, str | None]:
    """On how many topics and keys there is no single order, and an example."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    deliveries = frame.where((f.col("event") == "deliver") & (f.col("order") == "total"))
    # A publication with several keys has its place in the order of each.
    deliveries = deliveries.select(
        "topic", f.explode_outer("keys").alias("key"), "node", "source", "sequence", POSITION
    )
    lane = Window.partitionBy("topic", "key", "node").orderBy(POSITION)
    pairs = deliveries.select(
        "topic",
        "key",
        "source",
        "sequence",
        f.lead("source").over(lane).alias("next_source"),
        f.lead("sequence").over(lane).alias("next_sequence"),
    )
    found = pairs.where("next_source is not null").distinct().groupBy("topic", "key").applyInArrow(judge_key, FOUND)
    rows = found.orderBy(f.length("example"), "topic").collect()
    return len(rows), rows[0]["example"] if rows else None
