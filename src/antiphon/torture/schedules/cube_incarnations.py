"""Schedules for the cube in which nodes crash and return as live nodes do: with their disks, under new identifiers.

One in six of the schedules with faults is of this kind. All nodes publish all the time, in all orders including total,
also after their return, in some schedules as the first thing that they do. One node, some, most or all crash at about
the same time, once or several times: also the lock manager, with unsynced records, and nodes that have just returned.
No node fails for good, so total order continues in the end, and every node receives the last words of every other node.
"""

from __future__ import annotations

from typing import Any, Final, final

from antiphon.fabrics.cube.topic import ORDERS
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import LimitsTable, Scenario, TopicsTable
from antiphon.torture.schedules.cube import EVENT_LIMIT, EXCLUDE, FORGET, LOG_ENTRIES
from antiphon.torture.schedules.operations import (
    CRASH,
    MIXED,
    PART,
    PAUSE,
    PUBLISH,
    SUBSCRIBE,
    TOTAL_ORDER,
    Operation,
    draw_connections,
    draw_order,
    draw_totals,
    pick,
    with_operations,
)

INCARNATION_STREAM: Final = 43
"""The stream of random numbers. It is separate, so that adding these schedules did not change others."""

FIRST_WORDS_STREAM: Final = 62
"""The stream of random numbers for the first words of returning nodes, separate for the same reason."""

ONE_IN: Final = 6


def draw_incarnation_schedule(seed: int, order: str | None, random: RandomStream) -> Scenario:
    """The scenario of a seed."""
    course = IncarnationScript(int(random.between(2, 8)), pick(random, (1, 1, 2)), random)
    operations = course.draw()
    if order in (None, MIXED) and random.below(4) > 0:
        operations = [draw_order(operation, random) for operation in operations]
    if order == TOTAL_ORDER or (order in (None, MIXED) and random.below(4) > 0):
        operations = draw_totals(operations, random)
        first = RandomStream(seed, FIRST_WORDS_STREAM)
        if first.below(2) == 0:
            operations += draw_first_words(operations, first)
    network = draw_connections(random)
    scenario = Scenario(
        name=f"cube torture {seed} in several lives",
        seed=seed,
        protocol="vcube-ps-lasting",
        order=pick(random, ORDERS) if order in (None, MIXED) else order,
        nodes=course.nodes,
        protocol_options=draw_incarnation_options(network.detection, random),
        network=network,
        topics=TopicsTable(count=course.topics, members=[list(range(course.founders)) for _ in range(course.topics)]),
        limits=LimitsTable(events=EVENT_LIMIT),
    )
    return with_operations(scenario, operations)


def draw_first_words(operations: list[Operation], random: RandomStream) -> list[Operation]:
    """Each returning node publishes in total order when it has hardly subscribed and knows no member yet.

    The others publish about the same key meanwhile, in a weaker order.
    """
    others = sorted({operation.node for operation in operations if operation.kind == PUBLISH})
    ends = {operation.node: operation.at for operation in operations if operation.kind == CRASH}
    begins = {operation.node: operation.at for operation in operations if operation.kind == SUBSCRIBE}
    found = []
    for node, ready in begins.items():
        at = ready + 1 + int(random.below(pick(random, (1, 100))))
        if at < ends.get(node, at + 1):
            found.append(Operation(at, PUBLISH, node, 0, order=TOTAL_ORDER, keys=(0,)))
        for other in others:
            near = max(0, at - 50) + int(random.below(100))
            if begins.get(other, 0) <= near < ends.get(other, near + 1):
                found.append(Operation(near, PUBLISH, other, 0, order="fifo", keys=(0,)))
    return found


def draw_incarnation_options(detection: int, random: RandomStream) -> dict[str, Any]:
    """Windows, the number of publications beside the log, and fast or slow disks.

    Total order waits longer for a node than two nodes take to find each other. Otherwise a returning node could begin
    to order without the others, as if they were behind a partition.
    """
    window, bundle = pick(random, (1, 2, 8, 64)), pick(random, (1, 3))
    return {
        "window": window,
        "bundle": bundle,
        "keep": window + bundle + pick(random, (0, 5, 200)),
        "compare": pick(random, (100, 500, 2000)),
        "forget": FORGET,
        "exclude": EXCLUDE + detection,
        "log": LOG_ENTRIES,
        "sync": pick(random, (0, 3, 40, 600)),
    }


@final
class IncarnationScript:
    """The present nodes, and their operations, one moment after the other."""

    def __init__(self, founders: int, topics: int, random: RandomStream) -> None:
        self.founders: Final = founders
        self.topics: Final = topics
        self.nodes: int = founders
        self._random: Final = random
        self._now: int = 0
        # By voter: the node that is its latest incarnation, and when that can publish.
        self._latest: Final[list[int]] = list(range(founders))
        self._ready: Final[list[int]] = [0] * founders
        self._operations: list[Operation] = []

    def draw(self) -> list[Operation]:
        """All nodes publish; some crash and return, up to four times."""
        self._talk()
        for _ in range(pick(self._random, (1, 1, 2, 3, 4))):
            if self._random.below(4) == 0:
                self._disturb()
            self._crash_some()
            self._talk()
        return self._operations

    def _talk(self) -> None:
        """Publications of nodes that are present, or about to be."""
        gap = pick(self._random, (2, 10, 40, 150))
        for _ in range(pick(self._random, (5, 15, 40))):
            self._now += int(self._random.below(2 * gap)) + 1
            voter = int(self._random.below(self.founders))
            if self._ready[voter] <= self._now:
                topic = int(self._random.below(self.topics))
                self._operations.append(Operation(self._now, PUBLISH, self._latest[voter], topic))

    def _disturb(self) -> None:
        """A node pauses, or the network splits, before others crash."""
        at = self._now + int(self._random.below(500))
        voter = int(self._random.below(self.founders))
        node, lasts = self._latest[voter], pick(self._random, (50, 1000, 6000))
        if self._random.below(2) == 0 and self._ready[voter] <= at:
            self._operations.append(Operation(at, PAUSE, node, 0, at + lasts))
            self._ready[voter] = at + lasts
        else:
            group = tuple(sorted({node, self._latest[int(self._random.below(self.founders))]}))
            self._operations.append(Operation(at, PART, 0, 0, at + lasts, None, group))

    def _crash_some(self) -> None:
        """One, some, most or all nodes crash at about the same time, while all publish, and return."""
        order = sorted((int(self._random.below(1 << 16)), voter) for voter in range(self.founders))
        count = pick(self._random, (1, 1, (self.founders + 1) // 2, self.founders - 1, self.founders))
        apart, down = pick(self._random, (0, 0, 20, 300)), pick(self._random, (1, 60, 700, 3000, 10_000))
        spread = pick(self._random, (1, 50, 1000))
        moment = self._now + int(self._random.below(300))
        for _, voter in order[: max(1, count)]:
            at = max(moment, self._ready[voter]) + int(self._random.below(apart + 1))
            self._return(voter, at, at + down + int(self._random.below(spread)))

    def _return(self, voter: int, at: int, back: int) -> None:
        """A node crashes, and returns under another identifier."""
        former, node = self._latest[voter], self.nodes
        self.nodes += 1
        self._latest[voter] = node
        self._ready[voter] = back + pick(self._random, (0, 200, 2500))
        self._operations.append(Operation(at, CRASH, former, 0, back, heir=node))
        self._operations.extend(Operation(self._ready[voter], SUBSCRIBE, node, topic) for topic in range(self.topics))
