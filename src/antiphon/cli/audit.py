"""``antiphon audit``: judge the traces of a run, live or simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.audit_promises import (
    check_judgeable,
    contract_for,
    is_live,
    scenario_of,
    stopped_of,
    tells_lives_apart,
)
from antiphon.kernel.errors import UsageError
from antiphon.trace.contract import HOLES, REQUESTS, STUCK, TOTAL_ORDER
from antiphon.trace.quantities import quantity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from antiphon.pipeline.traces import Survey, Trace
    from antiphon.trace.contract import Contract

CHECKS = ("completeness", "duplicates", "fifo", "causal", "total", "validity", "membership")
MORE_CHECKS = (HOLES, REQUESTS, STUCK)
"""Judged where they were promised: in simulated runs."""

DURABILITY = "durability"
"""Judged where what nodes had on their disks is known: in live campaigns."""

CAMPAIGN_CHECKS = (DURABILITY, "content", "drops", "stalls")
"""Judged of what live campaigns wrote down."""

COUNTS = ("messages", "deliveries")
"""What is printed of an audit; each count and each violation of a check is among the quantities."""

ENDINGS = (".parquet", ".arrow")
CLEAN = "clean"
VIOLATED = "violated"

ROWS_FOR_SPARK = 1_500_000
"""The judge in this process needs about as long for this as Spark needs to start."""

ONLY_TOTALS = (
    "Spark has judged the order of total messages among each other. Whether messages of weaker orders stand on one "
    "side of them everywhere is judged in memory: audit without --spark."
)


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
    losses: int = 0
    """What nodes have said to be lost, each publication at each node."""
    unjudged: list[str] = []
    """What could not be judged, and why, in sentences."""


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
            # Before Spark is started: a name that is wrong, or a run that cannot be judged, is found at once.
            described = [describe(file)[0] for file in files if file.suffix in ENDINGS]
            for about in described:
                check_judgeable(about)
            if any(tells_lives_apart(about) for about in described):
                return audit_files(files)
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
    from antiphon.trace.store import PARTIAL

    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        # Nodes that were killed have left what they had written, under a name that begins with a dot.
        inside = sorted(
            each
            for each in path.iterdir()
            if (each.suffix in ENDINGS and not each.name.startswith(".")) or each.suffix == PARTIAL
        )
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
    from antiphon.trace.evidence import read_evidence
    from antiphon.trace.judge import judge_trace, stuck_in
    from antiphon.trace.oracle import evidence

    started = time.perf_counter()
    found = read_evidence(files)
    table, about = found.table, found.about
    survey = survey_of(table)
    contract = contract_for(about, survey)
    stopped = stopped_of(about, survey)
    verdict = judge_trace(table, contract, stopped, stuck_in(table))
    if REQUESTS in verdict.checks:
        from antiphon.simulator.scenario.verdict import judge_requests

        judge_requests(verdict, scenario_of(about), evidence(table))
    stories = stories_of(table, contract, stopped) if verdict.broken() else {}
    checks = {}
    for name in (*CHECKS, *(name for name in MORE_CHECKS if name in verdict.checks)):
        applies = name in verdict.checks
        count = verdict.counts.get(name, 0) if applies else 0
        example = verdict.examples.get(name) if count else None
        checks[name] = Check(applies, count, example, stories.get(name, []) if count else [])
    seconds = time.perf_counter() - started
    missing = survey.silent_publishers if is_live(about) else []
    return Audit(
        verdict.publications,
        verdict.deliveries,
        seconds,
        checks,
        verdict_of(checks),
        missing,
        "memory",
        verdict.losses,
        found.unjudged,
    )


def verdict_of(checks: dict[str, Check]) -> str:
    """The word for it all."""
    return VIOLATED if any(check.violations for check in checks.values()) else CLEAN


def stories_of(table: pa.Table, contract: Contract, stopped: str) -> dict[str, list[str]]:
    """What happened around the first violation of each kind, in a table."""
    from antiphon.pipeline.judging import judge_part, rules_for
    from antiphon.pipeline.lives import rows_in_lives, spans_in_table
    from antiphon.pipeline.stories import tell_from_table

    spans = spans_in_table(table, contract.remembers)
    rows = rows_in_lives(table, contract.nodes if contract.everybody else 0, spans)
    return tell_from_table(table, judge_part(rows, rules_for(contract, stopped, spans)).examples)


def audit_in_session(session: SparkSession, files: list[Path], rows_per_part: int | None = None) -> Audit:
    """Judge with a Spark that runs."""
    from antiphon.pipeline.audit import ROWS_PER_PART, audit_trace
    from antiphon.pipeline.stories import sentence, tell_from_frame
    from antiphon.pipeline.traces import merged_in_memory, open_trace, survey

    started = time.perf_counter()
    trace = open_trace(session, files)
    surveyed = survey(trace.frame)
    if surveyed.losses and trace.files > 1:
        # Live nodes tell losses by the numbers of batches, and others say which messages these are.
        trace = merged_in_memory(session, files)
        surveyed = survey(trace.frame)
    contract = contract_for(trace.about, surveyed)
    stopped = stopped_of(trace.about, surveyed)
    size = rows_per_part or ROWS_PER_PART
    found = audit_trace(trace, surveyed, contract, stopped, size)
    applying = contract.checks(stopped)
    if found.judgement.counts["validity"] and trace.files > 1 and "validity" in applying:
        # The clocks of machines may disagree: try an order in which nobody is earlier than the publisher.
        trace = merged_in_memory(session, files)
        found = audit_trace(trace, surveyed, contract, stopped, size)
    if REQUESTS in applying:
        found.more[REQUESTS] = requests_in_frame(trace)
    broken = {kind: example for kind, example in found.judgement.examples.items() if kind in applying}
    stories = tell_from_frame(trace.frame, broken) if broken else {}
    checks = {}
    for name in (*CHECKS, *(name for name in MORE_CHECKS if name in applying)):
        if name in found.more:
            checks[name] = Check(True, *found.more[name])
            continue
        applies = name in applying
        example = broken.get(name)
        text = None if example is None else sentence(example)
        count = found.judgement.counts.get(name, 0) if applies else 0
        checks[name] = Check(applies, count, text, stories.get(name, []))
    seconds = time.perf_counter() - started
    missing = surveyed.silent_publishers if is_live(trace.about) else []
    judged = (found.judgement.publications, found.judgement.deliveries)
    verdict = verdict_of(checks)
    unjudged = [*trace.unjudged]
    if contract.secured and TOTAL_ORDER in applying and surveyed.orders != {TOTAL_ORDER}:
        unjudged.append(ONLY_TOTALS)
    return Audit(*judged, seconds, checks, verdict, missing, "spark", surveyed.losses, unjudged)


def requests_in_frame(trace: Trace) -> tuple[int, str | None]:
    """What the application asked for and did not get."""
    from antiphon.pipeline.traces import changes_in, counts_in
    from antiphon.simulator.scenario.verdict import Requests, unmet_requests

    counts = counts_in(trace.frame)
    passed_over = sum(counts["lost"].values())
    requests = Requests(counts["publish"], counts["deliver"], passed_over, changes_in(trace.frame))
    complaints = unmet_requests(scenario_of(trace.about), requests)
    return len(complaints), complaints[0] if complaints else None


def survey_of(table: pa.Table) -> Survey:
    """What must be known of a table to say what was promised."""
    import pyarrow.compute as pc

    from antiphon.pipeline.traces import Survey
    from antiphon.trace.judge import ending_of, stuck_in

    events = table["event"].cast("string")
    deliveries = table.filter(pc.equal(events, "deliver"))
    sources = set(pc.unique(deliveries["source"]).to_pylist())
    orders = set(pc.unique(table["order"].cast("string")).to_pylist()) if "order" in table.column_names else set()
    silent = sorted(sources - set(pc.unique(table["node"]).to_pylist()))
    return Survey(
        frozenset(orders - {None}),
        silent,
        ending_of(table),
        stuck_in(table),
        int(pc.sum(pc.equal(events, "lost")).as_py() or 0),
        bool(pc.any(pc.equal(events, "unshown")).as_py()),
        pc.max(table["time"]).as_py() or 0,
    )


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
    if found.losses:
        output.console.print(f"Nodes have said {found.losses:,} times that something is lost to them.")
    for sentence in found.unjudged:
        output.console.print(escape(sentence))
    if found.missing_nodes:
        nodes = ", ".join(map(str, found.missing_nodes))
        output.console.print(f"There is no trace of the publishers {nodes}; their publications were judged in part.")
    output.console.print("[bold red]violated[/]" if found.verdict == VIOLATED else "[bold green]nothing violated[/]")
