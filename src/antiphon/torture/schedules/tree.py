"""Random schedules for the broker tree: topic operations as for the cube, keys, and broker crashes.

Trees are chains, stars and everything between. Brokers crash alone, several at once, and one after the other while the
tree is being repaired, the root most often, publishers too. Crashes are noticed at once or late; by then brokers may
have learned of each other through a crashed one. Publications use few keys, so that they compete. All live brokers must
agree, and nothing may wait for ever.

One schedule in eight is **busy**: all brokers publish all the time, and brokers with children fail, while the root
keeps asking which state can be forgotten. A publication that is kept for too short a time is then missing somewhere. In
half of these, the broker that should report a failure pauses meanwhile, so that others have attached elsewhere before
the root knows that they were detached.

One in eight of the others is **torn**: all brokers publish about few keys in all orders, the network splits, a broker
crashes within moments of that, others pause, and the council follows partitions. This tests state that only few brokers
received in time: a weaker publication that only they delivered, a lock that only they know of. In half of these, and in
one of four of all other schedules with a quorum, publications of every order wait for a majority.

Two more kinds have modules of their own: brokers that return with their disks (``tree_restarts.py``), and few brokers
to which everything happens at once (``tree_crowded.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from antiphon.fabrics.tree.fabric import TREE
from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario, TopicsTable
from antiphon.torture.schedules.operations import (
    CRASH,
    FIRST_FRESH,
    JOIN,
    MIXED,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    draw_connections,
    draw_members,
    pick,
    with_operations,
)
from antiphon.torture.schedules.suspected_pauses import with_suspected_pauses
from antiphon.torture.schedules.topic_schedule import Script
from antiphon.torture.schedules.tree_crowded import (
    CROWDED_ONE_IN,
    CROWDED_STREAM,
    MOST_FOUNDERS,
    draw_crowded_schedule,
)
from antiphon.torture.schedules.tree_restarts import ONE_IN, RESTART_STREAM, draw_restart_schedule

TREE_STREAM = 9
"""The stream of random numbers; the simulator and other schedules use 1 to 8."""

BUSY_STREAM = 23
"""The stream for busy schedules. It is separate, so that adding them did not change others."""

BUSY_PUBLICATIONS = 150

TORN_STREAM = 31
"""The stream for torn schedules and for whether all orders wait for a majority, separate for the same reason."""

SESSION_STREAM = 61
"""The stream for sessions that are not strict, separate for the same reason."""

EVENT_LIMIT = 1_000_000
"""No schedule reaches this limit unless it never ends."""

LARGEST = 32
LOG_ENTRIES = 1 << 20
"""No publication of a schedule is evicted from a log of this size."""


def draw_tree_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed. Without ``order``, each publication draws its own."""
    return with_suspected_pauses(with_loose_sessions(draw_unwatched_schedule(seed, order), seed), seed)


def with_loose_sessions(scenario: Scenario, seed: int) -> Scenario:
    """Let ordered publications overtake earlier total ones of their publisher in one of eight schedules of fresh seeds.

    Fewer publications wait then, so that others meet.
    """
    if seed < FIRST_FRESH or RandomStream(seed, SESSION_STREAM).below(8) > 0:
        return scenario
    options = {**scenario.protocol_options, "strict_session": False}
    return msgspec.structs.replace(scenario, protocol_options=options)


