"""Campaigns: runs many random schedules, each to its end, and judges them.

A seed names a schedule. A schedule is an ordinary scenario, run and judged as ``antiphon simulate`` would, so a failing
seed can be examined with the same tools. Seeds are independent: the distribution over processes does not change the
findings.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from antiphon.fabrics.registry import DEFAULT_FABRIC
from antiphon.kernel.errors import ScenarioError, UsageError
from antiphon.kernel.message import CAUSAL, ORDER_NAMES
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.torture.clients.campaign import run_client_schedule
from antiphon.torture.clients.schedules import draw_client_schedule
from antiphon.torture.clusters import draw_cluster, draws_cluster, run_cluster
from antiphon.torture.results import CampaignJournal, Failed, SeedPlan, append, now
from antiphon.torture.schedules.every_fabric import ALL, SCHEDULES, SPACES
from antiphon.torture.schedules.families import FAMILIES, family_name, orders_of
from antiphon.torture.schedules.operations import MIXED
from antiphon.torture.streams.campaign import draws_streams, events_of, run_stream_schedule
from antiphon.torture.streams.schedules import draw_stream_schedule
from antiphon.torture.tally import CLIENTS, ENDLESS, ERROR, MEMBERSHIP, SERVICES, STREAMS, UNJUDGED, Outcome, Tally

SEEDS_PER_TASK = 50

Sharing = Callable[[Callable[[range], Tally], list[range]], Iterable[Tally]]
"""Maps a function over the portions of a campaign; results come back in the order of the portions."""


def run_campaign(
    first_seed: int,
    count: int,
    order: str | None = None,
    watch: Callable[[Tally], None] | None = None,
    share: Sharing = map,
    fabric: str = DEFAULT_FABRIC,
    journal: CampaignJournal | None = None,
) -> Tally:
    """Run the schedules of ``count`` seeds from ``first_seed`` on; call ``watch`` with the tally now and then.

    ``share`` maps a function over portions of the seeds, such as the ``map`` of a pool of processes. Each failing
    schedule is appended to the ``journal`` at once.
    """
    total = Tally()
    results, plan = (None, None) if journal is None else (journal.path, journal.plan)
    run = partial(run_seeds, order=order, fabric=fabric, results=results, plan=plan)
    for tally in share(run, tasks(first_seed, count)):
        total.add(tally)
        if watch is not None:
            watch(total)
    return total


def tasks(first_seed: int, count: int) -> list[range]:
    """Split the seeds into portions; the split does not depend on the number of processes."""
    end = first_seed + count
    return [range(start, min(start + SEEDS_PER_TASK, end)) for start in range(first_seed, end, SEEDS_PER_TASK)]


def run_seeds(
    seeds: range,
    order: str | None,
    fabric: str = DEFAULT_FABRIC,
    results: Path | None = None,
    plan: SeedPlan | None = None,
) -> Tally:
    """Run the schedules of some seeds in sequence; append each failing one to ``results`` at once."""
    tally = Tally()
    with tidy_collector():
        for seed in seeds:
            outcome = run_seed(tally, seed, order, fabric)
            if outcome.violations and results is not None and plan is not None:
                violations, about = outcome.violations, outcome.about
                failed = Failed(
                    at=now(), plan=plan, seed=seed, fabric=outcome.fabric, violations=violations, about=about
                )
                append(results, failed)
            gc.collect()
    return tally


def run_seed(tally: Tally, seed: int, order: str | None, fabric: str) -> Outcome:
    """Run the schedule of one seed and count it. A schedule that cannot be drawn or run is a finding; it does not end
    the campaign.
    """
    if fabric == CLIENTS:
        schedule = draw_client_schedule(seed, order)
        outcome = run_client_schedule(schedule)
        tally.count_cluster([step.kind for step in schedule.steps], outcome)
        return outcome
    if fabric == SERVICES:
        # These schedules run whole nodes, which no other campaign needs.
        from antiphon.torture.services.campaign import faults_of, run_service_schedule
        from antiphon.torture.services.schedules import draw_service_schedule

        with_service = draw_service_schedule(seed)
        outcome = run_service_schedule(with_service)
        tally.count_cluster(faults_of(with_service), outcome)
        return outcome
    if draws_streams(seed, order, fabric):
        with_streams = draw_stream_schedule(seed, order)
        outcome = run_stream_schedule(with_streams)
        tally.count_cluster(events_of(with_streams), outcome)
        return outcome
    if draws_cluster(seed, order, fabric):
        cluster = draw_cluster(seed)
        outcome = run_cluster(cluster)
        tally.count_cluster([step.kind for step in cluster.steps], outcome)
        return outcome
    try:
        scenario = SCHEDULES[fabric](seed, order)
        outcome = run_schedule(scenario)
    except Exception as error:
        about = f"the schedule cannot be run: {type(error).__name__}: {error}"
        outcome = Outcome(seed=seed, fabric=fabric, violations={ERROR: 1}, about=about)
        tally.count_undrawn(outcome)
        return outcome
    tally.count(scenario, outcome)
    return outcome


@contextmanager
def tidy_collector() -> Iterator[None]:
    """Collect garbage only on request, and only objects created since.

    The automatic collector would visit everything that was imported and take as long as the schedules themselves.
    """
    collecting = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()


def run_schedule(scenario: Scenario) -> Outcome:
    """Run one schedule to its end and judge it."""
    try:
        result = run_scenario(scenario)
    except ScenarioError:
        raise
    except Exception as error:  # any error that a protocol raises is a finding
        about = f"{type(error).__name__}: {error}"
        return Outcome(seed=scenario.seed, fabric=family_name(scenario), violations={ERROR: 1}, about=about)
    if result.stopped != "finished":
        violations, about = {ENDLESS: 1}, f"{result.stopped} after {result.events} events"
    elif result.violations is None:
        # A campaign draws only schedules that can be judged, so an unjudged one counts as a failure.
        violations, about = {UNJUDGED: 1}, result.judgement
    else:
        violations = {kind: count for kind, count in result.violations.items() if count > 0}
        about = result.judgement
    return Outcome(
        seed=scenario.seed,
        fabric=family_name(scenario),
        ticks=result.end_time,
        publications=result.published,
        messages=result.sent,
        dropped=result.dropped,
        deliveries=result.deliveries,
        recovered=result.recovered,
        recovery_ticks=result.recovery_ticks,
        longest_recovery=result.longest_recovery,
        holes=result.lost,
        agreed=result.agreed or 0,
        owed=result.owed or 0,
        violations=violations,
        about=about,
    )


def check_campaign(fabric: str, order: str | None) -> None:
    """Refuse a fabric or an order that no campaign has."""
    if fabric in (MEMBERSHIP, SERVICES):
        if order is not None:
            raise UsageError(f"schedules of {fabric} have no order; leave out --order")
        return
    names = (*SCHEDULES, CLIENTS, STREAMS)
    if fabric not in names:
        raise UsageError(f"there is no fabric {fabric!r}; choose from {', '.join((*names, MEMBERSHIP, SERVICES))}")
    fabrics = list(FAMILIES) if fabric == ALL else [fabric]
    orders: list[str] = list(ORDER_NAMES)
    if fabric == SPACES:
        orders = [ORDER_NAMES[CAUSAL]]
    elif fabric not in (CLIENTS, STREAMS):
        orders = [name for name in (*ORDER_NAMES, MIXED) if any(name in orders_of(one) for one in fabrics)]
    if order is not None and order not in orders:
        raise UsageError(
            f"a campaign has no order {order!r}; choose from {', '.join(orders)}, or leave it out to draw orders"
        )
