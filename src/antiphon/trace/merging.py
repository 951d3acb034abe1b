"""Merges the traces of several nodes into one history.

Every node writes a trace of its own, in the order of its events. One history is needed to judge them all, and it must
respect what is certain: the rows of one node keep their order, and no node delivers a publication before its publisher
does, or, if it is total, before its publisher has requested it. Beyond that rows are sorted by time, which is right
where the nodes share a clock. Where the clocks of machines disagree, rows that would come too early are held back until
their publisher's row has come; if no order satisfies all rows, the nodes did something impossible: the rows are sorted
by time, and the judge reports it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.kernel.errors import UsageError
from antiphon.trace.schema import COLUMNS, KEYS, ORDER, PEER, VALUE
from antiphon.trace.store import about_trace

Rows = npt.NDArray[np.int64]
Identity = tuple[int, int, int]
"""Topic, source and number of a publication."""

NOWHERE = -1


def merge_traces(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge traces into one. A single one is left as it is: its rows are in order."""
    if not tables:
        raise UsageError("no trace is named; name at least one")
    if len(tables) == 1:
        return tables[0]
    check_origin(tables)
    has_keys = all(KEYS in table.column_names for table in tables)
    has_values = all(VALUE in table.column_names for table in tables)
    more = [KEYS] if has_keys else []
    more += [VALUE] if has_values else []
    more += [PEER] if all(PEER in table.column_names for table in tables) else []
    columns = ["time", *COLUMNS, ORDER, *more]
    plain = [table.select(columns).set_column(1, "event", table["event"].cast(pa.string())) for table in tables]
    orders = [table.set_column(len(COLUMNS) + 1, ORDER, table[ORDER].cast(pa.string())) for table in plain]
    whole = pa.concat_tables(orders)
    files = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    by_time = np.argsort(numbers(whole, "time"), kind="stable")
    merged = whole.take(pa.array(by_time))
    if has_early_rows(merged):
        careful = held_back(merged, files[by_time])
        merged = merged.take(pa.array(careful))
    return merged


def check_origin(tables: Sequence[pa.Table]) -> None:
    """Refuse traces that cannot be of one run."""
    for table in tables:
        if about_trace(table).get("host") != "live":
            raise UsageError("only traces of live nodes are parts of one run; audit simulated runs one by one")
    lives: dict[int, list[tuple[int, int]]] = {}
    for table in tables:
        if table.num_rows == 0:
            continue
        span = (pc.min(table["time"]).as_py(), pc.max(table["time"]).as_py())
        for node in sorted(pc.unique(table["node"]).to_pylist()):
            # A node that restarted under its number has a trace for each incarnation, one after the other.
            if any(span[0] <= end and begin <= span[1] for begin, end in lives.setdefault(node, [])):
                raise UsageError(f"node {node} is in two traces; give the traces of one run, and each of them once")
            lives[node].append(span)


def numbers(table: pa.Table, name: str) -> Rows:
    """A column of integers, with -1 for null."""
    found: Rows = pc.fill_null(table[name].cast(pa.int64()), NOWHERE).to_numpy()
    return found


def has_early_rows(table: pa.Table) -> bool:
    """Whether a node delivers a publication before its publisher, whose delivery is in the table too."""
    # A total publication may reach its publisher later than other nodes.
    is_total = pc.fill_null(pc.equal(table[ORDER], "total"), False)
    awaited = pc.and_not(pc.equal(table["event"], "deliver"), is_total)
    places = np.flatnonzero(awaited.to_numpy(zero_copy_only=False))
    if len(places) == 0:
        return False
    node, source, topic, sequence = (numbers(table, name)[places] for name in ("node", "source", "topic", "sequence"))
    grouped = np.lexsort((places, sequence, source, topic))
    node, source, topic, sequence = (column[grouped] for column in (node, source, topic, sequence))
    begins = np.ones(len(grouped), np.bool_)
    begins[1:] = (np.diff(topic) != 0) | (np.diff(source) != 0) | (np.diff(sequence) != 0)
    is_own = node == source
    group = np.cumsum(begins) - 1
    has_own = np.zeros(group[-1] + 1, np.bool_)
    has_own[group[is_own]] = True
    return bool(np.any(has_own & ~is_own[begins]))


def held_back(table: pa.Table, files: Rows) -> Rows:
    """An order of the rows in which no delivery precedes its publication, if there is one; close to their times."""
    names = ("time", "source", "topic", "sequence")
    times, sources, topics, sequences = (numbers(table, name).tolist() for name in names)
    is_delivery = pc.equal(table["event"], "deliver").to_pylist()
    identities: list[Identity] = list(zip(topics, sources, sequences, strict=True))
    is_birth = births(table)
    unborn = {identity for identity, is_born in zip(identities, is_birth, strict=True) if is_born}
    queues = [np.flatnonzero(files == file).tolist()[::-1] for file in range(int(files.max()) + 1)]
    heads = [(times[queue[-1]], file) for file, queue in enumerate(queues) if queue]
    heapq.heapify(heads)
    waiting: dict[Identity, list[int]] = {}
    order: list[int] = []
    while heads or waiting:
        if not heads:
            heads = [impossible_row(waiting, queues, times, unborn)]
        _, file = heapq.heappop(heads)
        row = queues[file][-1]
        identity = identities[row]
        if is_delivery[row] and not is_birth[row] and identity in unborn:
            waiting.setdefault(identity, []).append(file)
            continue
        order.append(queues[file].pop())
        released = [file]
        if is_birth[row]:
            unborn.discard(identity)
            released += waiting.pop(identity, [])
        for each in released:
            if queues[each]:
                heapq.heappush(heads, (times[queues[each][-1]], each))
    return np.array(order, np.int64)


def births(table: pa.Table) -> list[bool]:
    """The rows with which publications begin: the publisher's own delivery, or its request for a total one."""
    is_own = pc.equal(table["node"], table["source"])
    is_total = pc.fill_null(pc.equal(table[ORDER], "total"), False)
    is_wish = pc.and_(pc.equal(table["event"], "publish"), is_total)
    is_own_delivery = pc.and_not(pc.and_(pc.equal(table["event"], "deliver"), is_own), is_total)
    found: list[bool] = pc.fill_null(pc.or_(is_wish, is_own_delivery), False).to_pylist()
    return found


def impossible_row(
    waiting: dict[Identity, list[int]], queues: list[list[int]], times: list[int], unborn: set[Identity]
) -> tuple[int, int]:
    """All rows wait for each other: let the earliest continue as if its publication had started."""
    time, file, identity = min(
        (times[queues[file][-1]], file, identity) for identity, files in waiting.items() for file in files
    )
    waiting[identity].remove(file)
    if not waiting[identity]:
        del waiting[identity]
    unborn.discard(identity)
    return time, file
