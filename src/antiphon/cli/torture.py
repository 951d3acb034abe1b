"""``antiphon torture``: random schedules by the thousand, an independent judge, and failures made small."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.jobs import Master

if TYPE_CHECKING:
    from antiphon.simulator.campaign import Sharing, Tally

LARGEST_SEED = (1 << 62) - 1
MAXIMUM_SHRUNK = 3
"""Failures of different kinds that are made small; one campaign seldom has more than one cause to tell of."""


def torture(
    fabric: Annotated[
        str | None,
        typer.Option(
            help="How publications travel: all, cube, cube-faults, gossip, epto or tree. All if not given; with --live "
            "or --hostile cube.",
            show_default=False,
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="none, fifo, causal, total or mixed; drawn for each schedule if not given.", show_default=False
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many schedules are run.")] = 1000,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, metavar="S", help="The seed of the first; the others follow.")
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that share the work; one per core if not given.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where scenario files of failures are written.")] = Path(),
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Let Spark share the work; what was cut off goes on with the same command. With --live: let Spark "
            "judge, as it does by itself what is large.",
        ),
    ] = False,
    master: Master = None,
    live: Annotated[
        bool, typer.Option("--live", help="Real nodes in processes, to which faults happen and are healed.")
    ] = False,
    hostile: Annotated[
        bool, typer.Option("--hostile", help="Real nodes that get changed recordings from strangers and clients.")
    ] = False,
    inputs: Annotated[int, typer.Option(min=1, metavar="N", help="With --hostile: how many inputs.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="With --live: faults happen for so long.")] = 60.0,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, metavar="M", help="The same in minutes.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option(min=4, max=64, metavar="N", help="With --live: how many nodes.")] = 8,
    overload: Annotated[
        bool, typer.Option("--overload", help="With --live: no faults, but ten times what the cluster sustains.")
    ] = False,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="With --live: kill, power, wipe, restart, roll, pause, stall, cut, oneway, flap, hold, delay, disk; "
            "or loss, for rounds in which nodes are lost for good. Those that the fabric survives, if not given.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="With --live: messages per second at each node.")
    ] = 20.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --live: keep what was written down, for antiphon audit.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Torture every fabric with random schedules, and let an oracle that knows no protocol judge each of them.

    A seed draws fabric, order, sizes, workload and faults. Members join, leave and publish at the worst moments while
    networks fall apart, nodes crash and return, copies are lost, late or doubled. Whatever the fabric promises must
    hold; in the end all is healed, and nothing may be lost, doubled, out of order or stuck. The same seeds give the
    same schedules and the same findings, however the work is shared. If a promise is broken the exit code is 1, and
    the schedule is made as small as possible and written as a scenario file that [bold]antiphon simulate[/] replays,
    with a trace to read.

    Examples: [bold]antiphon torture --seeds 10000 --order causal[/]    [bold]antiphon torture --live --fabric tree[/]
    """
    if hostile:
        from antiphon.cli.torture_hostile import torture_hostile

        torture_hostile(fabric or "cube", inputs, seed, json)
        return
    if live:
        from antiphon.cli.torture_live import Wishes, torture_live

        long = seconds if minutes is None else 60 * minutes
        wishes = Wishes(fabric or "cube", order, long, nodes, seed, faults, rate, out, json, keep, spark)
        if overload:
            from antiphon.cli.torture_overload import torture_by_overload

            torture_by_overload(wishes)
        else:
            torture_live(wishes)
        return
    from antiphon.simulator.campaign import ALL, check_campaign

    fabric = fabric or ALL
    check_campaign(fabric, order)
    output.warn_if_not_compiled()
    begun = time.perf_counter()
    if spark:
        from antiphon.cli.torture_spark import tally_by_spark

        tally, before = tally_by_spark(seed, seeds, order, fabric, out, master, jobs)
    else:
        tally, before = tally_by_processes(seed, seeds, order, fabric, jobs or cores()), 0
    report(tally, before, time.perf_counter() - begun, shrink(tally, order, out, fabric), json)


def tally_by_processes(seed: int, seeds: int, order: str | None, fabric: str, jobs: int) -> Tally:
    """Run a campaign in the processes of this machine."""
    from antiphon.simulator.campaign import run_campaign, tasks

    with output.progress("torture", len(tasks(seed, seeds))) as steps, sharing(jobs) as share:
        return run_campaign(seed, seeds, order, lambda so_far: steps.step(summary(so_far)), share, fabric)


