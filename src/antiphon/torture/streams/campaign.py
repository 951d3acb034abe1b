"""Campaigns of streams: runs schedules of nodes and programs that share a history, judges, shrinks and writes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from antiphon.audit.clients import ERROR
from antiphon.kernel.randomness import RandomStream
from antiphon.torture.clients.campaign import shrink_with, simpler, write_json
from antiphon.torture.schedules.every_fabric import ALL
from antiphon.torture.streams.world import StreamSchedule, StreamWorld
from antiphon.torture.tally import STREAMS, TICKS_PER_SECOND, Outcome

CHOICE_STREAM: Final = 58
"""Names the stream of random numbers that decides what a seed draws."""

ONE_OF: Final = 8
"""One of so many schedules of a campaign over everything is one of streams."""


def draws_streams(seed: int, order: str | None, fabric: str) -> bool:
    """Whether a seed of a campaign draws a schedule of streams."""
    if fabric == ALL and order is None:
        return RandomStream(seed, CHOICE_STREAM).below(ONE_OF) == 0
    return fabric == STREAMS


def run_stream_schedule(schedule: StreamSchedule) -> Outcome:
    """Run one schedule to its end and judge it. An error that something raises is a finding."""
    world = StreamWorld(schedule)
    judge = world.streams
    # Programs log what they miss; nobody reads that here.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        world.execute()
    except Exception as error:
        judge.violation(ERROR, f"{type(error).__name__}: {error}")
    finally:
        logging.disable(before)
    return Outcome(
        seed=schedule.seed,
        fabric=f"{STREAMS} {schedule.fabric}",
        ticks=world.clock.now_us * TICKS_PER_SECOND // 1_000_000,
        publications=judge.asked_for,
        deliveries=judge.handed_out,
        moves=world.judge.moves,
        violations=judge.violations,
        about="; ".join(judge.examples[:3]),
    )


def events_of(schedule: StreamSchedule) -> list[str]:
    """The faults of a schedule, by kind."""
    return [*(step.kind for step in schedule.steps), *(task.kind for task in schedule.tasks)]


def shrink_streams(schedule: StreamSchedule, kind: str) -> StreamSchedule:
    """The smallest schedule found that fails in the same way."""

    def fails(candidate: StreamSchedule) -> bool:
        return kind in run_stream_schedule(candidate).violations

    return shrink_with(schedule, fails, ("steps", "tasks"), simpler_streams)


def simpler_streams(schedule: StreamSchedule) -> Iterable[StreamSchedule]:
    """Schedules without what no task needs."""
    used = {task.program for task in schedule.tasks if task.kind != "crash leader"} | {
        step.client for step in schedule.steps
    }
    for smaller in simpler(schedule):
        last = len(smaller.homes)
        if len(smaller.homes) == len(schedule.homes) or last not in used:
            yield msgspec.structs.replace(smaller, with_disk=list(range(smaller.nodes)))
    consumers = {task.consumer for task in schedule.tasks if task.kind in ("consume", "leave")}
    if schedule.consumers and len(schedule.consumers) - 1 not in consumers:
        yield msgspec.structs.replace(schedule, consumers=schedule.consumers[:-1])


def write_stream_failure(outcome: Outcome, schedule: StreamSchedule, directory: Path) -> Path:
    """Write a failing schedule as a file."""
    return write_json(directory / f"streams-{outcome.seed}.json", schedule)
