"""``antiphon bench live``: our own figures, by order, durability, payload and number of nodes, and by stage."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.bench_peers import (
    DEFAULT_PAYLOADS,
    STANDARD,
    JsonOption,
    LatencyOption,
    MessagesOption,
    PayloadOption,
    RoundsOption,
    SecondsOption,
    WorkloadOption,
    cells,
    parse_bytes,
    parse_plan,
    perform_all,
)
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.lab.live_stages import Stage, measure_stages
from antiphon.lab.machine import Machine
from antiphon.lab.peers.registry import OURS
from antiphon.lab.peers.report import Figures
from antiphon.lab.peers.workload import parse_workload

DEFAULT_WORKLOADS = "1-to-1,1-to-3,1-to-7,7-to-7"


class LiveReport(msgspec.Struct, frozen=True):
    """What is printed as JSON."""

    machine: Machine
    stages: list[Stage]
    figures: list[Figures]


def live(
    only: Annotated[
        str, typer.Option("--only", metavar="NAME,...", help=f"Variants, among {', '.join(OURS)}; default all.")
    ] = ",".join(OURS),
    workload: WorkloadOption = DEFAULT_WORKLOADS,
    payload: PayloadOption = DEFAULT_PAYLOADS,
    messages: MessagesOption = STANDARD.messages,
    seconds: SecondsOption = STANDARD.seconds,
    rounds: RoundsOption = STANDARD.rounds,
    latency: LatencyOption = True,
    stages: Annotated[bool, typer.Option(help="Also measure each stage of a message's way on its own.")] = True,
    json: JsonOption = False,
) -> None:
    """Measure live nodes: deliveries per second, latency, and microseconds of processor time per message and stage.

    Every publisher and subscriber is a process of its own, with a node in it, on loopback.
    """
    output.warn_if_not_compiled()
    unknown = [name for name in only.split(",") if name.strip() not in OURS]
    if unknown:
        raise UsageError(f"there is no variant named {unknown[0]!r}; choose among {', '.join(OURS)}")
    variants = [OURS[name.strip()] for name in only.split(",")]
    workloads = [parse_workload(one, parse_bytes(size)) for size in payload.split(",") for one in workload.split(",")]
    machine = Machine.here()
    found = [stage for size in payload.split(",") for stage in measure_stages(parse_bytes(size))] if stages else []
    figures = perform_all(variants, workloads, parse_plan(messages, seconds, rounds, latency))
    report = LiveReport(machine, found, figures)
    if json:
        output.print_json(report)
    else:
        show(report)
    failures = [one for one in figures if one.error]
    if failures:
        raise PeerError(f"{len(failures)} of {len(figures)} runs failed, the first with: {failures[0].error}")


def show(report: LiveReport) -> None:
    """The tables for people."""
    if report.stages:
        show_stages(report.stages)
    table = Table(box=None, pad_edge=False)
    for heading in ("workload", "bytes", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("deliveries/s", "lost", "CPU µs each", "p50 µs", "p99 µs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in report.figures:
        table.add_row(one.workload, f"{one.payload_bytes:,}", OURS[one.contender].title, *cells(one))
    output.console.print(table)


def show_stages(stages: list[Stage]) -> None:
    """What a message costs on its way, in microseconds of processor time."""
    sizes = list(dict.fromkeys(stage.payload_bytes for stage in stages))
    cost = {(stage.name, stage.payload_bytes): stage.microseconds_per_message for stage in stages}
    table = Table(box=None, pad_edge=False)
    table.add_column("CPU µs per message, full batches")
    for size in sizes:
        table.add_column(f"{size:,} bytes", justify="right")
    for name in dict.fromkeys(stage.name for stage in stages):
        table.add_row(name, *(f"{cost[name, size]:.3f}" for size in sizes))
    output.console.print(table)
    output.console.print()
