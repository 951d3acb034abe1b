"""``antiphon reproduce``: runs published experiments and compares measured with published numbers."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.jobs import Cores, Master, run_with_progress
from antiphon.kernel.errors import UsageError
from antiphon_lab.reproduction.experiment import Experiment, Report, Row, shown
from antiphon_lab.reproduction.verdicts import DERIVED, DIFFERS, FITTED, REFUTED, REPRODUCED, accepted

if TYPE_CHECKING:
    from antiphon.pipeline.jobs import Watcher
    from antiphon.pipeline.session import SessionOptions
    from antiphon_lab.reproduction.job import Failure, Reproduction

SMALL_SECONDS = 30.0
"""Work of less than this is done here: starting Spark costs some seconds, and not every machine has Java."""

STYLES = {REPRODUCED: "green", FITTED: "cyan", DERIVED: "dim", REFUTED: "yellow", DIFFERS: "bold red"}


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Experiments such as vcube-ps/fig-5.8a, or systems such as vcube-ps; default all."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All experiments; the same as no name.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Say which experiments there are and stop.")] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Show every published number beside the reports in DIR, and stop.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="Leave out measurements that need more nodes.")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option("--repetitions", metavar="R", min=1, help="How often every simulation is repeated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same numbers.")] = 1,
    full: Annotated[bool, typer.Option("--full", help="All published sizes and repetitions; takes long.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where measurements and reports go.")] = Path(
        "reproduced"
    ),
    master: Master = None,
    cores: Cores = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write a page with figures here, and tables beside it."),
    ] = None,
    on_spark: Annotated[
        bool | None,
        typer.Option(
            "--on-spark/--in-process",
            help="Run on Spark, or here, one after the other, without Java; default here if it takes under "
            f"{SMALL_SECONDS:.0f} s and neither --master nor --cores is given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run published experiments and print measured against published, with a verdict for every number.

    [green]reproduced[/]: in the interval that the document and the spread over repetitions justify.
    [cyan]fitted[/]: the same, but a free parameter was chosen with the number in sight: no evidence.
    derived: the same, but it follows from inputs or by counting: no evidence.
    [yellow]refuted[/]: outside, and a check that ran shows which statement of the document is inconsistent.
    [red]differs[/]: outside and not understood, or a promise was broken; the exit code is then 1, and also if an
    experiment fails. Fewer than three repetitions get no verdict.

    All measurements of all experiments are one job. One that was stopped goes on where it stopped: finished
    measurements are kept in DIR/measurements, and each experiment leaves its report in DIR/reports.
    """
    from antiphon_lab.reproduction.job import Reproduction
    from antiphon_lab.reproduction.registry import find

    if every and names:
        raise UsageError(f"--all is all experiments; leave it out, or leave out {', '.join(names)}")
    if on_spark is False and (master or cores):
        raise UsageError("--in-process uses no Spark; leave it out, or leave out --master and --cores")
    chosen = find(names or [])
    if list_only:
        show_list(chosen, json)
        return
    if ledger:
        from antiphon_lab.cli.reproduce_ledger import show_ledger

        show_ledger(out, json)
        return
    output.warn_if_not_compiled()
    wanted = [(experiment, experiment.plan(full, nodes, repetitions)) for experiment in chosen]
    reproduction = Reproduction(wanted, seed, out)
    kept = len(reproduction.job.records)
    found = run(reproduction, spark_options(on_spark, master, cores, reproduction), json)
    reports = [one for one in found if isinstance(one, Report)]
    failures = [one for one in found if not isinstance(one, Report)]
    if report is not None:
        from antiphon_lab.report.write import write_reports

        write_reports(reports, report)
    if json:
        failed = {failure.name: failure.reason for failure in failures}
        experiments = [report.as_json() for report in reports]
        output.print_json({"experiments": experiments, "failed": failed, "out": str(out)})
    else:
        show_places(reproduction, kept)
    if failures or any(report.differs for report in reports):
        raise typer.Exit(1)


