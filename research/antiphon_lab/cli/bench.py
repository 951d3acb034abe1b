"""``antiphon bench``: how fast it is, on work that others can repeat."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import PeerError, UsageError
from antiphon_lab.bench.own_process import run_antiphon
from antiphon_lab.bench.reference import ReferenceMeasurement, run_aggregation, run_reference, run_whole_protocol
from antiphon_lab.cli import (
    bench_audit,
    bench_detection,
    bench_epto,
    bench_gossip,
    bench_live,
    bench_peers,
    bench_services,
    bench_spark,
)

app = typer.Typer(name="bench", help="Benchmarks, on work that others can repeat.", no_args_is_help=True)

DEFAULT_NODES = 1024
RIVAL_NODES = 1024
"""SimPy needs about ten seconds for this size; the next takes a minute."""


class Line(msgspec.Struct, frozen=True):
    """One line of the table: a workload, run in a process of its own."""

    nodes: int
    causal: bool = False
    publishers: int | None = None
    rival: bool = False
    whole_protocol: bool = False
    aggregation: bool = False

    def arguments(self, seed: int) -> list[str]:
        """The command line that runs it."""
        found = ["bench", "simulator", "--json", "--nodes", str(self.nodes), "--seed", str(seed)]
        if self.causal:
            found.append("--causal")
        if self.rival:
            found.append("--rival")
        if self.whole_protocol:
            found.append("--whole-protocol")
        if self.aggregation:
            found.append("--aggregation")
        if self.publishers is not None:
            found += ["--publishers", str(self.publishers)]
        return found

    def __str__(self) -> str:
        if self.rival:
            return "SimPy"
        if self.aggregation:
            return "causal aggregation, everybody broadcasts"
        if self.whole_protocol:
            return (
                "VCube-PS, everybody publishes" if self.publishers is None else f"VCube-PS, {self.publishers} publish"
            )
        if self.publishers is not None:
            return "one broadcast" if self.publishers == 1 else f"{self.publishers} broadcasts"
        return "everybody broadcasts, causal order" if self.causal else "everybody broadcasts"


@app.callback()
def bench() -> None:
    """Benchmarks, on work that others can repeat."""


app.command("peers")(bench_peers.peers)
app.command("live")(bench_live.live)
app.command("services")(bench_services.services)
app.command("spark")(bench_spark.spark)
app.command("audit")(bench_audit.audit)
app.command("gossip")(bench_gossip.gossip)
app.command("epto")(bench_epto.epto)
app.command("detection")(bench_detection.detection)


@app.command()
def simulator(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", metavar="N", help=f"One size; default a table of several, {DEFAULT_NODES} with --json."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Decides when the broadcasts start.")] = 1,
    causal: Annotated[bool, typer.Option("--causal", help="Deliver in causal order, by vector clocks.")] = False,
    publishers: Annotated[
        int | None, typer.Option("--publishers", metavar="P", help="Only the first P nodes broadcast; default all.")
    ] = None,
    rival: Annotated[bool, typer.Option("--rival", help="Run the same work on SimPy instead.")] = False,
    whole_protocol: Annotated[
        bool,
        typer.Option("--whole-protocol", help="Run VCube-PS instead: a topic, causal barriers, acknowledgements."),
    ] = False,
    aggregation: Annotated[
        bool,
        typer.Option(
            "--aggregation", help="Run causal aggregation on vector clocks instead, on its own model of delays."
        ),
    ] = False,
    large: Annotated[
        bool, typer.Option("--large", help="Also 4096 nodes, and a million with one broadcast; takes minutes.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Run one size and print the result as JSON.")] = False,
) -> None:
    """Run the reference workload: every node broadcasts once over its own tree, and the tree acknowledges.

    Every line of the table is run in a process of its own, so that its peak memory is its own.
    The same work is then done by a program written on SimPy, for comparison.
    """
    output.warn_if_not_compiled()
    if json:
        line = Line(nodes or DEFAULT_NODES, causal, publishers, rival, whole_protocol, aggregation)
        output.print_json(measure(line, seed))
        return
    if nodes is None and not (causal or rival or publishers or whole_protocol or aggregation):
        lines = default_lines(large)
        rival_nodes = RIVAL_NODES
    else:
        lines = [Line(nodes or DEFAULT_NODES, causal, publishers, rival, whole_protocol, aggregation)]
        rival_nodes = min(lines[0].nodes, RIVAL_NODES)
    compares = find_spec("simpy") is not None and not rival and not aggregation and rival_nodes & (rival_nodes - 1) == 0
    if compares:
        lines.append(Line(rival_nodes, rival=True))
        if Line(rival_nodes) not in lines:
            lines.append(Line(rival_nodes))
    measured: dict[Line, ReferenceMeasurement] = {}
    with output.progress("bench simulator", len(lines)) as steps:
        for line in lines:
            measured[line] = measure_apart(line, seed)
            steps.step(f"{line}, {line.nodes} nodes")
    show(measured)
    if compares:
        show_ratio(measured[Line(rival_nodes)], measured[Line(rival_nodes, rival=True)])
    elif aggregation:
        show_receptions(measured[lines[0]])
    elif not rival:
        output.console.print("SimPy is not compared: it needs `pip install simpy`, and a power of two of nodes.")


def default_lines(large: bool) -> list[Line]:
    """The table that is printed when no size is asked for."""
    sizes = [256, 1024, 2048, 4096] if large else [256, 1024, 2048]
    lines = [
        *(Line(nodes) for nodes in sizes),
        Line(DEFAULT_NODES, causal=True),
        Line(DEFAULT_NODES, whole_protocol=True),
        Line(DEFAULT_NODES, aggregation=True),
        Line(100_000, publishers=1),
    ]
    return [*lines, Line(4096, whole_protocol=True), Line(1_000_000, publishers=1)] if large else lines


def measure(line: Line, seed: int) -> ReferenceMeasurement:
    """Run one line in this process."""
    if line.aggregation and (line.causal or line.rival or line.whole_protocol or line.publishers is not None):
        raise UsageError("aggregation has an order of its own, and all nodes broadcast; use --aggregation alone")
    if line.aggregation:
        return run_aggregation(line.nodes, seed)
    if line.whole_protocol and (line.causal or line.rival):
        raise UsageError("the whole protocol has an order of its own; leave out --causal and --rival")
    if line.whole_protocol:
        return run_whole_protocol(line.nodes, seed, line.publishers)
    if not line.rival:
        return run_reference(line.nodes, seed, line.causal, line.publishers)
    if line.causal or line.publishers is not None:
        raise UsageError("the SimPy program knows neither --causal nor --publishers; leave them out")
    if find_spec("simpy") is None:
        raise UsageError("SimPy is not installed; run `pip install simpy`")
    from antiphon_lab.bench.simpy_rival import run_rival

    return run_rival(line.nodes, seed)


def measure_apart(line: Line, seed: int) -> ReferenceMeasurement:
    """Run one line in a process of its own."""
    return run_antiphon(line.arguments(seed), ReferenceMeasurement, f"the run of {line.nodes} nodes")


def show(measured: dict[Line, ReferenceMeasurement]) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("nodes", "events", "events/s", "seconds", "set-up", "peak memory", "mean latency"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line, one in measured.items():
        table.add_row(
            str(line),
            f"{one.nodes:,}",
            f"{one.events:,}",
            f"{one.events_per_second:,.0f}",
            f"{one.seconds:.2f}",
            f"{one.setup_seconds:.2f}",
            f"{one.peak_memory_bytes / 2**20:,.0f} MiB",
            f"{one.mean_latency:.4f}",
        )
    output.console.print(table)


def show_receptions(one: ReferenceMeasurement) -> None:
    """The receptions of an aggregating run: they count messages, of which a packet holds several."""
    if one.receptions is not None and one.packets is not None and one.receptions_per_second is not None:
        output.console.print(
            f"{one.receptions:,} receptions from {one.packets:,} packets; {one.receptions_per_second:,.0f} per second."
        )


def show_ratio(ours: ReferenceMeasurement, theirs: ReferenceMeasurement) -> None:
    """How much faster, once both are seen to have done the same."""
    same = all(
        getattr(ours, name) == getattr(theirs, name) for name in ("events", "sum_latency", "max_latency", "end_time")
    )
    if not same:
        raise PeerError(
            f"SimPy and Antiphon disagree about the workload at {ours.nodes} nodes; one of them has a fault"
        )
    ratio = ours.events_per_second / theirs.events_per_second
    output.console.print(f"{ratio:.1f} times SimPy at {ours.nodes} nodes, with the same sum of latencies.")
