"""Campaigns over whole nodes: schedules of membership, run in ``simulator/cluster``, judged and shrunk.

Their schedules are no scenarios: nodes find their identifiers and peers themselves, and the judge is that of membership
(:mod:`antiphon.audit.membership`). A failing one is written as a file that ``antiphon simulate`` replays.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import PeerError
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.cluster.file import schedule_text
from antiphon.simulator.cluster.world import ClusterSchedule, ClusterWorld, Step
from antiphon.torture.schedules.every_fabric import ALL
from antiphon.torture.schedules.membership import draw_cluster_schedule
from antiphon.torture.schedules.operations import pick
from antiphon.torture.tally import ERROR, MEMBERSHIP, TICKS_PER_SECOND, Outcome

CLUSTER_STREAM: Final = 43
"""Names the stream of random numbers that decides what a seed draws."""

ONE_OF: Final = 8
"""One of so many schedules of a campaign over everything is one of membership."""

RUNS_AT_MOST: Final = 400
"""How many candidates are run to shrink one schedule; that takes about a minute."""

OTHER_SEEDS: Final = (1, 2, 3)
"""Leaving something out changes every delay after it, so a candidate is tried with these seeds too."""


def draws_cluster(seed: int, order: str | None, fabric: str) -> bool:
    """Whether a seed of a campaign draws a schedule of membership."""
    if fabric == ALL and order is None:
        return RandomStream(seed, CLUSTER_STREAM, 0).below(ONE_OF) == 0
    return fabric == MEMBERSHIP


def draw_cluster(seed: int) -> ClusterSchedule:
    """The schedule of a seed, on one of the fabrics."""
    return draw_cluster_schedule(pick(RandomStream(seed, CLUSTER_STREAM, 1), list(FABRICS)), seed)


def run_cluster(schedule: ClusterSchedule) -> Outcome:
    """Run a schedule to its end and judge it."""
    world = ClusterWorld(schedule)
    about, violations = "", {}
    try:
        judge = world.run()
        violations = judge.counts()
        about = "; ".join(f"{kind}: {text}" for kind, text in judge.violations[:3])
    except Exception as error:  # any error that the code of a node raises is a finding
        violations, about = {ERROR: 1}, f"{type(error).__name__}: {error}"
    return Outcome(
        seed=schedule.seed,
        fabric=MEMBERSHIP,
        ticks=world.clock.now_us * TICKS_PER_SECOND // 1_000_000,
        publications=world.published,
        messages=world.judge.messages(),
        deliveries=world.judge.deliveries(),
        violations=violations,
        about=f"{schedule.fabric}: {about}" if about else "",
    )


class ClusterShrinker:
    """Shrinks one schedule while it fails in the same way (delta debugging, Zeller 1999)."""

    def __init__(self, schedule: ClusterSchedule, kind: str) -> None:
        self.schedule = schedule
        self._kind = kind
        self._runs = 0

    def shrink(self) -> ClusterSchedule:
        """The smallest schedule found."""
        while self._fewer_steps() + self._simpler():
            pass
        return self.schedule

    def _fails(self, candidate: ClusterSchedule) -> bool:
        for seed in dict.fromkeys((candidate.seed, *OTHER_SEEDS)):
            if self._runs >= RUNS_AT_MOST:
                return False
            self._runs += 1
            tried = msgspec.structs.replace(candidate, seed=seed)
            if self._kind in run_cluster(tried).violations:
                self.schedule = tried
                return True
        return False

    def _fewer_steps(self) -> bool:
        """Leave out steps, ever smaller portions of them, the last first."""
        is_smaller = False
        size = len(self.schedule.steps) // 2 or 1
        while size > 0:
            end = len(self.schedule.steps)
            while end > 0:
                start = max(0, end - size)
                steps = self.schedule.steps[:start] + self.schedule.steps[end:]
                if has_founders(self.schedule, steps):
                    is_smaller |= self._fails(msgspec.structs.replace(self.schedule, steps=steps))
                end = min(start, len(self.schedule.steps))
            size //= 2
        return is_smaller

    def _simpler(self) -> bool:
        """Give settings their defaults, one at a time, and leave out nodes that never start."""
        is_simpler = False
        for key, value in simpler_settings(self.schedule):
            is_simpler |= self._fails(msgspec.structs.replace(self.schedule, **{key: value}))
        return is_simpler


def has_founders(schedule: ClusterSchedule, steps: list[Step]) -> bool:
    """Whether all founders are still started: a cluster that is never founded fails for another reason."""
    started = {step.node for step in steps if step.kind == "start"}
    return set(range(schedule.founders)) <= started


def simpler_settings(schedule: ClusterSchedule) -> Iterator[tuple[str, object]]:
    """Settings that differ from their defaults, with values that are simpler."""
    usual = ClusterSchedule(seed=0, fabric=schedule.fabric, nodes=schedule.nodes)
    for key in ("late_us", "delay_us", "commit_us", "lost_seconds", "scarce"):
        if getattr(schedule, key) != getattr(usual, key):
            yield key, getattr(usual, key)
    # A founder that founds again needs its disk.
    disks = [0] if schedule.founds_again else []
    if schedule.with_disk != disks:
        yield "with_disk", disks
    used = 1 + max((node for step in schedule.steps for node in (step.node, *step.nodes)), default=0)
    if max(used, schedule.founders) < schedule.nodes:
        yield "nodes", max(used, schedule.founders)


def write_cluster_failure(outcome: Outcome, kind: str, schedule: ClusterSchedule, directory: Path, state: str) -> Path:
    """Write a failing schedule as a file, with a comment that describes the failure."""
    path = directory / f"torture-{outcome.seed}.toml"
    remark = (
        f"Seed {outcome.seed} of antiphon torture --fabric {MEMBERSHIP}, {state}: {kind}.\n"
        f"At first: {outcome.about}\nReplay it: antiphon simulate {path.name}"
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(schedule_text(schedule, remark), encoding="utf-8")
    except OSError as error:
        raise PeerError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
    return path
