"""Processes that stand still, for longer and shorter than others take to notice, in every other schedule with faults.

A node that stands still for longer is lost to the others, as a live one is after ``lost_seconds``: its connections end,
and it is found when it goes on. It must then get what it missed, and what it said before must count once. Standstills
end around the moment at which others notice, or long after it.
"""

from __future__ import annotations

import msgspec

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.protocols.registry import PROTOCOLS
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.operations import CRASH, PAUSE, Operation, operations_of, pick, with_operations
from antiphon.trace.contract import TOTAL_ORDER

STANDSTILL_STREAM = 41
"""Names the stream of random numbers, apart from others, so that other schedules are what they were without these."""


def with_standstills(scenario: Scenario, seed: int) -> Scenario:
    """The schedule of a seed as it is, or with standstills that others notice."""
    random = RandomStream(seed, STANDSTILL_STREAM)
    if random.below(2) == 0 or not survives_standstills(scenario):
        return scenario
    operations = operations_of(scenario)
    end = max((operation.at for operation in operations), default=0) + 1
    operations += [draw_standstill(scenario, end, random) for _ in range(pick(random, (0, 1, 1, 2)))]
    if scenario.uses_order(TOTAL_ORDER):
        operations = with_living_majority(operations, scenario)
    network = msgspec.structs.replace(scenario.network, notices_pauses=True)
    noticed = with_operations(msgspec.structs.replace(scenario, network=network), operations)
    return noticed if noticed.publications else scenario


def survives_standstills(scenario: Scenario) -> bool:
    """Whether a protocol promises anything to who is lost and comes back.

    On a tree that needs a quorum. On a cube somebody must have kept what was published meanwhile.
    """
    options, protocol = scenario.protocol_options, PROTOCOLS[scenario.protocol]
    if scenario.protocol == "broker-tree":
        return bool(options.get("quorum", False))
    if protocol.remembers:
        return int(options.get("log", 0)) > 0 or int(options.get("keep", 0)) > len(scenario.publications)
    return protocol.recovers


def draw_standstill(scenario: Scenario, end: int, random: RandomStream) -> Operation:
    """A node stands still, for hardly shorter or hardly longer than others take to notice, or for much longer."""
    at, detection = int(random.below(end)), int(scenario.network.detection)
    lasts = pick(random, (detection // 2, detection - 1, detection + 1, detection + 150, 2 * detection + 50, 20_000))
    return Operation(at, PAUSE, int(random.below(scenario.nodes)), 0, at + max(1, lasts))


def with_living_majority(operations: list[Operation], scenario: Scenario) -> list[Operation]:
    """The same without crashes that could take the majority with them while others stand still.

    Where the council follows who is there, nobody crashes: a small council could lose its majority.
    """
    still = {one.node for one in operations if one.kind == PAUSE}
    founders = scenario.nodes - len(scenario.absent_at_start())
    mortal = max(0, (founders - 1) // 2 - len(still))
    if scenario.protocol == "broker-tree" and scenario.protocol_options.get("council", 1) > 0:
        mortal = 0
    crashing: set[int] = set()
    kept = []
    for operation in operations:
        if operation.kind == CRASH:
            if operation.node not in crashing and len(crashing) >= mortal:
                continue
            crashing.add(operation.node)
        kept.append(operation)
    return kept
