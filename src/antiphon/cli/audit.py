"""``antiphon audit``: judge the traces of a run, live or simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
from antiphon.trace.quantities import quantity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from antiphon.pipeline.traces import Survey
    from antiphon.simulator.scenario import Scenario

CHECKS = ("completeness", "duplicates", "fifo", "causal", "total", "validity", "membership")
DURABILITY = "durability"
"""Judged where what nodes had on their disks is known: in live campaigns."""

COUNTS = ("messages", "deliveries")
"""What is printed of an audit; each count and each violation of a check is among the quantities."""

ENDINGS = (".parquet", ".arrow")
CLEAN = "clean"
VIOLATED = "violated"

ROWS_FOR_SPARK = 1_500_000
"""The judge in this process needs about as long for this as Spark needs to start."""


class Check(msgspec.Struct):
    """One promise: whether it was made, how often it was broken, and an example."""

    applies: bool
    violations: int = 0
    example: str | None = None
    story: list[str] = []
    """The rows that show the example, in words."""


class Audit(msgspec.Struct):
    """What was found in the traces of a run."""

    messages: int
    deliveries: int
    seconds: float
    checks: dict[str, Check]
    verdict: str
    missing_nodes: list[int]
    judge: str
    """Who judged: ``memory``, or ``spark``."""


@dataclass(frozen=True)
class Promises:
    """What the run was to keep, and how the oracle is to look at it."""

    checks: frozenset[str]
    node_count: int
    everybody: bool = False
    default: int = CAUSAL
    leavers: bool = False
    weaker_pass: bool = False
    """Whether only total publications are in one order, and those of weaker orders pass them."""


def audit(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Trace files, or directories of them.", show_default=False),
    ],
    spark: Annotated[
        bool, typer.Option("--spark", help="Let Spark judge, as it does by itself where a trace is large.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Let a Spark cluster judge, such as spark://host:7077.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Judge a run: is anything lost, duplicated, invented or out of order?

    The traces of all live nodes of a run are given together. The trace of a simulated run is one file. What a live
    campaign has kept is its directory. The judge knows no protocol: it keeps its own clocks. Large traces are judged by
    Spark. A broken promise is exit code 1.

    Example: antiphon up -n 4 --trace traces    and, when it has ended: antiphon audit traces
    """
    with judging(spark or master is not None, master) as judge:
        found = audit_paths(traces, judge)
    if json:
        output.print_json(found)
    else:
        show(found)
    if found.verdict == VIOLATED:
        raise typer.Exit(1)


Judge = Callable[[list[Path]], Audit]
"""Judges the traces of one run."""


@contextmanager
def judging(on_spark: bool, master: str | None = None) -> Iterator[Judge]:
    """A judge of one run or more: this process, or Spark if that is wanted or there is much to judge."""
    from antiphon.pipeline.traces import describe

    with ExitStack() as stack:
        session: SparkSession | None = None

        def judge(files: list[Path]) -> Audit:
            nonlocal session
            if session is None and not on_spark and not is_large(files):
                return audit_files(files)
            # Before Spark is started: a name that is wrong is found at once.
            for file in files:
                describe(file)
            if session is None:
                session = stack.enter_context(start_spark(master))
            return audit_in_session(session, files)

        yield judge


def start_spark(master: str | None) -> AbstractContextManager[SparkSession]:
    """Spark, here or on a cluster."""
    from antiphon.pipeline.session import SessionOptions, spark_session

    return spark_session("antiphon audit", SessionOptions(master=master, memory="2g"))


def audit_paths(paths: list[Path], judge: Judge) -> Audit:
    """Judge what is meant: traces, directories of them, or what a live campaign has kept."""
    from antiphon.cli.audit_live import audit_campaign, is_campaign

    if len(paths) == 1 and is_campaign(paths[0]):
        return audit_campaign(paths[0], judge)
    return judge(files_in(paths))


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


