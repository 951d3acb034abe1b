"""The judge of total order: whether the deliveries of all nodes about a topic and key fit into one order.

A total publication is a synchronisation point for its keys: no node delivers after it what another node delivers about
them before it. So at each node every delivery is related to the total publications next to it, before and after. Nodes
need not deliver the same publications; they agree if the relation of all nodes together has no cycle. Publications
without a key are judged together. This module knows no protocol and shares no code with one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Name = tuple[int, int]
"""Source and number of a publication."""

STARTS = 64
"""The number of publications of a cycle from which a shorter one is looked for."""


def circle_in(pairs: Iterable[tuple[Name, Name]]) -> list[Name]:
    """A short cycle among pairs "this before that"; empty if there is none."""
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
    # The remaining publications are on cycles or after them.
    circles = (shortest_circle(start, after, before) for start in sorted(before)[:STARTS])
    return min((circle for circle in circles if circle), key=len, default=[])


def shortest_circle(start: Name, after: dict[Name, list[Name]], left: dict[Name, int]) -> list[Name]:
    """The shortest path from a publication back to itself."""
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


def circle_text(topic: int, key: int | None, circle: Sequence[Name]) -> str:
    """A cycle as a sentence."""
    names = [f"{sequence} of node {source}" for source, sequence in [*circle, circle[0]]]
    place = f"topic {topic}" if key is None else f"key {key} of topic {topic}"
    return f"on {place} nodes delivered " + ", ".join(f"{one} before {other}" for one, other in pairwise(names))


def pairs_of(history: Iterable[tuple[Name, bool]]) -> Iterator[tuple[Name, Name]]:
    """The deliveries of one node about a key, each with whether it is total, as pairs "this before that"."""
    last: Name | None = None
    since: list[Name] = []
    for name, is_total in history:
        if last is not None:
            yield last, name
        if is_total:
            for other in since:
                yield other, name
            last, since = name, []
        else:
            since.append(name)


def judge_total_order(
    table: pa.Table, apart: Collection[int] = (), incarnations_of_rows: npt.NDArray[np.int64] | None = None
) -> tuple[int, str | None]:
    """The number of topics and keys without a single order, and an example. Rows are those of a trace.

    Of sources that were ``apart``, in a partition, only total publications count. ``incarnations_of_rows`` gives the
    incarnation of each row, where nodes have several.
    """
    table = table.append_column(
        "history", table["node"] if incarnations_of_rows is None else pa.array(incarnations_of_rows)
    )
    rows = table.filter(pc.equal(table["event"], "deliver"))
    if "total" not in pc.unique(rows["order"].cast(pa.string())).to_pylist():
        return 0, None
    histories: dict[tuple[int, int | None], dict[int, list[tuple[Name, bool]]]] = {}
    columns = [rows[name].to_pylist() for name in ("history", "topic", "source", "sequence", "order")]
    all_keys = rows["keys"].to_pylist() if "keys" in rows.column_names else [None] * rows.num_rows
    for node, topic, source, sequence, order, keys in zip(*columns, all_keys, strict=True):
        if source in apart and order != "total":
            continue
        for key in keys or (None,):
            history = histories.setdefault((topic, key), {}).setdefault(node, [])
            history.append(((source, sequence), order == "total"))
    circles: list[str] = []
    for (topic, key), nodes in histories.items():
        circle = circle_in({pair for history in nodes.values() for pair in pairs_of(history)})
        if circle:
            circles.append(circle_text(topic, key, circle))
    return len(circles), min(circles, key=len, default=None)
