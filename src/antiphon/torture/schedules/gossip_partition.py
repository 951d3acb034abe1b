"""Random schedules for the gossip fabric in which a publisher is cut off, and the last words of every gossip schedule.

**Cut off.** A publisher and at most two other nodes are separated from the rest, for a second or for minutes. It
publishes more than nodes keep, and in some schedules more than their buffers hold. The others may publish too. After
the partition, publications that fit into a buffer reach all nodes. The others are reported as lost, and no node waits
for them.

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
