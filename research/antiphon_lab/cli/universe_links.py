"""``antiphon universe links``: how many links the processes of a universe need, with and without StaN."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from antiphon.cli import output
from antiphon.cli.jobs import Cores, Master, interruptible
from antiphon.kernel.errors import UsageError
from antiphon_lab.cli.universe import Json, app, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LinksSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the processes that subscribe to anything."""

    processes: int
    topics: int
    subscriptions: int
    logical: float
    """Entries of all views of a process."""
    initial: float
    """Different neighbours while views are random."""
    aligned: float
    """Different neighbours when StaN has come to rest."""
    factor: float
    over_40_percent: float
    """The percentage of processes that save more than 40 % of their physical links."""
    seconds: float


@app.command("links")
def links(
    directory: Annotated[Path, typer.Argument(metavar="UNIVERSE", help="A universe.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the links of every process as Parquet.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Decides random views and weights.")] = 1,
    master: Master = None,
    cores: Cores = None,
    json: Json = False,
) -> None:
    """Compute how many links every process needs: one per topic and neighbour, or fewer with StaN.

    This is where StaN ends, computed directly and not simulated, for universes of any size.

    Example: [bold]antiphon universe links w8 -o w8-links[/]
    """
    from antiphon_lab.universes.files import SUBSCRIPTIONS, read_about
    from antiphon_lab.universes.jobs import claim, removed_if_broken
    from antiphon_lab.universes.stan_job import stan_links

    about = read_about(directory)
    if about.subscriptions == 0:
        raise UsageError(f"the universe in {directory} has no subscriptions; make another one")
    if out is not None:
        claim(out)
    begun = time.perf_counter()
    with (
        nullcontext() if out is None else removed_if_broken(out),
        running("universe links", 2, master, cores) as (session, steps),
    ):

        def compute() -> dict[str, float]:
            pairs = session.read.parquet(str(directory / SUBSCRIPTIONS))
            found = stan_links(session, pairs, about.processes, about.topics, seed, seed)
            steps.step("topics are with all workers")
            if out is not None:
                # The directory is there, and empty.
                found.write.mode("append").parquet(str(out))
                found = session.read.parquet(str(out))
            return means_of(found)

        means = interruptible(compute)
        steps.step("computed")
    summary = LinksSummary(
        processes=about.processes,
        topics=about.topics,
        subscriptions=about.subscriptions,
        seconds=time.perf_counter() - begun,
        **means,
    )
    if json:
        output.print_json(msgspec.to_builtins(summary))
        return
    output.console.print(
        f"{summary.logical:.1f} logical links per process on {summary.initial:.1f} physical ones, "
        f"{summary.aligned:.1f} with StaN: {summary.factor:.2f} times fewer; "
        f"{summary.over_40_percent:.0f} % of the processes save over 40 % ({summary.seconds:.1f} s)"
    )


def means_of(found: DataFrame) -> dict[str, float]:
    """The means of the summary of links."""
    from pyspark.sql import functions as f

    saves = (f.col("aligned") < 0.6 * f.col("initial")).cast("double")
    row = found.agg(
        f.avg("logical").alias("logical"),
        f.avg("initial").alias("initial"),
        f.avg("aligned").alias("aligned"),
        (f.sum("initial") / f.sum("aligned")).alias("factor"),
        (100 * f.avg(saves)).alias("over_40_percent"),
    ).first()
    assert row is not None, "an aggregate has a row"
    return {name: float(value) for name, value in row.asDict().items()}
