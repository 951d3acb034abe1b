"""Random schedules for the cube with faults while all nodes publish all the time.

In other schedules (:mod:`antiphon.torture.schedules.cube`) few messages are in transit when a fault happens. Here there
always are: forwarders fail while they forward, and other nodes must serve their clusters; a node that was cut off
misses more than one answer carries, and more than others keep in memory. There are three kinds:

* systems with **logs**, which keep as little as possible in memory;
* systems without logs that keep **all** in memory, so a restarted node is a new node;
* systems without logs that keep only messages that may be in transit (**tight**): no node is cut off or restarts.

No publication may be lost in any of them, unless its publisher fails for good.

Some situations need more than one coincidence, so they are drawn as a whole. A node publishes while it is cut off, and
leaves before it is reachable again: only this node has its publications. Two nodes subscribe to a topic that has no
other member while they find each other. A node answers a publication that only it received, and both publishers fail.
"""

from __future__ import annotations

from typing import Any

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario, TopicsTable
from antiphon.torture.schedules.cube import (
    EVENT_LIMIT,
    FORGET,
    LOG_ENTRIES,
    draw_fault_schedule,
    draw_newcomer,
    draw_partitions,
    draw_stall,
)
from antiphon.torture.schedules.cube_incarnations import INCARNATION_STREAM, draw_incarnation_schedule
from antiphon.torture.schedules.cube_incarnations import ONE_IN as ONE_IN_INCARNATIONS
from antiphon.torture.schedules.cube_overflow import ONE_IN as ONE_IN_OVERFLOW
from antiphon.torture.schedules.cube_overflow import OVERFLOW_STREAM, draw_overflow_schedule
from antiphon.torture.schedules.operations import (
    CRASH,
    MIXED,
    PART,
    PUBLISH,
    SUBSCRIBE,
    TOTAL_ORDER,
    UNSUBSCRIBE,
    Operation,
    draw_connections,
    draw_order,
    pick,
    with_operations,
)
from antiphon.torture.schedules.suspected_pauses import with_suspected_pauses

BUSY_STREAM = 24
"""The stream of random numbers. It is separate, so that adding these schedules did not change others."""

ONE_IN = 4
PUBLICATIONS = 150
"""More publications than one answer to a returning node carries."""

LOGS, ALL, TIGHT = "logs", "all", "tight"

QUIET_TOPIC = 1
"""A topic without members at the start."""


