"""Random schedules for the gossip fabric: topic operations as for the cube, and failures.

Links lose up to a fifth of all messages; nodes crash, some restart, some before any peer has noticed, and members join
and leave. Publishers and the first contact stay up. Views are small, so that overlays break easily. Every other
schedule has a long rest, in which topics are silent. A node that is a member when a message is published, and stays
one, must deliver it. In a quarter of the schedules for BRISA some publications are total, with right or wrong clocks,
rounds and ttl: holes are allowed but must be reported, and the order must not differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, LinkLaw, NetworkTable, NormalLaw, Scenario, TopicsTable
from antiphon.torture.schedules.operations import (
    CRASH,
    MIX_STREAM,
    MIXED,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    draw_members,
    draw_order,
    named_members,
    pick,
    with_operations,
)
from antiphon.torture.schedules.suspected_pauses import with_suspected_pauses
from antiphon.trace.contract import TOTAL_ORDER as TOTAL

GOSSIP_STREAM = 8
"""The stream of random numbers; the simulator uses 1 to 5, other schedules 6 and 7."""

REST_STREAM = 20
REST_TICKS = (20_000, 200_000)
"""The length of the rest in the middle of every other schedule."""

EVENT_LIMIT = 5_000_000
"""No schedule reaches this limit unless it never ends."""

TOTAL_STREAM = 21
"""The stream for total order, separate for the same reason."""

Choose = Callable[[int, int, dict[str, Any]], tuple[str, dict[str, Any]]]
"""Maps a seed, a number of nodes and the options drawn for BRISA to a protocol and its options."""

STRATEGIES = ("first-come", "first-come", "delay", "age", "load", "bandwidth")


def always_brisa(_seed: int, _nodes: int, drawn: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The protocol that live nodes run."""
    return "brisa", drawn


