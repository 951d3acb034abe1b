"""Surveys a trace before it is judged: one pass over all rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.verdict import ending_of, stuck_in


@dataclass(frozen=True)
class TraceSurvey:
    """Facts about a trace that its promises depend on."""

    orders: frozenset[str]
    """The orders of all rows."""
    silent_publishers: list[int]
    """Nodes whose publications others delivered and whose own rows are missing."""
    ending: str | None
    """Whether the run was finished or cut off, if the trace records it."""
    stuck: int
    """The unfinished work of nodes at the end."""
    losses: int
    """The number of loss reports."""
    has_unshown: bool
    """Whether disks lost deliveries before they were shown."""
    last_time: int


def survey_of(table: pa.Table) -> TraceSurvey:
    """Survey a table."""
    events = table["event"].cast("string")
    deliveries = table.filter(pc.equal(events, "deliver"))
    sources = set(pc.unique(deliveries["source"]).to_pylist())
    orders = set(pc.unique(table["order"].cast("string")).to_pylist()) if "order" in table.column_names else set()
    silent = sorted(sources - set(pc.unique(table["node"]).to_pylist()))
    return TraceSurvey(
        frozenset(orders - {None}),
        silent,
        ending_of(table),
        stuck_in(table),
        int(pc.sum(pc.equal(events, "lost")).as_py() or 0),
        bool(pc.any(pc.equal(events, "unshown")).as_py()),
        pc.max(table["time"]).as_py() or 0,
    )