def draw_cube_fault_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed: one in six has later incarnations; of the others one in four is busy, one in twelve
    overflows buffers.
    """
    lives = RandomStream(seed, INCARNATION_STREAM)
    if lives.below(ONE_IN_INCARNATIONS) == 0:
        return draw_incarnation_schedule(seed, order, lives)
    beyond = RandomStream(seed, OVERFLOW_STREAM)
    if beyond.below(ONE_IN_OVERFLOW) == 0 and order != TOTAL_ORDER:
        return with_suspected_pauses(draw_overflow_schedule(seed, order, beyond), seed)
    random = RandomStream(seed, BUSY_STREAM)
    if random.below(ONE_IN) == 0 and order != TOTAL_ORDER:
        return with_suspected_pauses(draw_busy_schedule(seed, order, random), seed)
    return with_suspected_pauses(draw_fault_schedule(seed, order), seed)


def draw_busy_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """All nodes publish all the time, while nodes fail, are cut off, join and leave."""
    nodes = int(random.between(3, 8) if random.below(4) > 0 else random.between(9, 20))
    memory = pick(random, (LOGS, ALL, TIGHT))
    # Other nodes learn of a new node with a delay; it is cut off until then.
    newcomers = range(nodes, nodes + (0 if memory == TIGHT else pick(random, (0, 0, 1))))
    scenario = Scenario(
        name=f"busy cube torture {seed}",
        seed=seed,
        protocol="vcube-ps-lasting",
        order=pick(random, ORDERS) if order in (None, MIXED) else order,
        nodes=nodes + len(newcomers),
        protocol_options=draw_busy_options(memory, random),
        network=draw_connections(random),
        topics=TopicsTable(count=2, members=[list(range(nodes)), []]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    gap = pick(random, (5, 20, 60))
    now, operations = 0, []
    for _ in range(PUBLICATIONS):
        now += int(random.below(2 * gap))
        operations.append(Operation(now, PUBLISH, int(random.below(nodes))))
    operations += draw_trouble(nodes, now, memory, scenario.network.detection, random)
    for newcomer in newcomers:
        operations += draw_newcomer(newcomer, 1, now, random)
    if order in (None, MIXED) and random.below(2) == 0:
        operations = [draw_order(operation, random) for operation in operations]
    return with_operations(scenario, operations)


def draw_busy_options(memory: str, random: RandomStream) -> dict[str, Any]:
    """Windows, and how much is kept in memory: little beside a log, everything, or only messages in transit."""
    window, bundle = pick(random, (1, 2, 8, 64)), pick(random, (1, 3, 64))
    beyond = {LOGS: pick(random, (0, 0, 5)), ALL: 2 * PUBLICATIONS, TIGHT: 0}
    return {
        "window": window,
        "bundle": bundle,
        "keep": window + bundle + beyond[memory],
        "compare": pick(random, (100, 500, 2000)),
        "forget": FORGET,
        "log": LOG_ENTRIES if memory == LOGS else 0,
    }


def draw_trouble(nodes: int, end: int, memory: str, detection: int, random: RandomStream) -> list[Operation]:
    """Faults during the schedule, several at a time."""
    crashes = draw_busy_crashes(nodes, end, memory == LOGS, random) if random.below(3) > 0 else []
    found = crashes + [draw_stall(nodes, end, random) for _ in range(pick(random, (0, 1, 2)))]
    if random.below(3) == 0:
        found += draw_last_answer(nodes, end, random)
    if memory == TIGHT:
        return found
    if random.below(3) > 0:
        found += [part for _ in range(pick(random, (1, 1, 3))) for part in draw_partitions(nodes, end, random)]
    # The judge assumes that a restarted node has the same subscriptions as before; so other nodes join and leave.
    steady = sorted(set(range(nodes)) - {crash.node for crash in crashes if crash.until > 0})
    if steady and random.below(2) == 0:
        two = (pick(random, steady), pick(random, steady))
        found += draw_meeting(nodes, two, int(random.below(end)), detection, random)
    if steady and random.below(2) == 0:
        found += draw_last_words(pick(random, steady), end, random)
    if steady and random.below(2) == 0:
        found += draw_absence(pick(random, steady), int(random.below(end)), random)
    return found


def draw_busy_crashes(nodes: int, end: int, has_log: bool, random: RandomStream) -> list[Operation]:
    """Some nodes fail, at once or one by one; with logs, two of three restart."""
    found = []
    moment = int(random.below(end))
    for _ in range(pick(random, (1, 2, 3))):
        at = moment + pick(random, (0, int(random.below(300)), int(random.below(end))))
        back = at + pick(random, (1, 60, 700, 5000)) if has_log and random.below(3) > 0 else 0
        found.append(Operation(at, CRASH, int(random.below(nodes)), 0, back))
    return found


def draw_last_answer(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """Two nodes fail for good, one after the other; the second may have answered a publication that only it received
    from the first.
    """
    at = int(random.below(end))
    first, second = int(random.below(nodes)), int(random.below(nodes))
    found = [Operation(at, PUBLISH, first), Operation(at + int(random.between(1, 100)), CRASH, first)]
    found += [Operation(at + 30 * number, PUBLISH, second) for number in range(1, 8)]
    return [*found, Operation(at + int(random.between(100, 300)), CRASH, second)]


def draw_last_words(node: int, end: int, random: RandomStream) -> list[Operation]:
    """A node is cut off, publishes, and leaves before it is reachable again; it may come back later."""
    start = int(random.below(end))
    lasts = pick(random, (3000, 10_000))
    at = start + int(random.below(lasts // 2))
    found = [Operation(start, PART, 0, 0, start + lasts, None, (node,))]
    found += [Operation(at + number, PUBLISH, node) for number in range(pick(random, (1, 3)))]
    found.append(Operation(at + int(random.between(3, lasts // 2)), UNSUBSCRIBE, node))
    if random.below(2) == 0:
        found.append(Operation(start + lasts + int(random.below(5000)), SUBSCRIBE, node))
    return found


def draw_meeting(nodes: int, two: tuple[int, int], start: int, detection: int, random: RandomStream) -> list[Operation]:
    """Two nodes subscribe to a topic of their own while they find each other after a partition, and publish later."""
    one, other = two
    end = start + pick(random, (400, 3000))
    group = tuple(node for node in range(nodes) if node == one or (node != other and random.below(2) == 0))
    found = [Operation(start, PART, 0, 0, end, None, group)] if len(group) < nodes else []
    for node in two:
        found.append(Operation(end + detection - int(random.below(200)), SUBSCRIBE, node, QUIET_TOPIC))
        found.append(Operation(end + 5000 + int(random.below(1000)), PUBLISH, node, QUIET_TOPIC))
    return found


def draw_absence(node: int, start: int, random: RandomStream) -> list[Operation]:
    """A node leaves, comes back soon, and publishes."""
    back = start + pick(random, (1, 100, 1000))
    found = [Operation(start, UNSUBSCRIBE, node), Operation(back, SUBSCRIBE, node)]
    return found + [Operation(back + 500 * number, PUBLISH, node) for number in range(pick(random, (0, 3)))]
