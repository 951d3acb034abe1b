"""Random schedules in which brokers crash and restart with their disks, half of the tree and more at once.

Waves of crashes take half of the brokers, most or all of them. Each restarts after a moment or after long, some while
others still crash. Disks are fast or slow, so that a crash loses writes that were not synced. Brokers publish in all
orders meanwhile, about few keys; some publishers are not subscribers. Partitions may happen too. In a third of these
schedules one broker stays up, cut off, while all others crash and restart: it remembers what they had agreed on, and
they must know it from their disks alone.

At the end all brokers have been up for long, and each has **last words**: it publishes in total order and in another
one. A broker that still refuses total order then counts as stuck.
"""

from __future__ import annotations

import msgspec

from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario, TopicsTable
from antiphon.torture.schedules.operations import CRASH, PART, PUBLISH, Operation, draw_members, pick, with_operations

RESTART_STREAM = 31
"""The stream for these schedules. It is separate, so that adding them did not change others."""

ONE_IN = 6
"""One in this many schedules of the tree is of this kind."""

SILENCE_TICKS = 300_000
"""After so long all brokers have found each other, however long their retry times have grown."""


def draw_restart_schedule(scenario: Scenario, order: str | None, random: RandomStream) -> Scenario:
    """Draw a schedule for the tree of a scenario without operations."""
    nodes = scenario.nodes
    options = {
        **scenario.protocol_options,
        "quorum": True,
        "disk": True,
        "council": pick(random, (0, 100, 3000)),
        "sync": pick(random, (0, 0, 10, 100, 1000)),
    }
    everybody = list(range(nodes))
    members = everybody if random.below(2) == 0 else draw_members(nodes, random)
    scenario = msgspec.structs.replace(
        scenario, protocol_options=options, topics=TopicsTable(count=1, members=[members or everybody])
    )
    keys = pick(random, (1, 2, 20))
    orders = pick(random, (ORDER_NAMES, ("causal", "total"), ("total",)))
    gap = pick(random, (20, 100, 400))
    now, operations = 0, []
    for _ in range(pick(random, (20, 60, 120))):
        now += int(random.below(2 * gap))
        operations.append(draw_publication(now, int(random.below(nodes)), order, orders, keys, random))
    if random.below(3) == 0:
        operations += draw_lone_witness(nodes, now + 1, random)
    else:
        operations += draw_waves(nodes, now + 1, random)
    if random.below(3) == 0:
        operations += [draw_cut(nodes, now + 1, random) for _ in range(pick(random, (1, 2)))]
    end = max((operation.until for operation in operations), default=now)
    for word, node in enumerate((*everybody, *everybody)):
        at = max(end, now) + SILENCE_TICKS + word * pick(random, (1, 100))
        kinds = ("total",) if word < nodes else orders
        operations.append(draw_publication(at, node, order, kinds, keys, random))
    return with_operations(scenario, operations)


def draw_publication(
    at: int, node: int, order: str | None, orders: tuple[str, ...], keys: int, random: RandomStream
) -> Operation:
    """A publication about one or two keys, in the given order or in a drawn one."""
    chosen = pick(random, orders) if order not in ORDER_NAMES else order
    about = {int(random.below(keys)) for _ in range(pick(random, (1, 1, 2)))}
    return Operation(at, PUBLISH, node, 0, 0, chosen, tuple(sorted(about)))


def draw_waves(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """Half of the brokers and more crash at about the same time, and all of them restart."""
    found: list[Operation] = []
    free = dict.fromkeys(range(nodes), 0)
    for _ in range(pick(random, (1, 1, 2, 3))):
        moment = int(random.below(end))
        spread = pick(random, (1, 1, 300, 3000))
        count = int(random.between((nodes + 1) // 2, nodes))
        away = pick(random, (300, 3000, 20_000))
        for node in sorted(range(nodes), key=lambda _: random.below(1 << 20))[:count]:
            at = moment + int(random.below(spread))
            until = at + 1 + int(random.below(away)) if random.below(2) == 0 else moment + spread + away
            if at > free[node]:
                found.append(Operation(at, CRASH, node, 0, until))
                free[node] = until
    return found


def draw_lone_witness(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """One broker, mostly the root, stays up and is cut off when all others crash; they restart before it reconnects.

    It remembers what they had agreed on; most of their disks must have it too.
    """
    witness = 0 if random.below(4) > 0 else int(random.below(nodes))
    moment = int(random.below(end))
    away = pick(random, (10, 300, 3000))
    healed = moment + away + pick(random, (5000, 30_000))
    found = [Operation(moment, PART, 0, 0, healed, None, (witness,))]
    others = [node for node in range(nodes) if node != witness]
    found += [
        Operation(moment + int(random.below(2)), CRASH, node, 0, moment + 2 + int(random.below(away)))
        for node in others
    ]
    for number in range(pick(random, (0, 5, 20))):
        at = moment + away + 500 + number * 200
        found.append(Operation(at, PUBLISH, int(random.below(nodes)), 0, 0, "total", (int(random.below(2)),)))
    return found


def draw_cut(nodes: int, end: int, random: RandomStream) -> Operation:
    """Some brokers are cut off from the others for a while."""
    group = tuple(node for node in range(nodes) if random.below(2) == 0)
    start = int(random.below(end))
    return Operation(start, PART, 0, 0, start + pick(random, (400, 3000, 20_000)), None, group[: nodes - 1] or (0,))
