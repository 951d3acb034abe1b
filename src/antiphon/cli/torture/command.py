"""``antiphon torture``: runs random schedules by the thousand, with an independent judge, and shrinks failures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.jobs import Master
from antiphon.fabrics.registry import DEFAULT_FABRIC
from antiphon.kernel.errors import UsageError

LARGEST_SEED = (1 << 62) - 1


def torture(
    fabric: Annotated[
        str | None,
        typer.Option(
            help="all, cube, cube-faults, gossip, epto, tree, spaces: causal order across topics, membership: nodes "
            "that come and go, clients: clients that change their node, streams: histories and consumers, or services: "
            "replicas and callers. By default all; with --live or --hostile cube.",
            show_default=False,
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="none, fifo, causal, total or mixed; by default drawn for each schedule.", show_default=False
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="The number of schedules.")] = 1000,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=LARGEST_SEED,
            metavar="S",
            help="The seed of the first schedule; the others follow. By default 1.",
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw a first seed that was never run before, and print it.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="The number of processes; by default one per core.", show_default=False),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory for results and scenario files of failures.")
    ] = Path(),
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Run on Spark; the same command resumes an interrupted campaign. With --live: judge on Spark; large "
            "campaigns always are.",
        ),
    ] = False,
    master: Master = None,
    live: Annotated[bool, typer.Option("--live", help="Inject faults into real nodes, and heal them.")] = False,
    hostile: Annotated[
        bool,
        typer.Option(
            "--hostile",
            help="Attack real nodes: with changed recordings of connections, or, with --minutes, with clients that "
            "have a token and a node that lies.",
        ),
    ] = False,
    inputs: Annotated[int, typer.Option(min=1, metavar="N", help="With --hostile: the number of inputs.")] = 20_000,
    seconds: Annotated[
        float, typer.Option(min=1, metavar="S", help="With --live: the duration of the campaign.")
    ] = 60.0,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.05,
            metavar="M",
            help="With --live: the same in minutes. With --hostile: how long attackers with a token attack.",
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=4, max=64, metavar="N", help="With --live: the number of nodes.")] = 8,
    overload: Annotated[
        bool, typer.Option("--overload", help="With --live: no faults, but ten times the sustainable load.")
    ] = False,
    consumers: Annotated[
        bool,
        typer.Option(
            "--consumers", help="With --live: a history with consumers, while nodes and programs are killed and wiped."
        ),
    ] = False,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="With --live: kill, half, power, wipe, restart, roll, pause, stall, cut, oneway, flap, hold, burst, "
            "delay, disk, slow, crowd; "
            "or loss, for rounds in which nodes are lost for good. By default those that the fabric survives.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="With --live: messages per second at each node.")
    ] = 20.0,
    keep: Annotated[bool, typer.Option("--keep", help="With --live: keep all journals, for antiphon audit.")] = False,
    without_logs: Annotated[
        bool, typer.Option("--without-logs", help="With --live: nodes keep nothing on disk, so slow subscribers block.")
    ] = False,
    other_version: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="With --live: the directory of another version of the package; each node runs it after every other "
            "start.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Torture every fabric with random schedules, and let an oracle that knows no protocol judge each of them.

    A seed draws fabric, order, sizes, workload and faults. Members join, leave and publish at the worst moments while
    networks split, nodes crash and restart, and copies are lost, late or duplicated. Every promise of the fabric must
    hold; in the end all faults are healed, and nothing may be lost, duplicated, out of order or stuck. The same seeds
    give the same schedules and the same findings on any number of processes. If a promise is broken the exit code is 1,
    and the schedule is shrunk and written as a scenario file that [bold]antiphon simulate[/] replays, with a readable
    trace.

    Examples: [bold]antiphon torture --seeds 10000 --order causal[/]    [bold]antiphon torture --live --fabric tree[/]
    """
    if hostile:
        from antiphon.cli.torture.hostile import torture_by_tenants, torture_hostile

        if minutes is not None:
            torture_by_tenants(fabric or DEFAULT_FABRIC, 60 * minutes, seed_of(seed, fresh), json)
            return
        torture_hostile(fabric or DEFAULT_FABRIC, inputs, seed_of(seed, fresh), json)
        return
    if live:
        from antiphon.cli.torture.live import LiveOptions, torture_live

        long = seconds if minutes is None else 60 * minutes
        wishes = LiveOptions(
            fabric or DEFAULT_FABRIC,
            order,
            long,
            nodes,
            seed_of(seed, fresh),
            faults,
            rate,
            out,
            json,
            keep,
            spark,
            not without_logs,
            fresh,
            other_version,
        )
        if overload:
            from antiphon.cli.torture.overload import torture_by_overload

            torture_by_overload(wishes)
        elif consumers:
            from antiphon.cli.torture.consumers import torture_by_consumers

            torture_by_consumers(wishes)
        else:
            torture_live(wishes)
        return
    from antiphon.cli.torture.simulated import TortureOptions, torture_simulated

    asked = TortureOptions(fabric or "all", order, seeds, seed, fresh, jobs, out, spark, master, json)
    torture_simulated(asked)


def seed_of(seed: int | None, fresh: bool) -> int:
    """The seed of a live campaign."""
    if not fresh:
        return 1 if seed is None else seed
    if seed is not None:
        raise UsageError("--fresh draws the seed; leave out --seed, or --fresh")
    from antiphon.torture.progress import fresh_seed

    return fresh_seed(Path(), 1)
