"""Pauses that failure detection may notice: about as long as detection takes, in every other schedule with faults.

The other nodes give up a node that pauses for longer, as live nodes do after ``lost_seconds``: its connections end, and
it reconnects when it resumes. It must then receive what it missed, and its earlier publications must count once. Pauses
end around the moment of detection, or long after it.
"""

from __future__ import annotations

import msgspec

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.operations import CRASH, PAUSE, Operation, operations_of, pick, with_operations
from antiphon.trace.contract import TOTAL_ORDER

PAUSE_STREAM = 41
"""The stream of random numbers. It is separate, so that adding these pauses did not change other schedules."""


def with_suspected_pauses(scenario: Scenario, seed: int) -> Scenario:
    """The schedule of a seed, unchanged or with pauses that other nodes notice."""
    random = RandomStream(seed, PAUSE_STREAM)
    if random.below(2) == 0 or not survives_suspicion(scenario):
        return scenario
    operations = operations_of(scenario)
    end = max((operation.at for operation in operations), default=0) + 1
    operations += [draw_pause(scenario, end, random) for _ in range(pick(random, (0, 1, 1, 2)))]
    if scenario.uses_order(TOTAL_ORDER):
        operations = with_living_majority(operations, scenario)
    network = msgspec.structs.replace(scenario.network, notices_pauses=True)
    noticed = with_operations(msgspec.structs.replace(scenario, network=network), operations)
    return noticed if noticed.publications else scenario


def survives_suspicion(scenario: Scenario) -> bool:
    """Whether the protocol promises anything to a node that was given up and comes back.

    On a tree that needs a quorum. On a cube some node must keep what was published meanwhile.
    """
    options, protocol = scenario.protocol_options, PROTOCOLS[scenario.protocol]
    if protocol.needs_quorum:
        return bool(options.get("quorum", False))
    if protocol.remembers:
        return int(options.get("log", 0)) > 0 or int(options.get("keep", 0)) > len(scenario.publications)
    return protocol.recovers


def draw_pause(scenario: Scenario, end: int, random: RandomStream) -> Operation:
    """A node pauses for slightly less or more than failure detection takes, or for much longer."""
    at, detection = int(random.below(end)), int(scenario.network.detection)
    lasts = pick(random, (detection // 2, detection - 1, detection + 1, detection + 150, 2 * detection + 50, 20_000))
    return Operation(at, PAUSE, int(random.below(scenario.nodes)), 0, at + max(1, lasts))


def with_living_majority(operations: list[Operation], scenario: Scenario) -> list[Operation]:
    """The operations without crashes that could remove the majority while other nodes pause.

    Where the council follows partitions no node crashes: a small council could lose its majority.
    """
    still = {one.node for one in operations if one.kind == PAUSE}
    founders = scenario.nodes - len(scenario.absent_at_start())
    mortal = max(0, (founders - 1) // 2 - len(still))
    if PROTOCOLS[scenario.protocol].needs_quorum and scenario.protocol_options.get("council", 1) > 0:
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
