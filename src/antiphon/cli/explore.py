"""``antiphon explore``: follows every schedule of small systems in which a node crashes, at every step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES
from antiphon.simulator.explore.cluster_search import ClusterExploration, ClusterSearch
from antiphon.simulator.explore.cluster_world import NODES, ClusterSystem
from antiphon.simulator.explore.systems import SMALL_SYSTEMS, Explored, explore_lasting, failures_of


def explore(
    only: Annotated[
        str, typer.Option("--only", metavar="WORDS", help="Only systems whose name has these words; default all.")
    ] = "",
    clients: Annotated[
        bool,
        typer.Option("--clients", help="Instead: clusters of three whole nodes, with their membership and a client."),
    ] = False,
    fabric: Annotated[
        str, typer.Option("--fabric", metavar="F", help="With --clients: only this fabric; default all.")
    ] = "",
    script: Annotated[
        str,
        typer.Option(
            "--script",
            metavar="WORDS",
            help="With --clients: the client's actions, 'connect' and the orders of its messages; without 'connect' it "
            "is connected at the start.",
        ),
    ] = "causal",
    reorderings: Annotated[
        int,
        typer.Option(
            "--reorderings",
            metavar="K",
            min=0,
            help="With --clients: how often a message arrives at a node before one that was sent to it earlier.",
        ),
    ] = 1,
    all_orders: Annotated[bool, typer.Option("--all-orders", help="With --clients: no bound on reorderings.")] = False,
    returns: Annotated[
        bool, typer.Option("--returns", help="With --clients: the crashed node comes back, at every step.")
    ] = False,
    joins: Annotated[
        int,
        typer.Option(
            "--joins",
            metavar="J",
            min=0,
            max=NODES - 1,
            help="With --clients: so many of the nodes join during the exploration, and one of these crashes.",
        ),
    ] = 0,
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
    """Follow every schedule of small systems in which a node crashes at every step, and print the number of states.

    Without --clients: the fault-tolerant cube with two and three nodes. The node fails for good, or restarts with its
    log. With --clients: three whole nodes on each fabric, and a client that connects, subscribes, publishes and moves
    to another node. If a schedule breaks a promise, it is printed, and the exit code is 1.
    """
    if clients:
        clusters = client_systems(fabric, script, returns, joins)
        explore_clients(clusters, None if all_orders else reorderings, early_timers, states, json)
        return
    if fabric or all_orders or returns or joins:
        raise UsageError(
            "--fabric, --all-orders, --returns and --joins belong to --clients; add --clients, or leave them out"
        )
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
            show_schedule(f"{one.system}, node {one.failing}", one.violation, one.schedule)


def show_schedule(name: str, violation: str, schedule: tuple[str, ...]) -> None:
    """Print a schedule that breaks a promise."""
    output.console.print(f"{name}: {violation}", markup=False, soft_wrap=True)
    output.console.print("\n".join(schedule), markup=False, soft_wrap=True)


def client_systems(fabric: str, script: str, returns: bool, joins: int) -> list[ClusterSystem]:
    """A cluster for each fabric and each crashing node; node 0 is the client's first.

    Nodes that join have no log, so those that found the cluster stay, and the topic is at node 0 alone.
    """
    if fabric and fabric not in FABRICS:
        raise UsageError(f"there is no fabric {fabric!r}; choose one of {', '.join(FABRICS)}")
    actions = tuple(script.split())
    if not (actions or joins) or any(action not in ORDER_NAMES for action in actions[actions[:1] == ("connect",) :]):
        raise UsageError(f"--script {script!r}: write 'connect' or nothing, and then some of {', '.join(ORDER_NAMES)}")
    fabrics = [fabric] if fabric else list(FABRICS)
    joining = tuple(range(NODES - joins, NODES))
    members = (0,) if joins else tuple(range(NODES))
    return [
        ClusterSystem(each, actions, node, returns, members=members, joining=joining)
        for each in fabrics
        for node in joining or range(NODES)
    ]


def explore_clients(
    systems: list[ClusterSystem], reorderings: int | None, early_timers: int, states: int, json: bool
) -> None:
    """Explore clusters with a client."""
    found: list[ClusterExploration] = []
    with output.progress("explore", len(systems)) as steps:
        for system in systems:
            found.append(ClusterSearch(system, reorderings, early_timers, states).run())
            steps.step(f"{system.fabric}, node {system.crashing}: {found[-1].states:,} states")
    if json:
        output.print_json({"explorations": found, "states": sum(one.states for one in found)})
    else:
        show_clients(found, reorderings, early_timers)
    if any(one.violation is not None for one in found):
        raise typer.Exit(1)


def show_clients(found: list[ClusterExploration], reorderings: int | None, early_timers: int) -> None:
    """Print the table for people, the bounds, and the schedules that break a promise."""
    table = Table(box=None, pad_edge=False)
    table.add_column("fabric")
    for heading in ("node", "fails", "states", "steps", "ends", "longest", "waited", "seconds", "all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        fails = "and returns" if one.returns else "for good"
        figures = (f"{one.states:,}", f"{one.transitions:,}", f"{one.ends:,}", f"{one.longest:,}")
        times = (f"{one.waited_seconds:.1f} s", f"{one.seconds:.1f}")
        table.add_row(one.fabric, str(one.crashing), fails, *figures, *times, "yes" if one.exhausted else "no")
    output.console.print(table)
    bound = "in any order" if reorderings is None else f"in order but for {reorderings} of them"
    output.console.print(
        f"{sum(one.states for one in found):,} states; messages arrive {bound}; {early_timers} timers expire while "
        f"messages are in transit; the crash comes at every step",
        soft_wrap=True,
    )
    for one in found:
        if one.violation is not None:
            show_schedule(f"{one.fabric}, node {one.crashing}", one.violation, one.schedule)
