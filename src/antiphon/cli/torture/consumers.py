"""``antiphon torture --live --consumers``: consumers of a history, while nodes and programs are killed."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from antiphon.cli import output, running
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.cli.torture.live import LiveOptions
    from antiphon.torture.live.consumers.campaign import ConsumerCampaignFigures


def torture_by_consumers(wishes: LiveOptions) -> None:
    """Run a campaign with consumers, and report."""
    import antiphon
    from antiphon.torture.live.consumers.campaign import ConsumerCampaign, ConsumerPlan

    if wishes.fabric not in FABRICS or not FABRICS[wishes.fabric].membership.is_full:
        raise UsageError("topics have a history on a cube or a tree; choose --fabric cube or tree")

    async def run(directory: Path) -> ConsumerCampaignFigures | None:
        plan = ConsumerPlan(wishes.fabric, wishes.nodes, wishes.seconds, wishes.seed, wishes.rate, directory)
        return await running.first_of(ConsumerCampaign(plan, output.complain).run(), running.until_signal())

    if wishes.keep:
        wishes.out.mkdir(parents=True, exist_ok=True)
        figures = antiphon.run(run(Path(tempfile.mkdtemp(prefix="torture-consumers-", dir=wishes.out))))
    else:
        with tempfile.TemporaryDirectory(prefix="antiphon-consumers-") as directory:
            figures = antiphon.run(run(Path(directory)))
    if figures is None:
        output.complain("stopped before there was anything to report")
        raise typer.Exit(1)
    found = {"fabric": wishes.fabric, "nodes": wishes.nodes, "seed": wishes.seed, **asdict(figures)}
    output.end_with(found, wishes.as_json, show, figures.has_failed)


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row(
        "cluster", f"{found['fabric']}, {found['nodes']} nodes, {found['seconds']:.0f} s, seed {found['seed']}"
    )
    table.add_row("strikes", ", ".join(f"{kind} {count}" for kind, count in found["strikes"].items()))
    table.add_row(
        "published", f"{found['asked']:,}; {found['receipts']:,} receipts, {found['in_history']:,} in the history"
    )
    table.add_row(
        "handed out",
        f"{found['handed_out']:,}; {found['acknowledged']:,} acknowledged, {found['lost_turns']:,} turns lost",
    )
    times = found["recovery_seconds"]
    if times:
        table.add_row("recovery", f"{times[len(times) // 2]:.2f} s at the median, {times[-1]:.2f} s at most")
    broken = {kind: count for kind, count in found["violations"].items() if count}
    table.add_row("broken", ", ".join(f"{kind} {count}" for kind, count in broken.items()) or "no promise")
    for example in found["examples"]:
        table.add_row("", example)
    output.console.print(table)
