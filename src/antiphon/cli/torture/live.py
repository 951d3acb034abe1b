"""``antiphon torture --live``: injects every kind of fault into real nodes, and audits them.

A campaign (:mod:`antiphon.torture.live.campaign`) injects faults into one cluster and heals them. With ``--faults
loss`` there are rounds instead, each with a cluster of its own that loses nodes for good
(:mod:`antiphon.torture.live.rounds.round`).
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.interrupts import first_request, requests_to_stop
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.torture.live.campaign import CampaignPlan, LiveCampaign, LiveFigures
    from antiphon.torture.live.rounds.round import RoundFigures

FINISHED, INTERRUPTED = "finished", "interrupted"
"""How a campaign ends."""

INTERRUPTED_CODE = 130

LOSS = "loss"
"""The fault of rounds: nodes are killed and do not restart."""


@dataclass(frozen=True)
class LiveOptions:
    """The options of the command."""

    fabric: str
    order: str | None
    seconds: float
    nodes: int
    seed: int
    faults: str | None
    rate: float
    out: Path
    as_json: bool
    keep: bool = False
    """Whether journals are kept even if nothing is violated."""
    spark: bool = False
    """Whether Spark judges even a small campaign."""
    has_logs: bool = True
    """Whether nodes have logs."""
    fresh: bool = False
    """Whether the seed was drawn from a range that was never run."""
    other_version: Path | None = None
    """Where another version of Antiphon is, which each node runs after every other start."""


def torture_live(wishes: LiveOptions) -> None:
    """Run the requested campaign, and report."""
    if wishes.faults == LOSS:
        torture_in_rounds(wishes)
        return
    from antiphon.fabrics.registry import FABRICS
    from antiphon.torture.live.campaign import EVERYTHING, CampaignPlan
    from antiphon.torture.live.faults import NEEDS_LOGS, check_kinds

    if wishes.fabric not in FABRICS:
        raise UsageError(f"there are no live nodes of a fabric {wishes.fabric!r}; choose from {', '.join(FABRICS)}")
    fabric = FABRICS[wishes.fabric]
    survived = tuple(kind for kind in EVERYTHING if wishes.has_logs or kind not in NEEDS_LOGS)
    faults = survived if wishes.faults is None else tuple(word.strip() for word in wishes.faults.split(","))
    check_kinds(faults)
    impossible = [kind for kind in faults if not wishes.has_logs and kind in NEEDS_LOGS]
    if impossible:
        raise UsageError(f"nodes without logs do not survive {', '.join(impossible)}; leave out --without-logs")
    orders = fabric.orders if wishes.order in (None, "mixed") else (str(wishes.order),)
    wishes.out.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"torture-live-{wishes.fabric}-{wishes.seed}-", dir=wishes.out))
    plan = CampaignPlan(
        wishes.fabric,
        wishes.nodes,
        wishes.seconds,
        wishes.seed,
        faults,
        orders,
        wishes.rate,
        directory,
        wishes.has_logs,
        other_version=wishes.other_version,
    )
    figures, how = run_campaign(plan, wishes)
    found = {
        "fabric": wishes.fabric,
        "nodes": wishes.nodes,
        "seed": wishes.seed,
        "fresh": wishes.fresh,
        "ended": how,
        **figures.as_json(),
    }
    for name in ("data", "unsynced"):
        shutil.rmtree(directory / name, ignore_errors=True)
    if figures.has_failed or wishes.keep or not figures.judge:
        (directory / "result.json").write_bytes(msgspec.json.encode(found))
        found["kept"] = str(directory)
    else:
        shutil.rmtree(directory)
    output.end_with(found, wishes.as_json, show_campaign, figures.has_failed)
    if how == INTERRUPTED:
        raise typer.Exit(INTERRUPTED_CODE)


def run_campaign(plan: CampaignPlan, wishes: LiveOptions) -> tuple[LiveFigures, str]:
    """Run a campaign until its time is over or a signal stops it, and judge it; returns the figures and how it ended.

    After one signal it still heals and judges; after a second one it ends at once with unjudged figures. Journals until
    then are kept.
    """
    import antiphon
    from antiphon.cli.audit import judging
    from antiphon.torture.live.campaign import LiveCampaign

    begun: list[LiveCampaign] = []
    stopped: list[bool] = []

    def tell(so_far: LiveFigures) -> None:
        if not wishes.as_json:
            output.errors.print(f"torture: {progress_of(so_far)}", highlight=False, soft_wrap=True)

    async def run() -> None:
        campaign = LiveCampaign(plan, tell)
        begun.append(campaign)
        stop = first_request()
        watching = asyncio.ensure_future(stop.wait())
        watching.add_done_callback(lambda _: campaign.stop())
        try:
            await campaign.run()
        finally:
            stopped.append(stop.is_set())
            watching.cancel()

    try:
        antiphon.run(run())
        with judging(wishes.spark) as judge:
            begun[0].judge(judge)
    except KeyboardInterrupt:
        if not begun:
            raise
        stopped.append(True)
        output.complain(f"interrupted before the judgement; run: antiphon audit {plan.directory}")
    return begun[0].figures, INTERRUPTED if any(stopped) else FINISHED


def progress_of(figures: LiveFigures) -> str:
    """The progress, on one line."""
    last = figures.timeline[-1]
    nodes = ", ".join(map(str, last.nodes))
    return (
        f"{last.seconds:.0f} s, {sum(figures.faults.values())} faults, {figures.accepted:,} messages, "
        f"{figures.deliveries:,} deliveries; {last.kind} of {nodes} {last.what} {last.details}"
    )


def show_campaign(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row(
        "campaign", f"{found['fabric']}, {found['nodes']} nodes, seed {found['seed']}, {found['seconds']:.0f} s"
    )
    done = ", ".join(f"{kind} {count}" for kind, count in found["faults"].items())
    table.add_row("faults", f"{sum(found['faults'].values())}: {done}")
    table.add_row(
        "accepted", f"{found['accepted']:,} messages; {found['refused']:,} others were refused, and reported so"
    )
    table.add_row("deliveries", f"{found['deliveries']:,}")
    table.add_row("bytes", f"{found['published_bytes']:,} requested, in messages of 1 byte to 10 MiB")
    if found["subscribers"]:
        dropped = f"{found['dropped']:,} messages dropped, and reported so"
        table.add_row("crowds", f"{found['subscribers']:,} subscribers, {dropped}")
    table.add_row("clients", f"changed their node {found['moves']:,} times; told of {found['gaps']:,} gaps")
    if found["gone_with_node"]:
        table.add_row("gone", f"{found['gone_with_node']:,} messages with the node that had accepted them")
    if found["faults"].get("power"):
        lost = f"of {found['unsynced_changes']:,} unsynced changes, {found['unsynced_bytes_lost']:,} bytes"
        table.add_row("power", f"{lost} were lost")
    for kind, times in [*found["recoveries"].items(), ("all", found["recovery"])]:
        if times["count"]:
            median, longest = times["median_seconds"], times["longest_seconds"]
            table.add_row(f"recovery: {kind}", f"median {median:.2f} s, longest {longest:.2f} s, of {times['count']}")
    violated = ", ".join(f"{name} {count:,}" for name, count in found["violations"].items() if count)
    judge = " by Spark" if found["judge"] == "spark" else ""
    checked = f"none; checked{judge}: {', '.join(found['violations'])}" if found["judge"] else "not judged"
    table.add_row("violations", violated or checked)
    table.add_row("lost", f"{found['lost']:,}")
    table.add_row("doubled", f"{found['doubled']:,}")
    table.add_row("stuck", f"{found['stuck']:,}" if found["stuck"] else "nothing")
    for example in found["examples"][:10]:
        table.add_row("example", escape(example[:1000]))
    if "kept" in found:
        table.add_row("kept", f"journals, traces and logs are in {found['kept']}")
    output.console.print(table)


# Rounds.


def torture_in_rounds(wishes: LiveOptions) -> None:
    """Run rounds until the time is over, and report."""
    import antiphon
    from antiphon.audit.auditor import audit_files
    from antiphon.torture.live.rounds.registry import ROUNDS
    from antiphon.torture.live.rounds.round import SURVIVORS, RoundFigures, judge

    if wishes.fabric not in ROUNDS:
        raise UsageError(
            f"a {wishes.fabric} does not support rounds that lose nodes for good; use --faults {LOSS} with --fabric "
            f"{' or '.join(ROUNDS)}"
        )
    if wishes.nodes <= SURVIVORS:
        raise UsageError(f"{SURVIVORS} nodes survive each round; start more than that with --nodes")
    figures = RoundFigures()
    begun = time.perf_counter()
    chance = random.Random(wishes.seed)
    how = FINISHED
    try:
        with requests_to_stop():
            while not figures.has_failed and (figures.rounds == 0 or time.perf_counter() - begun < wishes.seconds):
                with tempfile.TemporaryDirectory(prefix="antiphon-torture-") as directory:
                    holes_before = figures.holes
                    begin = ROUNDS[wishes.fabric](figures, chance, wishes.nodes, Path(directory), output.complain)
                    stable = antiphon.run(begin.run())
                    judge(figures, Path(directory) / "traces", stable, audit_files, figures.holes > holes_before)
                if not wishes.as_json:
                    output.errors.print(f"torture: {summary(figures)}", highlight=False)
    except KeyboardInterrupt:
        how = INTERRUPTED
    found = {"seconds": time.perf_counter() - begun, "nodes": wishes.nodes, "ended": how, **vars(figures)}
    output.end_with(found, wishes.as_json, show_rounds, figures.has_failed)
    if how == INTERRUPTED:
        raise typer.Exit(INTERRUPTED_CODE)


def summary(figures: RoundFigures) -> str:
    """The progress, on one line."""
    broken = sum(figures.violations.values()) + figures.stuck
    failed = f"{broken:,} promises broken" if broken else "nothing broken"
    return (
        f"{figures.rounds} rounds, {figures.kills} nodes killed, {figures.messages:,} messages, "
        f"{figures.deliveries:,} deliveries, {failed}"
    )


def show_rounds(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("rounds", f"{found['rounds']} in {found['seconds']:.0f} s, {found['nodes']} nodes each")
    killed = f"{found['kills']} nodes, {found['founders_killed']} of them the first of all"
    table.add_row("killed", f"{killed}; {found['newcomers']} new ones replaced them")
    if found["moves"]:
        table.add_row("clients", f"changed their node {found['moves']} times; told of {found['gaps']} gaps")
    if found["holes"]:
        table.add_row("holes", f"{found['holes']} batches that nodes passed over in total order, and reported")
    table.add_row("accepted", f"{found['accepted']:,} messages")
    table.add_row("judged", f"{found['messages']:,} messages, {found['deliveries']:,} deliveries")
    violated = ", ".join(f"{name} {count:,}" for name, count in found["violations"].items() if count)
    table.add_row("violations", violated or f"none; checked: {', '.join(found['violations'])}")
    table.add_row("stuck", f"{found['stuck']:,}" if found["stuck"] else "nothing")
    for example in found["examples"][:10]:
        table.add_row("example", example)
    output.console.print(table)
