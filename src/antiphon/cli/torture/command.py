"""``antiphon torture``: random schedules by the thousand, an independent judge, and failures made small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.jobs import Master
from antiphon.kernel.errors import UsageError

LARGEST_SEED = (1 << 62) - 1


def torture(
    fabric: Annotated[
        str | None,
        typer.Option(
            help="How publications travel: all, cube, cube-faults, gossip, epto or tree. All if not given; with --live "
            "or --hostile cube.",
            show_default=False,
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="none, fifo, causal, total or mixed; drawn for each schedule if not given.", show_default=False
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many schedules are run.")] = 1000,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=LARGEST_SEED,
            metavar="S",
            help="The seed of the first; the others follow. 1 if not given.",
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw the first seed, far from all that were run before, and print it.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that share the work; one per core if not given.", show_default=False),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where results and scenario files of failures are written.")
    ] = Path(),
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Let Spark share the work; what was cut off goes on with the same command. With --live: let Spark "
            "judge, as it does by itself what is large.",
        ),
    ] = False,
    master: Master = None,
    live: Annotated[
        bool, typer.Option("--live", help="Real nodes in processes, to which faults happen and are healed.")
    ] = False,
    hostile: Annotated[
        bool, typer.Option("--hostile", help="Real nodes that get changed recordings from strangers and clients.")
    ] = False,
    inputs: Annotated[int, typer.Option(min=1, metavar="N", help="With --hostile: how many inputs.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="With --live: faults happen for so long.")] = 60.0,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, metavar="M", help="The same in minutes.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option(min=4, max=64, metavar="N", help="With --live: how many nodes.")] = 8,
    overload: Annotated[
        bool, typer.Option("--overload", help="With --live: no faults, but ten times what the cluster sustains.")
    ] = False,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="With --live: kill, half, power, wipe, restart, roll, pause, stall, cut, oneway, flap, hold, burst, "
            "delay, disk, slow, crowd; "
            "or loss, for rounds in which nodes are lost for good. Those that the fabric survives, if not given.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="With --live: messages per second at each node.")
    ] = 20.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --live: keep what was written down, for antiphon audit.")
    ] = False,
    without_logs: Annotated[
        bool, typer.Option("--without-logs", help="With --live: nodes keep nothing on disk, so slow subscribers block.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Torture every fabric with random schedules, and let an oracle that knows no protocol judge each of them.

    A seed draws fabric, order, sizes, workload and faults. Members join, leave and publish at the worst moments while
    networks fall apart, nodes crash and return, copies are lost, late or doubled. Whatever the fabric promises must
    hold; in the end all is healed, and nothing may be lost, doubled, out of order or stuck. The same seeds give the
    same schedules and the same findings, however the work is shared. If a promise is broken the exit code is 1, and
    the schedule is made as small as possible and written as a scenario file that [bold]antiphon simulate[/] replays,
    with a trace to read.

    Examples: [bold]antiphon torture --seeds 10000 --order causal[/]    [bold]antiphon torture --live --fabric tree[/]
    """
    if hostile:
        from antiphon.cli.torture.hostile import torture_hostile

        torture_hostile(fabric or "cube", inputs, seed_of(seed, fresh), json)
        return
    if live:
        from antiphon.cli.torture.live import Wishes, torture_live

        long = seconds if minutes is None else 60 * minutes
        wishes = Wishes(
            fabric or "cube",
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
        )
        if overload:
            from antiphon.cli.torture.overload import torture_by_overload

            torture_by_overload(wishes)
        else:
            torture_live(wishes)
        return
    from antiphon.cli.torture.simulated import Asked, torture_simulated

    torture_simulated(Asked(fabric or "all", order, seeds, seed, fresh, jobs, out, spark, master, json))


def seed_of(seed: int | None, fresh: bool) -> int:
    """The seed of a live campaign."""
    if not fresh:
        return 1 if seed is None else seed
    if seed is not None:
        raise UsageError("--fresh draws the seed; leave out --seed, or --fresh")
    from antiphon.torture.progress import fresh_seed

    return fresh_seed(Path(), 1)
