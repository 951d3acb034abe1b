"""Random walks through the elections of a cube: at no moment may two lock managers have the majorities that they need.

A few processes exchange messages over links that keep the order. Links break and come back at any moment, each end
hears of it on its own, disks are slow, and time passes at different speeds. After each step the walk looks at all
processes from outside, which no process can: the nodes that are really in the epoch of a lock manager.

Run it in a process of its own to look for a planted bug: ``python -m tests.fabrics.cube.voter_walk FIRST COUNT`` prints
the first seed that shows one, and what it shows.
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from typing import Any

from antiphon.fabrics.cube.fault_tolerant import FaultTolerantVCubePs
from antiphon.fabrics.cube.topic import FaultOptions, Options
from antiphon.fabrics.cube.topology import PartialCube
from antiphon.kernel.message import ProtocolMessage, Publication
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream

EXCLUDE = 100
STEPS = 400


class Seat(Environment):
    """The environment of one process of a walk."""

    def __init__(self, walk: VoterWalk, identifier: int) -> None:
        super().__init__(identifier)
        self.walk = walk
        self.timers: list[tuple[int, int]] = []
        self.unsynced = 0

    def now(self) -> int:
        return self.walk.time

    def send(self, destination: int, message: ProtocolMessage) -> None:
        link = (int(self.identifier), int(destination))
        if self.walk.is_together[link]:
            self.walk.links[link].append(message)

    def deliver(self, publication: Publication) -> None:
        """Nothing is published in a walk."""

    def set_timer(self, delay: int, name: int) -> int:
        self.timers.append((self.walk.time + int(delay), int(name)))
        return len(self.timers)

    def random(self) -> RandomStream:
        return RandomStream(1, self.identifier)

    def journal(self) -> list[ProtocolMessage]:
        return []

    def sync(self) -> bool:
        if self.walk.has_slow_disks:
            self.unsynced += 1
        return not self.walk.has_slow_disks


class VoterWalk:
    """One walk: who is together with whom at each end, what is on its way, and when."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.time = 0
        self.has_slow_disks = self._random.random() < 0.5
        self.count = self._random.choice((3, 3, 4, 5))
        nodes = range(self.count)
        pairs = [(one, other) for one in nodes for other in nodes if one != other]
        # By direction, whether the first of the two believes that they are together, and whether the network is whole.
        self.is_together = dict.fromkeys(pairs, True)
        self.is_whole = dict.fromkeys(pairs, True)
        self.links: dict[tuple[int, int], deque[ProtocolMessage]] = {pair: deque() for pair in pairs}
        self.seats = [Seat(self, node) for node in nodes]
        options, faults = Options(mixed=True, total=True), FaultOptions(exclude_ticks=EXCLUDE)
        members = list(nodes)
        self.processes = [FaultTolerantVCubePs(seat, PartialCube(3, members), options, faults) for seat in self.seats]
        for process in self.processes:
            process.start()

    def run(self) -> str:
        """Walk; what was wrong, or nothing."""
        for _ in range(STEPS):
            self._step()
            if found := self.rivals():
                return found
        return ""

    def _step(self) -> None:
        chance = self._random.random()
        if chance < 0.02:
            self._part()
        elif chance < 0.03:
            self.is_whole = dict.fromkeys(self.is_whole, True)
        elif chance < 0.15:
            self._notice()
        elif chance < 0.25:
            self._pass_time()
        elif chance < 0.35:
            self._sync()
        else:
            self._hand_over()

    def _part(self) -> None:
        """The network falls apart; what is on its way between the parts is lost."""
        part = {node for node in range(self.count) if self._random.random() < 0.5}
        for one, other in self.is_whole:
            if (one in part) != (other in part):
                self.is_whole[one, other] = False
                self.links[one, other].clear()

    def _notice(self) -> None:
        """One end of a link hears that it is broken; or both ends, that it is whole."""
        lost = [pair for pair, together in self.is_together.items() if together and not self._is_up(pair)]
        found = [
            (one, other)
            for (one, other), is_whole in self.is_whole.items()
            if is_whole and one < other and not self.is_together[one, other] and not self.is_together[other, one]
        ]
        if lost and (not found or self._random.random() < 0.7):
            one, other = self._random.choice(lost)
            self.is_together[one, other] = False
            self.links[other, one].clear()
            self.links[one, other].clear()
            self.processes[one].peer_lost(other)
        elif found:
            one, other = self._random.choice(found)
            self.is_together[one, other] = self.is_together[other, one] = True
            self.processes[one].peer_found(other)
            self.processes[other].peer_found(one)

    def _is_up(self, pair: tuple[int, int]) -> bool:
        return self.is_whole[pair] and self.is_together[pair[1], pair[0]]

    def _pass_time(self) -> None:
        self.time += self._random.choice((1, 10, EXCLUDE, EXCLUDE))
        for seat, process in zip(self.seats, self.processes, strict=True):
            due = [timer for timer in seat.timers if timer[0] <= self.time]
            if due and self._random.random() < 0.8:
                seat.timers = [timer for timer in seat.timers if timer[0] > self.time]
                for _, name in due:
                    process.expire(name)

    def _sync(self) -> None:
        waiting = [node for node in range(self.count) if self.seats[node].unsynced > 0]
        if waiting:
            node = self._random.choice(waiting)
            self.seats[node].unsynced -= 1
            self.processes[node].synced()

    def _hand_over(self) -> None:
        busy = [pair for pair, queue in self.links.items() if queue and self.is_whole[pair]]
        if busy:
            one, other = self._random.choice(busy)
            message = self.links[one, other].popleft()
            if self.is_together[other, one]:
                self.processes[other].receive(one, message)

    # The judge.

    def rivals(self) -> str:
        """Two lock managers of which each has the majorities that it needs among the nodes of its epoch."""
        leading: list[str] = []
        for node, process in enumerate(self.processes):
            manager: Any = process.lock_manager
            if manager.manager != node or not manager._is_active:
                continue
            followers = {
                other
                for other, another in enumerate(self.processes)
                if (another.lock_manager.epoch, another.lock_manager.manager) == (manager.epoch, node)
            }
            bodies = [set(process.electorate.voters), set(process.electorate.proposed)]
            if all(holds(body, followers) for body in bodies if body):
                leading.append(f"{node} in epoch {manager.epoch} with {sorted(followers)} of {bodies}")
        return "; ".join(leading) if len(leading) > 1 else ""


def holds(body: set[int], members: set[int]) -> bool:
    """Whether these are more than half of a body, or half of it with its lowest."""
    twice = 2 * len(body & members)
    return twice > len(body) or (twice == len(body) and min(body) in members)


def first_rivals(first: int, count: int) -> tuple[int, str]:
    """The first seed of some whose walk shows two lock managers, and what it shows; -1 if none does."""
    for seed in range(first, first + count):
        found = VoterWalk(seed).run()
        if found:
            return seed, found
    return -1, ""


if __name__ == "__main__":
    print(json.dumps(first_rivals(int(sys.argv[1]), int(sys.argv[2]))))
