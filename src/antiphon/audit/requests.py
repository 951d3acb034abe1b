"""What a trace says about what the application asked for, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Requests:
    """What a trace says about what the application asked for, and what came of it."""

    asked: Mapping[int, int]
    """How many publications each node was asked for."""
    started: Mapping[int, int]
    """How many of each have started."""
    passed_over: int
    """How many their own publishers have said to be lost."""
    changes: Sequence[tuple[str, int, int]]
    """``subscribed`` or ``unsubscribed``, node and topic, one after the other."""


def requests_in(rows: pa.Table) -> Requests:
    """The same from the rows of a trace that are judged."""
    is_own = pc.equal(rows["node"], rows["source"])
    asked = rows.filter(pc.equal(rows["event"], "publish"))
    changes = rows.filter(pc.is_in(rows["event"], pa.array(["subscribed", "unsubscribed"])))
    return Requests(
        Counter(asked["node"].to_pylist()),
        Counter(starts_in(rows)["node"].to_pylist()),
        pc.sum(pc.and_(pc.equal(rows["event"], "lost"), is_own)).as_py() or 0,
        list(zip(*(changes[name].to_pylist() for name in ("event", "node", "topic")), strict=True)),
    )


def starts_in(table: pa.Table) -> pa.Table:
    """The rows in which publications start: each is delivered by its own source first."""
    return table.filter(pc.and_(pc.equal(table["event"], "deliver"), pc.equal(table["node"], table["source"])))
