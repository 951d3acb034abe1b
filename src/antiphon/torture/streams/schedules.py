"""Random schedules for streams: programs publish, consume and die while the nodes that keep the history have faults.

The faults of nodes are drawn as for clients (:mod:`antiphon.torture.clients.schedules`). All nodes have disks, and in
some schedules one of them loses its disk.
"""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.randomness import RandomStream
from antiphon.membership.host import SECOND_US
from antiphon.simulator.clients.world import ClientStep
from antiphon.streams.requests import REPLACE_US, Policy
from antiphon.torture.clients.schedules import SPAN_US, ClientScheduleDraw
from antiphon.torture.schedules.operations import pick
from antiphon.torture.streams.world import DrawnConsumer, StreamSchedule, StreamTask

STREAMS_STREAM: Final = 57
"""Names the stream of random numbers."""

MODES: Final = ("any", "key", "causal")
ACKS: Final = ("one", "quorum", "quorum", "all")


def draw_stream_schedule(seed: int, order: str | None = None) -> StreamSchedule:
    """The schedule of a seed."""
    return StreamScheduleDraw(seed, order).stream_schedule()


class StreamScheduleDraw(ClientScheduleDraw):
    """Draws one schedule."""

    def __init__(self, seed: int, order: str | None) -> None:
        super().__init__(seed, order)
        self._mine = mine = RandomStream(seed, STREAMS_STREAM)
        # Histories need every node to be connected to every other one.
        self._fabric = pick(mine, [name for name, fabric in FABRICS.items() if fabric.membership.is_full])
        self._with_disk = []
        self._modes = [pick(mine, MODES) for _ in range(int(mine.between(0, 2)))]
        self._tasks: list[StreamTask] = []

    def stream_schedule(self) -> StreamSchedule:
        """What happens."""
        mine = self._mine
        drawn, policy = self.schedule(), self._policy()
        steps = [step for step in drawn.steps if step.kind not in ("publish", "connect")]
        if mine.below(3) == 0 and policy.replicas > 1:
            # One disk is a minority; a single replica would take the history along.
            node = int(mine.between(1, self._nodes - 1))
            steps.append(ClientStep(at_us=self._when_us(), kind="wipe", node=node, lasts_us=self._lasts_us()))
        if mine.below(4) == 0:
            lasts_us = pick(mine, (1000, SECOND_US, 4 * SECOND_US))
            steps.append(ClientStep(at_us=self._when_us(), kind="blackout", lasts_us=lasts_us))
        everyone = list(range(self._nodes))
        for _ in range(int(mine.between(3, 10))):
            self._publish_some()
        for number in range(len(self._modes)):
            for _ in range(int(mine.between(1, 3))):
                self._join(number)
        for _ in range(int(mine.between(0, 2))):
            self._task("read")
        for _ in range(pick(mine, (0, 0, 1, 1, 2, 3))):
            self._task("crash leader", program=0, lasts_us=pick(mine, (1000, SECOND_US, 4 * SECOND_US)))
        # The first program gives the topic its history, so it stays.
        for _ in range(int(mine.below(2))):
            self._task("die", program=int(mine.between(1, self._clients - 1)))
        fields = {name: getattr(drawn, name) for name in drawn.__struct_fields__}
        changes = {
            "with_disk": everyone,
            "keeps": everyone,
            "writes": [],
            "steps": sorted(steps, key=lambda step: step.at_us),
            "policy": policy,
            "consumers": [DrawnConsumer(mode=mode, deliveries_at_most=pick(mine, (0, 0, 3))) for mode in self._modes],
            "tasks": sorted(self._tasks, key=lambda task: task.at_us),
        }
        return StreamSchedule(**{**fields, **changes})

    def _policy(self) -> Policy:
        mine = self._mine
        size, age_us = pick(mine, ((0, 0), (0, 0), (0, 0), (1500, 0), (0, 4 * SECOND_US)))
        replace_us = pick(mine, (REPLACE_US, REPLACE_US, 3 * SECOND_US))
        return Policy(pick(mine, (1, 3, 3, 3, 5)), size, age_us, replace_us=replace_us)

    def _task(self, kind: str, **about: object) -> None:
        program = int(self._mine.below(self._clients))
        self._tasks.append(StreamTask(**{"at_us": self._when_us(), "kind": kind, "program": program, **about}))  # type: ignore[arg-type]

    def _publish_some(self) -> None:
        """One program publishes a burst, or several do one after the other."""
        mine = self._mine
        at_us, program = self._when_us(), int(mine.below(self._clients))
        for _ in range(int(mine.between(1, 6))):
            order = pick(mine, [each for each in self._orders if each != "none"])
            task = StreamTask(
                at_us=at_us,
                kind="publish",
                program=program,
                order=order,
                acks=pick(mine, ACKS),
                key=int(mine.below(3)),
            )
            self._tasks.append(task)
            at_us += pick(mine, (0, 100, 5000, 100_000))
            if mine.below(3) == 0:
                program = int(mine.below(self._clients))

    def _join(self, consumer: int) -> None:
        mine = self._mine
        program, at_us = int(mine.below(self._clients)), int(mine.below(SPAN_US))
        pace = pick(mine, (1, 20, 400, 3000))
        self._tasks.append(StreamTask(at_us=at_us, kind="consume", program=program, consumer=consumer, pace=pace))
        if mine.below(3) == 0:
            left_us = at_us + int(mine.below(SPAN_US // 2))
            self._tasks.append(StreamTask(at_us=left_us, kind="leave", program=program, consumer=consumer))