def draw_unwatched_schedule(seed: int, order: str | None = None) -> Scenario:
    """The schedule of a seed without pauses that other brokers notice."""
    crowded = RandomStream(seed, CROWDED_STREAM)
    if seed >= FIRST_FRESH and crowded.below(CROWDED_ONE_IN) == 0:
        founders = int(crowded.between(2, MOST_FOUNDERS))
        return draw_crowded_schedule(new_scenario(seed, order, founders, crowded), order, crowded)
    busy = RandomStream(seed, BUSY_STREAM)
    if busy.below(8) == 0:
        return draw_busy_schedule(seed, order, busy)
    torn = RandomStream(seed, TORN_STREAM)
    if torn.below(8) == 0:
        return draw_torn_schedule(seed, order, torn)
    returning = RandomStream(seed, RESTART_STREAM)
    if returning.below(ONE_IN) == 0:
        return draw_restart_schedule(
            new_scenario(seed, order, int(returning.between(2, 9)), returning), order, returning
        )
    random = RandomStream(seed, TREE_STREAM)
    nodes = int(random.between(2, 8) if random.below(100) < 75 else random.between(9, LARGEST))
    topic_count = pick(random, (1, 1, 2))
    scenario = new_scenario(seed, order, nodes, random)
    members: list[list[int] | str] = [draw_members(nodes, random) for _ in range(topic_count)]
    scenario = msgspec.structs.replace(scenario, topics=TopicsTable(count=topic_count, members=members))
    operations = Script(scenario, random).draw()
    operations += draw_crashes(nodes, operations, random)
    keys = pick(random, (1, 2, 4, 20))
    weights = pick(random, (ORDER_NAMES, ("none", "causal", "total"), ("fifo", "total", "total", "total")))
    drawn = [
        draw_kind(operation, order, weights, keys, random) if operation.kind == PUBLISH else operation
        for operation in operations
    ]
    survivors = [operation for operation in drawn if operation.kind != CRASH]
    if random.below(2) == 0:
        complete = with_operations(scenario, drawn)
        # All publishers may have failed before they published.
        return complete if complete.publications else with_operations(scenario, survivors)
    complete = draw_with_quorum(scenario, drawn, random)
    if torn.below(4) == 0:
        options = {**complete.protocol_options, "quorum_delivery": True}
        complete = msgspec.structs.replace(complete, protocol_options=options)
    return complete if complete.publications else with_operations(scenario, survivors)


def draw_torn_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """All brokers publish all the time; partitions, crashes and pauses are close together; a majority stays up.

    A council that follows partitions may shrink to little more than half of the founders. There is only one partition
    then, and at most one of four brokers crashes, so that half of the council survives.
    """
    nodes = int(random.between(4, 9))
    scenario = new_scenario(seed, order, nodes, random)
    orders = pick(random, (ORDER_NAMES, ("none", "causal", "total"), ("causal", "total")))
    gap, keys = pick(random, (10, 30, 100)), pick(random, (1, 1, 3))
    now, operations = 0, []
    for _ in range(int(random.between(20, 80))):
        now += int(random.below(2 * gap))
        publication = Operation(now, PUBLISH, int(random.below(nodes)))
        operations.append(draw_kind(publication, order, orders, keys, random))
    council = pick(random, (0, 100, 1000, 3000))
    mortal = (nodes - 1) // 2 if council == 0 else (nodes - 1) // 4
    is_relay = random.below(2) == 0
    cuts: list[Operation] = []
    for _ in range(pick(random, (1, 2, 3, 5)) if council == 0 else 1):
        cut = draw_next_cut(cuts[-1], nodes, random) if cuts and is_relay else draw_partition(nodes, now + 1, random)
        cuts.append(cut)
        operations.append(cut)
        for node in sorted({int(random.below(nodes)) for _ in range(pick(random, (0, 1, 1, 2)))}):
            if mortal > 0:
                mortal -= 1
                operations.append(Operation(max(0, cut.at + int(random.between(-300, 600))), CRASH, node))
        if random.below(2) == 0:
            start = max(0, cut.at + int(random.between(-1000, 1000)))
            lasts = pick(random, (100, 1000, 5000))
            operations.append(Operation(start, PAUSE, int(random.below(nodes)), 0, start + lasts))
    options = {**scenario.protocol_options, "quorum": True, "council": council}
    options["quorum_delivery"] = random.below(2) == 0
    return with_operations(msgspec.structs.replace(scenario, protocol_options=options), operations)


