"""Random schedules for membership: nodes that join at any node, leave, crash, return, lose their disks and are cut off.

Clusters begin in any way: one node after the other, or all at once; founders of trees come late. Then everything
happens that a cluster survives, much of it at the same moment: nodes join while others crash, while the network falls
apart, while the node that they ask stands still. One node per schedule is spared, so that the cluster never ends, but
in one of eight all crash and return with their disks. In one of eight no node has identifiers left to give.
"""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.cluster.world import ClusterSchedule, Kind, Step
from antiphon.torture.schedules.operations import pick

MEMBERSHIP_STREAM: Final = 42
"""Names the stream of random numbers."""


def draw_cluster_schedule(fabric: str, seed: int) -> ClusterSchedule:
    """The schedule of a seed."""
    return ClusterScheduleDraw(fabric, seed).schedule()


class ClusterScheduleDraw:
    """Draws one schedule."""

    def __init__(self, fabric: str, seed: int) -> None:
        self._random = random = RandomStream(seed, MEMBERSHIP_STREAM, list(FABRICS).index(fabric))
        policy = FABRICS[fabric].membership
        self._fabric = fabric
        self._has_founders = policy.has_founders
        self._seed = seed
        self._nodes = int(random.between(2, 6) if random.below(8) else random.between(7, 10))
        self._founders = int(random.between(1, min(3, self._nodes))) if policy.has_founders else 1
        self._disks = [node for node in range(self._nodes) if random.below(3) > 0]
        self._is_blackout = policy.is_full and random.below(8) == 0
        if self._is_blackout:
            self._disks = list(range(self._nodes))
        # The founders of a tree return as who they were, or the tree has to be founded anew.
        self._spared = int(random.below(self._founders if policy.has_founders else 1))
        # The founder of a cube or of gossip is started as a founder again, with its disk.
        self._founds_again = not policy.has_founders and 0 in self._disks and random.below(6) == 0
        self._lost_seconds = pick(random, (0.5, 1.0, 1.0, 3.0))
        self._steps: list[Step] = []
        self._begin_us = 0
        # Many things at once, or each at a time of its own.
        self._moment_us = int(random.below(20 * SECOND_US)) if random.below(2) else None

    def schedule(self) -> ClusterSchedule:
        """ClusterScheduleDraw one schedule."""
        random = self._random
        is_scarce = random.below(8) == 0
        self._start_all()
        hardships = [self._crash, self._crash, self._leave, self._cut, self._pause, self._publish, self._join_again]
        if self._is_blackout:
            # The founder founds the cluster again, unless it finds the others: so nothing else happens.
            hardships = [self._publish]
            self._black_out()
        elif self._founds_again:
            # It finds the others by what is on its disk, unless they are out of reach.
            hardships = [self._crash_founder, self._crash_founder, self._crash, self._publish, self._join_again]
        elif random.below(8) == 0:
            # Nothing fails.
            hardships = [self._publish, self._join_again]
        for _ in range(int(random.between(1, 8))):
            pick(random, hardships)()
        return ClusterSchedule(
            seed=self._seed,
            fabric=self._fabric,
            nodes=self._nodes,
            founders=self._founders,
            with_disk=self._disks,
            delay_us=self._delay_us(),
            late_us=pick(random, (0, 0, 1)) * int(self._lost_seconds * SECOND_US) // 5,
            commit_us=pick(random, (0, 5000, 200_000)),
            lost_seconds=self._lost_seconds,
            founds_again=self._is_blackout or self._founds_again,
            scarce=is_scarce,
            steps=sorted(self._steps, key=lambda step: step.at_us),
        )

    def _delay_us(self) -> tuple[int, int]:
        """How long something is on its way: a sign of life that is asked for must come in time."""
        longest_us = int(self._lost_seconds * SECOND_US) // 10
        lowest_us, highest_us = pick(self._random, ((50, 500), (100, 2000), (1000, 50_000), (10_000, 300_000)))
        return min(lowest_us, longest_us // 10), min(highest_us, longest_us)

    def _start_all(self) -> None:
        random = self._random
        apart_us = pick(random, (0, 1000, 100_000, SECOND_US, 3 * SECOND_US))
        for node in range(self._nodes):
            # Founders of a tree wait for each other, but not for ever.
            late_us = int(random.below(8 * SECOND_US)) if random.below(4) == 0 else 0
            at_us = node * apart_us + late_us if node else 0
            self._steps.append(Step(at_us=min(at_us, 10 * SECOND_US), kind="start", node=node))
        self._begin_us = int(random.below(12 * SECOND_US))

    def _when_us(self) -> int:
        random = self._random
        if self._moment_us is None:
            return self._begin_us + int(random.below(20 * SECOND_US))
        return self._begin_us + self._moment_us + pick(random, (0, 0, 1, int(random.below(SECOND_US))))

    def _lasts_us(self) -> int:
        """As long as a moment, about as long as a failure takes to be noticed, or much longer."""
        lost_us = int(self._lost_seconds * SECOND_US)
        wait_us = pick(
            self._random, (1, 1000, 50_000, lost_us // 2, lost_us, lost_us + lost_us // 8, 2 * lost_us, 10 * lost_us)
        )
        return int(wait_us) + int(self._random.below(100_000))

    def _mortal(self) -> int | None:
        """A node that may end."""
        others = [node for node in range(self._nodes) if node != self._spared]
        return pick(self._random, others) if others else None

    def _is_founder(self, node: int) -> bool:
        return self._has_founders and node < self._founders

    def _crash(self) -> None:
        node = self._mortal()
        if node is None:
            return
        random = self._random
        kind: Kind = pick(random, ("crash", "crash", "power", "wipe"))
        # A tree begins when all of its founders have come.
        stays_away = random.below(4) == 0 and not self._is_founder(node)
        lasts_us = 0 if stays_away else self._lasts_us()
        self._steps.append(Step(at_us=self._when_us(), kind=kind, node=node, lasts_us=lasts_us))

    def _crash_founder(self) -> None:
        """The founder ends for a moment, often while it gives places to newcomers."""
        random = self._random
        kind: Kind = pick(random, ("crash", "crash", "power"))
        at_us = pick(random, [step.at_us for step in self._steps if step.kind == "start"])
        at_us = max(0, at_us + int(random.below(400_000)) - 100_000) if random.below(2) else self._when_us()
        self._steps.append(Step(at_us=at_us, kind=kind, lasts_us=self._lasts_us()))

    def _leave(self) -> None:
        node = self._mortal()
        if node is not None:
            lasts_us = self._lasts_us() if self._random.below(2) or self._is_founder(node) else 0
            self._steps.append(Step(at_us=self._when_us(), kind="leave", node=node, lasts_us=lasts_us))

    def _cut(self) -> None:
        random = self._random
        nodes = [node for node in range(self._nodes) if random.below(2)]
        if nodes and len(nodes) < self._nodes:
            self._steps.append(Step(at_us=self._when_us(), kind="cut", nodes=nodes, lasts_us=self._lasts_us()))

    def _pause(self) -> None:
        node = int(self._random.below(self._nodes))
        self._steps.append(Step(at_us=self._when_us(), kind="pause", node=node, lasts_us=self._lasts_us()))

    def _publish(self) -> None:
        for _ in range(int(self._random.between(1, 10))):
            node = int(self._random.below(self._nodes))
            self._steps.append(Step(at_us=self._when_us(), kind="publish", node=node))

    def _join_again(self) -> None:
        """A node that is down, or was never there, starts at some moment."""
        node = int(self._random.below(self._nodes))
        self._steps.append(Step(at_us=self._when_us(), kind="start", node=node))

    def _black_out(self) -> None:
        """All crash at once and return with their disks, together or one by one."""
        random = self._random
        at_us = self._when_us()
        for node in range(self._nodes):
            lasts_us = pick(random, (1, SECOND_US)) + int(random.below(2 * SECOND_US))
            self._steps.append(Step(at_us=at_us, kind="crash", node=node, lasts_us=lasts_us))
