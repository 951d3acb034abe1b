"""Random schedules for the gossip fabric with partitions, and the last words of every gossip schedule.

**Cut off.** A publisher and at most two other nodes are separated from the rest, for a second or for minutes. It
publishes more than nodes keep, and in some schedules more than their buffers hold. The others may publish too. After
the partition, publications that fit into a buffer reach all nodes. The others are reported as lost, and no node waits
for them.

**Logged.** All nodes have logs, and partitions outlast every buffer. One to three partitions separate nodes for seconds
or for many minutes. Publishers on both sides publish more than the buffers hold. Nodes crash during the partitions and
restart. A publisher may crash for good, also behind a partition: its publications are then in the logs of other nodes
only. A member must deliver every publication that a remaining member has delivered, from that member's log if need be.

**Last words.** Long after everything has healed every member publishes once more, except members that failed or joined
late. A node that does not hear another one, or is separated from the rest, misses one of these.
"""

from __future__ import annotations

import msgspec

from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.scenario import LimitsTable, NetworkTable, Scenario, TopicsTable
from antiphon.torture.schedules.gossip import EVENT_LIMIT, draw_network, draw_options
from antiphon.torture.schedules.operations import (
    CRASH,
    JOIN,
    LEAVE,
    MIXED,
    PART,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    draw_order,
    named_members,
    operations_of,
    pick,
    with_operations,
)

TALKING_BEGINS = 30_000
"""By then all nodes have joined the overlay."""

CUT_TICKS = (1000, 3000, 10_000, 10_000, 60_000, 200_000)
"""The length of a partition: more or less than the time to notice it, to forget publications, and to give up."""

MOST_PUBLISHED = 150
"""The most publications during a partition."""

LOG_ENTRIES = 8192
"""Logs forget nothing in these schedules."""

PARTITION_PERIODS = (5, 30, 100, 300, 450, 600)
"""The length of a partition in periods. A node that is alone gives missing publications up after 640 of them."""

JOINING_TICKS = 20_000
"""After so many ticks a restarted node is part of the overlay again."""

PUBLISHED = (3, 10, 40, 100)
"""The numbers of publications of one publisher during one partition."""

LAST_WORDS = 16
"""The number of members with last words; they are drawn if there are more members."""


def new_scenario(seed: int, order: str, nodes: int, network: NetworkTable, random: RandomStream) -> Scenario:
    """BRISA with one topic for all nodes, without operations."""
    return Scenario(
        name=f"gossip torture {seed}",
        seed=seed,
        fabric=GOSSIP.name,
        protocol="brisa",
        order=order,
        nodes=nodes,
        protocol_options=draw_options(nodes, random),
        network=network,
        topics=TopicsTable(count=1, members=[list(range(nodes))]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )


def draw_cut_off(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """A publisher and few others are cut off, and it publishes more than any node keeps."""
    nodes = int(random.between(3, 16))
    chosen = pick(random, ("none", "fifo", "causal", "causal")) if order in (None, MIXED) else order
    scenario = new_scenario(seed, chosen, nodes, draw_network(random), random)
    keep = pick(random, (1, 4, 16, 64))
    buffer = pick(random, (keep, 2 * keep, 1024, 1024))
    options = {**scenario.protocol_options, "keep": keep, "buffer": buffer}
    if random.below(3) == 0:
        # The defaults, contacts included.
        options = {"keep": keep, "buffer": buffer}
    publisher = int(random.below(nodes))
    if random.below(3) == 0:
        # All nodes have logs, or only the publisher.
        options = {**options, "log": 1024, "log_nodes": pick(random, ([], [publisher]))}
    strangers = [node for node in shuffled(nodes, random) if node != publisher]
    # At least one node stays on the other side.
    companions = {pick(random, strangers[1:]) for _ in range(pick(random, (0, 1, 1, 2)))}
    others = [node for node in strangers if node not in companions]
    lasts = pick(random, CUT_TICKS)
    healed = TALKING_BEGINS + lasts
    # Some publish before the partition, and some after it.
    operations = [Operation(TALKING_BEGINS - 5000 + 100 * number, PUBLISH, publisher) for number in range(3)]
    operations.append(Operation(TALKING_BEGINS, PART, 0, 0, healed, None, tuple(sorted({publisher, *companions}))))
    count = min(MOST_PUBLISHED, pick(random, (keep + 1, 2 * keep + 1, buffer + 1, MOST_PUBLISHED)))
    operations += [spoken(publisher, healed - lasts, lasts, random) for _ in range(count)]
    if others and random.below(2) == 0:
        speaker = pick(random, others)
        operations += [spoken(speaker, healed - lasts, lasts, random) for _ in range(pick(random, (1, keep + 1)))]
    operations += [spoken(publisher, healed, 5000, random) for _ in range(pick(random, (0, 1, 5)))]
    if order == MIXED or (order is None and random.below(3) == 0):
        operations = [draw_order(operation, random) for operation in operations]
    return with_operations(msgspec.structs.replace(scenario, protocol_options=options), operations)


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
    # The first contact stays up; others crash and restart. Publishers crash for good.
    mortal = [node for node in publishers if node != 0]
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


def shuffled(nodes: int, random: RandomStream) -> list[int]:
    """All nodes in a random order."""
    left = list(range(nodes))
    return [left.pop(int(random.below(len(left)))) for _ in range(nodes)]


def spoken(node: int, begun: int, ticks: int, random: RandomStream) -> Operation:
    """A publication at a random time in a span."""
    return Operation(begun + int(random.below(ticks)), PUBLISH, node)


def with_last_words(scenario: Scenario, random: RandomStream) -> Scenario:
    """The schedule with last words: long after all faults, members publish once more."""
    operations = operations_of(scenario)
    members = [set(nodes) for nodes in named_members(scenario)]
    for one in operations:
        if one.kind == SUBSCRIBE:
            members[one.topic].add(one.node)
        elif one.kind == UNSUBSCRIBE:
            members[one.topic].discard(one.node)
    # A publication of a failed node may be lost with it, so no node must deliver it.
    mortal = {one.node for one in operations if one.kind in (CRASH, LEAVE, JOIN)}
    said = [one for one in operations if one.kind == PUBLISH]
    healed = LONG_AFTER + max((max(one.at, one.until) for one in operations), default=0)
    for topic, nodes in enumerate(members):
        speakers = sorted(nodes - mortal)
        while len(speakers) > LAST_WORDS:
            speakers.pop(int(random.below(len(speakers))))
        for place, node in enumerate(speakers):
            like = pick(random, said) if said else Operation(0, PUBLISH, node)
            operations.append(like._replace(at=healed + 10 * place, node=node, topic=topic))
    return with_operations(scenario, operations)