def new_scenario(seed: int, order: str | None, nodes: int, random: RandomStream) -> Scenario:
    """A tree and a network, with one topic for all brokers, without operations."""
    return Scenario(
        name=f"tree torture {seed}",
        seed=seed,
        fabric=TREE.name,
        protocol="broker-tree",
        order="causal" if order in (None, MIXED) else order,
        nodes=nodes,
        protocol_options=draw_options(nodes, random),
        network=draw_connections(random),
        topics=TopicsTable(count=1, members=[list(range(nodes))]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )


def draw_busy_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """All brokers publish all the time, and brokers with children fail."""
    nodes = int(random.between(4, 12))
    scenario = new_scenario(seed, order, nodes, random)
    options = {**scenario.protocol_options, "collect": pick(random, (20, 100)), "total_degree": pick(random, (3, 8))}
    orders = pick(random, (ORDER_NAMES, ORDER_NAMES[:3], ("total",)))
    gap, keys = pick(random, (5, 20, 50)), pick(random, (1, 20))
    now, operations = 0, []
    for _ in range(BUSY_PUBLICATIONS):
        now += int(random.below(2 * gap))
        publication = Operation(now, PUBLISH, int(random.below(nodes)))
        operations.append(draw_kind(publication, order, orders, keys, random))
    parents = options["parents"]
    inner = sorted({parent for parent in parents if parent != NO_NODE})
    crashes = range(pick(random, (1, 1, 2, 3)))
    if random.below(2) == 0:
        operations += [Operation(int(random.below(now)), CRASH, pick(random, inner)) for _ in crashes]
    else:
        deep = [broker for broker in inner if parents[broker] not in (NO_NODE, 0)] or inner
        for _ in crashes:
            crash = Operation(int(random.below(now)), CRASH, pick(random, deep))
            operations += [crash, *draw_silence(crash, parents, scenario, random)]
    return with_operations(msgspec.structs.replace(scenario, protocol_options=options), operations)


def draw_silence(
    crash: Operation, parents: Sequence[int], scenario: Scenario, random: RandomStream
) -> Iterator[Operation]:
    """The parent of a failing broker pauses until some time after it should have noticed the failure."""
    above = parents[crash.node]
    if above != NO_NODE:
        lasts = scenario.network.detection + pick(random, (300, 1000, 5000))
        yield Operation(crash.at, PAUSE, above, 0, crash.at + lasts)


def draw_with_quorum(scenario: Scenario, operations: list[Operation], random: RandomStream) -> Scenario:
    """The schedule with brokers that join, and partitions that heal; a majority stays up.

    Where the council follows partitions no broker crashes: a small council could lose its majority.
    """
    founders = scenario.nodes
    joiners = range(founders, founders + pick(random, (0, 1, 2)))
    contacts = {joiner: int(random.below(founders)) for joiner in joiners}
    is_parted = random.below(3) > 0
    council = 0 if is_parted and random.below(2) == 0 else pick(random, (100, 3000))
    end = max((operation.at for operation in operations), default=0) + 1
    added = [draw_partition(founders, end, random) for _ in range(pick(random, (1, 1, 2, 4)))] if is_parted else []
    for joiner in joiners:
        added += draw_newcomer(joiner, end, random)
    mortal = (founders - 1) // 2 if council == 0 or not is_parted else 0
    crashed: set[int] = set()
    for operation in operations:
        if operation.kind == CRASH and operation.node not in crashed:
            if len(crashed) >= mortal or operation.node in contacts.values():
                continue
            crashed.add(operation.node)
        added.append(operation)
    options = {
        **scenario.protocol_options,
        "parents": scenario.protocol_options["parents"] + [contacts[joiner] for joiner in joiners],
        "quorum": True,
        "council": council,
    }
    if is_parted and not joiners and random.below(2) == 0:
        # A disconnected broker is given up soon, and catches up from the log of the broker it reconnects to.
        options |= {"absence": pick(random, (1000, 10_000)), "log": LOG_ENTRIES}
        assert scenario.topics is not None, "schedules have topics"
        everybody: list[list[int] | str] = [list(range(founders)) for _ in range(scenario.topics.count)]
        scenario = msgspec.structs.replace(scenario, topics=TopicsTable(count=len(everybody), members=everybody))
        added = [operation for operation in added if operation.kind not in (SUBSCRIBE, UNSUBSCRIBE)]
    return with_operations(
        msgspec.structs.replace(scenario, nodes=founders + len(joiners), protocol_options=options), added
    )


def draw_partition(nodes: int, end: int, random: RandomStream) -> Operation:
    """Some brokers are cut off from the others, for a moment or for long."""
    share = random.between(1, 3)
    group = tuple(node for node in range(nodes) if random.below(4) < share)
    start = int(random.below(end))
    lasts = pick(random, (10, 400, 3000, 10_000, 40_000))
    return Operation(start, PART, 0, 0, start + lasts, None, group[: nodes - 1] or (0,))


def draw_next_cut(last: Operation, nodes: int, random: RandomStream) -> Operation:
    """As soon as a partition heals, another one begins: each time other brokers know the most recent attempt."""
    start = max(0, last.until - int(random.below(300)))
    lasts = pick(random, (600, 2000, 6000))
    alone = int(random.below(nodes))
    return Operation(start, PART, 0, 0, start + lasts, None, (alone, (alone + 1) % nodes)[: pick(random, (1, 1, 2))])


def draw_newcomer(node: int, end: int, random: RandomStream) -> list[Operation]:
    """A broker joins, subscribes and publishes."""
    start = int(random.below(end))
    found = [Operation(start, JOIN, node), Operation(start + int(random.below(2000)), SUBSCRIBE, node)]
    for number in range(pick(random, (0, 2, 5))):
        order = pick(random, ORDER_NAMES)
        found.append(Operation(start + 2000 + 500 * number, PUBLISH, node, 0, 0, order, (0,)))
    return found


def draw_kind(
    operation: Operation, order: str | None, orders: tuple[str, ...], keys: int, random: RandomStream
) -> Operation:
    """A publication about one or two keys, in the given order or in a drawn one."""
    chosen = pick(random, orders) if order in (None, MIXED) else order
    about = {int(random.below(keys)) for _ in range(pick(random, (1, 1, 2)))}
    return operation._replace(order=chosen, keys=tuple(sorted(about)))


def draw_options(nodes: int, random: RandomStream) -> dict[str, Any]:
    """A tree, and how brokers look for a new parent."""
    reach = pick(random, (1, 2, 4, nodes))
    parents = [int(NO_NODE)] + [int(random.between(max(0, node - reach), node - 1)) for node in range(1, nodes)]
    return {
        "parents": parents,
        "total_degree": pick(random, (2, 3, 8)),
        "max_hops": pick(random, (2, 3, 5)),
        "ancestors_first": random.below(2) == 0,
        "nearest_first": random.below(3) == 0,
        "patience": pick(random, (100, 500, 2000)),
        "collect": pick(random, (100, 1000, 5000)),
    }


def draw_crashes(nodes: int, operations: list[Operation], random: RandomStream) -> list[Operation]:
    """Crashes: while others publish, several at once, or in quick succession."""
    end = max(operation.at for operation in operations) + 1 if operations else 1
    moment = int(random.below(end))
    crashes = []
    for _ in range(pick(random, (0, 1, 1, 2, 3, nodes - 1))):
        node = 0 if random.below(3) == 0 else int(random.below(nodes))
        after = pick(random, (0, 0, int(random.below(500)), int(random.below(3000))))
        moment = int(random.below(end)) if random.below(4) == 0 else moment
        crashes.append(Operation(moment + after, CRASH, node))
    return crashes
