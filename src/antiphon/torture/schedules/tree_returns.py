"""Random schedules for brokers that crash and return with their disks, half of the tree and more at once.

Waves of crashes take half of the brokers, most or all of them. Each of these returns after a moment or after long, some
while others are still falling. Disks are fast or slow, so that a crash takes away what was written and not synced. All
orders are published meanwhile, about few keys, by brokers of which some are no subscribers. Parts of the network may be
cut off beside that. In a third of these schedules one broker lives on, cut off, while all others crash and return: it
knows what they had agreed on, and they have nothing but their disks to know it by.

At the end everybody is back for long, and everybody has the **last word**: it publishes in total order and in another
one. A broker that still refuses total order then is counted as stuck.
"""

from __future__ import annotations

import msgspec

from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario, TopicsTable
from antiphon.torture.schedules.operations import CRASH, PART, PUBLISH, Operation, draw_members, pick, with_operations

RETURN_STREAM = 31
"""Names the stream for these schedules, apart from the others, which are what they were without them."""

ONE_IN = 6
"""So many schedules of the tree have one like this among them."""

SILENCE_TICKS = 300_000
"""After so long everybody has found everybody, whatever the times of waiting have grown to."""


def draw_return_schedule(scenario: Scenario, order: str | None, random: RandomStream) -> Scenario:
    """A schedule in the tree of a scenario in which nothing happens yet."""
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
    """A publication about a key or two, in an order of its own unless one is given."""
    chosen = pick(random, orders) if order not in ORDER_NAMES else order
    about = {int(random.below(keys)) for _ in range(pick(random, (1, 1, 2)))}
    return Operation(at, PUBLISH, node, 0, 0, chosen, tuple(sorted(about)))


def draw_waves(nodes: int, end: int, random: RandomStream) -> list[Operation]:
    """Half of the brokers and more crash at about the same time, and all of them come back."""
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
    """One broker, mostly the root, lives on and is cut off when all others crash; these return before it is found.

    What they had agreed on is in the memory of the one, and must be on the disks of most others.
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
    """Some are cut off from the others, for a while."""
    group = tuple(node for node in range(nodes) if random.below(2) == 0)
    start = int(random.below(end))
    return Operation(start, PART, 0, 0, start + pick(random, (400, 3000, 20_000)), None, group[: nodes - 1] or (0,))
