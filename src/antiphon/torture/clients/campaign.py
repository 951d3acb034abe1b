"""Campaigns of clients: runs schedules of clusters with clients, judges, shrinks and writes them.

A seed names a schedule (:mod:`antiphon.torture.clients.schedules`). :mod:`antiphon.torture.campaign` runs and counts
them as it does all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from antiphon.audit.clients import ERROR
from antiphon.kernel.errors import PeerError
from antiphon.simulator.clients.world import ClientSchedule, ClientWorld
from antiphon.torture.tally import CLIENTS, TICKS_PER_SECOND, Outcome

WAITED_US = 100_000
"""A message that was accepted in less time has not waited for the end of a fault."""

S = TypeVar("S", bound=msgspec.Struct)
C = TypeVar("C", bound=ClientSchedule)

PASSES = 6
"""How often everything is tried to be left out."""


def run_client_schedule(schedule: ClientSchedule) -> Outcome:
    """Run one schedule to its end and judge it. An error that something raises is a finding."""
    world = ClientWorld(schedule)
    try:
        judge = world.run()
    except Exception as error:
        judge = world.judge
        judge.violation(ERROR, f"{type(error).__name__}: {error}")
    waits_ms = [wait_us // 1000 for wait_us in judge.waits_us(schedule.fault_ends_us()) if wait_us >= WAITED_US]
    return Outcome(
        seed=schedule.seed,
        fabric=f"{CLIENTS} {schedule.fabric}",
        ticks=world.clock.now_us * TICKS_PER_SECOND // 1_000_000,
        publications=judge.asked_for,
        deliveries=judge.deliveries,
        recovered=len(waits_ms),
        recovery_ticks=sum(waits_ms) * TICKS_PER_SECOND // 1000,
        longest_recovery=max(waits_ms, default=0) * TICKS_PER_SECOND // 1000,
        moves=judge.moves,
        gaps=judge.gaps,
        violations=judge.violations,
        about="; ".join(judge.examples[:3]),
    )


def run_one(schedule: ClientSchedule) -> dict[str, int]:
    """Run one schedule: its violations by kind."""
    return run_client_schedule(schedule).violations


def shrink(schedule: ClientSchedule, kind: str) -> ClientSchedule:
    """The smallest schedule found that fails in the same way: without steps, clients and nodes that do not matter."""
    return shrink_with(schedule, lambda candidate: kind in run_one(candidate), ("steps",), simpler)


def shrink_with(
    schedule: S, fails: Callable[[S], bool], lists: Sequence[str], simpler_ones: Callable[[S], Iterable[S]]
) -> S:
    """The smallest schedule found that still fails: with fewer events in its ``lists``, and otherwise simpler."""
    for _ in range(PASSES):
        before = schedule
        for name in lists:
            size = max(1, len(getattr(schedule, name)) // 2)
            while size > 0:
                place = 0
                while place < len(getattr(schedule, name)):
                    events = getattr(schedule, name)
                    smaller = msgspec.structs.replace(schedule, **{name: events[:place] + events[place + size :]})
                    if fails(smaller):
                        schedule = smaller
                    else:
                        place += size
                size //= 2
        for smaller in simpler_ones(schedule):
            if fails(smaller):
                schedule = smaller
        if schedule == before:
            break
    return schedule


def simpler(schedule: C) -> Iterable[C]:
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


def write_client_failure(outcome: Outcome, schedule: ClientSchedule, directory: Path) -> Path:
    """Write a failing schedule as a file."""
    return write_json(directory / f"clients-{outcome.seed}.json", schedule)


def write_json(path: Path, schedule: msgspec.Struct) -> Path:
    """Write a schedule."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(schedule), indent=1))
    except OSError as error:
        raise PeerError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
    return path
