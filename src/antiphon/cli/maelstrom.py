"""``antiphon maelstrom``: nodes that speak Maelstrom's protocol, and a runner with its workloads and measures."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError

app = typer.Typer(
    name="maelstrom",
    help="Speak Maelstrom's protocol: nodes for its workloads, and a runner of our own.",
    no_args_is_help=True,
)

Workload = Annotated[str, typer.Option("--workload", "-w", help="broadcast, g-set or kafka.")]
FanOut = Annotated[int, typer.Option(min=1, help="How many children a node of the tree has.")]
GatherMs = Annotated[int, typer.Option(min=0, metavar="MS", help="How long messages wait for others, at most.")]
PatienceMs = Annotated[
    int | None,
    typer.Option(
        min=100,
        metavar="MS",
        help="After how long a silent node counts as lost; 2000 with kafka, else a minute.",
        show_default=False,
    ),
]


@app.command("node")
def node(
    workload: Workload = "broadcast",
    fan_out: FanOut = 24,
    gather_ms: GatherMs = 50,
    patience_ms: PatienceMs = None,
) -> None:
    """Be a node: requests and messages on standard input, answers and messages on standard output.

    Maelstrom starts a script that runs [bold]antiphon maelstrom node --workload broadcast[/].

    Example: [bold]maelstrom test -w broadcast --bin ./that-script --node-count 25[/]
    """
    from antiphon.maelstrom.loop import run_node
    from antiphon.maelstrom.services import options_for

    run_node(workload, options_for(workload, fan_out, gather_ms, patience_ms))


@app.command("run")
def run(
    workload: Workload = "broadcast",
    node_count: Annotated[int, typer.Option(min=1, help="How many nodes.")] = 5,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="How many clients; one per node if not given.", show_default=False)
    ] = None,
    latency: Annotated[float, typer.Option(min=0, metavar="MS", help="Mean latency between nodes.")] = 0.0,
    latency_dist: Annotated[str, typer.Option(help="constant, uniform or exponential.")] = "constant",
    rate: Annotated[float, typer.Option(help="Operations a second, of all clients together.")] = 5.0,
    time_limit: Annotated[float, typer.Option(min=0.1, metavar="S", help="For how long operations begin.")] = 20.0,
    nemesis: Annotated[
        list[str] | None, typer.Option(help="partition, to separate nodes now and then.", show_default=False)
    ] = None,
    nemesis_interval: Annotated[float, typer.Option(metavar="S", help="Mean time between two changes.")] = 10.0,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="one, minority-third, majority or majorities-ring; all unless named.", show_default=False),
    ] = None,
    recovery: Annotated[float, typer.Option(min=0, metavar="S", help="Rest before the final reads.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Decides operations, latencies and partitions.")] = 1,
    binary: Annotated[
        str | None,
        typer.Option("--bin", metavar="COMMAND", help="Another program that speaks Maelstrom's protocol."),
    ] = None,
    fan_out: FanOut = 24,
    gather_ms: GatherMs = 50,
    patience_ms: PatienceMs = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for the history and the logs of nodes.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Run a workload against nodes in separate processes, through a network with latency and partitions.

    Options have Maelstrom's names. A checker that knows only the history judges it: no acknowledged value may be lost,
    and logs must have one order. If anything is violated the exit code is 1.

    Example: [bold]antiphon maelstrom run --node-count 25 --latency 100 --rate 100 --nemesis partition[/]
    """
    from antiphon.maelstrom.runner import RunPlan, run_plan

    plan = RunPlan(
        workload=workload,
        node_count=node_count,
        concurrency=concurrency,
        latency_ms=latency,
        latency_dist=latency_dist,
        rate=rate,
        time_limit_seconds=time_limit,
        nemesis=nemesis or [],
        nemesis_interval_seconds=nemesis_interval,
        recovery_seconds=recovery,
        seed=seed,
        **({"partitions": tuple(partition)} if partition else {}),
    ).checked()
    command = shlex.split(binary) if binary else own_command(workload, fan_out, gather_ms, patience_ms)
    if not command:
        raise UsageError("--bin names no program; give one that speaks Maelstrom's protocol")
    found = asyncio.run(run_plan(plan, command, out, lambda what: output.errors.print(f"maelstrom: {what}")))
    if json:
        output.print_json(found)
    else:
        show(found)
    if not found["valid"]:
        raise typer.Exit(1)


def own_command(workload: str, fan_out: int, gather_ms: int, patience_ms: int | None) -> list[str]:
    """The command that runs a node of ours; it imports less than the ``antiphon`` command does."""
    options = ["--workload", workload, "--fan-out", str(fan_out), "--gather-ms", str(gather_ms)]
    if patience_ms is not None:
        options += ["--patience-ms", str(patience_ms)]
    return [sys.executable, "-m", "antiphon.maelstrom", *options]


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    for name, counts in found["operations"].items():
        about = f"{counts['ok']:,} of {counts['invoke']:,} succeeded"
        table.add_row(name, f"{about}, {counts['fail']:,} failed, {counts['info']:,} unknown")
    messages = found["messages"]
    lost = f", {messages['servers_lost']:,} of them lost" if messages["servers_lost"] else ""
    table.add_row("messages", f"{messages['servers']:,} between nodes{lost}")
    table.add_row("per operation", f"{messages['servers_per_operation']:.2f}")
    for cut in found["partitions"]:
        table.add_row("partition", f"{cut['kind']}, from {cut['begin_s']:.1f} s to {cut['end_s']:.1f} s")
    for name, value in found["workload"].items():
        if name.endswith("latencies_ms"):
            text = ", ".join(f"{point}: {latency}" for point, latency in value.items())
            table.add_row(name.removesuffix("_latencies_ms"), f"latencies in ms by quantile: {text or 'none'}")
        elif name != "is_valid":
            table.add_row(name.replace("_", " "), str(value))
    table.add_row("valid", "yes" if found["valid"] else "NO")
    output.console.print(table)
