"""The lives of nodes in a trace: who crashed, left, joined and came back.

A node that comes back has lost its memory, unless the fabric remembers: it is a new process, and is owed nothing of
what its earlier lives were owed (thesis of M. Matos, section 2.1). So a judge looks at *lanes*: what one process saw,
or several that remember one another. The lane of a node's first life has the number of the node; each further one has
a number that is larger by ``stride``. A lane that ends unsubscribes from everything. Where nodes remember, a crash with
a return ends no lane: the node is owed all that was published while it was away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

STARTS = ("join", "restart")
"""How a life begins that does not begin with the run."""

ENDS = ("crash", "leave")
"""How a life ends."""

Places = npt.NDArray[np.int64]

EVENT = ("event", "node", "topic", "source", "sequence")
"""What of a row says which life it is about."""


@dataclass(frozen=True)
class Lives:
    """Who lived when."""

    stride: int
    """By how much the numbers of two lanes of a node differ."""
    ends: frozenset[int]
    """The rows in which lanes end."""
    mortal: frozenset[int]
    """The nodes that did not live to the end of the run, or not without losing their memory."""
    changing: frozenset[int]
    """All nodes that crashed, left, joined or came back."""

    def node(self, lane: int) -> int:
        """Whose lane it is."""
        return lane % self.stride


def lives_in(table: pa.Table, remembers: bool) -> Lives:
    """What the rows of a trace say about the lives of nodes."""
    highest = pc.max(pc.max_element_wise(table["node"], table["source"])).as_py()
    events = table["event"].cast(pa.string())
    places = np.flatnonzero(pc.is_in(events, pa.array([*STARTS, *ENDS])).to_numpy(zero_copy_only=False))
    rows = list(
        zip(
            places.tolist(),
            events.take(pa.array(places)).to_pylist(),
            table["node"].take(pa.array(places)).to_pylist(),
            strict=True,
        )
    )
    ends: dict[int, list[tuple[int, str]]] = {}
    last: dict[int, str] = {}
    for place, event, node in rows:
        last[node] = event
        if event in ENDS:
            ends.setdefault(node, []).append((place, event))
    if remembers:
        # A crash is the end only for a node that does not come back. Who leaves takes nothing along.
        final = {node: [end for end in found if end[1] == "leave"] for node, found in ends.items()}
        for node, found in ends.items():
            if last[node] == "crash":
                final[node].append(found[-1])
        ends = {node: found for node, found in final.items() if found}
    return Lives(
        (highest or 0) + 1,
        frozenset(place for found in ends.values() for place, _ in found),
        frozenset(ends),
        frozenset(last),
    )


def lanes_of(table: pa.Table, lives: Lives) -> Places:
    """The lane of each row; the row in which one ends belongs to it."""
    nodes: Places = table["node"].to_numpy().astype(np.int64)
    if not lives.ends:
        return nodes
    ended = np.zeros(len(nodes), np.int64)
    ended[sorted(lives.ends)] = 1
    by_node = np.argsort(nodes, kind="stable")
    before = np.cumsum(ended[by_node]) - ended[by_node]
    grouped = nodes[by_node]
    first = np.searchsorted(grouped, grouped)
    lanes = nodes.copy()
    lanes[by_node] += lives.stride * (before - before[first])
    return lanes


def without_unshown(table: pa.Table) -> pa.Table:
    """The same as if what was not shown had not been delivered then; it may have been later."""
    events = table["event"].cast(pa.string())
    unshown = table.filter(pc.equal(events, "unshown"))
    if unshown.num_rows == 0:
        return table
    names = ("node", "topic", "source", "sequence")
    left: dict[tuple[int, ...], int] = {}
    for delivery in zip(*(unshown[name].to_pylist() for name in names), strict=True):
        left[delivery] = left.get(delivery, 0) + 1
    kept = []
    for event, *rest in zip(events.to_pylist(), *(table[name].to_pylist() for name in names), strict=True):
        delivery = tuple(rest)
        is_gone = event == "deliver" and left.get(delivery, 0) > 0
        if is_gone:
            left[delivery] -= 1
        kept.append(not is_gone and event != "unshown")
    return table.filter(pa.array(kept))


def separate_incarnations(rows: pa.Table) -> pa.Table:
    """The same where each life of a node is a node and a source of its own, which counts its publications from 1.

    For nodes that return and publish on under their number. No two lives of a node use the same number on a topic, so
    each publication belongs to the life that published it.
    """
    listed = list(zip(*(rows[name].to_pylist() for name in EVENT), strict=True))
    lived = lives_of_rows(listed)
    publisher, unsaid = publishers_in(listed, lived)
    used: dict[int, int] = {}
    for (_, _, sequence), name in publisher.items():
        used[name] = min(sequence - 1, used.get(name, sequence - 1))
    sources: list[int | None] = []
    numbers: list[int | None] = []
    for (event, node, topic, source, sequence), lane in zip(listed, lived, strict=True):
        asked = event == "publish"
        life_of = publisher.get((node if asked else source, topic or 0, sequence))
        if asked and (lane, topic or 0, sequence) in unsaid:
            sources.append(source if source is None else lane)
            numbers.append(sequence)
        elif life_of is None or event not in ("publish", "deliver", "lost"):
            sources.append(source)
            numbers.append(sequence)
        else:
            sources.append(source if source is None else life_of)
            numbers.append(sequence - used[life_of])
    for column, values in (("node", lived), ("source", sources), ("sequence", numbers)):
        place = rows.column_names.index(column)
        rows = rows.set_column(place, column, pa.array(values, rows.schema.field(column).type))
    return rows


def lives_of_rows(listed: list[tuple[Any, ...]]) -> list[int]:
    """For each row the number of the life of its node."""
    stride = 1 + max((max(node, source or 0) for _, node, _, source, _ in listed), default=0)
    life: dict[int, int] = {}
    lived: list[int] = []
    for event, node, *_ in listed:
        if event in STARTS:
            life[node] = life.get(node, 0) + 1 if node in life else 0
        lived.append(node + stride * life.setdefault(node, 0))
    return lived


def publishers_in(
    listed: list[tuple[Any, ...]], lived: list[int]
) -> tuple[dict[tuple[int, int, int], int], set[tuple[int, int, int]]]:
    """By node, topic and number the life that published it; and by life, topic and number what was never let out."""
    publisher: dict[tuple[int, int, int], int] = {}
    unsaid: set[tuple[int, int, int]] = set()
    delivered: set[tuple[int, int, int]] = set()
    for (event, node, topic, source, sequence), lane in zip(listed, lived, strict=True):
        if event == "publish":
            name = (node, topic or 0, sequence)
            if name in publisher and name not in delivered:
                # An earlier life was asked for it, and crashed before its number was on disk and it was let out.
                unsaid.add((publisher[name], topic or 0, sequence))
            publisher[name] = lane
        elif event == "deliver":
            delivered.add((source, topic or 0, sequence))
            if source == node:
                # Of what an earlier life has published, a later one of the same node is told by others.
                publisher.setdefault((node, topic or 0, sequence), lane)
    return publisher, unsaid


def is_first_delivery(rows: pa.Table, nodes: Places) -> npt.NDArray[np.bool_]:
    """For each row, whether it is a delivery that no earlier life of its node had; ``nodes`` are those of the rows.

    A crash may take away that something was delivered; the next life delivers it again, and the first time counts.
    """
    found = np.zeros(len(rows), np.bool_)
    had: set[tuple[int, ...]] = set()
    columns = (rows[name].to_pylist() for name in ("event", "topic", "source", "sequence"))
    for place, (node, event, *name) in enumerate(zip(nodes.tolist(), *columns, strict=True)):
        delivery = (node, *name)
        if event == "deliver" and delivery not in had:
            had.add(delivery)
            found[place] = True
    return found
