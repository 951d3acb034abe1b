"""``antiphon bench gossip``: how large a system the simulator can carry on the gossip fabric."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.lab.gossip_reference import GossipMeasurement, run_gossip


def gossip(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="How many nodes join the overlay.")] = 1000,
    publications: Annotated[
        int, typer.Option("--publications", metavar="P", help="How long the stream is; five per simulated second.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Decides who joins when and knows whom.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Simulate HyParView and BRISA: all nodes join one overlay, then one of them sends a stream down its tree.

    Example: [bold]antiphon bench gossip --nodes 10000 --publications 1000[/]
    """
    output.warn_if_not_compiled()
    measured = run_gossip(nodes, publications, seed)
    if json:
        output.print_json(measured)
    else:
        show(measured)
    if measured.deliveries != nodes * publications:
        raise typer.Exit(1)


def show(measured: GossipMeasurement) -> None:
    """The result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    expected = measured.nodes * measured.publications
    table.add_row("system", f"{measured.nodes:,} nodes, {measured.publications:,} publications of one source")
    table.add_row("events", f"{measured.events:,}, {measured.events_per_second:,.0f} per second")
    seconds = f"{measured.setup_seconds:.1f} s set-up, {measured.bootstrap_seconds:.1f} s to build the overlay"
    table.add_row("seconds", f"{seconds}, {measured.seconds - measured.bootstrap_seconds:.1f} s for the stream")
    table.add_row("processor time", f"{measured.processor_seconds:.1f} s")
    table.add_row("peak memory", f"{measured.peak_memory_bytes / 2**20:,.0f} MiB")
    table.add_row("deliveries", f"{measured.deliveries:,} of {expected:,}, {measured.duplicates:,} copies too many")
    table.add_row("overlay", f"{measured.mean_links:.2f} links per node")
    table.add_row("tree", f"depth {measured.mean_depth:.2f} on average, {measured.largest_depth} at most")
    table.add_row("latency", f"mean {measured.mean_latency:.1f}, maximum {measured.max_latency:,} ticks")
    output.console.print(table)
