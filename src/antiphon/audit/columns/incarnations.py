"""Incarnations of nodes in traces of any size: which rows belong to which incarnation, and what ends with one.

The definitions are those of the judge of small traces (:mod:`antiphon.audit.incarnations`); the implementation is
independent, and tests compare every verdict. Rows about incarnations are few, so they are handled one by one; all
others get the number of their incarnation by columns, or on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.columns.histories import (
    DELIVER,
    LOST,
    PUBLISH,
    SUBSCRIBED,
    UNSUBSCRIBED,
    Flags,
    Integers,
    Rows,
    rows_of_table,
)
from antiphon.audit.incarnations import ENDS, STARTS

CHANGES = (*STARTS, *ENDS)


NAMES = ("node", "topic", "source", "sequence")


@dataclass(frozen=True)
class IncarnationSpans:
    """The positions at which incarnations end, and the affected nodes."""

    stride: int
    ends: tuple[tuple[int, int], ...] = ()
    """Nodes and positions, sorted by position."""
    changing: frozenset[int] = frozenset()

    @property
    def mortal(self) -> frozenset[int]:
        """The nodes that have lost their memory, or are gone."""
        return frozenset(node for node, _ in self.ends)


def incarnation_spans(changes: Iterable[tuple[int, str, int]], remembers: bool, highest: int) -> IncarnationSpans:
    """Make spans from the rows about incarnations: position, event and node. ``highest`` is the largest node number."""
    by_node: dict[int, list[tuple[int, str]]] = {}
    for position, event, node in sorted(changes):
        by_node.setdefault(node, []).append((position, event))
    ends = []
    for node, rows in by_node.items():
        for place, (position, event) in enumerate(rows):
            returns = any(later in STARTS for _, later in rows[place + 1 :])
            if event == "leave" or (event == "crash" and not (remembers and returns)):
                ends.append((node, position))
    return IncarnationSpans(highest + 1, tuple(sorted(ends, key=lambda end: end[1])), frozenset(by_node))


def spans_in_table(table: pa.Table, remembers: bool) -> IncarnationSpans:
    """The spans of a table, where positions are row numbers."""
    events = table["event"].cast(pa.string())
    places = np.flatnonzero(pc.is_in(events, pa.array(CHANGES)).to_numpy(zero_copy_only=False))
    taken = pa.array(places)
    found = zip(places.tolist(), events.take(taken).to_pylist(), table["node"].take(taken).to_pylist(), strict=True)
    highest = max((pc.max(table[name]).as_py() or 0 for name in ("node", "source")), default=0)
    return incarnation_spans(found, remembers, highest)


def rows_by_incarnation(table: pa.Table, everybody: int, spans: IncarnationSpans) -> Rows:
    """The judged rows of a trace, with incarnations as nodes."""
    rows = rows_of_table(table, everybody)
    events = table["event"].cast(pa.string())
    unshown = table.filter(pc.equal(events, "unshown"))
    if unshown.num_rows:
        rows = rows.taken(~is_unshown(rows, unshown))
    return by_incarnation(rows, spans)


def is_unshown(rows: Rows, unshown: pa.Table) -> Flags:
    """The first deliveries that were not shown, as many of each as there are ``unshown`` rows about it."""
    gone = np.zeros(len(rows), np.bool_)
    names = list(zip(*(unshown[name].to_pylist() for name in NAMES), strict=True))
    for node, topic, source, sequence in dict.fromkeys(names):
        same = (rows.event == DELIVER) & (rows.node == node) & (rows.topic == topic)
        same &= (rows.source == source) & (rows.sequence == sequence)
        gone[np.flatnonzero(same)[: names.count((node, topic, source, sequence))]] = True
    return gone


def by_incarnation(rows: Rows, spans: IncarnationSpans) -> Rows:
    """The rows with incarnations as nodes; an incarnation that ends unsubscribes from everything."""
    if not spans.ends:
        return rows
    incarnations = rows.node.copy()
    closing: list[tuple[int, int, int]] = []
    life: dict[int, int] = {}
    for node, position in spans.ends:
        here = rows.node == node
        life[node] = life.get(node, 0) + 1
        incarnations[here & (rows.position > position)] = node + spans.stride * life[node]
        incarnation = node + spans.stride * (life[node] - 1)
        subscribed = here & (incarnations == incarnation) & (rows.event == SUBSCRIBED) & (rows.position < position)
        closing += [(int(topic), incarnation, position) for topic in np.unique(rows.topic[subscribed])]
    topic, incarnation_of, position_of = np.array(closing, np.int64).reshape(-1, 3).T
    nothing = np.zeros(len(topic), np.int64)
    return Rows(
        np.append(rows.topic, topic),
        np.append(incarnations, incarnation_of),
        np.append(rows.source, incarnation_of % spans.stride),
        np.append(rows.sequence, nothing),
        np.append(rows.event, nothing + UNSUBSCRIBED),
        np.append(rows.order, nothing - 1),
        np.append(rows.position, position_of),
        np.append(rows.judged, nothing == 0),
    )  # fmt: skip


def own_incarnations(rows: Rows, stride: int) -> Rows:
    """The rows with the incarnation of the publisher, in which a publication started, as its source."""
    later = np.unique(rows.node[rows.node >= stride] % stride) if stride else np.zeros(0, np.int64)
    about = (rows.event == PUBLISH) | (rows.event == DELIVER) | (rows.event == LOST)
    places = np.flatnonzero(about & np.isin(rows.source, later))
    if len(places) == 0:
        return rows
    places = places[np.argsort(rows.position[places], kind="stable")]
    names = np.stack([rows.topic[places], rows.source[places], rows.sequence[places]], axis=1)
    _, numbers = np.unique(names, axis=0, return_inverse=True)
    own = (rows.node[places] % stride == rows.source[places]) & (rows.event[places] != LOST)
    incarnation: Integers = np.full(int(numbers.max()) + 1, -1, np.int64)
    # The first of several wins: it is written last.
    incarnation[numbers[own][::-1]] = rows.node[places][own][::-1]
    source = rows.source.copy()
    source[places] = np.where(incarnation[numbers] >= 0, incarnation[numbers], rows.source[places])
    return Rows(
        rows.topic, rows.node, source, rows.sequence, rows.event, rows.order, rows.position, rows.judged
    )  # fmt: skip
