"""``antiphon bench detection``: measures how soon live nodes notice a failure, and the cost of detection."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError
from antiphon.runtime.logging import write_logs
from antiphon_lab.bench.live_detection import Detection, measure_detection
from antiphon_lab.reproduction.machine import Machine

DEFAULT_NODES = "4,8,16,32"


class DetectionReport(msgspec.Struct, frozen=True):
    """The result as JSON."""

    machine: Machine
    round_seconds: float
    patience_seconds: float
    lost_seconds: float
    detections: list[Detection]


def detection(
    nodes: Annotated[str, typer.Option("--nodes", metavar="N,...", help="How many nodes there are.")] = DEFAULT_NODES,
    round_seconds: Annotated[
        float, typer.Option("--round", metavar="SECONDS", min=0.01, help="How often the diagnosis tests.")
    ] = 1.0,
    patience_seconds: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", min=0.001, help="How long it waits for an answer.")
    ] = 0.4,
    lost_seconds: Annotated[
        float,
        typer.Option("--lost-seconds", metavar="SECONDS", min=0.1, help="After so long without a sign a node is lost."),
    ] = 2.0,
    runs: Annotated[int, typer.Option("--runs", metavar="R", min=1, help="Of each kind.")] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Decides which node fails, and when.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Let one of several live nodes fail, and measure when all others know.

    VCube's diagnosis is measured beside the default failure detection. Nodes are real ones with real connections. One
    is killed, or stopped so that its connections stay. The table also has the figures of the simulator with the same
    timings, and those of the formulas.
    """
    try:
        sizes = [int(size) for size in nodes.split(",")]
    except ValueError:
        raise UsageError(f"{nodes!r} are no sizes; write numbers, such as {DEFAULT_NODES}") from None
    # That nodes are lost is no news here.
    write_logs("error")
    found: list[Detection] = []
    with output.progress("bench detection", len(sizes)) as steps:
        for size in sizes:
            found += measure_detection(size, round_seconds, patience_seconds, lost_seconds, runs, seed)
            steps.step(f"{size} nodes")
    report = DetectionReport(Machine.here(), round_seconds, patience_seconds, lost_seconds, found)
    if json:
        output.print_json(report)
    else:
        show(report)


def show(report: DetectionReport) -> None:
    """The table for people."""
    table = Table(box=None, pad_edge=False)
    for heading in ("nodes", "fault", "detector"):
        table.add_column(heading, no_wrap=True)
    headings = ("first s", "half s", "all s", "longest s", "simulated s", "formula s", "messages", "formula", "bytes")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in report.detections:
        simulated = "" if one.simulated_seconds is None else f"{one.simulated_seconds:.2f}"
        table.add_row(
            str(one.nodes),
            one.fault,
            one.detector,
            *(f"{each:.3f}" for each in (one.first_seconds, one.half_seconds, one.all_seconds, one.longest_seconds)),
            simulated,
            f"{one.expected_seconds:.2f}",
            f"{one.messages:.1f}",
            f"{one.expected_messages:.1f}",
            f"{one.bytes_sent:.0f}",
        )
    output.console.print(table)
    alarms = sum(one.false_alarms for one in report.detections)
    output.console.print(
        f"Messages and bytes: of one node per second, while nothing happens. {alarms} false alarms.", soft_wrap=True
    )
