"""Random schedules: from a seed to a scenario that a topic protocol must survive.

A schedule is drawn to hurt. Members join and leave all the time: alone, in crowds, back at once, before the first
subscription has taken effect. They publish right after subscribing and right before leaving. Copies overtake each
other by far more than a round trip, or wait in slow output queues, or meet a node that is paused. Most schedules are
small, because small ones fail in ways that can be understood; some have up to 64 nodes.

Everything that happens is spelled out in the scenario, operation by operation, so that a schedule that fails can be
made smaller by leaving operations out (:mod:`antiphon.torture.shrinking`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.protocols.registry import PROTOCOLS
from antiphon.simulator.scenario.scenario import (
    ClockFault,
    ConstantLaw,
    CrashFault,
    DiskFault,
    Fault,
    JoinFault,
    LeaveFault,
    LimitsTable,
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
    SubscriptionTable,
    TopicsTable,
    expand_nodes,
)

SCHEDULE_STREAM = 6
MIX_STREAM = 7
AGGREGATION_STREAM = 8
KEY_STREAM = 12
"""Name the streams of random numbers; 1 to 5 are those of the simulator. Orders, whether forwarders hold back, and
total order with its keys are drawn apart from what happens."""

TOTAL_ORDER = "total"
MIXED = "mixed"
"""Instead of one order for a schedule: every publication draws its own."""

LARGEST = 64
EVENT_LIMIT = 2_000_000
"""No schedule comes near it unless it never ends."""

PART, CLOCK, DISK, JOIN, PAUSE, CRASH, LEAVE, UNSUBSCRIBE, SUBSCRIBE, PUBLISH = range(10)
"""What a node can be told, or what happens to it; at the same tick this is the order."""

UNLIMITED = 1 << 30
"""More nodes than there are."""

Choice = TypeVar("Choice")
Trouble = Literal["torn", "full", "lost", "flip"]
Move = Callable[[int], None]
"""Something that happens on a topic."""


class Shape(NamedTuple):
    """What more there is to say of a partition: whether it is one way, further groups, and how groups are linked."""

    one_way: bool = False
    others: tuple[tuple[int, ...], ...] = ()
    linked: Literal["apart", "chain", "ring"] = "apart"


class Operation(NamedTuple):
    """One node is told to do something. A pause ends by itself at ``until``, a crash by a restart, a leave by a join.

    There 0 is never. A partition cuts the nodes ``keys`` off from all others, unless it has another ``shape``. A clock
    jumps by ``ticks``. ``trouble`` is what is wrong with a disk. Instead of a node that crashes its ``heir`` may come
    up, with its disk.
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


def draw_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed; ``order`` if it is not to be drawn. Every third draws the orders of its publications.

    Of those every other one draws total order too, and keys.
    """
    random = RandomStream(seed, SCHEDULE_STREAM)
    nodes = draw_size(random)
    topic_count = pick(random, (1, 1, 1, 2, 2, 3))
    drawn_order = pick(random, ("causal", "causal", "fifo", "none"))
    scenario = Scenario(
        name=f"torture {seed}",
        seed=seed,
        protocol="vcube-ps",
        order=drawn_order if order in (None, MIXED) else order,
        nodes=nodes,
        protocol_options={
            "window": pick(random, (1, 2, 3, 64)),
            "largest_first": random.below(2) == 0,
            "bundle": pick(random, (1, 3, 64)),
            "directory": random.below(3) == 0,
            "aggregate": RandomStream(seed, AGGREGATION_STREAM).below(2) == 0,
        },
        network=draw_network(random),
        topics=TopicsTable(count=topic_count, members=[draw_members(nodes, random) for _ in range(topic_count)]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    operations = Script(scenario, random).draw()
    mixing = RandomStream(seed, MIX_STREAM)
    keys = RandomStream(seed, KEY_STREAM)
    if order == MIXED or (order is None and mixing.below(3) == 0):
        operations = [draw_order(operation, mixing) for operation in operations]
        if keys.below(2) == 0:
            operations = draw_totals(operations, keys)
    elif order == TOTAL_ORDER:
        operations = draw_totals(operations, keys)
    return with_operations(scenario, operations)


def draw_order(operation: Operation, random: RandomStream) -> Operation:
    """The same with an order of its own, if it is a publication."""
    return operation._replace(order=pick(random, ORDERS)) if operation.kind == PUBLISH else operation


def draw_totals(operations: Iterable[Operation], random: RandomStream) -> list[Operation]:
    """The same with some of the publications in total order; all are about one key or two of a few, or about none.

    Some schedules have nothing but total order, some a single total publication among others.
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
    """One of several, each as likely as any other."""
    return choices[random.below(len(choices))]


