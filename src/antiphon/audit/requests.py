"""The requests of the application in a trace, and their effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class RequestCounts:
    """The requests of the application in a trace, and their effects."""

    asked: Mapping[int, int]
    """The number of requested publications, by node."""
    started: Mapping[int, int]
    """The number of started publications, by node."""
    passed_over: int
    """The number of publications that their own publishers have reported as lost."""
    changes: Sequence[tuple[str, int, int]]
    """``subscribed`` or ``unsubscribed``, node and topic, in order."""


def requests_in(rows: pa.Table) -> RequestCounts:
    """The requests in the judged rows of a trace."""
    is_own = pc.equal(rows["node"], rows["source"])
    asked = rows.filter(pc.equal(rows["event"], "publish"))
    changes = rows.filter(pc.is_in(rows["event"], pa.array(["subscribed", "unsubscribed"])))
    return RequestCounts(
        Counter(asked["node"].to_pylist()),
        Counter(starts_in(rows)["node"].to_pylist()),
        pc.sum(pc.and_(pc.equal(rows["event"], "lost"), is_own)).as_py() or 0,
        list(zip(*(changes[name].to_pylist() for name in ("event", "node", "topic")), strict=True)),
    )


def starts_in(table: pa.Table) -> pa.Table:
    """The rows in which publications start: the first delivery of each is at its own source."""
    return table.filter(pc.and_(pc.equal(table["event"], "deliver"), pc.equal(table["node"], table["source"])))
