"""Every order over every fabric: the table of docs/guarantees.md is read, every cell run, its figures measured.

A cell that is added to the table is tested from then on; one that the product offers and the table lacks is a failure.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from antiphon import Message, Node
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.message import ORDER_NAMES
from antiphon.simulator.scenario.promises import PROMISES
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.run import Result, run_scenario
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    LimitsTable,
    NetworkTable,
    PublishTable,
    Scenario,
    TopicsTable,
)
from tests.node.support import cluster, running, take_exactly, tree

PAGE = Path(__file__).parent.parent / "docs" / "guarantees.md"
TITLE = "## Every order over every fabric"
COLUMNS = ["order", "fabric", "simulated as", "live", "promise", "messages", "hops", "state"]

NODES = 8
PUBLICATIONS = 17
HOP_TICKS = 100
FIRST_TICK = 200_000
PAUSE_TICKS = 5_000
"""The overlays of gossip have found their form by then, and everything has settled before the next publication."""


class Cell(NamedTuple):
    order: str
    fabric: str
    protocol: str
    live: str
    promise: str
    messages: str
    hops: str
    state: str


def cells() -> list[Cell]:
    """The rows of the table."""
    section = PAGE.read_text().split(TITLE)[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    header, _, *content = [[part.strip().strip("`") for part in row] for row in rows]
    assert header == COLUMNS
    return [Cell(*row) for row in content]


CELLS = cells()


def scenario_of(cell: Cell, publications: int) -> Scenario:
    """All nodes are members, everything takes one hop of the same length, and all publish in turn."""
    has_topics = PROTOCOLS[cell.protocol].has_topics
    return Scenario(
        name=f"{cell.order} over {cell.fabric}",
        fabric=cell.fabric,
        protocol=cell.protocol,
        order=cell.order,
        nodes=NODES,
        network=NetworkTable(
            delay=ConstantLaw(ticks=HOP_TICKS), transmission=0, processing=0, in_order=cell.fabric == "tree"
        ),
        topics=TopicsTable(count=1, members=[list(range(NODES))]) if has_topics else None,
        publications=[
            PublishTable(at=FIRST_TICK + PAUSE_TICKS * number, node=(3 * number + 1) % NODES)
            for number in range(publications)
        ],
        limits=LimitsTable(time=FIRST_TICK + PAUSE_TICKS * (PUBLICATIONS + 20)),
    )


def messages_per_publication(few: Result, many: Result) -> float:
    """What more publications add: whatever is sent because of them, acknowledgements and upkeep included."""
    return (many.sent - few.sent) / (many.published - few.published)


def test_the_table_has_every_order_over_every_fabric() -> None:
    assert [(cell.order, cell.fabric) for cell in CELLS] == [
        (order, fabric) for order in ORDER_NAMES for fabric in ("cube", "tree", "gossip")
    ]
    assert {cell.fabric for cell in CELLS} == set(FABRICS)


def test_the_table_says_what_live_nodes_offer() -> None:
    assert all(cell.live == "yes" for cell in CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.order}-{cell.fabric}")
def test_a_simulated_cell_keeps_its_promise_at_the_cost_that_the_table_says(cell: Cell) -> None:
    few, many = (run_scenario(scenario_of(cell, count)) for count in (1, PUBLICATIONS))
    assert many.violations is not None
    assert set(PROMISES[cell.order]) <= set(many.violations), "the promise of the order is judged"
    assert not any(many.violations.values()), many.judgement
    assert many.deliveries == PUBLICATIONS * NODES
    assert many.latency_mean is not None and many.latency_max is not None
    hops = f"{many.latency_mean / HOP_TICKS:.1f}, last {many.latency_max / HOP_TICKS:.1f}"
    assert (f"{messages_per_publication(few, many):.0f}", hops) == (cell.messages, cell.hops)


# Live: all orders that the table says a fabric has, together on one topic of one small cluster.

EACH = 5


def started(fabric: str) -> AbstractAsyncContextManager[list[Node]]:
    return tree(3) if fabric == "tree" else cluster(3, fabric=fabric)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_live_cluster_serves_all_orders_that_the_table_gives_it(fabric: str) -> None:
    orders = [cell.order for cell in CELLS if cell.fabric == fabric and cell.live == "yes"]

    async def publish(node: Node) -> None:
        for number in range(EACH):
            for order in orders:
                await node.publish("room", b"%d %d" % (node.identifier, number), order=order)
                await asyncio.sleep(0)

    async def test() -> list[list[Message]]:
        async with started(fabric) as nodes:
            subscriptions = [node.subscribe("room") for node in nodes]
            await asyncio.gather(*(subscription.ready() for subscription in subscriptions))
            await asyncio.gather(*(publish(node) for node in nodes))
            wanted = EACH * len(orders) * len(nodes)
            return list(await asyncio.gather(*(take_exactly(subscription, wanted) for subscription in subscriptions)))

    lists = running(test)
    seen = [[(message.publisher, message.sequence, message.order) for message in messages] for messages in lists]
    assert all(sorted(each) == sorted(seen[0]) for each in seen)
    for each in seen:
        # What is ordered comes in the order of its publisher, whatever order that is.
        for publisher in {name[0] for name in each}:
            ordered = [name[1] for name in each if name[0] == publisher and name[2] != "none"]
            assert ordered == sorted(ordered)
        assert [name for name in each if name[2] == "total"] == [name for name in seen[0] if name[2] == "total"]
        assert {name[2] for name in each} == set(orders)
