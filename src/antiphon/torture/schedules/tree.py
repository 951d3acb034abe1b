"""Random schedules for the broker tree: everything that those of topics do, keys, and brokers that crash.

Trees are chains, stars and anything between. Brokers crash alone, several at once, one after the other while the tree
is being repaired, the root most of all; those who publish too. Crashes are noticed at once or late, and by then the
others may have heard of each other through somebody who is dead. Publications are about few keys, so that they meet.
Whoever lives must agree with all who live, and nothing may wait for ever.

One schedule in eight is **busy**: everybody publishes all the time, and brokers fail that have others below them, while
the root asks again and again what can be forgotten. Whatever is kept for too short a time is missed by somebody then.
In half of these whoever would have to tell of a failure stands still meanwhile, so that others have found a new place
before the root knows that they had lost theirs.

One in eight of the others is **torn**: everybody publishes about few keys in all orders, the network falls apart, a
broker crashes within moments of that, others stand still, and the council follows who is there. Whatever only few have
got just then is on trial: a weaker publication that only they delivered, a lock that only they know of. In half of
these, and in one of four of all others with a quorum, publications of every order wait for a majority.

Two more kinds have modules of their own: brokers that return with their disks (``tree_returns.py``), and few brokers to
which everything happens at once (``tree_crowded.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario, TopicsTable
from antiphon.torture.schedules.operations import (
    CRASH,
    JOIN,
    MIXED,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    Script,
    draw_connections,
    draw_members,
    pick,
    with_operations,
)
from antiphon.torture.schedules.standstills import with_standstills
from antiphon.torture.schedules.tree_crowded import (
    CROWDED_ONE_IN,
    CROWDED_STREAM,
    FIRST_CROWDED,
    MOST_FOUNDERS,
    draw_crowded_schedule,
)
from antiphon.torture.schedules.tree_returns import ONE_IN, RETURN_STREAM, draw_return_schedule

TREE_STREAM = 9
"""Names the stream of random numbers; 1 to 8 are those of the simulator and of other schedules."""

BUSY_STREAM = 23
"""Names the stream for busy schedules, apart from the other, so that all others are what they were without them."""

BUSY_PUBLICATIONS = 150

TORN_STREAM = 31
"""Names the stream for torn schedules, and for whether all orders wait for a majority, apart from the others."""

EVENT_LIMIT = 1_000_000
"""No schedule comes near it unless it never ends."""

LARGEST = 32
LOG_ENTRIES = 1 << 20
"""Nothing that a schedule publishes falls out of such a log."""


def draw_tree_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed; ``order`` if it is not to be drawn for each publication."""
    return with_standstills(draw_unwatched_schedule(seed, order), seed)


def draw_unwatched_schedule(seed: int, order: str | None = None) -> Scenario:
    """The same without those who stand still and are lost."""
    crowded = RandomStream(seed, CROWDED_STREAM)
    if seed >= FIRST_CROWDED and crowded.below(CROWDED_ONE_IN) == 0:
        founders = int(crowded.between(2, MOST_FOUNDERS))
        return draw_crowded_schedule(new_scenario(seed, order, founders, crowded), order, crowded)
    busy = RandomStream(seed, BUSY_STREAM)
    if busy.below(8) == 0:
        return draw_busy_schedule(seed, order, busy)
    torn = RandomStream(seed, TORN_STREAM)
    if torn.below(8) == 0:
        return draw_torn_schedule(seed, order, torn)
    returning = RandomStream(seed, RETURN_STREAM)
    if returning.below(ONE_IN) == 0:
        return draw_return_schedule(
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
        # Whoever was to publish may have failed before.
        return complete if complete.publications else with_operations(scenario, survivors)
    complete = draw_with_quorum(scenario, drawn, random)
    if torn.below(4) == 0:
        options = {**complete.protocol_options, "quorum_delivery": True}
        complete = msgspec.structs.replace(complete, protocol_options=options)
    return complete if complete.publications else with_operations(scenario, survivors)


def draw_torn_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """Everybody publishes all the time, and partitions, crashes and pauses come close together; a majority lives.

    A council that follows partitions may shrink to little more than half of the founders. So that half of it survives
    there is one partition then, and of four brokers one crashes at most.
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
    """A tree and a network, with one topic for everybody, in which nothing happens yet."""
    return Scenario(
        name=f"tree torture {seed}",
        seed=seed,
        fabric="tree",
        protocol="broker-tree",
        order="causal" if order in (None, MIXED) else order,
        nodes=nodes,
        protocol_options=draw_options(nodes, random),
        network=draw_connections(random),
        topics=TopicsTable(count=1, members=[list(range(nodes))]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )


def draw_busy_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """Everybody publishes all the time; brokers fail that have others below them."""
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
    """The parent of a broker that fails stands still until some time after it should have noticed."""
    above = parents[crash.node]
    if above != NO_NODE:
        lasts = scenario.network.detection + pick(random, (300, 1000, 5000))
        yield Operation(crash.at, PAUSE, above, 0, crash.at + lasts)


def draw_with_quorum(scenario: Scenario, operations: list[Operation], random: RandomStream) -> Scenario:
    """The same with brokers that join, and partitions that heal; a majority lives.

    Where the council follows partitions nobody crashes: that could take the majority of a small council with it.
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
        # Who is away is given up soon, and finds what it lacks in the log of the broker to which it comes back.
        options |= {"absence": pick(random, (1000, 10_000)), "log": LOG_ENTRIES}
        assert scenario.topics is not None, "schedules have topics"
        everybody: list[list[int] | str] = [list(range(founders)) for _ in range(scenario.topics.count)]
        scenario = msgspec.structs.replace(scenario, topics=TopicsTable(count=len(everybody), members=everybody))
        added = [operation for operation in added if operation.kind not in (SUBSCRIBE, UNSUBSCRIBE)]
    return with_operations(
        msgspec.structs.replace(scenario, nodes=founders + len(joiners), protocol_options=options), added
    )


def draw_partition(nodes: int, end: int, random: RandomStream) -> Operation:
    """Some are cut off from the others, for a moment or for long."""
    share = random.between(1, 3)
    group = tuple(node for node in range(nodes) if random.below(4) < share)
    start = int(random.below(end))
    lasts = pick(random, (10, 400, 3000, 10_000, 40_000))
    return Operation(start, PART, 0, 0, start + lasts, None, group[: nodes - 1] or (0,))


def draw_next_cut(last: Operation, nodes: int, random: RandomStream) -> Operation:
    """As soon as those who were cut off are back, another one is: each time others know what was begun last."""
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
    """A publication with an order of its own, unless one is given, about one key or two."""
    chosen = pick(random, orders) if order in (None, MIXED) else order
    about = {int(random.below(keys)) for _ in range(pick(random, (1, 1, 2)))}
    return operation._replace(order=chosen, keys=tuple(sorted(about)))


def draw_options(nodes: int, random: RandomStream) -> dict[str, Any]:
    """A tree, and how brokers look for a new place in it."""
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
    """Who fails when: while others publish, several at once, or soon after each other."""
    end = max(operation.at for operation in operations) + 1 if operations else 1
    moment = int(random.below(end))
    crashes = []
    for _ in range(pick(random, (0, 1, 1, 2, 3, nodes - 1))):
        node = 0 if random.below(3) == 0 else int(random.below(nodes))
        after = pick(random, (0, 0, int(random.below(500)), int(random.below(3000))))
        moment = int(random.below(end)) if random.below(4) == 0 else moment
        crashes.append(Operation(moment + after, CRASH, node))
    return crashes
