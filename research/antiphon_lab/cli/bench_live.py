"""``antiphon bench live``: our own figures, by order, durability, payload and number of nodes, and by stage."""

from __future__ import annotations

from itertools import product
from typing import Annotated

import msgspec
import typer
from rich.table import Table

import antiphon
from antiphon.cli import output
from antiphon.kernel.errors import PeerError, UsageError
from antiphon_lab.bench.live_growth import FEW_TOPICS, LoneMessage, TopicCosts, measure_lone, measure_topics
from antiphon_lab.bench.live_nodes import NodeCosts, measure_all_nodes
from antiphon_lab.bench.live_packets import VARIANTS, WITH_AND_WITHOUT, Packets, Variant, measure_packets, median_of
from antiphon_lab.bench.live_stages import Stage, measure_stages
from antiphon_lab.bench.peers.registry import OURS
from antiphon_lab.bench.peers.report import Figures
from antiphon_lab.bench.peers.workload import parse_workload
from antiphon_lab.cli.bench_peers import (
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
from antiphon_lab.reproduction.machine import Machine

DEFAULT_WORKLOADS = "1-to-1,1-to-3,1-to-7,7-to-7"
NODE_PROCESSES = 4
NODE_LOST_SECONDS = 5.0
PACKET_PROCESSES = 8
PACKET_SECONDS = 2.0
PACKET_ROUNDS = 3
PACKET_PAYLOAD_BYTES = 100
PACKET_RATES = "20,200,800"
FAULT_RATES = "20,200,0"


class LiveReport(msgspec.Struct, frozen=True):
    """The result as JSON."""

    machine: Machine
    stages: list[Stage]
    figures: list[Figures]


class GrowthReport(msgspec.Struct, frozen=True):
    """The result as JSON with ``--lone``, ``--topics`` and ``--nodes``."""

    machine: Machine
    lone: list[LoneMessage]
    topics: list[TopicCosts]
    nodes: list[NodeCosts]


class PacketReport(msgspec.Struct, frozen=True):
    """The result as JSON with ``--packets`` and ``--faults``."""

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
    faults: Annotated[
        bool,
        typer.Option(
            "--faults",
            help="Instead: the cost of fault tolerance without faults, beside plain VCube-PS in the same run.",
        ),
    ] = False,
    lone: Annotated[
        bool, typer.Option("--lone", help="Instead: processor time of messages that travel alone, at all ends.")
    ] = False,
    topics: Annotated[
        str,
        typer.Option("--topics", metavar="N,...", help="Instead: time and memory for so many topics, at two nodes."),
    ] = "",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes", metavar="N,...", help="Instead: the cost of each of so many idle nodes in one cluster."
        ),
    ] = "",
    processes: Annotated[
        int, typer.Option("--processes", metavar="P", min=1, help="With --nodes: in how many processes they are.")
    ] = NODE_PROCESSES,
    rates: Annotated[
        str | None,
        typer.Option(
            "--rates",
            metavar="R,...",
            help=f"With --packets and --faults: messages a second per process, 0 for as many as it can; default "
            f"{PACKET_RATES} and {FAULT_RATES}.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure live nodes: deliveries per second, latency, and microseconds of processor time per message and stage.

    Every publisher and subscriber is a process of its own, with a node in it, on loopback.
    """
    output.warn_if_not_compiled()
    if sum((packets, faults, lone, bool(topics), bool(nodes))) > 1:
        raise UsageError(
            "--packets, --faults, --lone, --topics and --nodes are comparisons of their own; choose one of them"
        )
    if lone or topics or nodes:
        grown = measure_growth(lone, numbers(topics, "topic"), numbers(nodes, "node"), processes)
        if json:
            output.print_json(grown)
        else:
            show_growth(grown)
        return
    if packets or faults:
        wanted = rates or (FAULT_RATES if faults else PACKET_RATES)
        compared = PacketReport(Machine.here(), measure_all(WITH_AND_WITHOUT if faults else VARIANTS, wanted))
        if json:
            output.print_json(compared)
        else:
            show_packets(compared.packets, faults)
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


def numbers(text: str, name: str) -> list[int]:
    """Several sizes of one kind."""
    try:
        counts = [int(count) for count in text.split(",") if count.strip()]
    except ValueError:
        raise UsageError(f"{text!r} are no numbers of {name}s; write for example 1000,10000") from None
    if any(count < 1 for count in counts):
        raise UsageError(f"there is at least 1 {name}, not {min(counts)}")
    return counts


def measure_growth(lone: bool, topics: list[int], nodes: list[int], processes: int) -> GrowthReport:
    """Messages that travel alone, or each number of topics or nodes."""
    return GrowthReport(
        Machine.here(),
        [antiphon.run(measure_lone(ends)) for ends in ("nodes", "clients")] if lone else [],
        [antiphon.run(measure_topics(count)) for count in topics],
        measure_all_nodes(nodes, processes, NODE_LOST_SECONDS),
    )


def show_growth(report: GrowthReport) -> None:
    """Print the tables for people."""
    table = Table(box=None, pad_edge=False)
    if report.nodes:
        show_nodes(report.nodes)
        return
    if report.lone:
        for heading in ("µs of the processor per lone message", "user", "system"):
            table.add_column(heading, justify="left" if heading.startswith("µs") else "right")
        for one in report.lone:
            table.add_row(f"between two {one.ends}", f"{one.user_us:.1f}", f"{one.system_us:.1f}")
    else:
        for heading in ("topics", "new topic, µs", "KiB each", "message, µs", f"on {FEW_TOPICS} topics, µs"):
            table.add_column(heading, justify="right")
        for each in report.topics:
            table.add_row(
                f"{each.topics:,}",
                *(f"{value:.1f}" for value in (each.new_topic_us, each.kib_per_topic_and_node)),
                *(f"{value:.1f}" for value in (each.message_us, each.message_us_on_few_topics)),
            )
    output.console.print(table)
    output.console.print("Processor time of all ends together, in one process; memory per topic and node.")


def show_nodes(found: list[NodeCosts]) -> None:
    """Print the curve for people."""
    table = Table(box=None, pad_edge=False)
    for heading in ("nodes", "processes", "joins/s", "CPU ms a join", "KiB each", "descriptors each"):
        table.add_column(heading, justify="right")
    for heading in ("idle CPU ms/s each", "killed: all know, s", "stopped: all know, s"):
        table.add_column(heading, justify="right")
    for one in found:
        table.add_row(
            str(one.nodes),
            str(one.processes),
            *(f"{value:.1f}" for value in (one.joins_per_second, one.join_cpu_ms)),
            *(f"{value:,.0f}" for value in (one.memory_kib, one.descriptors)),
            *(f"{value:.2f}" for value in (one.idle_cpu_ms_per_second,)),
            *(f"{value:.3f}" for value in (one.killed_known_seconds, one.stopped_known_seconds)),
        )
    output.console.print(table)
    output.console.print(f"One cluster; a node that was stopped counts as lost after {NODE_LOST_SECONDS:g} seconds.")


def measure_all(variants: dict[str, Variant], rates: str) -> list[Packets]:
    """Run all variants at each rate, one after the other, so that all meet the same weather."""
    try:
        wanted = [float(rate) for rate in rates.split(",")]
    except ValueError:
        raise UsageError(f"{rates!r} are no rates; write numbers, such as {PACKET_RATES}") from None
    if min(wanted) < 0:
        raise UsageError(f"there is no rate below 0, such as {min(wanted):g}; leave it out")
    rounds: dict[tuple[float, str], list[Packets]] = {}
    with output.progress("bench live", len(wanted) * len(variants) * PACKET_ROUNDS) as steps:
        for rate, _, variant in product(wanted, range(PACKET_ROUNDS), variants):
            one = measure_packets(variant, PACKET_PROCESSES, rate, PACKET_PAYLOAD_BYTES, PACKET_SECONDS)
            rounds.setdefault((rate, variant), []).append(one)
            steps.step(f"{variant}, {rate:g} a second")
    return [median_of(several) for several in rounds.values()]


def show_packets(found: list[Packets], with_faults: bool) -> None:
    """Print the table for people; with faults, also the kinds of frames."""
    last = ("deliveries/s", "MiB", "frames by kind") if with_faults else ("held",)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("rate", "frames", "writes", "segments", "bytes", "p50 µs", "p99 µs", "CPU µs", *last):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        more = [f"{one.held_per_message:.3f}"]
        if with_faults:
            more = [f"{one.deliveries_per_second:,.0f}", f"{one.memory_mib:.0f}", kinds_in_words(one)]
        table.add_row(
            one.variant,
            f"{one.rate:g}" if one.rate else "all",
            *(f"{value:.2f}" for value in (one.frames_per_message, one.writes_per_message, one.segments_per_message)),
            f"{one.bytes_per_message:,.0f}",
            *(f"{value:,.0f}" for value in (one.p50_us, one.p99_us, one.cpu_us_per_message)),
            *more,
        )
    output.console.print(table)
    output.console.print(f"Per message published, with {PACKET_PROCESSES} processes that publish at the rate, each.")


def kinds_in_words(one: Packets) -> str:
    """How many frames of each class there were per message, the most frequent first."""
    counts = sorted(one.kinds_per_message.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {count:.3f}" for kind, count in counts if count > 0)


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
    """Print the cost of a message by stage, in microseconds of processor time."""
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
