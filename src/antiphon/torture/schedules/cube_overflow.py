"""Schedules for the cube that overflow every buffer: a partition lasts for more publications than anything but a log
holds.

One in twelve of the schedules with faults is of this kind. All nodes have logs, and keep only the minimum in memory.

* A publisher is **alone** on its side of a partition, or with few others, and publishes far more than buffers, a
  window, one answer and one piece of a log hold. Some of the other nodes publish meanwhile. Then the partition heals;
  sometimes the publisher crashes soon after, or pauses, and comes back.
* Half of the nodes or **more** fail at once, or all but one, while others publish. All of them restart with their logs,
  one by one or together, and every node publishes again. In some of these schedules the nodes that did not fail also
  publish in total order, which continues when enough of the others are back.
* **New members** stand between all members that have a publication and those that miss it: a publisher fails while it
  sends its last publication, the forwarder leaves, and all other nodes join.

No publication is lost in any of them, and every node receives the last words of every other node.
"""

from __future__ import annotations

from typing import Any

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario, TopicsTable
from antiphon.torture.schedules.cube import EVENT_LIMIT, EXCLUDE, FORGET, LOG_ENTRIES, weakened
from antiphon.torture.schedules.operations import (
    CRASH,
    MIXED,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    draw_connections,
    draw_order,
    draw_totals,
    pick,
    with_operations,
)

OVERFLOW_STREAM = 42
"""The stream of random numbers. It is separate, so that adding these schedules did not change others."""

ONE_IN = 12


def draw_overflow_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """The scenario of a seed."""
    draw = pick(random, (draw_alone, draw_most_down, draw_newcomers_between))
    nodes, members, operations = draw(random)
    scenario = Scenario(
        name=f"cube torture {seed} beyond every buffer",
        seed=seed,
        protocol="vcube-ps-lasting",
        order=pick(random, ORDERS) if order in (None, MIXED) else order,
        nodes=nodes,
        protocol_options=draw_tight_options(random),
        network=draw_connections(random),
        topics=TopicsTable(count=1, members=[members]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    end = LONG_AFTER + max(max(operation.at, operation.until) for operation in operations)
    operations += [Operation(end + 100 * node, PUBLISH, node) for node in range(nodes)]
    if order in (None, MIXED) and random.below(2) == 0:
        operations = [draw_order(operation, random) for operation in operations]
    if draw is draw_most_down and order in (None, MIXED) and random.below(2) == 0:
        operations = totals_of_survivors(operations, random)
    return with_operations(scenario, operations)


def totals_of_survivors(operations: list[Operation], random: RandomStream) -> list[Operation]:
    """Make some publications of nodes that do not fail total: refused while most nodes are down, accepted at the end.

    Restarted nodes publish in other orders, as in all schedules of the cube: their logs have the numbers of those.
    """
    failing = {operation.node for operation in operations if operation.kind == CRASH}
    drawn = draw_totals(operations, random)
    return [weakened(operation) if operation.node in failing else operation for operation in drawn]


def draw_tight_options(random: RandomStream) -> dict[str, Any]:
    """Options with a log, and with the smallest possible buffers."""
    window, bundle = pick(random, (1, 2, 8, 64)), pick(random, (1, 3))
    return {
        "window": window,
        "bundle": bundle,
        "keep": window + bundle,
        "compare": pick(random, (100, 500, 2000)),
        "forget": FORGET,
        "exclude": EXCLUDE,
        "log": LOG_ENTRIES,
    }


def draw_alone(random: RandomStream) -> tuple[int, list[int], list[Operation]]:
    """A publisher with few other nodes on its side of a partition."""
    nodes = int(random.between(3, 9))
    publisher = int(random.below(nodes))
    companions = {int(random.below(nodes)) for _ in range(min(nodes - 2, pick(random, (0, 0, 1, 2))))}
    group = tuple(sorted({publisher} | companions))
    gap = pick(random, (1, 10, 40))
    count = pick(random, (100, 250, 400))
    now, operations = 0, []
    for number in range(count):
        now += int(random.below(2 * gap)) + 1
        operations.append(Operation(now, PUBLISH, publisher if number % 4 else int(random.below(nodes))))
    start = operations[int(random.below(count // 5))].at
    healed = now + pick(random, (1, 100, 5000))
    operations.append(Operation(start, PART, 0, 0, healed, None, group))
    soon = healed + int(random.below(3000))
    kind = pick(random, (None, None, CRASH, PAUSE))
    if kind is not None:
        operations.append(Operation(soon, kind, publisher, 0, soon + pick(random, (60, 700, 5000))))
    return nodes, list(range(nodes)), operations


def draw_most_down(random: RandomStream) -> tuple[int, list[int], list[Operation]]:
    """Half of the nodes or more are down at once, and all restart."""
    nodes = int(random.between(3, 9))
    order = [(int(random.below(1 << 16)), node) for node in range(nodes)]
    victims = [node for _, node in sorted(order)][: int(random.between((nodes + 1) // 2, nodes - 1))]
    gap, now, operations = pick(random, (5, 20, 60)), 0, []
    for _ in range(pick(random, (40, 150))):
        now += int(random.below(2 * gap)) + 1
        operations.append(Operation(now, PUBLISH, int(random.below(nodes))))
    at = int(random.below(now))
    back = at + pick(random, (500, 3000, 10_000))
    for victim in victims:
        down = at + pick(random, (0, 0, int(random.below(300))))
        up = max(down + 1, back + pick(random, (0, 0, int(random.below(4000)))))
        operations.append(Operation(down, CRASH, victim, 0, up))
        operations += [Operation(up + 300 * number, PUBLISH, victim) for number in range(pick(random, (0, 1, 3)))]
    return nodes, list(range(nodes)), operations


def draw_newcomers_between(random: RandomStream) -> tuple[int, list[int], list[Operation]]:
    """Few members: one fails while it publishes, one leaves, and many other nodes join at that moment."""
    nodes = int(random.between(8, 26))
    order = sorted((int(random.below(1 << 16)), node) for node in range(nodes))
    shuffled = [node for _, node in order]
    count = int(random.between(3, 6))
    members, others = shuffled[:count], shuffled[count:]
    publisher, leavers = members[0], members[1 : 1 + pick(random, (1, 1, count // 2))]
    at = int(random.between(1, 200))
    operations = [Operation(at + number, PUBLISH, publisher) for number in range(pick(random, (1, 1, 3)))]
    operations.append(Operation(at + int(random.between(3, 80)), CRASH, publisher))
    operations += [Operation(at + int(random.between(1, 40)), UNSUBSCRIBE, leaver) for leaver in leavers]
    share = random.between(2, 4)
    operations += [
        Operation(at + int(random.between(1, 80)), SUBSCRIBE, node) for node in others if random.below(4) < share
    ]
    return nodes, sorted(members), operations
