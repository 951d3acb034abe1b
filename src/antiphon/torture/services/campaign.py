"""Campaigns of services: runs schedules, judges, shrinks and writes them.

A schedule takes seconds where others take milliseconds, so a campaign over all fabrics has none of these.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.audit.clients import ERROR, STUCK
from antiphon.audit.services import ServicesJudge
from antiphon.fabrics.tree.fabric import TREE
from antiphon.testing import Cluster, run
from antiphon.torture.clients.campaign import shrink_with, write_json
from antiphon.torture.services.schedules import REMEMBERED_AT_MOST, REPLICAS, ServiceSchedule
from antiphon.torture.services.world import ServiceWorld
from antiphon.torture.tally import SERVICES, TICKS_PER_SECOND, Outcome

VIRTUAL_SECONDS: Final = 2000.0
"""A schedule that takes longer is stuck."""

SETTINGS: Final[dict[str, dict[str, Any]]] = {TREE.name: {TREE.name: {"quorum_delivery": [">"]}}}

TRIES: Final = 2
"""A schedule does not run exactly alike each time."""


def run_service_schedule(schedule: ServiceSchedule) -> Outcome:
    """Run one schedule to its end and judge it. An error that something raises is a finding."""
    # On a cube an operation that was published out of reach may be on two sides of a total one.
    judge = ServicesJudge(keeps_sides=schedule.fabric in SETTINGS)
    seconds = 0.0

    async def scenario(cluster: Cluster) -> None:
        nonlocal seconds
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with tempfile.TemporaryDirectory(prefix="antiphon-services-") as directory:
            world = ServiceWorld(schedule, cluster, Path(directory), judge)
            try:
                await world.run()
            finally:
                world.close()
                seconds = loop.time() - begun

    # Replicas log their faults; nobody reads that here.
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        settings = SETTINGS.get(schedule.fabric, {})
        run(scenario, REPLICAS, fabric=schedule.fabric, durable=True, timeout=VIRTUAL_SECONDS, **settings)
    except TimeoutError:
        judge.violation(STUCK, "the schedule did not end")
    except Exception as error:
        judge.violation(ERROR, f"{type(error).__name__}: {error}")
    finally:
        logging.disable(before)
    return Outcome(
        seed=schedule.seed,
        fabric=f"{SERVICES} {schedule.fabric}",
        ticks=int(seconds * TICKS_PER_SECOND),
        publications=len(judge.calls),
        deliveries=judge.answered,
        violations=judge.violations,
        about="; ".join(judge.examples[:3]),
    )


def faults_of(schedule: ServiceSchedule) -> list[str]:
    """The faults of a schedule, by kind."""
    return [step.kind for step in schedule.steps]


def shrink_services(schedule: ServiceSchedule, kind: str) -> ServiceSchedule:
    """The smallest schedule found that fails in the same way."""

    def fails(candidate: ServiceSchedule) -> bool:
        return any(kind in run_service_schedule(candidate).violations for _ in range(TRIES))

    return shrink_with(schedule, fails, ("steps",), simpler_services)


def simpler_services(schedule: ServiceSchedule) -> Iterable[ServiceSchedule]:
    """Schedules with a caller less, and with replicas that remember everything."""
    replace = msgspec.structs.replace
    if len(schedule.callers) > 1:
        for place in range(len(schedule.callers)):
            yield replace(schedule, callers=schedule.callers[:place] + schedule.callers[place + 1 :])
    if schedule.remembered != REMEMBERED_AT_MOST:
        yield replace(schedule, remembered=REMEMBERED_AT_MOST)


def write_service_failure(outcome: Outcome, schedule: ServiceSchedule, directory: Path) -> Path:
    """Write a failing schedule as a file."""
    return write_json(directory / f"services-{outcome.seed}.json", schedule)
