"""``antiphon reproduce``: run published experiments and put what is measured beside what was published."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.lab.experiment import DIFFERS, EXPLAINED, REPRODUCED, Experiment, Report, Row, shown

STYLES = {REPRODUCED: "green", EXPLAINED: "yellow", DIFFERS: "bold red"}


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Experiments such as vcube-ps/fig-5.8a, or systems such as vcube-ps; default all."
        ),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Say which experiments there are and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="Leave out what needs more nodes than this.")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option("--repetitions", metavar="R", min=1, help="How often every simulation is repeated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same numbers.")] = 1,
    full: Annotated[bool, typer.Option("--full", help="All published sizes and repetitions; takes long.")] = False,
) -> None:
    """Run published experiments and print measured against published, with a verdict for every number.

    [green]reproduced[/]: within the stated tolerance. [yellow]explained[/]: differs, and a note says why.
    [red]differs[/]: differs for no known reason; the exit code is then 1.
    """
    from antiphon.lab.registry import find

    chosen = find(names or [])
    if list_only:
        show_list(chosen, json)
        return
    output.warn_if_not_compiled()
    reports = []
    for experiment in chosen:
        plan = experiment.plan(full, nodes, repetitions)
        with output.progress(experiment.name, experiment.steps(plan)) as steps:
            reports.append(experiment.run(plan, seed, steps.step))
        if not json:
            show(reports[-1])
    if json:
        output.print_json({"experiments": [report.as_json() for report in reports]})
    if any(report.differs for report in reports):
        raise typer.Exit(1)


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
    """Measured against published, one line per row; ± is the standard deviation between repetitions."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("published", "measured", "±", "deviation"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        verdict = row.verdict or ""
        table.add_row(
            row.label,
            "" if row.published is None else f"{row.published.value:g}",
            shown(row.measured.mean),
            "" if row.measured.deviation is None else shown(row.measured.deviation),
            "" if row.deviation is None else f"{100 * row.deviation:+.1f} %",
            row.unit,
            f"[{STYLES[verdict]}]{verdict}[/]" if verdict else "",
        )
    return table