def is_large(files: list[Path]) -> bool:
    """Whether there is more to judge than the judge in this process should take on."""
    from antiphon.trace.store import count_rows

    return sum(count_rows(file) for file in files) > ROWS_FOR_SPARK


def audit_files(files: list[Path]) -> Audit:
    """Read, merge and judge in this process."""
    import pyarrow.compute as pc

    from antiphon.trace.merging import merge_traces
    from antiphon.trace.oracle import judge
    from antiphon.trace.store import about_trace, read_trace
    from antiphon.trace.total_order import judge_total_order

    started = time.perf_counter()
    tables = [read_trace(file) for file in files]
    about = about_trace(tables[0])
    table = merge_traces(tables)
    survey = survey_of(table)
    promises = promises_for(about, survey)
    complete = "completeness" in promises.checks
    findings = judge(table, promises.node_count, promises.everybody, complete, promises.default, promises.leavers)
    stories = {} if findings.clean else stories_of(table, promises)
    checks = {}
    for name in CHECKS:
        applies = name in promises.checks
        count = findings.counts.get(name, 0) if applies else 0
        example = findings.examples.get(name) if count else None
        checks[name] = Check(applies, count, example, stories.get(name, []) if count else [])
    if "total" in promises.checks:
        passing = pc.unique(table["source"]).to_pylist() if promises.weaker_pass else ()
        checks["total"] = Check(True, *judge_total_order(table, passing))
    seconds = time.perf_counter() - started
    missing = survey.silent_publishers if about.get("host") == "live" else []
    return Audit(findings.publications, findings.deliveries, seconds, checks, verdict_of(checks), missing, "memory")


def verdict_of(checks: dict[str, Check]) -> str:
    """The word for it all."""
    return VIOLATED if any(check.violations for check in checks.values()) else CLEAN


def stories_of(table: pa.Table, promises: Promises) -> dict[str, list[str]]:
    """What happened around the first violation of each kind, in a table."""
    from antiphon.pipeline.judging import Rules, judge_part
    from antiphon.pipeline.lanes import rows_of_table
    from antiphon.pipeline.stories import tell_from_table

    rules = Rules(promises.default, "completeness" in promises.checks, promises.leavers)
    rows = rows_of_table(table, promises.node_count if promises.everybody else 0)
    return tell_from_table(table, judge_part(rows, rules).examples)


def audit_in_session(session: SparkSession, files: list[Path], rows_per_part: int | None = None) -> Audit:
    """Judge with a Spark that runs."""
    from antiphon.pipeline.audit import ROWS_PER_PART, audit_frame
    from antiphon.pipeline.judging import Rules
    from antiphon.pipeline.stories import sentence, tell_from_frame
    from antiphon.pipeline.total import judge_total_order
    from antiphon.pipeline.traces import merged_in_memory, open_trace, survey

    started = time.perf_counter()
    trace = open_trace(session, files)
    surveyed = survey(trace.frame)
    promises = promises_for(trace.about, surveyed)
    rules = Rules(promises.default, "completeness" in promises.checks, promises.leavers, "causal" in promises.checks)
    everybody = promises.node_count if promises.everybody else 0
    size = rows_per_part or ROWS_PER_PART
    found = audit_frame(trace.frame, trace.rows, rules, everybody, size)
    if found.counts["validity"] and trace.files > 1 and "validity" in promises.checks:
        # The clocks of machines may disagree: try an order in which nobody is earlier than the publisher.
        trace = merged_in_memory(session, files)
        found = audit_frame(trace.frame, trace.rows, rules, everybody, size)
    broken = {kind: example for kind, example in found.examples.items() if kind in promises.checks}
    stories = tell_from_frame(trace.frame, broken) if broken else {}
    checks = {}
    for name in CHECKS:
        applies = name in promises.checks
        example = broken.get(name)
        text = None if example is None else sentence(example)
        checks[name] = Check(applies, found.counts.get(name, 0) if applies else 0, text, stories.get(name, []))
    if "total" in promises.checks:
        judged = trace.frame.where("order = 'total'") if promises.weaker_pass else trace.frame
        checks["total"] = Check(True, *judge_total_order(judged))
    seconds = time.perf_counter() - started
    missing = surveyed.silent_publishers if trace.about.get("host") == "live" else []
    return Audit(found.publications, found.deliveries, seconds, checks, verdict_of(checks), missing, "spark")


