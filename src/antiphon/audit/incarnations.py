"""The incarnations of nodes in a trace: which nodes crashed, left, joined and restarted.

A restarted node has lost its memory, unless the fabric remembers: it is a new process, and need not receive what its
earlier incarnations should have received (thesis of M. Matos, section 2.1). So a judge looks at *incarnations*: one
process, or several that remember one another. The first incarnation has the number of its node; each further one has a
number that is larger by ``stride``. An incarnation that ends unsubscribes from everything. Where nodes remember, a
crash with a restart ends no incarnation: the node must receive everything that was published meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

STARTS = ("join", "restart")
"""Events with which an incarnation begins after the start of the run."""

ENDS = ("crash", "leave")
"""Events with which an incarnation ends."""

Places = npt.NDArray[np.int64]

EVENT = ("event", "node", "topic", "source", "sequence")
"""The columns of a row that decide its incarnation."""


@dataclass(frozen=True)
class Incarnations:
    """The incarnations of all nodes."""

    stride: int
    """The difference between the numbers of two incarnations of a node."""
    ends: frozenset[int]
    """The rows in which incarnations end."""
    mortal: frozenset[int]
    """The nodes that were not up to the end of the run, or lost their memory."""
    changing: frozenset[int]
    """All nodes that crashed, left, joined or restarted."""

    def node(self, incarnation: int) -> int:
        """The node of an incarnation."""
        return incarnation % self.stride


def incarnations_in(table: pa.Table, remembers: bool) -> Incarnations:
    """The incarnations in the rows of a trace."""
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
        # A crash is an end only for a node that does not restart. A leave loses nothing.
        final = {node: [end for end in found if end[1] == "leave"] for node, found in ends.items()}
        for node, found in ends.items():
            if last[node] == "crash":
                final[node].append(found[-1])
        ends = {node: found for node, found in final.items() if found}
    return Incarnations(
        (highest or 0) + 1,
        frozenset(place for found in ends.values() for place, _ in found),
        frozenset(ends),
        frozenset(last),
    )


def incarnations_of(table: pa.Table, incarnations: Incarnations) -> Places:
    """The incarnation of each row; the row in which one ends belongs to it."""
    nodes: Places = table["node"].to_numpy().astype(np.int64)
    if not incarnations.ends:
        return nodes
    ended = np.zeros(len(nodes), np.int64)
    ended[sorted(incarnations.ends)] = 1
    by_node = np.argsort(nodes, kind="stable")
    before = np.cumsum(ended[by_node]) - ended[by_node]
    grouped = nodes[by_node]
    first = np.searchsorted(grouped, grouped)
    found = nodes.copy()
    found[by_node] += incarnations.stride * (before - before[first])
    return found


def without_unshown(table: pa.Table) -> pa.Table:
    """The table without deliveries that were never shown; they may have happened again later."""
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
    """The table in which each incarnation is a node and a source of its own, with publications numbered from 1.

    For nodes that restart and continue to publish under their number. No two incarnations of a node use the same number
    on a topic, so each publication belongs to the incarnation that published it.
    """
    listed = list(zip(*(rows[name].to_pylist() for name in EVENT), strict=True))
    lived = incarnation_numbers(listed)
    publisher, unsaid = publishers_in(listed, lived)
    used: dict[int, int] = {}
    for (_, _, sequence), name in publisher.items():
        used[name] = min(sequence - 1, used.get(name, sequence - 1))
    sources: list[int | None] = []
    numbers: list[int | None] = []
    for (event, node, topic, source, sequence), incarnation in zip(listed, lived, strict=True):
        asked = event == "publish"
        life_of = publisher.get((node if asked else source, topic or 0, sequence))
        if asked and (incarnation, topic or 0, sequence) in unsaid:
            sources.append(source if source is None else incarnation)
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


def incarnation_numbers(listed: list[tuple[Any, ...]]) -> list[int]:
    """For each row the number of the incarnation of its node."""
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
    """By node, topic and number, the incarnation that published it; and by incarnation, topic and number, unsent
    publications.
    """
    publisher: dict[tuple[int, int, int], int] = {}
    unsaid: set[tuple[int, int, int]] = set()
    delivered: set[tuple[int, int, int]] = set()
    for (event, node, topic, source, sequence), incarnation in zip(listed, lived, strict=True):
        if event == "publish":
            name = (node, topic or 0, sequence)
            if name in publisher and name not in delivered:
                # An earlier incarnation was asked for it, and crashed before its number was on disk and it was sent.
                unsaid.add((publisher[name], topic or 0, sequence))
            publisher[name] = incarnation
        elif event == "deliver":
            delivered.add((source, topic or 0, sequence))
            if source == node:
                # A later incarnation receives the publications of earlier ones from other nodes.
                publisher.setdefault((node, topic or 0, sequence), incarnation)
    return publisher, unsaid


def is_first_delivery(rows: pa.Table, nodes: Places) -> npt.NDArray[np.bool_]:
    """For each row, whether it is a delivery that no earlier incarnation of its node had; ``nodes`` are those of the
    rows.

    A crash may lose the record of a delivery; the next incarnation delivers it again, and the first time counts.
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
