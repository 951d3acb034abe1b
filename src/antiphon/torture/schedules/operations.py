"""Random schedules: from a seed to a scenario that a topic protocol must survive.

A schedule is drawn to hurt. Members join and leave all the time: alone, in crowds, back at once, before the first
subscription is effective. They publish right after subscribing and right before leaving. Copies overtake each other by
far more than a round trip, wait in slow output queues, or arrive at a paused node. Most schedules are small, because
people can understand small failures; some have up to 64 nodes.

The scenario lists every operation, so that a failing schedule can be made smaller by leaving operations out
(:mod:`antiphon.torture.shrinking`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.promises import all_have_logs
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    ClockFault,
    ConstantLaw,
    CrashFault,
    DiskFault,
    Fault,
    JoinFault,
    LeaveFault,
    LinkLaw,
    MatrixLaw,
    NetworkTable,
    NormalLaw,
    PartitionFault,
    PauseFault,
    PublishTable,
    RestartFault,
    ResumeFault,
    Scenario,
    SubscribeTable,
    expand_nodes,
)

MIX_STREAM = 7
KEY_STREAM = 12
"""The streams of random numbers for orders, and for total order with its keys; the simulator uses 1 to 5."""

FIRST_FRESH = 10**9
"""Fresh seeds begin here. Kinds of schedules that were added later are drawn from here on: lower seeds, which find
planted bugs, draw the same schedules as before.
"""

TOTAL_ORDER = "total"
MIXED = "mixed"
"""Every publication draws its own order, instead of one order for a schedule."""

EVENT_LIMIT = 2_000_000
"""No schedule reaches this limit unless it never ends."""

PART, CLOCK, DISK, JOIN, PAUSE, CRASH, LEAVE, UNSUBSCRIBE, SUBSCRIBE, PUBLISH = range(10)
"""The kinds of operations, in the order in which they happen at the same tick."""

UNLIMITED = 1 << 30
"""More nodes than any schedule has."""

Choice = TypeVar("Choice")
Trouble = Literal["torn", "full", "lost", "flip"]


class Shape(NamedTuple):
    """Further properties of a partition: one direction only, more groups, and the links between groups."""

    one_way: bool = False
    others: tuple[tuple[int, ...], ...] = ()
    linked: Literal["apart", "chain", "ring"] = "apart"


class Operation(NamedTuple):
    """One operation at a node. A pause ends at ``until``, a crash ends by a restart then, a leave by a join.

    With ``until`` 0 it never ends. A partition cuts the nodes ``keys`` off from all others, unless it has another
    ``shape``. A clock jumps by ``ticks``. ``trouble`` is the fault of a disk. Instead of a crashed node its ``heir``
    may start, with its disk.
    """

    at: int
    kind: int
    node: int
    topic: int = 0
    until: int = 0
    order: str | None = None
    keys: tuple[int, ...] = ()
    shape: Shape = Shape()
    ticks: int = 0
    trouble: Trouble = "torn"
    heir: int = NO_NODE


def draw_order(operation: Operation, random: RandomStream) -> Operation:
    """The operation; a publication gets an order of its own."""
    return operation._replace(order=pick(random, ORDERS)) if operation.kind == PUBLISH else operation


def draw_totals(operations: Iterable[Operation], random: RandomStream) -> list[Operation]:
    """The operations, with some publications in total order, about one or two of a few keys, or about none.

    Some schedules have only total order, some a single total publication among others.
    """
    key_count = pick(random, (0, 1, 1, 2, 2, 3, 10))
    share = pick(random, (5, 30, 50, 50, 90, 100))

    def drawn(operation: Operation) -> Operation:
        if operation.kind != PUBLISH:
            return operation
        keys = {int(random.below(key_count)) for _ in range(pick(random, (1, 1, 2)))} if key_count > 0 else ()
        order = TOTAL_ORDER if random.below(100) < share else operation.order
        return operation._replace(order=order, keys=tuple(sorted(keys)))

    return [drawn(operation) for operation in operations]


def pick(random: RandomStream, choices: Sequence[Choice]) -> Choice:
    """Choose one of several, all with the same probability."""
    return choices[random.below(len(choices))]


def draw_members(nodes: int, random: RandomStream) -> list[int]:
    """The first members of a topic: none, one, some or all."""
    chance = random.below(10)
    if chance < 2:
        return [] if chance == 0 else [int(random.below(nodes))]
    if chance == 2:
        return list(range(nodes))
    share = random.between(1, 3)
    return [node for node in range(nodes) if random.below(4) < share]


def draw_connections(random: RandomStream) -> NetworkTable:
    """Connections, fast or slow; the end of one is noticed at once or late."""
    normal = NormalLaw(mean=float(pick(random, (20, 100))), deviation=float(pick(random, (5, 50))))
    return NetworkTable(
        delay=LinkLaw(of=normal) if random.below(2) == 0 else normal,
        transmission=pick(random, (0, 1, 20)),
        charge_control=random.below(2) == 0,
        detection=pick(random, (1, 50, 500, 2000)),
        in_order=True,
    )


def draw_delay(random: RandomStream) -> ConstantLaw | NormalLaw | LinkLaw | MatrixLaw:
    """A law of delays; under all but the first, copies overtake each other."""
    chance = random.below(6)
    if chance == 0:
        return ConstantLaw(ticks=pick(random, (0, 1, 100)))
    normal = NormalLaw(mean=float(pick(random, (20, 100))), deviation=float(pick(random, (10, 50, 200))))
    if chance <= 3:
        return normal
    if chance == 4:
        return LinkLaw(of=normal, symmetric=random.below(2) == 0)
    places = range(pick(random, (2, 3, 5)))
    return MatrixLaw(rows=[[pick(random, (0, 1, 10, 100, 1000, 10_000)) for _ in places] for _ in places])


def named_members(scenario: Scenario) -> list[list[int]]:
    """The first members of each topic, which schedules list one by one; without topics, all nodes."""
    if not PROTOCOLS[scenario.protocol].has_topics:
        return [list(range(scenario.nodes))]
    assert scenario.topics is not None and scenario.topics.members is not None, "schedules name their first members"
    members = scenario.topics.members
    return [nodes for nodes in members if isinstance(nodes, list)]


def possible(operations: Iterable[Operation], members: Sequence[Iterable[int]], nodes: int = 0) -> list[Operation]:
    """The operations in the order of time, without those that do not fit the state of their node.

    With ``nodes`` all but one of that many may crash for good; without it, only nodes without other operations.
    """
    subscribed = {(node, topic) for topic, nodes in enumerate(members) for node in nodes}
    in_order = sorted(operations, key=lambda one: (one.at, one.kind))
    kept = [operation for operation in in_order if operation.kind in (PART, CLOCK, DISK, JOIN)]
    away_until = {operation.node: operation.at for operation in kept if operation.kind == JOIN}
    away_until |= {operation.heir: operation.until for operation in in_order if operation.heir != NO_NODE}
    # A publisher stays up, and a restarted node has its subscriptions of the start. Node 0 is a contact.
    harmless = (PART, CLOCK, DISK, PAUSE, CRASH, LEAVE)
    immortal = set() if nodes else {0} | {one.node for one in in_order if one.kind not in harmless}
    crashed: set[int] = set()
    for operation in in_order:
        at, kind, node, topic, until = operation[:5]
        if kind in (PART, CLOCK, DISK, JOIN):
            continue
        if at < away_until.get(node, 0) or (kind in (CRASH, LEAVE) and node in immortal):
            continue
        if kind in (CRASH, LEAVE) and nodes:
            if len(crashed) + 1 >= nodes:
                continue
            crashed.add(node)
        if kind in (PAUSE, CRASH, LEAVE):
            has_returned = until > 0 and operation.heir == NO_NODE
            away_until[node] = until if has_returned else LONG_AFTER * LONG_AFTER
        elif (kind == SUBSCRIBE) == ((node, topic) in subscribed):
            continue
        elif kind == SUBSCRIBE:
            subscribed.add((node, topic))
        elif kind == UNSUBSCRIBE:
            subscribed.remove((node, topic))
        kept.append(operation)
    return sorted(kept, key=lambda one: (one.at, one.kind))


PAIRS: tuple[
    tuple[
        type[PauseFault | CrashFault | LeaveFault],
        int,
        type[ResumeFault | RestartFault | JoinFault],
    ],
    ...,
] = (
    (PauseFault, PAUSE, ResumeFault),
    (CrashFault, CRASH, RestartFault),
    (LeaveFault, LEAVE, JoinFault),
)
"""Faults that one operation starts and ends."""


def faults_of(operation: Operation) -> Iterator[Fault]:
    """The faults of an operation; none for an operation of the application."""
    at, kind, node, _, until = operation[:5]
    for begins, paired, ends in PAIRS:
        if kind == paired:
            yield begins(at=at, node=node)
            if until > 0 and operation.heir != NO_NODE:
                yield JoinFault(at=until, node=operation.heir, continues=node)
            elif until > 0:
                yield ends(at=until, node=node)
    if kind == JOIN:
        yield JoinFault(at=at, node=node)
    elif kind == CLOCK:
        yield ClockFault(at=at, node=node, ticks=operation.ticks)
    elif kind == DISK:
        yield DiskFault(at=at, node=node, what=operation.trouble, until=until or None)
    elif kind == PART:
        yield partition_of(operation)


def partition_of(operation: Operation) -> PartitionFault:
    """The fault of a partition operation."""
    one_way, others, linked = operation.shape
    groups: list[list[int] | str] = [list(group) for group in (operation.keys, *others)]
    return PartitionFault(at=operation.at, until=operation.until, groups=groups, one_way=one_way, linked=linked)


def parting(fault: PartitionFault, nodes: int) -> Operation:
    """The operation of a partition fault."""
    first, *others = (tuple(expand_nodes(group, nodes)) for group in fault.groups)
    shape = Shape(fault.one_way, tuple(others), fault.linked)
    return Operation(fault.at, PART, 0, 0, fault.until or 0, None, first, shape)


def with_operations(scenario: Scenario, operations: Iterable[Operation]) -> Scenario:
    """The scenario with these operations, as far as they are possible, instead of its own."""
    protocol = PROTOCOLS[scenario.protocol]
    outlives = protocol.outlives_publishers or all_have_logs(scenario)
    everybody = scenario.nodes if outlives or protocol.agrees_probably else 0
    if scenario.protocol_options.get("disk", False):
        # All nodes may be down at once, because they restart.
        everybody = UNLIMITED
    kept = possible(operations, named_members(scenario), everybody)
    faults = [fault for operation in kept for fault in faults_of(operation)]

    def changes(kind: int) -> list[SubscribeTable]:
        return [
            SubscribeTable(at=operation.at, node=operation.node, topic=operation.topic)
            for operation in kept
            if operation.kind == kind
        ]

    return msgspec.structs.replace(
        scenario,
        faults=faults,
        subscriptions=changes(SUBSCRIBE),
        unsubscriptions=changes(UNSUBSCRIBE),
        publications=[
            PublishTable(
                at=operation.at,
                node=operation.node,
                topic=operation.topic,
                order=operation.order,
                keys=list(operation.keys),
            )
            for operation in kept
            if operation.kind == PUBLISH
        ],
    )


def paired_operations(scenario: Scenario) -> list[Operation]:
    """Operations that are a fault with its end."""
    found = []
    joins = [fault for fault in scenario.faults if isinstance(fault, JoinFault)]
    heirs = {join.continues: (join.at, join.node) for join in joins if join.node is not None}
    for begins, kind, ends in PAIRS:
        returns = [fault for fault in scenario.faults if isinstance(fault, ends)]
        for fault in scenario.faults:
            if isinstance(fault, begins) and fault.node is not None:
                back = [one.at for one in returns if one.node == fault.node and one.at >= fault.at]
                after, heir = heirs.get(fault.node, (0, NO_NODE)) if kind == CRASH else (0, NO_NODE)
                found.append(Operation(fault.at, kind, fault.node, 0, after or min(back, default=0), heir=heir))
    return found


def operations_of(scenario: Scenario) -> list[Operation]:
    """The operations of a schedule, in the order of time."""
    found = paired_operations(scenario)
    newcomers = scenario.absent_at_start()
    for fault in scenario.faults:
        if isinstance(fault, JoinFault) and fault.node in newcomers and fault.continues is None:
            newcomers.remove(fault.node)
            found.append(Operation(fault.at, JOIN, fault.node))
        elif isinstance(fault, PartitionFault):
            found.append(parting(fault, scenario.nodes))
        elif isinstance(fault, ClockFault) and fault.node is not None:
            found.append(Operation(fault.at, CLOCK, fault.node, ticks=fault.ticks))
        elif isinstance(fault, DiskFault) and fault.node is not None:
            found.append(Operation(fault.at, DISK, fault.node, 0, fault.until or 0, trouble=fault.what))
    for kind, tables in ((UNSUBSCRIBE, scenario.unsubscriptions), (SUBSCRIBE, scenario.subscriptions)):
        found += [Operation(table.at, kind, table.node, table.topic) for table in tables if table.node is not None]
    found += [
        Operation(table.at, PUBLISH, table.node, table.topic, 0, table.order, tuple(table.keys))
        for table in scenario.publications
    ]
    return sorted(found, key=lambda one: (one.at, one.kind))
