"""Random schedules for the cube with faults: crashes, restarts, late joins, pauses and partitions, many at once.

Nodes crash for good or restart with their logs, at once or late, several together, publishers included. The network
splits into halves or three parts, loses one node, or loses one direction of one node's links; it flaps. Nodes pause,
inside or outside of a partition. All faults are healed long before the end. By then every live node must have delivered
the same publications, nothing may still wait, and no node may have been told of a loss.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import msgspec

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario, TopicsTable
from antiphon.torture.schedules.operations import (
    CRASH,
    JOIN,
    KEY_STREAM,
    MIXED,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    TOTAL_ORDER,
    UNSUBSCRIBE,
    Operation,
    draw_connections,
    draw_members,
    draw_order,
    draw_totals,
    pick,
    with_operations,
)
from antiphon.torture.schedules.topic_schedule import Script

FAULT_STREAM = 13
"""The stream of random numbers; the simulator and other schedules use smaller numbers."""

EVENT_LIMIT = 2_000_000
"""No schedule reaches this limit unless it never ends."""

LARGEST = 32
LOG_ENTRIES = 1 << 20
FORGET = 400_000
"""Longer than any fault or pause that a schedule draws."""

EXCLUDE = 1000


def draw_fault_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed. Without ``order``, each publication draws its own."""
    for attempt in count():
        complete = draw_attempt(seed, order, RandomStream(seed, FAULT_STREAM, attempt))
        if complete.publications:
            break
    return complete


def draw_attempt(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """A scenario that may contain no publication, because no node was up at the drawn times."""
    nodes = int(random.between(2, 8) if random.below(100) < 75 else random.between(9, LARGEST))
    newcomers = range(nodes, nodes + pick(random, (0, 0, 1, 2)))
    topic_count = pick(random, (1, 1, 2))
    scenario = Scenario(
        name=f"cube torture {seed}",
        seed=seed,
        protocol="vcube-ps-lasting",
        order=pick(random, ORDERS) if order in (None, MIXED) else order,
        nodes=nodes,
        protocol_options=draw_options(random),
        network=draw_connections(random),
        topics=TopicsTable(count=topic_count, members=[draw_members(nodes, random) for _ in range(topic_count)]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    operations = Script(scenario, random).draw()
    end = max((operation.at for operation in operations), default=0) + 1
    faults = draw_crashes(nodes, end, random) if random.below(4) > 0 else []
    if random.below(3) > 0:
        faults += [part for _ in range(pick(random, (1, 1, 2, 4))) for part in draw_partitions(nodes, end, random)]
    faults += [draw_stall(nodes, end, random) for _ in range(pick(random, (0, 0, 1, 2)))]
    returning = {fault.node for fault in faults if fault.kind == CRASH and fault.until > 0}
    operations = [
        operation
        for operation in operations
        if operation.kind not in (PAUSE, SUBSCRIBE, UNSUBSCRIBE)
        or (operation.kind != PAUSE and operation.node not in returning)
    ]
    for newcomer in newcomers:
        operations += draw_newcomer(newcomer, topic_count, end, random)
    if order in (None, MIXED) and random.below(2) == 0:
        operations = [draw_order(operation, random) for operation in operations]
    keys = RandomStream(seed, KEY_STREAM)
    if order == TOTAL_ORDER or (order in (None, MIXED) and keys.below(2) == 0):
        faults = with_majority(faults, nodes)
        operations = draw_totals(operations, keys)
        operations = [weakened(operation) if operation.node in returning else operation for operation in operations]
    whole = msgspec.structs.replace(scenario, nodes=nodes + len(newcomers))
    return with_operations(whole, operations + faults)


def with_majority(faults: list[Operation], nodes: int) -> list[Operation]:
    """Keep only faults that leave more than half of the nodes up: total order needs a majority.

    A node that is cut off for long stops counting; then a majority of the others must be up.
    """
    groups = [set(fault.keys) for fault in faults if fault.kind == PART]
    sides = Counter(tuple(node in group for group in groups) for node in range(nodes))
    left = max(sides.values())
    found: list[Operation] = []
    failing: set[int] = set()
    for fault in faults:
        if fault.kind == CRASH:
            if len(failing | {fault.node}) > (left - 1) // 2:
                continue
            failing.add(fault.node)
        found.append(fault)
    return found


def weakened(operation: Operation) -> Operation:
    """The operation with a weaker order than total: a node that starts a total publication has not logged its number
    yet.
    """
    return operation._replace(order="causal") if operation.order == TOTAL_ORDER else operation


def draw_options(random: RandomStream) -> dict[str, Any]:
    """Windows, and how much nodes keep in memory beside the log."""
    window, bundle = pick(random, (1, 2, 8, 64)), pick(random, (1, 3, 64))
    return {
        "window": window,
        "bundle": bundle,
        "keep": window + bundle + pick(random, (0, 1, 200)),
        "compare": pick(random, (100, 500, 2000)),
        "forget": FORGET,
        "exclude": EXCLUDE,
        "log": LOG_ENTRIES,
    }


def draw_crashes(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """Crashes, with or without a restart: of single nodes, of several at once, or in quick succession."""
    moment = int(random.below(end))
    found = []
    for _ in range(pick(random, (1, 1, 2, 3, nodes))):
        moment = int(random.below(end)) if random.below(3) == 0 else moment
        at = moment + pick(random, (0, 0, int(random.below(500)), int(random.below(3000))))
        back = at + pick(random, (1, 60, 700, 5000, 40_000)) if random.below(3) > 0 else 0
        found.append(Operation(at, CRASH, int(random.below(nodes)), 0, back))
    return found


def draw_partitions(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """Partitions: some nodes are cut off from the others, once or repeatedly."""
    at = int(random.below(end))
    share = random.between(1, 3)
    group = tuple(node for node in range(nodes) if random.below(4) < share)[: nodes - 1] or (0,)
    if random.below(4) == 0:
        group = (int(random.below(nodes)),)
    lasts = pick(random, (10, 400, 3000, 10_000, 40_000))
    if random.below(5) > 0:
        return [Operation(at, PART, 0, 0, at + lasts, None, group)]
    flaps = range(int(random.between(2, 6)))
    return [Operation(at + 2 * lasts * flap, PART, 0, 0, at + 2 * lasts * flap + lasts, None, group) for flap in flaps]


def draw_stall(nodes: int, end: int, random: RandomStream) -> Operation:
    """A node pauses."""
    at = int(random.below(end))
    return Operation(at, PAUSE, int(random.below(nodes)), 0, at + pick(random, (5, 100, 1000, 10_000)))


def draw_newcomer(node: int, topic_count: int, end: int, random: RandomStream) -> list[Operation]:
    """A node joins, subscribes and publishes."""
    at = int(random.below(end))
    topic = int(random.below(topic_count))
    found = [Operation(at, JOIN, node), Operation(at + int(random.below(2000)), SUBSCRIBE, node, topic)]
    said = pick(random, (0, 2, 5))
    return found + [Operation(at + 2000 + 500 * number, PUBLISH, node, topic) for number in range(said)]