def survey_of(table: pa.Table) -> Survey:
    """What must be known of a table to say what was promised."""
    import pyarrow.compute as pc

    from antiphon.pipeline.traces import Survey

    deliveries = table.filter(pc.equal(table["event"].cast("string"), "deliver"))
    sources = set(pc.unique(deliveries["source"]).to_pylist())
    orders = set(pc.unique(table["order"].cast("string")).to_pylist()) if "order" in table.column_names else set()
    silent = sorted(sources - set(pc.unique(table["node"]).to_pylist()))
    return Survey(frozenset(orders - {None}), silent, pc.max(table["time"]).as_py() or 0)


def promises_for(about: dict[str, Any], survey: Survey) -> Promises:
    """What the run of a trace was to keep."""
    if about.get("host") == "live":
        return live_promises(survey, about.get("fabric") == "gossip")
    return simulated_promises(about, survey)


def live_promises(survey: Survey, weaker_pass: bool = False) -> Promises:
    """Every message is judged by its own order. Without its publisher's trace nobody knows when it was published."""
    orders = survey.orders
    checks = {"completeness", "duplicates", "membership"}
    checks |= {"fifo"} if orders & {"fifo", "causal"} else set()
    checks |= {"causal"} if "causal" in orders else set()
    checks |= {"total"} if "total" in orders else set()
    checks |= set() if survey.silent_publishers else {"validity"}
    # All nodes leave in the end, and every row has its order.
    return Promises(frozenset(checks), 0, leavers=True, weaker_pass=weaker_pass)


def simulated_promises(about: dict[str, Any], survey: Survey) -> Promises:
    """What the scenario promises."""
    from antiphon.simulator.judgement import has_holes, promises_of, why_not_judged
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
    is_whole = scenario.limits == LimitsTable() and survey.last_time < scenario.limits.time
    checks = frozenset(promises_of(scenario, "finished" if is_whole else "limit")) & set(CHECKS)
    has_topics = PROTOCOLS[scenario.protocol].has_topics
    if has_holes(scenario):
        # A trace does not say which holes the application was told of.
        checks -= {"completeness"}
    return Promises(checks, scenario.nodes, not has_topics, default_order(scenario), weaker_pass=has_holes(scenario))


def default_order(scenario: Scenario) -> int:
    """How publications are judged that name no order."""
    return ORDER_NAMES.index(scenario.order) if scenario.mixes_orders() else CAUSAL


def show(found: Audit) -> None:
    """Print a judgement for people."""
    by_spark = " by Spark" if found.judge == "spark" else ""
    counts = ", ".join(f"{getattr(found, name):,} {quantity(name).unit}" for name in COUNTS)
    output.console.print(f"{counts}, judged{by_spark} in {found.seconds:.1f} seconds")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, check in found.checks.items():
        if not check.applies:
            table.add_row(name, "[dim]not promised[/]" if name != "validity" else "[dim]cannot be told[/]")
        elif check.violations:
            table.add_row(name, f"[bold red]{check.violations:,} violations[/], such as {escape(check.example or '')}")
        else:
            table.add_row(name, "kept")
    output.console.print(table)
    for name, check in found.checks.items():
        if check.violations:
            output.console.print(f"{name}: {quantity(f'violations-of-{name}').definition}")
            for line in check.story:
                output.console.print(f"  {escape(line)}")
    if found.missing_nodes:
        nodes = ", ".join(map(str, found.missing_nodes))
        output.console.print(f"There is no trace of the publishers {nodes}; their publications were judged in part.")
    output.console.print("[bold red]violated[/]" if found.verdict == VIOLATED else "[bold green]nothing violated[/]")
