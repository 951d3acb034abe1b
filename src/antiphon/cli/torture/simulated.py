"""``antiphon torture`` in the simulator: a campaign that keeps all its findings, however it ends.

Each failing schedule is on disk before the next one begins (:mod:`antiphon.torture.results`). An interrupt or an error
still prints the result so far. Shrinking comes last, and its failure does not affect the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.interrupts import requests_to_stop
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.torture.progress import CampaignProgress
    from antiphon.torture.results import CampaignJournal, SeedPlan
    from antiphon.torture.tally import Outcome, Tally

S = TypeVar("S")

STATES = ("as it was drawn, which failed by", "shrunk while it failed by")
"""How a schedule is written: as it was, or made small."""

MAXIMUM_SHRUNK = 3
"""The most failures of different kinds to shrink; a campaign seldom has more than one cause."""

GRACE_SECONDS = 0.3

INTERRUPTED_CODE = 130
"""The exit code of an interrupted command in a shell."""


@dataclass(frozen=True)
class TortureOptions:
    """The options of the command."""

    fabric: str
    order: str | None
    seeds: int
    seed: int | None
    fresh: bool
    jobs: int | None
    out: Path
    spark: bool
    master: str | None
    as_json: bool


def torture_simulated(asked: TortureOptions) -> None:
    """Run a campaign and report, also after an interrupt."""
    with requests_to_stop():
        run_and_report(asked)


def run_and_report(asked: TortureOptions) -> None:
    """Run a campaign, and report."""
    from antiphon.pipeline.campaigns import product_digest
    from antiphon.torture.campaign import check_campaign
    from antiphon.torture.processes import cores
    from antiphon.torture.progress import add_uncounted
    from antiphon.torture.results import FINISHED, INTERRUPTED, RESULTS, CampaignJournal, SeedPlan

    check_campaign(asked.fabric, asked.order)
    if asked.fresh and asked.seed is not None:
        raise UsageError("--fresh draws the first seed; leave out --seed, or --fresh")
    like = SeedPlan(
        first_seed=1 if asked.seed is None else asked.seed,
        seeds=asked.seeds,
        fabric=asked.fabric,
        order=asked.order,
        fresh=asked.fresh,
        product=product_digest(),
    )
    plan = fresh_plan(asked.out / RESULTS, like, asked.spark) if asked.fresh else like
    journal = CampaignJournal(asked.out, plan)
    output.warn_if_not_compiled()
    begun = time.perf_counter()
    course = run_by_spark(journal, asked) if asked.spark else run_by_processes(journal, asked.jobs or cores())
    seconds = time.perf_counter() - begun
    if course.how != FINISHED:
        add_uncounted(course.tally, journal.failures())
    scenarios = make_small(course, plan, asked.out)
    found = result_of(course, journal, seconds, scenarios)
    journal.end(course.how, found)
    report(found, course, asked.as_json)
    if course.tally.failing or course.how not in (FINISHED, INTERRUPTED):
        raise typer.Exit(1)
    if course.how == INTERRUPTED:
        raise typer.Exit(INTERRUPTED_CODE)


# Seeds.


def fresh_plan(results: Path, like: SeedPlan, resumes: bool) -> SeedPlan:
    """The plan with a first seed that was never run; with Spark, that of the same campaign if it was interrupted."""
    import msgspec

    from antiphon.torture.progress import fresh_seed
    from antiphon.torture.results import unfinished

    cut_off = unfinished(results, like) if resumes else None
    plan = cut_off or msgspec.structs.replace(like, first_seed=fresh_seed(results, like.seeds))
    goes_on = ", which resumes an interrupted campaign" if cut_off else ""
    output.errors.print(f"torture: fresh seeds from {plan.first_seed} on{goes_on}", highlight=False, soft_wrap=True)
    return plan


# Running.


def run_by_processes(journal: CampaignJournal, jobs: int) -> CampaignProgress:
    """Run a campaign in processes of this machine, until its end or until it is stopped."""
    from antiphon.torture.campaign import run_campaign, tasks
    from antiphon.torture.processes import sharing
    from antiphon.torture.progress import CampaignProgress, note_progress
    from antiphon.torture.results import FINISHED, INTERRUPTED, STOPPED
    from antiphon.torture.tally import Tally

    course = CampaignProgress(Tally(), STOPPED)
    plan = journal.plan
    with output.progress("torture", len(tasks(plan.first_seed, plan.seeds))) as steps:

        def watch(so_far: Tally) -> None:
            course.tally = so_far
            note_progress(journal, so_far)
            steps.step(summary(so_far))

        try:
            with sharing(jobs) as share:
                run_campaign(plan.first_seed, plan.seeds, plan.order, watch, share, plan.fabric, journal)
            course.how = FINISHED
        except KeyboardInterrupt:
            course.how = INTERRUPTED
        except Exception as error:  # a process was killed, the disk is full: the findings so far count
            try:
                # A signal to the process group may have reached a worker first.
                time.sleep(GRACE_SECONDS)
                course.complaints.append(f"the campaign could not continue: {type(error).__name__}: {error}")
            except KeyboardInterrupt:
                course.how = INTERRUPTED
    return course


def run_by_spark(journal: CampaignJournal, asked: TortureOptions) -> CampaignProgress:
    """Run a campaign on Spark, until its end or until it is stopped."""
    from antiphon.cli.torture.spark import tally_by_spark

    return tally_by_spark(journal, asked.out, asked.master, asked.jobs)


# Shrinking.


def make_small(course: CampaignProgress, plan: SeedPlan, directory: Path) -> list[Path]:
    """Shrink one failure of each kind, and write it as a scenario; unshrunk if there is no time, or if that fails."""
    from antiphon.torture.results import FINISHED, RESULTS
    from antiphon.torture.shrinking import representatives

    paths = []
    chosen = representatives(course.tally.failing)[:MAXIMUM_SHRUNK]
    has_time = course.how == FINISHED
    for kind, outcome in chosen:
        try:
            paths.append(write_one(outcome, kind, plan, directory, has_time))
        except KeyboardInterrupt:
            has_time = False
            course.complaints.append(f"interrupted while seed {outcome.seed} was shrunk; {RESULTS} has it")
        except Exception as error:  # the result of a campaign is worth more than any shrunk failure
            reason = f"{type(error).__name__}: {error}"
            course.complaints.append(f"the schedule of seed {outcome.seed} is not written as a scenario: {reason}")
    return paths


def write_one(outcome: Outcome, kind: str, plan: SeedPlan, directory: Path, has_time: bool) -> Path:
    """Write one failure as a scenario, as small as possible."""
    from antiphon.torture.clients.campaign import shrink, write_client_failure
    from antiphon.torture.clients.schedules import draw_client_schedule
    from antiphon.torture.clusters import ClusterShrinker, draw_cluster, draws_cluster, write_cluster_failure
    from antiphon.torture.schedules import SCHEDULES
    from antiphon.torture.services.campaign import shrink_services, write_service_failure
    from antiphon.torture.services.schedules import draw_service_schedule
    from antiphon.torture.shrinking import Shrinker, write_failure
    from antiphon.torture.streams.campaign import draws_streams, shrink_streams, write_stream_failure
    from antiphon.torture.streams.schedules import draw_stream_schedule
    from antiphon.torture.tally import CLIENTS, SERVICES

    if plan.fabric == CLIENTS:
        with_clients = draw_client_schedule(outcome.seed, plan.order)
        return write_client_failure(outcome, made_small(with_clients, outcome.seed, kind, has_time, shrink), directory)
    if plan.fabric == SERVICES:
        with_service = draw_service_schedule(outcome.seed)
        small_one = made_small(with_service, outcome.seed, kind, has_time, shrink_services)
        return write_service_failure(outcome, small_one, directory)
    if draws_streams(outcome.seed, plan.order, plan.fabric):
        streams = draw_stream_schedule(outcome.seed, plan.order)
        return write_stream_failure(
            outcome, made_small(streams, outcome.seed, kind, has_time, shrink_streams), directory
        )
    if draws_cluster(outcome.seed, plan.order, plan.fabric):
        cluster = draw_cluster(outcome.seed)
        shrunk = made_small(
            cluster, outcome.seed, kind, has_time, lambda one, kind: ClusterShrinker(one, kind).shrink()
        )
        return write_cluster_failure(outcome, kind, shrunk, directory, STATES[shrunk is not cluster])
    scenario = SCHEDULES[plan.fabric](outcome.seed, plan.order)
    small = made_small(scenario, outcome.seed, kind, has_time, lambda one, why: Shrinker(one, why).shrink())
    return write_failure(outcome, kind, small, directory, STATES[small is not scenario])


def made_small(schedule: S, seed: int, kind: str, has_time: bool, shrink: Callable[[S, str], S]) -> S:
    """A schedule, shrunk if there is time and that does not fail; otherwise as it was drawn."""
    if not has_time:
        return schedule
    output.errors.print(f"torture: shrinking seed {seed}, which failed by {kind}", highlight=False)
    try:
        return shrink(schedule, kind)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        output.complain(f"seed {seed} cannot be shrunk ({reason}); it is written as it was drawn")
        return schedule


# Reporting.


def result_of(
    course: CampaignProgress, journal: CampaignJournal, seconds: float, scenarios: list[Path]
) -> dict[str, Any]:
    """The form in which ``--json`` prints it."""
    tally, plan = course.tally, journal.plan
    return {
        "first_seed": plan.first_seed,
        "fresh": plan.fresh,
        "ended": course.how,
        **tally.as_json(),
        "scenarios": [str(path) for path in scenarios],
        "results": str(journal.path),
        "seconds": seconds,
        "seeds_before": course.before,
        "seeds_per_hour": (tally.seeds - course.before) / seconds * 3600,
    }


def report(found: dict[str, Any], course: CampaignProgress, as_json: bool) -> None:
    """Print the findings."""
    for complaint in course.complaints:
        output.complain(complaint)
    if as_json:
        output.print_json(found)
        return
    show(found)
    for outcome in course.tally.failing[:10]:
        where = f" ({outcome.fabric})" if outcome.fabric else ""
        output.console.print(f"seed {outcome.seed}{where}: {outcome.about}", markup=False, soft_wrap=True)


def summary(tally: Tally) -> str:
    """The progress, on one line."""
    failed = f"{len(tally.failing):,} failed" if tally.failing else "none failed"
    return f"{tally.seeds:,} schedules, {tally.deliveries:,} deliveries, {failed}"


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    from antiphon.torture.rates import rate_text

    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    rate = f"{found['seeds_per_hour']:,.0f} per hour"
    before = f" ({found['seeds_before']:,} of them before)" if found["seeds_before"] else ""
    table.add_row("schedules", f"{found['seeds']:,}{before} in {found['seconds']:.1f} s, {rate}")
    if found["ended"] != "finished":
        table.add_row("ended", f"{found['ended']} before all were run")
    fresh = "fresh, never run before" if found["fresh"] else "not fresh: named, or the first"
    table.add_row("seeds", f"from {found['first_seed']} on; {fresh}")
    table.add_row("simulated", f"{found['simulated_seconds'] / 3600:,.1f} hours at 1 ms per tick")
    for key in ("orders", "networks", "faults"):
        table.add_row(key, counts(found[key]))
    for name, count in found["fabrics"].items():
        table.add_row(name, fabric_text(count))
        table.add_row("  failed", rate_text(count["failed"], count["seeds"]))
    table.add_row("publications", f"{found['publications']:,}")
    table.add_row("messages", f"{found['messages']:,}, of which {found['dropped']:,} were lost")
    table.add_row("deliveries", f"{found['deliveries']:,}")
    if found["moves"]:
        table.add_row("clients", f"changed their node {found['moves']:,} times; told of {found['gaps']:,} gaps")
    if found["recovered"]:
        mean, longest = found["recovery_ticks_mean"], found["recovery_ticks_longest"]
        whose = "messages of clients that waited" if found["moves"] else "by nodes that had lost all parents"
        about = f"{found['recovered']:,} {whose}, in {mean:,.0f} ticks on average"
        table.add_row("repairs", f"{about}, {longest:,} at most")
    for key, title in (("agreement", "agreement"), ("calm_agreement", "as in theory")):
        if found[key]:
            table.add_row(title, agreement_text(found[key]))
    violated = {kind: count for kind, count in found["violations"].items() if count}
    checked = ", ".join(found["violations"])
    table.add_row("violations", counts(violated) if violated else f"none; checked: {checked}")
    table.add_row("stuck", f"{found['stuck']:,}" if found["stuck"] else "nothing")
    if found["failing_seeds"]:
        table.add_row("failing seeds", ", ".join(map(str, found["failing_seeds"][:10])))
        table.add_row("replay", escape(", ".join(replay_of(path) for path in found["scenarios"])))
    output.console.print(table)


def replay_of(path: str) -> str:
    """How a failure is run again."""
    if path.endswith(".json"):
        fabric, _, seed = Path(path).stem.partition("-")
        return f"antiphon torture --fabric {fabric} --seeds 1 --seed {seed} ({path})"
    return f"antiphon simulate {path}"


def fabric_text(count: dict[str, Any]) -> str:
    """The results of the schedules of one fabric, on one line."""
    hours = f"{count['simulated_seconds'] / 3600:,.1f} hours"
    return (
        f"{count['seeds']:,} schedules of {hours}, {count['faults']:,} faults, {count['publications']:,} publications, "
        f"{count['deliveries']:,} deliveries"
    )


def agreement_text(found: dict[str, Any]) -> str:
    """A rate with its interval, and the prediction of theory."""
    rate = f"{found['rate']:.4f} of {found['publications']:,} publications, 95 % {found['low']:.4f}-{found['high']:.4f}"
    if found["theory"] is None:
        return rate
    return f"{rate}; expected {found['played']:.4f}, with rounds in step {found['theory']:.4f}"


def counts(found: dict[str, int]) -> str:
    """Counts by name, on one line."""
    return ", ".join(f"{name} {count:,}" for name, count in found.items())