def draw_size(random: RandomStream) -> int:
    """How many nodes: mostly few, sometimes up to 64, and rarely a power of two."""
    chance = random.below(100)
    if chance < 70:
        return int(random.between(2, 8))
    return int(random.between(9, 24) if chance < 92 else random.between(25, LARGEST))


def draw_members(nodes: int, random: RandomStream) -> list[int]:
    """First members of a topic: nobody, one, some or all."""
    chance = random.below(10)
    if chance < 2:
        return [] if chance == 0 else [int(random.below(nodes))]
    if chance == 2:
        return list(range(nodes))
    share = random.between(1, 3)
    return [node for node in range(nodes) if random.below(4) < share]


def draw_network(random: RandomStream) -> NetworkTable:
    """A network that loses nothing and is bad in every other way."""
    late = random.below(2) == 0
    return NetworkTable(
        delay=draw_delay(random),
        transmission=pick(random, (0, 1, 1, 1, 10, 60)),
        processing=pick(random, (0, 1, 1, 20)),
        charge_control=random.below(3) > 0,
        reordering=pick(random, (0.05, 0.3, 0.9)) if late else 0.0,
        reordering_window=pick(random, (50, 500, 5000, 30_000)) if late else 0,
    )


def draw_connections(random: RandomStream) -> NetworkTable:
    """Connections, quick or slow, whose end is noticed at once or late."""
    normal = NormalLaw(mean=float(pick(random, (20, 100))), deviation=float(pick(random, (5, 50))))
    return NetworkTable(
        delay=LinkLaw(of=normal) if random.below(2) == 0 else normal,
        transmission=pick(random, (0, 1, 20)),
        charge_control=random.below(2) == 0,
        detection=pick(random, (1, 50, 500, 2000)),
        in_order=True,
    )


def draw_delay(random: RandomStream) -> ConstantLaw | NormalLaw | LinkLaw | MatrixLaw:
    """A law of delays; all but the first let copies overtake each other."""
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


