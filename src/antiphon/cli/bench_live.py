"""``antiphon bench live``: our own figures, by order, durability, payload and number of nodes, and by stage."""

from __future__ import annotations

from itertools import product
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
from antiphon.lab.live_packets import VARIANTS, Packets, measure_packets, median_of
from antiphon.lab.live_stages import Stage, measure_stages
from antiphon.lab.machine import Machine
from antiphon.lab.peers.registry import OURS
from antiphon.lab.peers.report import Figures
from antiphon.lab.peers.workload import parse_workload

DEFAULT_WORKLOADS = "1-to-1,1-to-3,1-to-7,7-to-7"
PACKET_PROCESSES = 8
PACKET_SECONDS = 2.0
PACKET_ROUNDS = 3
PACKET_PAYLOAD_BYTES = 100
PACKET_RATES = "20,200,800"


class LiveReport(msgspec.Struct, frozen=True):
    """What is printed as JSON."""

    machine: Machine
    stages: list[Stage]
    figures: list[Figures]


class PacketReport(msgspec.Struct, frozen=True):
    """What is printed as JSON with ``--packets``."""

    machine: Machine
    packets: list[Packets]


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
    packets: Annotated[
        bool,
        typer.Option(
            "--packets",
            help=f"Instead: writes and TCP segments per message, {PACKET_PROCESSES} processes that all publish.",
        ),
    ] = False,
    rates: Annotated[
        str, typer.Option("--rates", metavar="R,...", help="With --packets: messages a second per process.")
    ] = PACKET_RATES,
    json: JsonOption = False,
) -> None:
    """Measure live nodes: deliveries per second, latency, and microseconds of processor time per message and stage.

    Every publisher and subscriber is a process of its own, with a node in it, on loopback.
    """
    output.warn_if_not_compiled()
    if packets:
        show_packets(rates, json)
        return
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


def show_packets(rates: str, json: bool) -> None:
    """Run all variants at each rate, one after the other."""
    try:
        wanted = [float(rate) for rate in rates.split(",")]
    except ValueError:
        raise UsageError(f"{rates!r} are no rates; write numbers, such as {PACKET_RATES}") from None
    if min(wanted) <= 0:
        raise UsageError(f"a rate is above 0, not {min(wanted):g}; leave it out")
    rounds: dict[tuple[float, str], list[Packets]] = {}
    with output.progress("bench live", len(wanted) * len(VARIANTS) * PACKET_ROUNDS) as steps:
        for rate, _, variant in product(wanted, range(PACKET_ROUNDS), VARIANTS):
            one = measure_packets(variant, PACKET_PROCESSES, rate, PACKET_PAYLOAD_BYTES, PACKET_SECONDS)
            rounds.setdefault((rate, variant), []).append(one)
            steps.step(f"{variant}, {rate:g} a second")
    found = [median_of(several) for several in rounds.values()]
    if json:
        output.print_json(PacketReport(Machine.here(), found))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("rate", "frames", "writes", "segments", "bytes", "held", "p50 µs", "p99 µs", "CPU µs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            one.variant,
            f"{one.rate:g}",
            *(f"{value:.2f}" for value in (one.frames_per_message, one.writes_per_message, one.segments_per_message)),
            f"{one.bytes_per_message:,.0f}",
            f"{one.held_per_message:.3f}",
            *(f"{value:,.0f}" for value in (one.p50_us, one.p99_us, one.cpu_us_per_message)),
        )
    output.console.print(table)
    output.console.print(f"Per message published, with {PACKET_PROCESSES} processes that publish at the rate, each.")


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