def spark_options(
    on_spark: bool | None, master: str | None, cores: int | None, reproduction: Reproduction
) -> SessionOptions | None:
    """The options of Spark; None if it is not used."""
    from antiphon.pipeline.session import SessionOptions

    if on_spark is None:
        on_spark = bool(master or cores) or reproduction.expected_seconds() >= SMALL_SECONDS
    return SessionOptions(master=master, cores=cores, brief=True) if on_spark else None


def run(reproduction: Reproduction, options: SessionOptions | None, json: bool) -> list[Report | Failure]:
    """Run everything and show each experiment as soon as it is complete; the answer is in the order of the registry."""
    from antiphon.pipeline import jobs
    from antiphon.pipeline.atomic_output import directory_held

    job = reproduction.job
    found: list[Report | Failure] = []

    def look(steps: output.Steps) -> None:
        for one in reproduction.complete():
            found.append(one)
            with steps.aside():
                tell(one, json)

    def work(watch: Watcher) -> None:
        watch(len(job.records), 0)
        if options is None:
            jobs.run_here(job, watch)
        else:
            jobs.run_job(job, options, watch)

    with directory_held(job.out):
        run_with_progress(job, "reproduce", work, look)
    order = {name: position for position, name in enumerate(reproduction.names)}
    return sorted(found, key=lambda one: order[one.name])


def tell(one: Report | Failure, json: bool) -> None:
    """Show the result of an experiment; programs get all reports at the end."""
    if not isinstance(one, Report):
        output.complain(f"{one.name} failed: {one.reason}")
    elif not json:
        show(one)


def show_places(reproduction: Reproduction, kept: int) -> None:
    """Print the number of measurements and their directory."""
    from antiphon_lab.reproduction.job import REPORTS
    from antiphon_lab.reproduction.measurements import MEASUREMENTS

    job = reproduction.job
    spent = sum(record.processor_seconds for record in job.records.values())
    output.console.print(
        f"\n{len(job.records) - kept:,} measurements run, {kept:,} finished before, {len(job.failures):,} failed; "
        f"together they took {spent:,.1f} s of processor time"
    )
    places = f"reports: {job.out / REPORTS}; measurements: {job.out / MEASUREMENTS}"
    output.console.print(places, markup=False, soft_wrap=True)


def show_list(experiments: list[Experiment[Any, Any]], json: bool) -> None:
    """Name, place and description of every experiment."""
    if json:
        keys = ("name", "document", "description")
        output.print_json({"experiments": [{key: getattr(one, key) for key in keys} for one in experiments]})
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "document", "what is compared"):
        table.add_column(heading, no_wrap=heading == "name")
    for experiment in experiments:
        table.add_row(experiment.name, experiment.document, experiment.description)
    output.console.print(table)


def show(report: Report) -> None:
    """One report for people."""
    output.console.print(f"\n[bold]{report.name}[/]  {report.document}  [dim]({report.seconds:.1f} s)[/]")
    output.console.print(rows_table(report.rows))
    for note in report.notes:
        output.console.print(f"- {note}", style="dim", markup=False)


def rows_table(rows: list[Row]) -> Table:
    """Measured against published, one line per row; ± is half of the 95 % confidence interval of the mean."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("published", "measured", "±", "interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        verdict = row.verdict or ""
        table.add_row(
            row.label,
            "" if row.published is None else f"{row.published.value:g}",
            shown(row.measured.mean),
            "" if row.confidence is None else shown(row.confidence),
            interval_text(row),
            row.unit,
            f"[{STYLES[verdict]}]{verdict}[/]" if verdict else "",
        )
    return table


def interval_text(row: Row) -> str:
    """The interval in which the mean must lie."""
    if row.published is None:
        return ""
    low, high = accepted(row.published, row.measured.values)
    if high == inf:
        return f"> {shown(low)}"
    if row.published.interval.side == "below":
        return f"< {shown(high)}"
    return shown(low) if low == high else f"{shown(low)} to {shown(high)}"