def report(tally: Tally, before: int, seconds: float, scenarios: list[Path], json: bool) -> None:
    """Say what was found; the exit code is 1 if a promise was broken."""
    found: dict[str, Any] = {
        **tally.as_json(),
        "scenarios": [str(path) for path in scenarios],
        "seconds": seconds,
        "seeds_before": before,
        "seeds_per_hour": (tally.seeds - before) / seconds * 3600,
    }
    if json:
        output.print_json(found)
    else:
        show(found)
        for outcome in tally.failing[:10]:
            output.console.print(f"seed {outcome.seed}: {outcome.about}", markup=False, soft_wrap=True)
    if tally.failing:
        raise typer.Exit(1)


@contextmanager
def sharing(jobs: int) -> Iterator[Sharing]:
    """Let some processes share the work; one is this one."""
    if jobs == 1:
        yield map
        return
    # Started afresh and not forked: a progress bar has a thread, which a fork would cut in half.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield pool.map


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def summary(tally: Tally) -> str:
    """How far it has come, on one line."""
    failed = f"{len(tally.failing):,} failed" if tally.failing else "none failed"
    return f"{tally.seeds:,} schedules, {tally.deliveries:,} deliveries, {failed}"


def shrink(tally: Tally, order: str | None, directory: Path, fabric: str) -> list[Path]:
    """Make a failure of each kind small, and write it down."""
    from antiphon.simulator.campaign import SCHEDULES
    from antiphon.simulator.shrinking import Shrinker, representatives, write_failure

    paths = []
    for kind, outcome in representatives(tally.failing)[:MAXIMUM_SHRUNK]:
        output.errors.print(f"torture: making seed {outcome.seed} small, which failed by {kind}", highlight=False)
        small = Shrinker(SCHEDULES[fabric](outcome.seed, order), kind).shrink()
        paths.append(write_failure(outcome, kind, small, directory))
    return paths


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    rate = f"{found['seeds_per_hour']:,.0f} per hour"
    before = f" ({found['seeds_before']:,} of them before)" if found["seeds_before"] else ""
    table.add_row("schedules", f"{found['seeds']:,}{before} in {found['seconds']:.1f} s, {rate}")
    table.add_row("simulated", f"{found['simulated_seconds'] / 3600:,.1f} hours at 1 ms per tick")
    for key in ("orders", "networks", "faults"):
        table.add_row(key, counts(found[key]))
    if len(found["fabrics"]) > 1:
        for name, count in found["fabrics"].items():
            table.add_row(name, fabric_text(count))
    table.add_row("publications", f"{found['publications']:,}")
    table.add_row("messages", f"{found['messages']:,}, of which {found['dropped']:,} were lost")
    table.add_row("deliveries", f"{found['deliveries']:,}")
    if found["recovered"]:
        mean, longest = found["recovery_ticks_mean"], found["recovery_ticks_longest"]
        about = f"{found['recovered']:,} by nodes that had lost all parents, in {mean:,.0f} ticks on average"
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
        table.add_row("replay", escape(", ".join(f"antiphon simulate {path}" for path in found["scenarios"])))
    output.console.print(table)


def fabric_text(count: dict[str, Any]) -> str:
    """What came of the schedules of one fabric, on one line."""
    hours = f"{count['simulated_seconds'] / 3600:,.1f} hours"
    failed = f"{count['failed']:,} failed" if count["failed"] else "none failed"
    return (
        f"{count['seeds']:,} schedules of {hours}, {count['faults']:,} faults, {count['publications']:,} publications, "
        f"{count['deliveries']:,} deliveries; {failed}"
    )


def agreement_text(found: dict[str, Any]) -> str:
    """A rate with its interval, and what theory says."""
    rate = f"{found['rate']:.4f} of {found['publications']:,} publications, 95 % {found['low']:.4f}-{found['high']:.4f}"
    if found["theory"] is None:
        return rate
    return f"{rate}; expected {found['played']:.4f}, with rounds in step {found['theory']:.4f}"


def counts(found: dict[str, int]) -> str:
    """Counts by name, on one line."""
    return ", ".join(f"{name} {count:,}" for name, count in found.items())
