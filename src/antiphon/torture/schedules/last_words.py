"""The end of every schedule: all faults heal, and long after that every member publishes once more.

A node may have stopped receiving, or a topic may be stuck, without a visible failure, because nothing is published any
more. So every schedule of every fabric ends in the same way. Partitions heal, paused nodes resume, disks recover.
``LONG_AFTER`` ticks later all members of all topics publish, one after the other.
:mod:`antiphon.simulator.scenario.last_words` judges the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.kernel.process import NO_NODE
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.last_words import LONG_AFTER
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.schedules.operations import (
    CRASH,
    DISK,
    JOIN,
    LEAVE,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    named_members,
    operations_of,
    pick,
    with_operations,
)

LAST_STREAM = 40
"""The stream of random numbers; the simulator and the schedules of fabrics use smaller numbers."""

GAP = 10
"""Ticks between two last words on a topic: some are in transit together, and some follow others."""


def with_last_words(scenario: Scenario) -> Scenario:
    """The schedule with its end: all faults heal, and long after that all members of all topics publish."""
    random = RandomStream(scenario.seed, LAST_STREAM)
    operations = healed(operations_of(scenario))
    said = [one for one in operations if one.kind == PUBLISH] or [Operation(0, PUBLISH, 0)]
    begin = LONG_AFTER + last_moment(operations)
    words = [
        pick(random, said)._replace(at=begin + GAP * place, node=node, topic=topic)
        for topic, members in enumerate(speakers(scenario, operations))
        for place, node in enumerate(members)
    ]
    return with_operations(scenario, operations + words) if words else scenario


def healed(operations: Iterable[Operation]) -> list[Operation]:
    """The operations, with an end for each fault that can end."""
    listed = list(operations)
    end = 1 + last_moment(listed)
    passing = (PAUSE, PART)
    return [
        one._replace(until=end)
        if one.until == 0 and (one.kind in passing or (one.kind == DISK and one.trouble in ("torn", "full")))
        else one
        for one in listed
    ]


def last_moment(operations: Iterable[Operation]) -> int:
    """The time at which the last operation starts or ends."""
    return max((max(one.at, one.until) for one in operations), default=0)


def speakers(scenario: Scenario, operations: Iterable[Operation]) -> list[list[int]]:
    """Per topic, the members at the end that may publish."""
    remembers = PROTOCOLS[scenario.protocol].remembers
    gone: dict[int, bool] = {}
    members = [set(nodes) for nodes in named_members(scenario)]
    for one in sorted(operations, key=lambda each: (each.at, each.kind)):
        if one.kind in (CRASH, LEAVE, JOIN):
            # A restarted node numbers its publications from 1 again, unless it remembers.
            returns = one.until > 0 and one.heir == NO_NODE
            gone[one.node] = not (remembers and (returns or one.kind == JOIN))
        elif one.kind == SUBSCRIBE:
            members[one.topic].add(one.node)
        elif one.kind == UNSUBSCRIBE:
            members[one.topic].discard(one.node)
    return [sorted(node for node in nodes if not gone.get(node, False)) for nodes in members]
