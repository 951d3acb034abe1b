"""Random schedules for the cube through faults in which everybody publishes all the time.

In other schedules (:mod:`antiphon.torture.schedules.cube`) faults seldom meet anything on its way. Here there always
is: forwarders fail while they forward, and the clusters behind them are served by somebody else or not at all;
whoever was cut off lacks more than is given at once, and more than others keep in memory. There are three kinds:

* systems with **logs**, which keep no more beside them than they have to;
* systems without logs that keep **all** in memory, so that who returns is somebody new;
* systems without logs that keep what may be under way, and no more (**tight**): nobody is cut off or comes back.

Nothing may be lost in any of them, unless its publisher fails for good.

Some things need more than one coincidence, and are drawn whole. Somebody says something while it is cut off, and leaves
before it is found again: only it can give what it said. Two subscribe to a topic that nobody else is interested in,
while they find each other. Somebody answers what only it has heard, and both who spoke fail.
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
from antiphon.torture.schedules.cube_beyond import BEYOND_STREAM, draw_beyond_schedule
from antiphon.torture.schedules.cube_beyond import ONE_IN as ONE_IN_BEYOND
from antiphon.torture.schedules.cube_lives import LIVES_STREAM, draw_lives_schedule
from antiphon.torture.schedules.cube_lives import ONE_IN as ONE_IN_LIVES
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
from antiphon.torture.schedules.standstills import with_standstills

BUSY_STREAM = 24
"""Names the stream of random numbers, apart from others, so that other schedules are what they were without these."""

ONE_IN = 4
PUBLICATIONS = 150
"""More than are given to somebody at once."""

LOGS, ALL, TIGHT = "logs", "all", "tight"

QUIET_TOPIC = 1
"""Nobody is a member at the start."""


def draw_cube_fault_schedule(seed: int, order: str | None = None) -> Scenario:
    """The scenario of a seed: one of six with later lives, else one of four busy and one of twelve beyond buffers."""
    lives = RandomStream(seed, LIVES_STREAM)
    if lives.below(ONE_IN_LIVES) == 0:
        return draw_lives_schedule(seed, order, lives)
    beyond = RandomStream(seed, BEYOND_STREAM)
    if beyond.below(ONE_IN_BEYOND) == 0 and order != TOTAL_ORDER:
        return with_standstills(draw_beyond_schedule(seed, order, beyond), seed)
    random = RandomStream(seed, BUSY_STREAM)
    if random.below(ONE_IN) == 0 and order != TOTAL_ORDER:
        return with_standstills(draw_busy_schedule(seed, order, random), seed)
    return with_standstills(draw_fault_schedule(seed, order), seed)


def draw_busy_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """Everybody publishes all the time; nodes fail, are cut off, come and go."""
    nodes = int(random.between(3, 8) if random.below(4) > 0 else random.between(9, 20))
    memory = pick(random, (LOGS, ALL, TIGHT))
    # Others do not hear at once of a newcomer, which is cut off until then.
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
    """Windows; little in memory beside a log, or everything, or what may be under way."""
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
    """What goes wrong meanwhile, more than one thing at a time."""
    crashes = draw_busy_crashes(nodes, end, memory == LOGS, random) if random.below(3) > 0 else []
    found = crashes + [draw_stall(nodes, end, random) for _ in range(pick(random, (0, 1, 2)))]
    if random.below(3) == 0:
        found += draw_last_answer(nodes, end, random)
    if memory == TIGHT:
        return found
    if random.below(3) > 0:
        found += [part for _ in range(pick(random, (1, 1, 3))) for part in draw_partitions(nodes, end, random)]
    # Who comes back from a crash is what it was, as far as the judge knows; so others come and go.
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
    """Some fail, at once or not; where there are logs two of three come back."""
    found = []
    moment = int(random.below(end))
    for _ in range(pick(random, (1, 2, 3))):
        at = moment + pick(random, (0, int(random.below(300)), int(random.below(end))))
        back = at + pick(random, (1, 60, 700, 5000)) if has_log and random.below(3) > 0 else 0
        found.append(Operation(at, CRASH, int(random.below(nodes)), 0, back))
    return found


def draw_last_answer(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """Two fail for good, one after the other; the second may have answered what nobody else has heard of the first."""
    at = int(random.below(end))
    first, second = int(random.below(nodes)), int(random.below(nodes))
    found = [Operation(at, PUBLISH, first), Operation(at + int(random.between(1, 100)), CRASH, first)]
    found += [Operation(at + 30 * number, PUBLISH, second) for number in range(1, 8)]
    return [*found, Operation(at + int(random.between(100, 300)), CRASH, second)]


def draw_last_words(node: int, end: int, random: RandomStream) -> list[Operation]:
    """Somebody is cut off, publishes, and leaves before it is found again; perhaps it comes back later."""
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
    """Two subscribe to a topic of their own while they find each other after a partition, and publish later."""
    one, other = two
    end = start + pick(random, (400, 3000))
    group = tuple(node for node in range(nodes) if node == one or (node != other and random.below(2) == 0))
    found = [Operation(start, PART, 0, 0, end, None, group)] if len(group) < nodes else []
    for node in two:
        found.append(Operation(end + detection - int(random.below(200)), SUBSCRIBE, node, QUIET_TOPIC))
        found.append(Operation(end + 5000 + int(random.below(1000)), PUBLISH, node, QUIET_TOPIC))
    return found


def draw_absence(node: int, start: int, random: RandomStream) -> list[Operation]:
    """Somebody leaves, and comes back soon; it publishes then."""
    back = start + pick(random, (1, 100, 1000))
    found = [Operation(start, UNSUBSCRIBE, node), Operation(back, SUBSCRIBE, node)]
    return found + [Operation(back + 500 * number, PUBLISH, node) for number in range(pick(random, (0, 3)))]
