"""Random schedules for the broker tree in which everything happens at once, to few brokers.

A schedule has one to four **moments**, and most of what happens lies within half a second of one of them: networks fall
apart, again before they have healed, and some in one direction; brokers stand still, crash, join, subscribe,
unsubscribe and publish. So a repair meets the next failure in every step, and what one broker has told another is lost
at any place on its way. With few brokers most of them take part.

A third of these schedules has newcomers, and they are cut off and stand still like all others. In another third brokers
that are away are given up at once and catch up from logs, or crash and return with their disks. The rest has founders
only. No other schedule is as quick to find rules that hold only where nothing comes between.
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
"""Names the stream for these schedules, apart from the others."""

CROWDED_ONE_IN = 4
"""So many schedules have one like this among them."""

FIRST_CROWDED = 10**9
"""Fresh seeds only: the schedules of lower seeds, by which planted bugs are found, are what they were."""

MOST_FOUNDERS = 6

LOG_ENTRIES = 1 << 20
"""Nothing that a schedule publishes falls out of such a log."""

FOUNDERS, NEWCOMERS, LOGS, DISKS = range(4)
"""What is special about a schedule."""


def draw_crowded_schedule(scenario: Scenario, order: str | None, random: RandomStream) -> Scenario:
    """A schedule in the tree of a scenario in which nothing happens yet."""
    return Crowd(scenario, order, random).draw()


class Crowd:
    """Draws what happens around a few moments."""

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
        members = founders if are_all else [node for node in founders if random.below(2) == 0]
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
        """Everything that happens; what does not suit the state of a node is left out."""
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
        for _ in range(int(self._random.between(20, 60))):
            at = int(self._random.below(self._span + 2000)) if self._random.below(2) == 0 else self._near()
            self._say(at, self._anybody(), self._orders)

    def _say(self, at: int, node: int, orders: tuple[str, ...]) -> None:
        self._operations.append(draw_publication(at, node, self._order, orders, self._keys, self._random))

    def _subscribe(self) -> None:
        """Somebody subscribes or unsubscribes, and may change its mind soon after."""
        for _ in range(pick(self._random, (0, 2, 6))):
            node, at = self._anybody(), self._near()
            for after in (0, int(self._random.below(300)))[: pick(self._random, (1, 2))]:
                self._operations.append(Operation(at + after, pick(self._random, (SUBSCRIBE, UNSUBSCRIBE)), node))

    def _part(self) -> None:
        """Some are cut off from the others, newcomers among them."""
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
        """With disks all come back. Without, a majority of the founders lives, and all of whom newcomers know.

        Where the council follows who is there nobody crashes for good: a small council could lose its majority.
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
        """Long after all are back everybody publishes in total order and in another one."""
        end = max(max(operation.at, operation.until) for operation in self._operations)
        for word in range(2 * self._nodes):
            at = end + SILENCE_TICKS + word * pick(self._random, (1, 100))
            self._say(at, word % self._nodes, ("total",) if word < self._nodes else self._orders)
