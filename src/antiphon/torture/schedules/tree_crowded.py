"""Random schedules for the broker tree in which everything happens at once, to few brokers.

A schedule has one to four **moments**, and most operations are within half a second of one of them: the network splits,
again before it has healed, and sometimes in one direction; brokers pause, crash, join, subscribe, unsubscribe and
publish. So every step of a repair meets the next failure, and a message between two brokers may be lost anywhere. With
few brokers most of them take part.

A third of these schedules has newcomers, which are cut off and pause like all others. In another third disconnected
brokers are given up at once and catch up from logs, or crash and restart with their disks. The rest has founders only.
No other schedule is as quick to find rules that hold only without interruption.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.scenario import Scenario, TopicsTable
from antiphon.torture.schedules.operations import (
    CRASH,
    JOIN,
    PART,
    PAUSE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Operation,
    Shape,
    pick,
    with_operations,
)
from antiphon.torture.schedules.tree_restarts import SILENCE_TICKS, draw_publication

CROWDED_STREAM = 37
"""The stream for these schedules, separate from others."""

CROWDED_ONE_IN = 4
"""One in this many schedules is of this kind."""

MOST_FOUNDERS = 6

LOG_ENTRIES = 1 << 20
"""No publication of a schedule is evicted from a log of this size."""

FOUNDERS, NEWCOMERS, LOGS, DISKS = range(4)
"""The variants of these schedules."""


def draw_crowded_schedule(scenario: Scenario, order: str | None, random: RandomStream) -> Scenario:
    """Draw a schedule for the tree of a scenario without operations."""
    return Crowd(scenario, order, random).draw()


class Crowd:
    """Draws operations around a few moments."""

    def __init__(self, scenario: Scenario, order: str | None, random: RandomStream) -> None:
        self._random = random
        self._order = order
        self._kind = pick(random, (FOUNDERS, NEWCOMERS, NEWCOMERS, LOGS, DISKS))
        self._founders = scenario.nodes
        joiners = int(random.between(1, 3)) if self._kind == NEWCOMERS else 0
        self._nodes = self._founders + joiners
        self._contacts = [int(random.below(self._founders)) for _ in range(joiners)]
        self._council = pick(random, (0, 0, 100, 3000))
        self._span = pick(random, (1000, 3000, 10_000))
        self._moments = [int(random.below(self._span)) for _ in range(pick(random, (1, 2, 3, 4)))]
        self._orders = pick(random, (ORDER_NAMES, ("none", "causal", "total"), ("causal", "total")))
        self._keys = pick(random, (1, 1, 3))
        self._operations: list[Operation] = []
        founders = list(range(self._founders))
        are_all = self._kind == LOGS or random.below(2) == 0
        members = founders if are_all else [node for node in founders if random.below(2) == 0] or founders
        self._first: int = members[0]
        self._scenario = msgspec.structs.replace(
            scenario,
            nodes=self._nodes,
            protocol_options=self._options(scenario),
            network=msgspec.structs.replace(scenario.network, detection=pick(random, (1, 50, 50, 500))),
            topics=TopicsTable(count=1, members=[members]),
        )

    def _options(self, scenario: Scenario) -> dict[str, Any]:
        options = {
            **scenario.protocol_options,
            "parents": scenario.protocol_options["parents"] + self._contacts,
            "quorum": True,
            "council": self._council,
            "collect": pick(self._random, (20, 100, 1000)),
            "patience": pick(self._random, (100, 500)),
            "quorum_delivery": self._random.below(4) == 0,
        }
        if self._kind == LOGS:
            options |= {"absence": pick(self._random, (500, 1000, 5000)), "log": LOG_ENTRIES}
        elif self._kind == DISKS:
            options |= {"disk": True, "sync": pick(self._random, (0, 10, 100, 1000))}
        return options

    def draw(self) -> Scenario:
        """All operations; those that do not fit the state of a node are left out."""
        self._join()
        self._publish()
        if self._kind in (FOUNDERS, NEWCOMERS):
            self._subscribe()
        self._part()
        self._pause()
        self._crash()
        if self._kind == DISKS:
            self._have_last_words()
        return with_operations(self._scenario, self._operations)

    def _near(self) -> int:
        """A time near one of the moments, or any."""
        moment = pick(self._random, self._moments) if self._random.below(4) > 0 else int(self._random.below(self._span))
        return max(1, moment + int(self._random.between(-200, 400)))

    def _anybody(self) -> int:
        return int(self._random.below(self._nodes))

    def _join(self) -> None:
        for joiner in range(self._founders, self._nodes):
            at = self._near()
            self._operations.append(Operation(at, JOIN, joiner))
            self._operations.append(Operation(at + int(self._random.below(500)), SUBSCRIBE, joiner))

    def _publish(self) -> None:
        # Each schedule publishes something.
        self._say(0, self._first, self._orders)
        for _ in range(int(self._random.between(20, 60))):
            at = int(self._random.below(self._span + 2000)) if self._random.below(2) == 0 else self._near()
            self._say(at, self._anybody(), self._orders)

    def _say(self, at: int, node: int, orders: tuple[str, ...]) -> None:
        self._operations.append(draw_publication(at, node, self._order, orders, self._keys, self._random))

    def _subscribe(self) -> None:
        """A broker subscribes or unsubscribes, and may do the opposite soon after."""
        for _ in range(pick(self._random, (0, 2, 6))):
            node, at = self._anybody(), self._near()
            for after in (0, int(self._random.below(300)))[: pick(self._random, (1, 2))]:
                self._operations.append(Operation(at + after, pick(self._random, (SUBSCRIBE, UNSUBSCRIBE)), node))

    def _part(self) -> None:
        """Some brokers are cut off from the others, newcomers among them."""
        for _ in range(pick(self._random, (0, 1, 2, 3, 5))):
            group = [node for node in range(self._nodes) if self._random.below(2) == 0]
            at = self._near()
            until = at + pick(self._random, (60, 300, 800, 2000, 6000))
            shape = Shape(one_way=self._random.below(6) == 0)
            cut_off = tuple(group[: self._nodes - 1]) or (0,)
            self._operations.append(Operation(at, PART, 0, 0, until, None, cut_off, shape))

    def _pause(self) -> None:
        for _ in range(pick(self._random, (0, 1, 2, 4))):
            at = self._near()
            lasts = pick(self._random, (60, 300, 1000, 4000))
            self._operations.append(Operation(at, PAUSE, self._anybody(), 0, at + lasts))

    def _crash(self) -> None:
        """Crashes. With disks all brokers restart. Without, a majority of the founders and all contacts of newcomers
        stay up.

        Where the council follows partitions no broker crashes for good: a small council could lose its majority.
        """
        if self._kind == DISKS:
            for _ in range(pick(self._random, (1, 2, 4, 6))):
                at = self._near()
                back = at + pick(self._random, (5, 200, 1000, 5000))
                self._operations.append(Operation(at, CRASH, self._anybody(), 0, back))
        elif self._council == 0:
            mortal = [node for node in range(self._founders) if node not in self._contacts]
            for _ in range(int(self._random.below((self._founders - 1) // 2 + 1))):
                if mortal:
                    node = mortal.pop(int(self._random.below(len(mortal))))
                    self._operations.append(Operation(self._near(), CRASH, node))

    def _have_last_words(self) -> None:
        """Long after all brokers are back, each publishes in total order and in another one."""
        end = max(max(operation.at, operation.until) for operation in self._operations)
        for word in range(2 * self._nodes):
            at = end + SILENCE_TICKS + word * pick(self._random, (1, 100))
            self._say(at, word % self._nodes, ("total",) if word < self._nodes else self._orders)
