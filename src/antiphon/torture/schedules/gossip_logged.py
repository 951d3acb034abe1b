"""Random schedules for the gossip fabric in which all nodes have logs, and partitions outlast every buffer.

One to three partitions separate nodes for a second or for many minutes. Publishers on both sides publish more than the
buffers hold. Nodes crash during and between the partitions; some restart. A publisher may crash for good, also behind a
partition: its publications are then in the logs of other nodes only. No loss is excused: a member delivers every
publication that a remaining member has delivered, from that member's log if need be.
"""

from __future__ import annotations

import msgspec

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.gossip import draw_network
from antiphon.torture.schedules.gossip_partition import TALKING_BEGINS, new_scenario, shuffled, spoken
from antiphon.torture.schedules.operations import CRASH, MIXED, PART, Operation, draw_order, pick, with_operations

LOG_ENTRIES = 8192
"""Logs forget nothing in these schedules."""

PARTITION_PERIODS = (5, 30, 100, 300, 600, 1000)
"""The length of a partition in periods: nodes without a log keep everything for 600 of them at most."""

JOINING_TICKS = 20_000
"""After so many ticks a restarted node is part of the overlay again."""

PUBLISHED = (3, 10, 40, 100)
"""The numbers of publications of one publisher during one partition."""


def draw_logged(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """Partitions that outlast every buffer, and nodes that crash beside them, with logs at all nodes."""
    nodes = int(random.between(3, 16))
    chosen = pick(random, ("none", "fifo", "causal", "causal")) if order in (None, MIXED) else order
    scenario = new_scenario(seed, chosen, nodes, draw_network(random), random)
    keep = pick(random, (1, 4, 16))
    options = {**scenario.protocol_options, "keep": keep, "buffer": keep * pick(random, (1, 2)), "log": LOG_ENTRIES}
    order_of_nodes = shuffled(nodes, random)
    publishers = order_of_nodes[: pick(random, (1, 2, 3))]
    mixes = order == MIXED or (order is None and random.below(3) == 0)
    # The first contact stays up; others crash and restart. Publishers crash for good, unless some of their publications
    # have no order: nodes do not tell each other of one that came after another one was lost with its publisher.
    mortal = [node for node in publishers if node != 0 and chosen != "none" and not mixes]
    others = [node for node in order_of_nodes[3:] if node != 0]
    partitions = draw_partitions(nodes, options["period"], random)
    operations = list(partitions)
    for partition in partitions:
        at, ticks = partition.at, partition.until - partition.at
        for publisher in publishers:
            operations += [spoken(publisher, at, ticks, random) for _ in range(pick(random, PUBLISHED))]
        for node in others:
            if random.below(4) == 0:
                operations.append(draw_crash(node, partition, partitions, random))
        if len(mortal) > 0 and random.below(2) == 0:
            operations.append(Operation(at + int(random.below(ticks)), CRASH, mortal.pop()))
    if mixes:
        operations = [draw_order(operation, random) for operation in operations]
    return with_operations(msgspec.structs.replace(scenario, protocol_options=options), operations)


def draw_partitions(nodes: int, period: int, random: RandomStream) -> list[Operation]:
    """One to three partitions, one after the other; the next one begins soon or long after the last one has healed."""
    found = []
    now = TALKING_BEGINS
    for _ in range(pick(random, (1, 1, 2, 3))):
        ticks = period * pick(random, PARTITION_PERIODS)
        side = tuple(sorted(shuffled(nodes, random)[: random.between(1, nodes - 1)]))
        found.append(Operation(now, PART, 0, 0, now + ticks, None, side))
        now += ticks + period * pick(random, (1, 20, 200))
    return found


def draw_crash(node: int, partition: Operation, partitions: list[Operation], random: RandomStream) -> Operation:
    """A crash during a partition. The node restarts where it reaches the first contact.

    A node that restarts apart from the first contact can only wait, for longer and longer.
    """
    ticks = partition.until - partition.at
    at = partition.at + int(random.below(ticks))
    back = at + pick(random, (100, 5000, ticks))
    for each in partitions:
        is_apart = (node in each.keys) != (0 in each.keys)
        if is_apart and each.at - JOINING_TICKS < back < each.until:
            back = each.until
    return Operation(at, CRASH, node, 0, back)
