"""Reads the files of all nodes of a run as one history, and notes what is not known.

A killed node leaves a trace without its end: the rows of its last moments were lost with the process. Nothing that it
did then counts as a violation. Its incarnation ends after its last row. A publication of it that others delivered, and
that is missing in its rows, counts as published after that, in the order of its numbers: it follows at least what the
node had delivered before. Live nodes report losses by batch number, and the rows of the publisher give the messages of
a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.kernel.errors import PeerError
from antiphon.trace.contract import PROMISED
from antiphon.trace.merging import merge_traces
from antiphon.trace.store import PARTIAL, about_trace, read_trace

Row = dict[str, Any]
Stream = tuple[int, int]
"""Topic and source."""


@dataclass(frozen=True)
class Evidence:
    """One history, the metadata of the first file, and what is not known."""

    table: pa.Table
    about: Mapping[str, Any]
    unjudged: list[str] = field(default_factory=list)
    """The parts that could not be judged, in sentences."""


def read_evidence(files: Sequence[Path]) -> Evidence:
    """Read and merge the files of a run."""
    tables, unjudged = [], []
    for file in files:
        try:
            table = read_trace(file)
            about_trace(table)
        except PeerError:
            if file.suffix != PARTIAL:
                raise
            unjudged.append(f"{file} is empty: its node was killed before it wrote anything.")
            continue
        tables.append(table)
    killed = {node for table in tables for node in killed_in(table)}
    table = merge_traces(tables)
    about = about_trace(tables[0])
    if is_told_by_batches(table):
        table = losses_by_message(table, unjudged)
    if killed:
        table = with_ends(table, killed, unjudged)
    return Evidence(table, about, unjudged)


def killed_in(table: pa.Table) -> set[int]:
    """The node of a live trace without an end."""
    about = about_trace(table)
    if about.get("host") != "live" or PROMISED not in about or table.num_rows == 0:
        return set()
    has_end = pc.any(pc.is_in(table["event"].cast(pa.string()), pa.array(["end", "crash"]))).as_py()
    return set() if has_end else {table["node"][-1].as_py()}


def is_told_by_batches(table: pa.Table) -> bool:
    """Whether a loss was reported by batch number."""
    if "value" not in table.column_names:
        return False
    is_loss = pc.equal(table["event"].cast(pa.string()), "lost")
    return bool(pc.any(pc.and_(is_loss, pc.fill_null(pc.equal(table["value"], 1), False))).as_py())


def losses_by_message(table: pa.Table, unjudged: list[str]) -> pa.Table:
    """The table with a row for each message of a lost batch."""
    rows: list[Row] = table.to_pylist()
    begins: dict[Stream, dict[int, int]] = {}
    numbers: dict[Stream, set[int]] = {}
    delivered: dict[tuple[int, Stream], set[int]] = {}
    for row in rows:
        if row["event"] not in ("batch", "publish", "deliver"):
            continue
        stream = (row["topic"], row["source"])
        if row["event"] == "batch":
            begins.setdefault(stream, {})[row["value"]] = row["sequence"]
            continue
        numbers.setdefault(stream, set()).add(row["sequence"])
        if row["event"] == "deliver":
            delivered.setdefault((row["node"], stream), set()).add(row["sequence"])
    found: list[Row] = []
    unknown = 0
    for row in rows:
        if row["event"] != "lost" or row["value"] != 1:
            found.append(row)
            continue
        stream = (row["topic"], row["source"])
        known = begins.get(stream, {})
        lost = messages_of(known, row["sequence"], numbers.get(stream, set()))
        if lost is None:
            # The publisher's trace does not list these messages, so no message that this node misses counts against it.
            unknown += 1
            after = max(known.values(), default=0)
            had = delivered.get((row["node"], stream), set())
            lost = [number for number in sorted(numbers.get(stream, ())) if number > after and number not in had]
        found += [{**row, "sequence": number, "value": 0} for number in lost]
    if unknown:
        unjudged.append(
            f"{unknown} reported batches are not listed in the traces of their publishers; whether their messages "
            "had to arrive is not judged."
        )
    return pa.Table.from_pylist(found, schema=table.schema)


def messages_of(begins: Mapping[int, int], batch: int, numbers: set[int]) -> list[int] | None:
    """The numbers of the messages of a batch; None if the rows of its publisher do not name it."""
    if batch not in begins:
        return None
    first = begins[batch]
    later = [begin for begin in begins.values() if begin > first]
    end = min(later, default=max(numbers, default=first) + 1)
    return list(range(first, end))


def with_ends(table: pa.Table, killed: set[int], unjudged: list[str]) -> pa.Table:
    """The table with the ends of killed nodes, and with the publications that they must have made before."""
    rows: list[Row] = table.to_pylist()
    own = {
        (row["topic"], row["source"], row["sequence"])
        for row in rows
        if row["node"] == row["source"] and (row["event"] == "deliver" or is_wish(row))
    }
    unseen: dict[Stream, set[int]] = {}
    last: dict[int, int] = dict.fromkeys(killed, 0)
    for place, row in enumerate(rows):
        if row["node"] in killed:
            last[row["node"]] = place
        if row["event"] == "deliver" and row["source"] in killed:
            name = (row["topic"], row["source"], row["sequence"])
            if name not in own:
                unseen.setdefault(name[:2], set()).add(row["sequence"])
    counts = {node: sum(len(found) for stream, found in unseen.items() if stream[1] == node) for node in killed}
    found: list[Row] = []
    for place, row in enumerate(rows):
        if row["event"] == "deliver" and row["sequence"] in unseen.get((row["topic"], row["source"]), ()):
            left = unseen[row["topic"], row["source"]]
            earlier = sorted(number for number in left if number <= row["sequence"])
            found += starts_of(row, earlier)
            left.difference_update(earlier)
            last[row["source"]] = max(last[row["source"]], place)
        found.append({**row, "place": place})
    ended: list[Row] = []
    for row in found:
        place = row.pop("place", None)
        ended.append(row)
        for node in [node for node in sorted(killed) if last[node] == place]:
            blank = dict.fromkeys(table.column_names)
            ended.append({**blank, "time": row["time"], "event": "crash", "node": node})
    unjudged += [
        f"Node {node} was killed, or still runs: the rows after its last one are missing, and "
        f"{counts[node]} of its messages are known only from other nodes."
        for node in sorted(killed)
    ]
    return pa.Table.from_pylist(ended, schema=table.schema)


def is_wish(row: Row) -> bool:
    """Whether a row is the request with which a total publication begins."""
    return bool(row["event"] == "publish" and row["order"] == "total")


def starts_of(row: Row, numbers: Sequence[int]) -> list[Row]:
    """The rows of a publisher that were lost with it: it is a member, and publishes."""
    here = {**row, "node": row["source"]}
    is_total = row["order"] == "total"
    member = {**here, "event": "subscribed", "sequence": 0, "order": None}
    if "keys" in row:
        member["keys"] = None
    start = {**here, "event": "publish" if is_total else "deliver"}
    return [member, *({**start, "sequence": number} for number in numbers)]
