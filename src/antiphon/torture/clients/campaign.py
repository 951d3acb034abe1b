"""Campaigns of clients: runs random schedules of clusters with clients, judges and shrinks them.

A seed names a schedule (:mod:`antiphon.torture.clients.schedules`). Seeds are independent, so the distribution over
processes does not change the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from antiphon.audit.clients import ERROR
from antiphon.simulator.clients.world import ClientSchedule, ClientWorld
from antiphon.torture.campaign import tasks, tidy_collector
from antiphon.torture.clients.schedules import draw_client_schedule

PASSES = 6
"""How often everything is tried to be left out."""


class ClientTally(msgspec.Struct, kw_only=True):
    """The results of some schedules; the form in which ``antiphon torture --json`` prints them."""

    seeds: int = 0
    simulated_seconds: float = 0.0
    fabrics: dict[str, int] = msgspec.field(default_factory=dict)
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    messages: int = 0
    deliveries: int = 0
    moves: int = 0
    gaps: int = 0
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    failing_seeds: list[int] = msgspec.field(default_factory=list)
    examples: list[str] = msgspec.field(default_factory=list)

    def add(self, other: ClientTally) -> None:
        """Add the results of other schedules."""
        for name in ("seeds", "simulated_seconds", "messages", "deliveries", "moves", "gaps"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in (
            (self.fabrics, other.fabrics),
            (self.faults, other.faults),
            (self.violations, other.violations),
        ):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count
        self.failing_seeds += other.failing_seeds
        self.examples += other.examples


def run_clients(
    first_seed: int,
    count: int,
    order: str | None = None,
    watch: Callable[[ClientTally], None] | None = None,
    share: Callable[[Callable[[range], ClientTally], list[range]], Iterable[ClientTally]] = map,
) -> ClientTally:
    """Run the schedules of some seeds; ``share`` maps a function over portions of them."""
    total = ClientTally()
    for tally in share(partial(run_portion, order=order), tasks(first_seed, count)):
        total.add(tally)
        if watch is not None:
            watch(total)
    return total


def run_portion(seeds: range, order: str | None = None) -> ClientTally:
    """Run the schedules of some seeds in sequence."""
    tally = ClientTally()
    with tidy_collector():
        for seed in seeds:
            schedule = draw_client_schedule(seed, order)
            violations = run_one(schedule, tally)
            if violations:
                tally.failing_seeds.append(seed)
    return tally


def run_one(schedule: ClientSchedule, tally: ClientTally | None = None) -> dict[str, int]:
    """Run one schedule and count it: its violations by kind. An error that something raises is one."""
    world = ClientWorld(schedule)
    try:
        judge = world.run()
    except Exception as error:
        judge = world.judge
        judge.violation(ERROR, f"{type(error).__name__}: {error}")
    if tally is not None:
        tally.seeds += 1
        tally.simulated_seconds += world.clock.now_us / 1e6
        tally.fabrics[schedule.fabric] = tally.fabrics.get(schedule.fabric, 0) + 1
        for step in schedule.steps:
            if step.kind == "publish":
                tally.messages += 1
            elif step.kind != "connect":
                tally.faults[step.kind] = tally.faults.get(step.kind, 0) + 1
        tally.deliveries += judge.deliveries
        tally.moves += judge.moves
        tally.gaps += judge.gaps
        for kind, count in judge.violations.items():
            tally.violations[kind] = tally.violations.get(kind, 0) + count
        tally.examples += [f"seed {schedule.seed}, {schedule.fabric}: {text}" for text in judge.examples[:1]]
    return judge.violations


def shrink(schedule: ClientSchedule, kind: str) -> ClientSchedule:
    """The smallest schedule found that fails in the same way: without steps, clients and nodes that do not matter."""
    for _ in range(PASSES):
        before = schedule
        size = max(1, len(schedule.steps) // 2)
        while size > 0:
            place = 0
            while place < len(schedule.steps):
                steps = schedule.steps[:place] + schedule.steps[place + size :]
                smaller = msgspec.structs.replace(schedule, steps=steps)
                if kind in run_one(smaller):
                    schedule = smaller
                else:
                    place += size
            size //= 2
        for smaller in simpler(schedule):
            if kind in run_one(smaller):
                schedule = smaller
        if schedule == before:
            break
    return schedule


def simpler(schedule: ClientSchedule) -> Iterable[ClientSchedule]:
    """Schedules with one client or node less, where no step needs it, and with a plain network."""
    replace = msgspec.structs.replace
    used = {step.client for step in schedule.steps}
    last = len(schedule.homes) - 1
    if last > 0 and last not in used:
        yield replace(schedule, homes=schedule.homes[:-1])
    touched = {step.node for step in schedule.steps} | {node for step in schedule.steps for node in step.nodes}
    if schedule.nodes > 3 and schedule.nodes - 1 not in {*touched, *schedule.homes}:
        keeps = [node for node in schedule.keeps if node < schedule.nodes - 1]
        yield replace(schedule, nodes=schedule.nodes - 1, keeps=keeps)
    yield replace(schedule, delay_us=(50, 500))
    yield replace(schedule, keeps=list(range(schedule.nodes)))
    yield replace(schedule, steps=[replace(step, order="causal") for step in schedule.steps])
