"""The search through all schedules of a small cluster: depth first, and no state twice.

Two schedules lead to the same state if every program has handled the same events in the same order; so of steps at
different machines that do not depend on each other only one order is followed. The state behind a step is known before
the step is taken, from the histories (:mod:`antiphon.simulator.explore.channels`), and a step into a known state is not
taken.

``reorderings`` bounds the search, if it is not None: how often something arrives at a machine before something that was
sent to it earlier. The order of arrivals at different machines, the moments at which the client acts and the moment of
the crash have no bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from antiphon.membership.host import SECOND_US
from antiphon.simulator.explore.cluster_world import (
    ARRIVE,
    CONNECT,
    JOIN,
    SCRIPT,
    TIME,
    Choice,
    ClusterSystem,
    ExploredCluster,
)

Bounds = tuple[int, int]
"""How many reorderings and how many early timers a schedule has left."""


class ClusterExploration(msgspec.Struct, frozen=True):
    """The result of exploring one cluster. ``exhausted`` if all schedules within the bounds were followed."""

    fabric: str
    script: tuple[str, ...]
    crashing: int | None
    returns: bool
    joining: tuple[int, ...]
    reorderings: int | None
    early_timers: int
    states: int
    transitions: int
    ends: int
    longest: int
    """The most steps of a schedule."""
    waited_seconds: float
    """The longest time that the client waited in the end for what it had asked for."""
    exhausted: bool
    violation: str | None
    schedule: tuple[str, ...]
    seconds: float


class ClusterSearch:
    """One search."""

    def __init__(
        self,
        system: ClusterSystem,
        reorderings: int | None,
        early_timers: int,
        state_limit: int,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self._system = system
        self._reorderings = reorderings
        self._early_timers = early_timers
        self._state_limit = state_limit
        self._watch = watch
        # By state the bounds with which it was reached: reorderings that were left, and early timers.
        self._seen: dict[int, tuple[Bounds, ...]] = {}
        self._alone: dict[Bounds, tuple[Bounds, ...]] = {}
        self._path: list[Choice] = []
        self.transitions = self.ends = self.longest = self.waited_us = 0

    def run(self) -> ClusterExploration:
        """Follow all schedules until one breaks a promise, or all are known."""
        begun = time.perf_counter()
        violations, is_exhausted = self._search()
        return ClusterExploration(
            self._system.fabric,
            self._system.script,
            self._system.crashing,
            self._system.returns,
            self._system.joining,
            self._reorderings,
            self._early_timers,
            len(self._seen),
            self.transitions,
            self.ends,
            self.longest,
            self.waited_us / SECOND_US,
            is_exhausted,
            violations[0] if violations else None,
            narrate(self._system, self._path) if violations else (),
            time.perf_counter() - begun,
        )

    def _search(self) -> tuple[list[str], bool]:
        world: ExploredCluster | None = ExploredCluster(self._system)
        assert world is not None
        left = (1 << 30 if self._reorderings is None else self._reorderings, self._early_timers)
        self._is_new(world.fingerprint(), left)
        stack = [self._children(world, left)]
        while stack:
            if not stack[-1]:
                stack.pop()
                if self._path:
                    self._path.pop()
                world = None
                continue
            if len(self._seen) >= self._state_limit:
                return [], False
            choice, fingerprint, left = stack[-1].pop()
            if not self._is_new(fingerprint, left):
                continue
            world = replay(self._system, self._path) if world is None else world
            world.take(choice)
            self.transitions += 1
            self._path.append(choice)
            violations = world.violations()
            if violations:
                return violations, False
            following = self._children(world, left)
            if world.is_idle():
                self.ends += 1
                self.longest = max(self.longest, len(self._path))
                end = replay(self._system, self._path) if following else world
                violations = end.finish()
                self.waited_us = max(self.waited_us, end.waited_us)
                if violations:
                    return violations, False
            stack.append(following)
        return [], True

    def _children(self, world: ExploredCluster, left: Bounds) -> list[tuple[Choice, int, Bounds]]:
        """The next steps within the bounds, the plain one last; the search takes them from the end."""
        reorderings, early = left
        price = 0 if self._reorderings is None else 1
        found = []
        # Machines at which something arrives that was sent earlier; None stands for the script and for nodes that join.
        waiting: set[str | None] = set()
        for choice in world.choices(early > 0):
            after = left
            if choice[0] in (ARRIVE, CONNECT):
                machine = world.machine(choice)
                after = (reorderings - price, early) if machine in waiting else left
                waiting.add(machine)
            elif choice[0] in (SCRIPT, JOIN):
                waiting.add(None)
            elif choice[0] == TIME and waiting:
                after = (reorderings, early - 1)
            if after[0] >= 0:
                found.append((choice, world.fingerprint(choice), after))
        return found[::-1]

    def _is_new(self, fingerprint: int, left: Bounds) -> bool:
        """Whether a state was never reached with bounds as wide as these."""
        known = self._seen.get(fingerprint)
        if known is None:
            self._seen[fingerprint] = self._alone.setdefault(left, (left,))
            if self._watch is not None and len(self._seen) % 1000 == 0:
                self._watch(len(self._seen))
            return True
        if any(other[0] >= left[0] and other[1] >= left[1] for other in known):
            return False
        wider = (other for other in known if other[0] > left[0] or other[1] > left[1])
        self._seen[fingerprint] = (*wider, left)
        return True


def replay(system: ClusterSystem, path: list[Choice]) -> ExploredCluster:
    """A cluster after a schedule."""
    world = ExploredCluster(system)
    for choice in path:
        world.take(choice)
    return world


def narrate(system: ClusterSystem, path: list[Choice]) -> tuple[str, ...]:
    """A schedule as text, one line per step."""
    world = ExploredCluster(system)
    lines = []
    for choice in path:
        lines.append(world.describe(choice))
        world.take(choice)
    return tuple(lines)
