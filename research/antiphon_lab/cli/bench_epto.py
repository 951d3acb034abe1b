"""``antiphon bench epto``: how large a system the simulator can carry in epidemic total order."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon_lab.bench.epto_reference import EptoMeasurement, run_epto


def epto(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="How many nodes there are.")] = 200,
    rate: Annotated[
        float, typer.Option("--rate", metavar="R", help="How likely a node publishes in one of its rounds.")
    ] = 0.1,
    rounds: Annotated[int, typer.Option("--rounds", metavar="K", help="In how many rounds nodes publish.")] = 50,
    digests: Annotated[bool, typer.Option("--digests", help="Balls name events, and payloads travel once.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Events come into balls whenever they come, and stay for one round.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Decides publications and delays.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Simulate EpTO: every node publishes now and then, and all deliver everything in one order.

    Example: [bold]antiphon bench epto --nodes 1000 --rate 0.1 --rounds 50[/]
    """
    output.warn_if_not_compiled()
    measured = run_epto(nodes, rate, rounds, seed, digests, published)
    if json:
        output.print_json(measured)
    else:
        show(measured)
    if measured.deliveries != nodes * measured.publications:
        raise typer.Exit(1)


def show(measured: EptoMeasurement) -> None:
    """The result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    expected = measured.nodes * measured.publications
    rate = f"{measured.rate:g} publications per node and round"
    table.add_row("system", f"{measured.nodes:,} nodes, {rate}, {measured.rounds} rounds")
    table.add_row("deliveries", f"{measured.deliveries:,} of {expected:,}, {measured.holes:,} holes")
    largest = f"at most {measured.largest_ball:,} in one"
    table.add_row("balls", f"{measured.balls:,} with {measured.entries:,} entries, {largest}")
    table.add_row("payloads", f"{measured.payload_copies:,} copies")
    table.add_row("seconds", f"{measured.seconds:.1f} s, {measured.setup_seconds:.1f} s set-up")
    per_second = f"{measured.entries_per_second:,.0f} entries per second"
    table.add_row("processor time", f"{measured.processor_seconds:.1f} s, {per_second}")
    table.add_row("peak memory", f"{measured.peak_memory_bytes / 2**20:,.0f} MiB")
    table.add_row("latency", f"mean {measured.mean_latency:.1f}, maximum {measured.max_latency:,} ticks")
    output.console.print(table)
