"""``antiphon audit``: judge the traces of a run, live or simulated."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, ORDER_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

    from antiphon.simulator.scenario import Scenario

CHECKS = ("completeness", "duplicates", "fifo", "causal", "total", "validity", "membership")
ENDINGS = (".parquet", ".arrow")
CLEAN = "clean"
VIOLATED = "violated"


class Check(msgspec.Struct):
    """One promise: whether it was made, how often it was broken, and an example."""

    applies: bool
    violations: int = 0
    example: str | None = None


class Audit(msgspec.Struct):
    """What was found in the traces of a run."""

    messages: int
    deliveries: int
    seconds: float
    checks: dict[str, Check]
    verdict: str
    missing_nodes: list[int]


@dataclass(frozen=True)
class Promises:
    """What the run was to keep, and how the oracle is to look at it."""

    checks: frozenset[str]
    node_count: int
    everybody: bool = False
    default: int = CAUSAL
    leavers: bool = False


def audit(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Trace files, or directories of them.", show_default=False),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Judge a run: is anything lost, duplicated, invented or out of order?

    The traces of all live nodes of a run are given together. The trace of a simulated run is one file. The judge knows
    no protocol: it keeps its own clocks. A broken promise is exit code 1.

    Example: antiphon up -n 4 --trace traces    and, when it has ended: antiphon audit traces
    """
    found = audit_files(files_in(traces))
    if json:
        output.print_json(found)
    else:
        show(found)
    if found.verdict == VIOLATED:
        raise typer.Exit(1)


def files_in(paths: list[Path]) -> list[Path]:
    """The files that are meant: those given, and those in directories that are given."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(each for each in path.iterdir() if each.suffix in ENDINGS and not each.name.startswith("."))
        if not inside:
            raise UsageError(
                f"there is no trace ({' or '.join(ENDINGS)}) in {path}; nodes write theirs when they leave"
            )
        files += inside
    return files


def audit_files(files: list[Path]) -> Audit:
    """Read, merge and judge."""
    from antiphon.trace.merging import merge_traces
    from antiphon.trace.oracle import judge
    from antiphon.trace.store import about_trace, read_trace

    started = time.perf_counter()
    tables = [read_trace(file) for file in files]
    about = about_trace(tables[0])
    table = merge_traces(tables)
    missing: list[int] = []
    if about.get("host") == "live":
        missing = silent_publishers(table)
        promises = live_promises(table, missing)
    else:
        promises = simulated_promises(about, table)
    complete = "completeness" in promises.checks
    findings = judge(table, promises.node_count, promises.everybody, complete, promises.default, promises.leavers)
    checks = {}
    for name in CHECKS:
        applies = name in promises.checks
        count = findings.counts.get(name, 0) if applies else 0
        checks[name] = Check(applies, count, findings.examples.get(name) if count else None)
    verdict = VIOLATED if any(check.violations for check in checks.values()) else CLEAN
    seconds = time.perf_counter() - started
    return Audit(findings.publications, findings.deliveries, seconds, checks, verdict, missing)


def silent_publishers(table: pa.Table) -> list[int]:
    """Nodes whose publications others delivered and whose own trace is not there."""
    import pyarrow.compute as pc

    deliveries = table.filter(pc.equal(table["event"].cast("string"), "deliver"))
    return sorted(set(pc.unique(deliveries["source"]).to_pylist()) - set(pc.unique(table["node"]).to_pylist()))


def live_promises(table: pa.Table, missing: list[int]) -> Promises:
    """Every message is judged by its own order. Without its publisher's trace nobody knows when it was published."""
    import pyarrow.compute as pc

    orders = set(pc.unique(table["order"].cast("string")).to_pylist())
    checks = {"completeness", "duplicates", "membership"}
    checks |= {"fifo"} if orders & {"fifo", "causal"} else set()
    checks |= {"causal"} if "causal" in orders else set()
    checks |= set() if missing else {"validity"}
    # All nodes leave in the end, and every row has its order.
    return Promises(frozenset(checks), 0, leavers=True)


def simulated_promises(about: dict[str, Any], table: pa.Table) -> Promises:
    """What the scenario promises."""
    import pyarrow.compute as pc

    from antiphon.simulator.judgement import promises_of, why_not_judged
    from antiphon.simulator.protocols import PROTOCOLS
    from antiphon.simulator.scenario import LimitsTable, Scenario

    try:
        scenario = msgspec.convert(about.get("scenario"), Scenario)
    except msgspec.ValidationError as error:
        raise UsageError(f"the trace does not say of which scenario it is ({error}); write it again") from error
    reason = why_not_judged(scenario)
    if reason is not None:
        raise UsageError(f"this run cannot be judged: {reason}")
    # A trace does not say how its run ended. One that could have been cut short is not blamed for what is missing.
    last = pc.max(table["time"]).as_py() or 0
    is_whole = scenario.limits == LimitsTable() and last < scenario.limits.time
    checks = frozenset(promises_of(scenario, "finished" if is_whole else "limit")) & set(CHECKS)
    has_topics = PROTOCOLS[scenario.protocol].has_topics
    return Promises(checks, scenario.nodes, not has_topics, default_order(scenario))


def default_order(scenario: Scenario) -> int:
    """How publications are judged that name no order."""
    return ORDER_NAMES.index(scenario.order) if scenario.mixes_orders() else CAUSAL


def show(found: Audit) -> None:
    """Print a judgement for people."""
    output.console.print(
        f"{found.messages:,} messages, {found.deliveries:,} deliveries, judged in {found.seconds:.1f} seconds"
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, check in found.checks.items():
        if not check.applies:
            table.add_row(name, "[dim]not promised[/]" if name != "validity" else "[dim]cannot be told[/]")
        elif check.violations:
            table.add_row(name, f"[bold red]{check.violations:,} violations[/], such as {escape(check.example or '')}")
        else:
            table.add_row(name, "kept")
    output.console.print(table)
    if found.missing_nodes:
        nodes = ", ".join(map(str, found.missing_nodes))
        output.console.print(f"There is no trace of the publishers {nodes}; their publications were judged in part.")
    output.console.print("[bold red]violated[/]" if found.verdict == VIOLATED else "[bold green]nothing violated[/]")
