"""A cluster of processes that ask and answer each other, judged by the checkers of the simulator."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from antiphon.audit.auditor import audit_files
from antiphon.trace.store import read_trace
from tests.node.support import Child, child, running

NODES = 8
LENGTH = 50
"""Of a chain of questions and answers."""

MESSAGES = int(os.environ.get("ANTIPHON_END_TO_END_MESSAGES", "20000"))
"""Four of five belong to chains, the others are noise without questions."""


async def run_conversation(directory: Path, chains: int, noise: int) -> list[Path]:
    """Run the nodes until all have heard everything and have left; the traces that they wrote."""
    traces = [directory / f"node-{place}.parquet" for place in range(NODES)]
    async with AsyncExitStack() as stack:
        nodes: list[Child] = []
        for place, trace in enumerate(traces):
            what = f"converse:{place}:{NODES}:{chains}:{LENGTH}:{noise}"
            join = [f"join={nodes[place // 2].address}"] if nodes else []
            nodes.append(await stack.enter_async_context(child(what, f"trace={trace}", *join)))
        for word in ("ready", "done"):
            assert await asyncio.gather(*(node.line() for node in nodes)) == [word] * NODES
            for node in nodes:
                await node.tell("")
        for node in nodes:
            assert node.process.stdin is not None
            node.process.stdin.close()
        assert await asyncio.gather(*(node.process.wait() for node in nodes)) == [0] * NODES
    return traces


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The traces of one conversation."""
    directory = tmp_path_factory.mktemp("traces")
    chains, noise = MESSAGES * 4 // 5 // LENGTH, MESSAGES // 5 // NODES
    assert chains * LENGTH + noise * NODES == MESSAGES, "choose a number that can be divided"
    return running(lambda: run_conversation(directory, chains, noise), patience_seconds=300)


def test_nothing_is_lost_duplicated_or_out_of_order(traces: list[Path]) -> None:
    found = audit_files(traces)
    assert {name: check.example for name, check in found.checks.items() if check.violations} == {}
    assert (found.messages, found.deliveries, found.missing_nodes) == (MESSAGES, MESSAGES * NODES, [])
    applying = {name for name, check in found.checks.items() if check.applies}
    assert applying >= {"completeness", "duplicates", "fifo", "causal", "validity", "membership"}


def deliveries_of(table: pa.Table) -> list[int]:
    """The places of the rows that are deliveries of what others published."""
    is_delivery = pc.and_(
        pc.equal(table["event"].cast(pa.string()), "deliver"), pc.not_equal(table["source"], table["node"])
    )
    return [place for place, found in enumerate(is_delivery.to_pylist()) if found]


@pytest.mark.parametrize("damage", ["completeness", "duplicates", "fifo"])
def test_the_audit_would_have_found_it(traces: list[Path], tmp_path: Path, damage: str) -> None:
    """The same traces with one delivery left out, repeated, or exchanged with the next of its source."""
    table = read_trace(traces[3])
    rows = list(range(len(table)))
    places = deliveries_of(table)
    place = places[len(places) // 2]
    if damage == "completeness":
        del rows[place]
    elif damage == "duplicates":
        rows.insert(place, place)
    else:
        same = [table["source"][place], table["topic"][place]]
        later = next(each for each in places if each > place and [table["source"][each], table["topic"][each]] == same)
        rows[place], rows[later] = rows[later], rows[place]
    taken = table.take(rows)
    if damage == "fifo":
        # Each happens when the other did: an audit goes by the time at which something happened.
        taken = taken.set_column(table.schema.get_field_index("time"), table.schema.field("time"), table["time"])
    damaged = tmp_path / "damaged.parquet"
    pq.write_table(taken, damaged)
    found = audit_files([*traces[:3], damaged, *traces[4:]])
    assert found.checks[damage].violations > 0 and found.verdict == "violated"