def draw_gossip_schedule(seed: int, order: str | None = None, choose: Choose = always_brisa) -> Scenario:
    """The scenario of a seed. Without ``order`` it is drawn; ``choose`` serves campaigns of other protocols."""
    random = RandomStream(seed, GOSSIP_STREAM)
    nodes = draw_size(random)
    topic_count = pick(random, (1, 1, 1, 2))
    drawn_order = pick(random, ("causal", "causal", "fifo", "none"))
    protocol, options = choose(seed, nodes, draw_options(nodes, random))
    scenario = Scenario(
        name=f"gossip torture {seed}",
        seed=seed,
        fabric=GOSSIP.name,
        protocol=protocol,
        order=drawn_order if order in (None, MIXED, TOTAL) else order,
        nodes=nodes,
        protocol_options=options,
        network=draw_network(random),
        topics=TopicsTable(count=topic_count, members=[draw_some_members(nodes, random) for _ in range(topic_count)]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    operations = with_rest(draw_operations(scenario, random), RandomStream(seed, REST_STREAM))
    mixing = RandomStream(seed, MIX_STREAM)
    if order == MIXED or (order is None and mixing.below(3) == 0):
        operations = [draw_order(operation, mixing) for operation in operations]
    totals = RandomStream(seed, TOTAL_STREAM)
    if order == TOTAL or (order is None and protocol == "brisa" and totals.below(4) == 0):
        options = {**scenario.protocol_options, **draw_total_options(nodes, totals)}
        scenario = msgspec.structs.replace(scenario, protocol_options=options)
        share = pick(totals, (25, 50, 100))
        operations = [draw_total(operation, share, totals) for operation in operations]
    return with_suspected_pauses(with_operations(scenario, operations), seed)


def draw_total_options(nodes: int, random: RandomStream) -> dict[str, Any]:
    """Clocks, rounds and ttl; most of them are sensible."""
    options: dict[str, Any] = {
        "round_period": pick(random, (40, 125, 125, 400)),
        "round_drift": pick(random, (0.1, 0.1, 1.0)),
        "clock": pick(random, ("logical", "logical", "global")),
        "skew": pick(random, (0, 50, 1000)),
        "granularity": pick(random, (1, 1000)),
        "adapts": random.below(3) == 0,
        "total_patience": pick(random, (4, 16)),
        "agreement": 0.0,
        "total_wait": pick(random, (0, 10_000, 100_000)),
    }
    if random.below(3) == 0:
        options["fanout"] = int(random.between(1, max(1, nodes - 1)))
    if random.below(3) == 0:
        options["ttl"] = int(random.between(1, 6))
    return options


def draw_total(operation: Operation, share: int, random: RandomStream) -> Operation:
    """The operation; a publication becomes total with a probability of ``share`` percent."""
    if operation.kind != PUBLISH or random.below(100) >= share:
        return operation
    return operation._replace(order=TOTAL)


def draw_size(random: RandomStream) -> int:
    """The number of nodes: mostly few, sometimes up to 40."""
    return int(random.between(2, 10) if random.below(100) < 70 else random.between(11, 40))


def draw_some_members(nodes: int, random: RandomStream) -> list[int]:
    """The first members of a topic. Node 0 is one of them, so that there is a publisher."""
    return sorted({0, *draw_members(nodes, random)})


def draw_options(nodes: int, random: RandomStream) -> dict[str, Any]:
    """Small views, trees or graphs, and a strategy."""
    active = pick(random, (2, 2, 3, 4))
    parents = pick(random, (1, 1, 1, 2))
    options: dict[str, Any] = {
        "active": active,
        "passive": active + pick(random, (0, 2, 20)),
        "expansion": pick(random, (1.0, 1.5, 2.0) if active > 2 else (1.5, 2.0)),
        "contacts": list(range(min(nodes, pick(random, (1, 2, 3))))),
        "parents": parents,
        "strategy": pick(random, STRATEGIES),
        "period": pick(random, (300, 1000)),
        "join_window": pick(random, (0, 500, 3000)),
        "bandwidths": [1, 10, 100],
    }
    structure = random.below(4)
    if structure == 0:
        options["trees"] = pick(random, (2, 3))
    elif structure == 1 and parents == 1:
        options["reuse_depth"] = pick(random, (1, 2))
    return options


def draw_network(random: RandomStream) -> NetworkTable:
    """Links that lose and reorder."""
    normal = NormalLaw(mean=float(pick(random, (20, 100))), deviation=float(pick(random, (5, 30))))
    late = random.below(3) == 0
    return NetworkTable(
        delay=LinkLaw(of=normal) if random.below(2) == 0 else normal,
        loss=pick(random, (0.0, 0.0, 0.01, 0.05, 0.1, 0.2)),
        reordering=pick(random, (0.05, 0.3)) if late else 0.0,
        reordering_window=pick(random, (50, 500, 3000)) if late else 0,
        duplication=pick(random, (0.0, 0.0, 0.0, 0.1)),
        detection=pick(random, (10, 300, 1000, 3000)),
    )


def draw_operations(scenario: Scenario, random: RandomStream) -> list[Operation]:
    """The operations in the order of time; impossible ones are left out later."""
    operations = []
    topics = scenario.topic_count()
    members = [sorted(nodes) for nodes in named_members(scenario)]
    # Few nodes publish, so that others may crash.
    speakers = [[pick(random, nodes) for _ in range(3)] for nodes in members]
    gap = pick(random, (20, 200, 1000))
    now = pick(random, (0, 500, 5000, 15_000))
    operations.append(Operation(now, PUBLISH, 0))
    kinds = (PUBLISH, PUBLISH, PUBLISH, PUBLISH, CRASH, CRASH, SUBSCRIBE, UNSUBSCRIBE, PAUSE)
    for _ in range(random.between(5, 20 + 2 * scenario.nodes)):
        now += int(random.between(0, 2 * gap))
        topic = int(random.below(topics))
        kind = pick(random, kinds)
        node = pick(random, speakers[topic]) if kind == PUBLISH else int(random.below(scenario.nodes))
        until = 0
        if kind in (PAUSE, CRASH):
            until = now + pick(random, (1, 100, 1000, 5000))
            if kind == CRASH and random.below(3) == 0:
                until = 0
        operations.append(Operation(now, kind, node, topic, until))
    return operations


def with_rest(operations: list[Operation], random: RandomStream) -> list[Operation]:
    """Insert a rest before one of the operations of every other schedule: an overlay that breaks in it must heal."""
    if random.below(2) == 0:
        return operations
    first = int(random.below(len(operations)))
    rest = int(random.between(*REST_TICKS))
    later = [
        operation._replace(at=operation.at + rest, until=operation.until + rest if operation.until else 0)
        for operation in operations[first:]
    ]
    return [*operations[:first], *later]
