"""Random schedules for EpTO: under any fault, no node delivers twice, out of order, or an event that was never
published.

Links lose up to 30 % of all messages, duplicate and reorder them; nodes crash, restart and pause; the network splits;
rounds drift by more than a period; clocks are wrong by more than the time of a dissemination, or so coarse that most
timestamps are equal. Options are drawn without regard to agreement, so holes are allowed. Two violations are not: two
nodes deliver in different orders, or a node that stays up does not deliver its own publication.

One schedule in four is **calm**: only single messages are lost, and fanout and ttl are so small that agreement depends
on chance. For these, theory predicts the probability that a publication reaches all nodes
(:mod:`antiphon.fabrics.gossip.epto.analysis`), and so does a game without the protocol's code, in which rounds are not
in step (:mod:`antiphon.torture.schedules.epto_expectation`). The campaign compares all three.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.fabrics.gossip.epto.analysis import Spread
from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    Fault,
    LimitsTable,
    LinkLaw,
    NetworkTable,
    NormalLaw,
    PartitionFault,
    Scenario,
)
from antiphon.torture.schedules.epto_expectation import expected_of
from antiphon.torture.schedules.operations import CRASH, PAUSE, PUBLISH, Operation, pick, with_operations

EPTO_STREAM = 11
"""The stream of random numbers; the simulator and other schedules use 1 to 10."""

EVENT_LIMIT = 10_000_000
"""No schedule reaches this limit unless it never ends. As published, a late copy is relayed again in as many rounds as
it is short of ``ttl`` relays: with 35 nodes, a fanout of 33 and copies that are 500 rounds late, that makes 2.1
million.
"""

CALM_DELAY = 10
CALM_ROUND = 1000
"""Ticks of a round in calm schedules. A message takes a small part of a round, as the theory assumes."""


def draw_epto_schedule(seed: int, _order: str | None = None) -> Scenario:
    """The scenario of a seed; the order is always total."""
    random = RandomStream(seed, EPTO_STREAM)
    return draw_calm(seed, random) if random.below(4) == 0 else draw_rough(seed, random)


def new_scenario(seed: int, nodes: int, options: dict[str, Any], network: NetworkTable) -> Scenario:
    """A scenario without operations."""
    return Scenario(
        name=f"EpTO torture {seed}",
        seed=seed,
        fabric=GOSSIP.name,
        protocol="epto",
        order="total",
        nodes=nodes,
        protocol_options=options,
        network=network,
        limits=LimitsTable(events=EVENT_LIMIT),
    )


def draw_calm(seed: int, random: RandomStream) -> Scenario:
    """Only single messages are lost; each publication can spread before the next one."""
    nodes = int(random.between(3, 24))
    options = {
        "fanout": int(random.between(1, min(4, nodes - 1))),
        "ttl": int(random.between(2, 7)),
        "period": CALM_ROUND,
        "drift": 0.0,
        "agreement": 0.0,
    }
    loss = pick(random, (0.0, 0.05, 0.1, 0.2, 0.3))
    network = NetworkTable(delay=ConstantLaw(ticks=CALM_DELAY), transmission=0, loss=loss)
    operations = [
        Operation(number * CALM_ROUND * 2 + int(random.below(CALM_ROUND)), PUBLISH, int(random.below(nodes)))
        for number in range(random.between(3, 12))
    ]
    return with_operations(new_scenario(seed, nodes, options, network), operations)


def calm_agreement(scenario: Scenario) -> float | None:
    """The probability that a publication of a calm schedule reaches all nodes; None for other schedules."""
    options = scenario.protocol_options
    if options.get("period") != CALM_ROUND or options.get("drift") != 0.0 or scenario.faults:
        return None
    return float(Spread(scenario.nodes, options["fanout"], scenario.network.loss).stable(float(options["ttl"])))


def played_agreement(scenario: Scenario) -> float:
    """The same probability from the game in which rounds are not in step, for a calm schedule."""
    return expected_of(scenario, CALM_DELAY, CALM_ROUND)


def draw_rough(seed: int, random: RandomStream) -> Scenario:
    """A schedule with every kind of fault."""
    nodes = int(random.between(2, 10) if random.below(100) < 75 else random.between(11, 40))
    network = draw_network(random)
    options = draw_options(nodes, random)
    scenario = new_scenario(seed, nodes, options, network)
    scenario = with_operations(scenario, draw_operations(nodes, options["period"], random))
    partitions = draw_partitions(nodes, random)
    return msgspec.structs.replace(scenario, faults=[*scenario.faults, *partitions])


def draw_options(nodes: int, random: RandomStream) -> dict[str, Any]:
    """Options, sensible and foolish ones."""
    options: dict[str, Any] = {
        "period": pick(random, (10, 40, 125, 125, 400)),
        "drift": pick(random, (0.0, 0.1, 0.1, 1.0, 2.0)),
        "clock": pick(random, ("global", "logical")),
        "skew": pick(random, (0, 0, 50, 1000)),
        "clock_drift": pick(random, (0, 0, 1000, 100_000)),
        "granularity": pick(random, (1, 100, 1000, 10_000)),
        "ordering": pick(random, ("keys", "keys", "keys", "strict")),
        "persists": random.below(4) > 0,
        "digests": random.below(3) == 0,
        "adapts": random.below(5) == 0,
        "sampling": pick(random, ("everybody", "everybody", "cyclon")),
        "view": pick(random, (2, 5, 30)),
        "exchanged": 2,
        "patience": pick(random, (4, 16)),
        "agreement": 0.0,
    }
    if random.below(3) == 0:
        options["fanout"] = int(random.between(1, max(1, nodes - 1)))
    if random.below(3) == 0:
        options["ttl"] = int(random.between(1, 8))
    return options


def draw_network(random: RandomStream) -> NetworkTable:
    """Links that lose up to 30 %, duplicate and reorder."""
    normal = NormalLaw(mean=float(pick(random, (20, 100))), deviation=float(pick(random, (5, 30, 100))))
    late = random.below(3) == 0
    return NetworkTable(
        delay=LinkLaw(of=normal) if random.below(3) == 0 else normal,
        # Every ball has many receivers: with a tick per message, the output would always be busy in short rounds.
        transmission=0,
        loss=pick(random, (0.0, 0.01, 0.1, 0.2, 0.3)),
        reordering=pick(random, (0.05, 0.3)) if late else 0.0,
        reordering_window=pick(random, (50, 500, 5000)) if late else 0,
        duplication=pick(random, (0.0, 0.0, 0.1)),
        detection=pick(random, (10, 1000)),
    )


def draw_operations(nodes: int, period: int, random: RandomStream) -> list[Operation]:
    """Some nodes publish, alone and at the same tick; others crash and restart; some publishers crash for good."""
    speakers = sorted({int(random.below(nodes)) for _ in range(random.between(1, 1 + nodes // 2))})
    gap = pick(random, (1, period // 4, period, 4 * period))
    operations = [Operation(0, PUBLISH, speakers[0])]
    now = 1
    failing = random.below(2) == 0
    for _ in range(random.between(3, 30 + nodes)):
        now += int(random.between(0, 2 * gap))
        chance = random.below(10) if failing else random.below(8)
        if chance < 8:
            crowd = speakers if random.below(4) == 0 else [pick(random, speakers)]
            operations += [Operation(now, PUBLISH, node) for node in crowd]
            continue
        node = int(random.below(nodes))
        until = now + pick(random, (1, 100, 1000, 5000))
        if chance == 8:
            operations.append(Operation(now, PAUSE, node, 0, until))
        else:
            for_good = node in speakers or random.below(3) == 0
            operations.append(Operation(now, CRASH, node, 0, 0 if for_good else until))
    return operations


def draw_partitions(nodes: int, random: RandomStream) -> list[Fault]:
    """In one schedule of three, some nodes are cut off for a while, in both directions or in one."""
    if nodes < 3 or random.below(3) > 0:
        return []
    start = int(random.below(3000))
    group = sorted({int(random.below(nodes)) for _ in range(random.between(1, nodes // 2))})
    until = start + pick(random, (50, 500, 3000))
    return [PartitionFault(at=start, until=until, groups=[group], one_way=random.below(3) == 0)]
