"""``antiphon simulate``: runs a scenario file, prints the result, and writes a trace if asked to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.simulator.scenario.run import Result
    from antiphon.simulator.scenario.scenario import Scenario

SECONDS_BETWEEN_LINES = 10.0


def simulate(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="The scenario file.", show_default=False)],
    seed: Annotated[
        int | None, typer.Option(min=0, help="Run with this seed instead of the file's.", show_default=False)
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Run with this many nodes instead of the file's.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the trace to this .parquet, .arrow or .txt file.", show_default=False),
    ] = None,
    level: Annotated[
        Literal["counts", "deliveries", "everything"] | None,
        typer.Option(help="The level of the trace, instead of the file's.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Run a scenario: nodes, network, workload, faults and one seed, in virtual time.

    The same file and seed give the same run, event by event, and the same trace, byte by byte, on every machine. A
    mistake in the file is explained before anything runs or is written. docs/scenarios.md describes the format. Unless
    the level of the trace is counts, an oracle judges the run; a broken promise is exit code 1.

    Example: [bold]antiphon simulate examples/scenarios/crash.toml --trace crash.parquet --level everything[/]
    """
    from antiphon.simulator.cluster.file import is_cluster_file
    from antiphon.simulator.scenario.file import load_scenario
    from antiphon.simulator.scenario.run import run_scenario

    if is_cluster_file(scenario):
        simulate_cluster(scenario, seed, json)
        return
    wanted = with_level(load_scenario(scenario, seed, nodes), level, trace)
    output.warn_if_not_compiled()
    with watching(wanted.name) as watch:
        result = run_scenario(wanted, trace, watch)
    if json:
        output.print_json(result)
    else:
        show(wanted, result)
    if result.violations is not None and any(result.violations.values()):
        raise typer.Exit(1)


def simulate_cluster(path: Path, seed: int | None, as_json: bool) -> None:
    """Run the schedule of a cluster of whole nodes, and print what the judge of membership says."""
    import msgspec

    from antiphon.simulator.cluster.file import load_schedule
    from antiphon.simulator.cluster.world import ClusterWorld

    schedule = load_schedule(path)
    world = ClusterWorld(schedule if seed is None else msgspec.structs.replace(schedule, seed=seed))
    judge = world.run()
    found = {
        "fabric": schedule.fabric,
        "nodes": schedule.nodes,
        "seed": world.schedule.seed,
        "simulated_seconds": world.clock.now_us / 1_000_000,
        "events": world.clock.events,
        "messages": judge.messages(),
        "deliveries": judge.deliveries(),
        "violations": [f"{kind}: {text}" for kind, text in judge.violations],
    }
    output.end_with(found, as_json, show_cluster, bool(judge.violations))


def show_cluster(found: dict[str, Any]) -> None:
    """Print the result of a cluster for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("cluster", f"{found['nodes']} nodes, {found['fabric']}, seed {found['seed']}")
    table.add_row("events", f"{found['events']:,} in {found['simulated_seconds']:.1f} simulated seconds")
    table.add_row("messages", f"{found['messages']:,} sent, {found['deliveries']:,} publications delivered")
    table.add_row("violations", escape("\n".join(found["violations"][:10])) or "none")
    output.console.print(table)


def with_level(
    scenario: Scenario, level: Literal["counts", "deliveries", "everything"] | None, trace: Path | None
) -> Scenario:
    """The scenario with the trace level of the command line."""
    import msgspec

    from antiphon.simulator.scenario.scenario import TraceTable

    if level is None:
        return scenario
    if trace is None and level != "counts":
        raise UsageError(f"--level {level} is the level of a trace; add for example: --trace trace.parquet")
    return msgspec.structs.replace(scenario, trace=TraceTable(level=level))


@contextmanager
def watching(name: str) -> Iterator[RunProgress]:
    """Show the progress of a run: in place on a terminal, a line now and then elsewhere; on standard error."""
    if output.errors.is_terminal:
        with output.errors.status("") as status:
            yield RunProgress(name, status)
    else:
        yield RunProgress(name, None)


class RunProgress:
    """Prints the progress of a run from time to time."""

    def __init__(self, name: str, status: Status | None) -> None:
        self._name = name
        self._status = status
        self._begun = self._last = time.monotonic()

    def __call__(self, events: int, now: int) -> None:
        instant = time.monotonic()
        rate = events / max(instant - self._begun, 0.001)
        line = f"{self._name}: {events:,} events, time {now:,}, {rate:,.0f} events per second"
        if self._status is not None:
            self._status.update(escape(line))
        elif instant - self._last >= SECONDS_BETWEEN_LINES:
            self._last = instant
            output.errors.print(escape(line), soft_wrap=True)


def show(scenario: Scenario, result: Result) -> None:
    """Print a result for people."""
    table = Table(title=escape(result.scenario), title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    for label, text in rows(scenario, result):
        table.add_row(label, escape(text))
    output.console.print(table)


def rows(scenario: Scenario, result: Result) -> Iterator[tuple[str, str]]:
    """The rows of the table for people."""
    yield "system", f"{result.nodes:,} nodes, {scenario.fabric}, {scenario.protocol}, order {scenario.order}"
    yield "seed", str(result.seed)
    yield "stopped", f"{reason(scenario, result)} at time {result.end_time:,} after {result.events:,} events"
    planned = f" of {result.planned:,} planned; for the rest the node was not up, or the run over"
    yield "published", f"{result.published:,}{planned if result.published < result.planned else ''}"
    expected = f" of {result.expected_deliveries:,} (every node, once)" if result.expected_deliveries else ""
    yield "deliveries", f"{result.deliveries:,}{expected}"
    if result.latency_mean is not None:
        yield "latency", f"mean {result.latency_mean:,.1f}, maximum {result.latency_max:,} ticks"
    refused = f", {result.refused:,} refused" if result.refused else ""
    yield "messages", f"{result.sent:,} sent, {result.dropped:,} lost{refused}"
    yield "waiting", waiting(result)
    yield "judgement", result.judgement
    yield "speed", f"{result.events_per_second:,.0f} events per second, {result.seconds:.2f} s"
    if result.trace is not None:
        yield "trace", f"{result.trace}, {result.trace_rows:,} rows"


def reason(scenario: Scenario, result: Result) -> str:
    """Why the run ended, and the limit to raise to see the rest."""
    if result.stopped == "time limit":
        return f"time limit reached ([limits] time = {scenario.limits.time}),"
    if result.stopped == "event limit":
        return f"event limit reached ([limits] events = {scenario.limits.events}),"
    return result.stopped


def waiting(result: Result) -> str:
    """How many publications the order delayed."""
    if result.held_total == 0:
        return "nothing had to wait for others"
    return (
        f"{result.held_total:,} had to wait for others, at most {result.held_peak:,} at one node, "
        f"{result.held_at_end:,} still wait"
    )