class Script:
    """Draws what happens, from one moment to the next."""

    def __init__(self, scenario: Scenario, random: RandomStream) -> None:
        self._random = random
        self._nodes = scenario.nodes
        self._topics = scenario.topic_count()
        self._members = [set(members) for members in named_members(scenario)]
        self._operations: list[Operation] = []
        self._now = 0
        # From everything at once to one thing after the other.
        self._gap = pick(random, (1, 10, 60, 300, 2000))

    def draw(self) -> list[Operation]:
        """All operations. Some may be impossible because of those that were drawn later; they are to be left out."""
        moves = pick(self._random, (self._mixed, self._restless, self._talkative))()
        self._come(0)
        self._publish(0)
        self._now += 1
        for _ in range(self._random.between(2, 20 + self._nodes)):
            self._now += 0 if self._random.below(3) == 0 else int(self._random.between(0, 2 * self._gap))
            pick(self._random, moves)(int(self._random.below(self._topics)))
        if self._random.below(2) == 0:
            self._roll_call()
        return self._operations

    def _mixed(self) -> tuple[Move, ...]:
        """A bit of everything."""
        coming_and_going = (self._come, self._go, self._return, self._hesitate, self._crowd)
        return (*coming_and_going, self._publish, self._publish, self._talk, self._pause)

    def _restless(self) -> tuple[Move, ...]:
        """Members who leave and come back all the time, between some who talk."""
        return (self._return, self._return, self._hesitate, self._come, self._go, self._talk, self._talk, self._publish)

    def _talkative(self) -> tuple[Move, ...]:
        """Members who talk, and sometimes another listener."""
        return (self._talk, self._talk, self._talk, self._publish, self._come, self._return, self._pause)

    def _add(self, kind: int, node: int, topic: int, after: int = 0) -> None:
        self._operations.append(Operation(self._now + after, kind, node, topic))

    def _member(self, topic: int) -> int | None:
        members = sorted(self._members[topic])
        return pick(self._random, members) if members else None

    def _outsider(self, topic: int) -> int | None:
        outsiders = [node for node in range(self._nodes) if node not in self._members[topic]]
        return pick(self._random, outsiders) if outsiders else None

    def _publish(self, topic: int) -> None:
        """Some members publish, once or a few times."""
        for _ in range(self._random.between(1, 3)):
            node = self._member(topic)
            if node is not None:
                for _ in range(pick(self._random, (1, 1, 1, 5))):
                    self._add(PUBLISH, node, topic)

    def _talk(self, topic: int) -> None:
        """Members publish one after the other, each perhaps in answer to the one before."""
        for number in range(self._random.between(2, 6)):
            node = self._member(topic)
            if node is not None:
                self._add(PUBLISH, node, topic, number * int(self._random.between(1, 150)))

    def _come(self, topic: int) -> None:
        """Somebody subscribes and may publish before that has taken effect."""
        node = self._outsider(topic)
        if node is not None:
            self._add(SUBSCRIBE, node, topic)
            self._members[topic].add(node)
            for number in range(pick(self._random, (0, 1, 3))):
                self._add(PUBLISH, node, topic, number * int(self._random.between(0, 100)))

    def _go(self, topic: int) -> None:
        """A member unsubscribes and may have published just before."""
        node = self._member(topic)
        if node is not None:
            published = self._random.below(2) == 0
            if published:
                self._add(PUBLISH, node, topic)
            self._add(UNSUBSCRIBE, node, topic, 1 if published else 0)
            self._members[topic].remove(node)

    def _return(self, topic: int) -> None:
        """A member unsubscribes and subscribes again, at once or soon after."""
        node = self._member(topic)
        if node is not None:
            self._add(UNSUBSCRIBE, node, topic)
            self._add(SUBSCRIBE, node, topic, pick(self._random, (0, 0, 1, 50, 300)))

    def _hesitate(self, topic: int) -> None:
        """Somebody subscribes and unsubscribes, most likely before the subscription has taken effect."""
        node = self._outsider(topic)
        if node is not None:
            self._add(SUBSCRIBE, node, topic)
            self._add(UNSUBSCRIBE, node, topic, pick(self._random, (1, 1, 50, 400)))

    def _crowd(self, topic: int) -> None:
        """Several join or leave at the same time."""
        move = pick(self._random, (self._come, self._go, self._return))
        for _ in range(self._random.between(2, 2 + self._nodes // 4)):
            move(topic)

    def _pause(self, topic: int) -> None:
        """A node stalls for a while."""
        until = self._now + pick(self._random, (5, 100, 1000, 10_000))
        self._operations.append(Operation(self._now, PAUSE, int(self._random.below(self._nodes)), topic, until))

    def _roll_call(self) -> None:
        """Long after everything has settled, some members publish; whoever is out of step is found out."""
        self._now += LONG_AFTER
        for topic in range(self._topics):
            self._talk(topic)


def named_members(scenario: Scenario) -> list[list[int]]:
    """The first members of a schedule, which are named one by one; without topics everybody."""
    if not PROTOCOLS[scenario.protocol].has_topics:
        return [list(range(scenario.nodes))]
    assert scenario.topics is not None and scenario.topics.members is not None, "schedules name their first members"
    members = scenario.topics.members
    return [nodes for nodes in members if isinstance(nodes, list)]


def possible(operations: Iterable[Operation], members: Sequence[Iterable[int]], nodes: int = 0) -> list[Operation]:
    """The operations in the order of time, without those that would meet a node in a state that does not suit them.

    With ``nodes`` everybody may crash for good, one of so many excepted; without it only who does nothing else.
    """
    subscribed = {(node, topic) for topic, nodes in enumerate(members) for node in nodes}
    in_order = sorted(operations, key=lambda one: (one.at, one.kind))
    kept = [operation for operation in in_order if operation.kind in (PART, CLOCK, DISK, JOIN)]
    away_until = {operation.node: operation.at for operation in kept if operation.kind == JOIN}
    away_until |= {operation.heir: operation.until for operation in in_order if operation.heir != NO_NODE}
    # Whoever publishes lives, and whoever crashes is what it was at the start when it comes back. Node 0 is a contact.
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
"""Faults that are one operation with what ends them."""


def faults_of(operation: Operation) -> Iterator[Fault]:
    """The faults that an operation is: none if it is what an application does."""
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
    """The fault that a partition is."""
    one_way, others, linked = operation.shape
    groups: list[list[int] | str] = [list(group) for group in (operation.keys, *others)]
    return PartitionFault(at=operation.at, until=operation.until, groups=groups, one_way=one_way, linked=linked)


def parting(fault: PartitionFault, nodes: int) -> Operation:
    """The operation that a partition is."""
    first, *others = (tuple(expand_nodes(group, nodes)) for group in fault.groups)
    shape = Shape(fault.one_way, tuple(others), fault.linked)
    return Operation(fault.at, PART, 0, 0, fault.until or 0, None, first, shape)


def with_operations(scenario: Scenario, operations: Iterable[Operation]) -> Scenario:
    """The scenario with these operations, as far as they are possible, instead of its own."""
    protocol = PROTOCOLS[scenario.protocol]
    everybody = scenario.nodes if protocol.outlives_publishers or protocol.agrees_probably else 0
    if scenario.protocol_options.get("disk", False):
        # All may be down at once: they come back.
        everybody = UNLIMITED
    kept = possible(operations, named_members(scenario), everybody)
    faults = [fault for operation in kept for fault in faults_of(operation)]

    def changes(kind: int) -> list[SubscriptionTable]:
        return [
            SubscriptionTable(at=operation.at, node=operation.node, topic=operation.topic)
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
    """Those that are a fault and what ends it."""
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
