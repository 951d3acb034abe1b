"""Judging runs in which nodes crash, restart, join and leave.

A node that comes back has lost its memory: it is a new process, and is owed nothing of what its earlier lives were
owed (thesis of M. Matos, section 2.1). So the oracle, which knows nodes that stay, is shown each life of a node as a
node of its own, and a life that ends as one that unsubscribes from everything. Where nodes remember, a crash with a
return is no end: the node is owed all that was published while it was away.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.simulator.protocols import PROTOCOLS
from antiphon.simulator.scenario import CrashFault, LeaveFault, RestartFault, Scenario
from antiphon.simulator.workload import plan
from antiphon.trace.oracle import COLUMNS, EVENTS, KEYS, ORDER, evidence

ENDS = ("crash", "leave")
"""How a life ends."""


def crashing_nodes(scenario: Scenario) -> set[int]:
    """The nodes that do not live from the start to the end of a run, or only with a pause."""
    mortal = (CrashFault, LeaveFault)
    failing = set(scenario.absent_at_start())
    for fault in scenario.faults:
        if isinstance(fault, mortal):
            failing.update(fault.targets(scenario.nodes))
    return failing


def failing_nodes(scenario: Scenario) -> set[int]:
    """Those of them that are not owed everything: where nodes remember, who does not come back."""
    failing = crashing_nodes(scenario)
    if not PROTOCOLS[scenario.protocol].remembers:
        return failing
    failing -= set(scenario.absent_at_start())
    for _, fault in scenario.faults_by_time():
        if isinstance(fault, CrashFault):
            failing.update(fault.targets(scenario.nodes))
        elif isinstance(fault, RestartFault):
            failing.difference_update(fault.targets(scenario.nodes))
    return failing


def changes_lives(scenario: Scenario) -> bool:
    """Whether nodes crash, restart, join or leave."""
    return len(crashing_nodes(scenario)) > 0


def failing_publisher(scenario: Scenario) -> int | None:
    """A node that publishes and does not live through the whole run; a publication of it may die with it."""
    failing = failing_nodes(scenario)
    for planned in plan(scenario):
        if planned.node in failing:
            return planned.node
    return None


def evidence_of_lives(batch: pa.Table) -> pa.Table:
    """What the oracle needs of a trace, and the ends of lives, in the same columns."""
    events = batch["event"].cast(pa.string())
    ends = batch.filter(pc.is_in(events, pa.array(ENDS)))
    if ends.num_rows == 0:
        return evidence(batch)
    kept = batch.filter(pc.is_in(events, pa.array([*EVENTS, *ENDS])))
    orders = kept[ORDER].cast(pa.string())
    rows = kept.select(COLUMNS)
    rows = rows.set_column(0, "event", kept["event"].cast(pa.string())).append_column(ORDER, orders)
    return rows.append_column(KEYS, kept[KEYS])


def separate_lives(table: pa.Table, node_count: int, remembering: set[int] | None = None) -> pa.Table:
    """The same with each life of a node as a node of its own, which unsubscribes from everything when it ends.

    Where nodes remember, ``remembering`` are those that do not fail for good, and only the last crash of others ends a
    life. Whoever comes back says again that it is subscribed.
    """
    rows: list[dict[str, object]] = []
    lives: dict[int, int] = {}
    topics_of: dict[int, dict[int, None]] = {}
    listed = table.to_pylist()
    last_ends = {row["node"]: place for place, row in enumerate(listed) if row["event"] in ENDS}
    for place, row in enumerate(listed):
        node = row["node"]
        event = row["event"]
        if remembering is not None:
            if event in ENDS and (node in remembering or last_ends[node] != place):
                continue
            if event == "subscribed" and row["topic"] in topics_of.get(node, {}):
                continue
        if event in ENDS:
            end = {**dict.fromkeys(table.column_names), "event": "unsubscribed", "source": 0, "sequence": 0}
            end["node"] = node + node_count * lives.get(node, 0)
            rows += [{**end, "topic": topic} for topic in topics_of.pop(node, {})]
            lives[node] = lives.get(node, 0) + 1
            continue
        if event == "subscribed":
            topics_of.setdefault(node, {})[row["topic"]] = None
        elif event == "unsubscribed":
            topics_of.get(node, {}).pop(row["topic"], None)
        rows.append({**row, "node": node + node_count * lives.get(node, 0)})
    return pa.Table.from_pylist(rows, schema=table.schema)
