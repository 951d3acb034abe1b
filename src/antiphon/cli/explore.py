"""``antiphon explore``: follows every schedule of small systems in which a node crashes, at every step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.kernel.errors import UsageError
from antiphon.simulator.explore.systems import SMALL_SYSTEMS, Explored, explore_lasting, failures_of


def explore(
    only: Annotated[
        str, typer.Option("--only", metavar="WORDS", help="Only systems whose name has these words; default all.")
    ] = "",
    states: Annotated[
        int, typer.Option("--states", metavar="N", min=1, help="The most states to visit per system.")
    ] = 20_000,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="R", min=0, help="How often the timer of each node expires.")
    ] = 2,
    early_timers: Annotated[
        int,
        typer.Option(
            "--early-timers", metavar="T", min=0, help="How many timers may expire while messages are in transit."
        ),
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Follow every schedule of the fault-tolerant cube with two and three nodes, one of which crashes at every step.

    The node fails for good, or restarts with its log. If a schedule breaks a promise, it is printed, and the exit code
    is 1.
    """
    systems = [system for system in SMALL_SYSTEMS if only in system.name]
    if not systems:
        raise UsageError(f"no system is called {only!r}; there are {', '.join(each.name for each in SMALL_SYSTEMS)}")
    planned = [(system, failure) for system in systems for failure in failures_of(system, rounds, early_timers)]
    found: list[Explored] = []
    with output.progress("explore", len(planned)) as steps:
        for system, failure in planned:
            found.append(explore_lasting(system, failure, states))
            steps.step(f"{system.name}, node {failure.node}: {found[-1].states:,} states")
    if json:
        output.print_json({"explorations": found})
    else:
        show(found)
    if any(one.violation is not None for one in found):
        raise typer.Exit(1)


def show(found: list[Explored]) -> None:
    """Print the table for people, and the schedules that break a promise."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("node", "fails", "states", "steps", "ends", "seconds", "all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        fails = "and returns" if one.returns else "for good"
        figures = (f"{one.states:,}", f"{one.transitions:,}", f"{one.ends:,}", f"{one.seconds:.1f}")
        table.add_row(one.system, str(one.failing), fails, *figures, "yes" if one.exhausted else "no")
    output.console.print(table)
    for one in found:
        if one.violation is not None:
            output.console.print(f"{one.system}, node {one.failing}: {one.violation}", markup=False, soft_wrap=True)
            output.console.print("\n".join(one.schedule), markup=False, soft_wrap=True)
