"""``antiphon bench peers``: the same traffic through Antiphon and through other systems, side by side."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import PeerError, UsageError
from antiphon_lab.bench.durable.measure import DurableFigures
from antiphon_lab.bench.durable.measure import measure as measure_durable
from antiphon_lab.bench.durable.stores import STORES
from antiphon_lab.bench.peers.contender import Contender
from antiphon_lab.bench.peers.measure import LATENCY_MESSAGES_PER_SECOND, MeasurePlan, measure
from antiphon_lab.bench.peers.registry import CONTENDERS, contender_named
from antiphon_lab.bench.peers.report import Absent, Figures, PeerReport, Ratio
from antiphon_lab.bench.peers.workload import Workload, parse_workload
from antiphon_lab.reproduction.machine import Machine

DEFAULT_WORKLOADS = "1-to-1,1-to-7,7-to-7"
DEFAULT_PAYLOADS = "100,1024"
STANDARD = MeasurePlan()


# Options of this command and of `bench live`.
WorkloadOption = Annotated[
    str,
    typer.Option(
        "--workload", metavar="P-to-S,...", help="Publishers to subscribers; equally many: everyone does both."
    ),
]
PayloadOption = Annotated[str, typer.Option("--payload", metavar="BYTES,...", help="Sizes of payloads.")]
MessagesOption = Annotated[
    int, typer.Option("--messages", metavar="N", help="Messages of a round, of all publishers together.")
]
SecondsOption = Annotated[float, typer.Option("--seconds", metavar="S", help="A round takes about S seconds at most.")]
RoundsOption = Annotated[
    int, typer.Option("--rounds", metavar="R", help="Rounds at full speed after a warm-up; the median counts.")
]
LatencyOption = Annotated[
    bool, typer.Option(help=f"Also measure latency, at {LATENCY_MESSAGES_PER_SECOND:,.0f} messages/s.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def peers(
    only: Annotated[
        str, typer.Option("--only", metavar="NAME,...", help=f"Contenders, among {', '.join(CONTENDERS)}; default all.")
    ] = ",".join(CONTENDERS),
    workload: WorkloadOption = DEFAULT_WORKLOADS,
    payload: PayloadOption = DEFAULT_PAYLOADS,
    messages: MessagesOption = STANDARD.messages,
    seconds: SecondsOption = STANDARD.seconds,
    rounds: RoundsOption = STANDARD.rounds,
    latency: LatencyOption = True,
    durable: Annotated[
        bool, typer.Option("--durable", help=f"Compare histories on disk instead: {', '.join(STORES)}.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare Antiphon, with causal order, to systems without: deliveries per second, and latency.

    Every publisher and subscriber is a process of its own; all run on loopback, with Python at both ends.
    Servers and clients that are not installed are named, and left out. With --durable: publish with receipts, consume
    with acknowledgements, alone and in a group of four, and read all, in windows of 256.
    """
    output.warn_if_not_compiled()
    if durable:
        report_durable(only, messages, parse_bytes(payload.split(",", maxsplit=1)[0]), json)
        return
    workloads = [parse_workload(one, parse_bytes(size)) for size in payload.split(",") for one in workload.split(",")]
    plan = parse_plan(messages, seconds, rounds, latency)
    present, absent = invited(only)
    machine = Machine.here()
    figures = perform_all(present, workloads, plan)
    report = PeerReport.of(machine, present, absent, figures)
    if json:
        output.print_json(report)
    else:
        show(report)
    failures = [one for one in figures if one.error]
    if failures:
        raise PeerError(
            f"{len(failures)} of {len(figures)} runs failed, the first being {failures[0].contender} "
            f"{failures[0].workload}: {failures[0].error}"
        )


def report_durable(only: str, messages: int, size: int, as_json: bool) -> None:
    """Measure histories on disk, one system after the other, and print the result."""
    names = list(STORES) if only == ",".join(CONTENDERS) else [name.strip() for name in only.split(",")]
    unknown = [name for name in names if name not in STORES]
    if unknown:
        raise UsageError(f"there is no history named {unknown[0]!r}; choose among {', '.join(STORES)}")
    figures = []
    with output.progress("bench peers --durable", len(names)) as steps:
        for name in names:
            reason = STORES[name].missing()
            if reason:
                output.errors.print(f"{STORES[name].title}: {reason}", soft_wrap=True, markup=False)
            else:
                figures.append(measure_durable(STORES[name], messages, size))
            steps.step(name)
    if as_json:
        output.print_json({"machine": Machine.here(), "figures": figures})
    else:
        show_durable(figures)
    failures = [each for each in figures if each.error]
    if failures:
        raise PeerError(f"{failures[0].title}: {failures[0].error}")


