"""``antiphon torture --live --overload``: publishers ask for ten times the rate that a cluster sustains."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from antiphon.cli import output, running
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.cli.torture.live import LiveOptions
    from antiphon.torture.live.overload import Overload

FACTOR = 10.0
MEGABYTE = 1 << 20


def torture_by_overload(wishes: LiveOptions) -> None:
    """Run an overload, and report."""
    import antiphon
    from antiphon.fabrics.registry import FABRICS
    from antiphon.torture.live.overload import Flood, OverloadPlan

    if wishes.fabric not in FABRICS:
        raise UsageError(f"there are no live nodes of a fabric {wishes.fabric!r}; choose from {', '.join(FABRICS)}")
    if wishes.order == "none":
        raise UsageError("an overload checks the order; choose --order fifo, causal or total")

    async def run(directory: str) -> Overload | None:
        order = "causal" if wishes.order in (None, "mixed") else str(wishes.order)
        plan = OverloadPlan(wishes.fabric, wishes.nodes, wishes.seconds, FACTOR, order, Path(directory))
        return await running.first_of(Flood(plan, output.complain).run(), running.until_signal())

    with tempfile.TemporaryDirectory(prefix="antiphon-overload-") as directory:
        figures = antiphon.run(run(directory))
    if figures is None:
        output.complain("stopped before there was anything to report")
        raise typer.Exit(1)
    found = {"fabric": wishes.fabric, "nodes": wishes.nodes, **asdict(figures)}
    output.end_with(found, wishes.as_json, show, figures.has_failed)


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("cluster", f"{found['fabric']}, {found['nodes']} nodes, {found['seconds']:.0f} s")
    table.add_row("sustained", f"{found['sustainable_per_second']:,.0f} messages per second, each of them awaited")
    table.add_row("asked for", f"{found['asked_per_second']:,.0f} per second, {found['asked']:,} in all")
    table.add_row("accepted", f"{found['accepted']:,}; {found['refused']:,} refused, and reported so")
    table.add_row("delivered", f"{found['delivered']:,}; lost {found['lost']}, doubled {found['doubled']}")
    for key, title in (("calm", "latency, calm"), ("", "latency"), ("late", "latency, at the end")):
        times = found[f"{key}_latency_seconds" if key else "latency_seconds"]
        if times:
            table.add_row(title, f"median {times[0]:.3f} s, 99 % {times[1]:.3f} s, longest {times[2]:.3f} s")
    before, most = found["bytes_after_a_tenth"] / MEGABYTE, found["bytes_at_most"] / MEGABYTE
    table.add_row("memory", f"of the largest node: {before:.0f} MB after a tenth of the time, {most:.0f} MB at most")
    table.add_row("recovery", f"{found['recovery_seconds']:.2f} s after its end everything had arrived")
    output.console.print(table)
