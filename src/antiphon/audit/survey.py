"""What must be known of a trace before it is judged: one look at all rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.verdict import ending_of, stuck_in


@dataclass(frozen=True)
class Survey:
    """What must be known of a trace to say what was promised."""

    orders: frozenset[str]
    """The orders that are named anywhere."""
    silent_publishers: list[int]
    """Nodes whose publications others delivered and whose own rows are not there."""
    ending: str | None
    """Whether the run was finished or cut off, if the trace says so."""
    stuck: int
    """What nodes had not finished at the end."""
    losses: int
    """How often nodes said that something is lost."""
    has_unshown: bool
    """Whether disks lost something before it was shown."""
    last_time: int


def survey_of(table: pa.Table) -> Survey:
    """What must be known of a table to say what was promised."""
    events = table["event"].cast("string")
    deliveries = table.filter(pc.equal(events, "deliver"))
    sources = set(pc.unique(deliveries["source"]).to_pylist())
    orders = set(pc.unique(table["order"].cast("string")).to_pylist()) if "order" in table.column_names else set()
    silent = sorted(sources - set(pc.unique(table["node"]).to_pylist()))
    return Survey(
        frozenset(orders - {None}),
        silent,
        ending_of(table),
        stuck_in(table),
        int(pc.sum(pc.equal(events, "lost")).as_py() or 0),
        bool(pc.any(pc.equal(events, "unshown")).as_py()),
        pc.max(table["time"]).as_py() or 0,
    )
