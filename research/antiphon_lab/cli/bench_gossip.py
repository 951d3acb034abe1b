"""``antiphon bench gossip``: how large a system the simulator can carry on the gossip fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon_lab.bench.gossip_reference import GossipMeasurement, run_gossip
from antiphon_lab.bench.own_process import run_antiphon
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series

SIZES = "1000,3000,10000"


def gossip(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="How many nodes join the overlay.")] = 1000,
    publications: Annotated[
        int, typer.Option("--publications", metavar="P", help="How long the stream is; five per simulated second.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Decides joins and contacts.")] = 1,
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", metavar="N,...", help=f"Instead of --nodes: several sizes, such as {SIZES}."),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="With --sizes: draw processor time by size, as SVG.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Simulate HyParView and BRISA: all nodes join one overlay, then one of them sends a stream down its tree.

    Example: [bold]antiphon bench gossip --nodes 10000 --publications 1000[/]
    """
    output.warn_if_not_compiled()
    if sizes is not None:
        sweep(parse_sizes(sizes), publications, seed, figure, json)
        return
    if figure is not None:
        raise typer.BadParameter("one size is no curve; name several with --sizes", param_hint="--figure")
    measured = run_gossip(nodes, publications, seed)
    if json:
        output.print_json(measured)
    else:
        show(measured)
    if not measured.is_complete:
        raise typer.Exit(1)


def parse_sizes(text: str) -> list[int]:
    """Numbers of nodes from a list with commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        raise typer.BadParameter(f"expected numbers such as {SIZES}, not {text!r}", param_hint="--sizes")
    return [int(word) for word in words]


def sweep(sizes: list[int], publications: int, seed: int, figure: Path | None, json: bool) -> None:
    """Measure several sizes one after the other."""
    measured = []
    with output.progress("bench gossip", len(sizes)) as steps:
        for size in sizes:
            measured.append(measure_apart(size, publications, seed))
            steps.step(f"{size:,} nodes")
    if json:
        output.print_json({"measurements": measured})
    else:
        show_sizes(measured)
    if figure is not None:
        from antiphon_lab.report.alone import write_alone

        write_alone(cost_figure(measured), figure)
    if not all(one.is_complete for one in measured):
        raise typer.Exit(1)


def measure_apart(size: int, publications: int, seed: int) -> GossipMeasurement:
    """Run one size in a process of its own, which has its own peak of memory."""
    arguments = ["bench", "gossip", "--json", "--nodes", str(size)]
    arguments += ["--publications", str(publications), "--seed", str(seed)]
    return run_antiphon(arguments, GossipMeasurement, f"the run of {size} nodes")


def show_sizes(measured: list[GossipMeasurement]) -> None:
    """The curve for people."""
    table = Table(box=None, pad_edge=False)
    headings = (
        "nodes",
        "publications",
        "events",
        "processor",
        "per event",
        "elapsed",
        "peak memory",
        "depth",
        "missing",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in measured:
        table.add_row(
            f"{one.nodes:,}",
            f"{one.publications:,}",
            f"{one.events:,}",
            f"{one.processor_seconds:.1f} s",
            f"{one.processor_seconds / one.events * 1e6:.2f} µs",
            f"{one.setup_seconds + one.seconds:.1f} s",
            f"{one.peak_memory_bytes / 2**20:,.0f} MiB",
            f"{one.mean_depth:.2f}, {one.largest_depth}",
            f"{one.nodes * one.publications - one.deliveries:,}",
        )
    output.console.print(table)


def cost_figure(measured: list[GossipMeasurement]) -> Figure:
    """Processor time by size."""
    points = tuple(Point(one.nodes, one.processor_seconds) for one in measured)
    return Figure(
        "gossip-scale",
        f"HyParView and BRISA in the simulator, a stream of {measured[0].publications}",
        Axis("number of nodes", scale="log10"),
        Axis("processor time", "s", scale="log10"),
        (Series("processor time", "BRISA tree", points),),
    )


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