def show_durable(figures: list[DurableFigures]) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    table.add_column("messages/s (CPU µs each)", no_wrap=True)
    for heading in ("publish", "consume", "group of four", "read all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in figures:
        jobs = (one.publish, one.consume, one.group, one.read)
        cells = [
            "failed" if job is None else f"{job.messages_per_second:,.0f} ({job.processor_microseconds:.1f})"
            for job in jobs
        ]
        table.add_row(one.title, *cells)
    output.console.print(table)
    for one in figures:
        output.console.print(f"{one.title}: {one.settings}", markup=False, soft_wrap=True)


def parse_bytes(text: str) -> int:
    """A size on the command line."""
    if not text.strip().isdecimal():
        raise UsageError(f"--payload takes numbers of bytes like {DEFAULT_PAYLOADS}, not {text!r}")
    return int(text)


def parse_plan(messages: int, seconds: float, rounds: int, latency: bool) -> MeasurePlan:
    """How much is done, within bounds."""
    for name, value in (("--messages", messages), ("--seconds", seconds), ("--rounds", rounds)):
        if not 0 < value <= 1e9:
            raise UsageError(f"{name} must be more than 0, not {value}")
    return MeasurePlan(messages, seconds, rounds, seconds if latency else 0.0)


def invited(only: str) -> tuple[list[Contender], list[Absent]]:
    """The contenders that can take part, and those that cannot."""
    wanted = [contender_named(name.strip()) for name in only.split(",")]
    present, absent = [], []
    for contender in dict.fromkeys(wanted):
        reason = contender.missing()
        if reason:
            output.errors.print(f"{contender.title}: {reason}", soft_wrap=True, markup=False)
            absent.append(Absent(contender.name, reason))
        else:
            present.append(contender)
    return present, absent


def perform_all(contenders: list[Contender], workloads: list[Workload], plan: MeasurePlan) -> list[Figures]:
    """One after the other; contenders take turns under each workload, so that all meet the same weather."""
    figures = []
    with output.progress("bench peers", len(contenders) * len(workloads)) as steps:
        for workload in workloads:
            for contender in contenders:
                one = measure(contender, workload, plan)
                figures.append(one)
                steps.step(f"{contender.name}, {workload.name}, {workload.payload_bytes} bytes: {in_words(one)}")
    return figures


def in_words(one: Figures) -> str:
    """A result in a few words, for progress."""
    if one.throughput is None:
        return one.error
    return f"{one.throughput.delivered_per_second:,.0f} deliveries/s"


def show(report: PeerReport) -> None:
    """The table for people."""
    titles = {participant.name: participant.title for participant in report.contenders}
    ratios = {(one.rival, one.workload, one.payload_bytes): one for one in report.ratios}
    table = Table(box=None, pad_edge=False)
    for heading in ("workload", "bytes", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("deliveries/s", "lost", "CPU µs each", "p50 µs", "p99 µs", "Antiphon is"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in report.figures:
        title = titles[one.contender]
        ratio = ratios.get((one.contender, one.workload, one.payload_bytes))
        table.add_row(one.workload, f"{one.payload_bytes:,}", title, *cells(one), in_comparison(ratio))
    output.console.print(table)
    for participant in report.contenders:
        versions = ", ".join(version for version in (participant.client, participant.server) if version)
        output.console.print(f"{participant.title}: {versions}; {participant.settings}", markup=False, soft_wrap=True)
    for missing in report.absent:
        output.console.print(f"{missing.name}: {missing.reason}", markup=False, soft_wrap=True)


def cells(one: Figures) -> list[str]:
    """The figures of a row."""
    if one.throughput is None:
        return ["failed", "", "", "", ""]
    lost = one.throughput.lost + (one.latency.lost if one.latency is not None else 0)
    found = [f"{one.throughput.delivered_per_second:,.0f}", f"{lost:,}"]
    found.append(f"{one.throughput.processor_microseconds_per_delivery:.1f}")
    if one.latency is None:
        return [*found, "", ""]
    return [*found, f"{one.latency.p50_microseconds:,.0f}", f"{one.latency.p99_microseconds:,.0f}"]


def in_comparison(ratio: Ratio | None) -> str:
    """How much faster than this rival Antiphon is."""
    return "" if ratio is None else f"{ratio.delivered_per_second:.1f} times as fast"
