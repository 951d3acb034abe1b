"""``antiphon universe``: generates, extracts and inspects subscriptions of many processes to many topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.jobs import Cores, Master, interruptible, terminated_as_interrupted
from antiphon.cli.metrics import as_text
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from antiphon_lab.universes.files import About
    from antiphon_lab.universes.fits import Distribution
    from antiphon_lab.universes.jobs import Step
    from antiphon_lab.universes.source import Format, Source
    from antiphon_lab.universes.statistics import Statistics

app = typer.Typer(
    name="universe",
    help="Universes: who subscribes to what, for experiments on many topics; on Apache Spark.",
    no_args_is_help=True,
)

MOST_TOPICS = 300
BY_TOPIC, BY_PROCESS = "subscribers per topic", "subscriptions per process"
Columns = dict[str, dict[str, float | int | None]]
"""Distributions in a few numbers, by the counted quantity."""

SourcePath = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Subscriptions: an edge list (.txt), communities (.cmty.txt), a table (.csv, .tsv), Parquet, a universe.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Literal["edges", "communities", "csv", "tsv", "parquet"] | None,
    typer.Option("--format", help="How the source is to be read; default by its name.", show_default=False),
]
ProcessColumn = Annotated[
    str | None,
    typer.Option(
        "--process",
        metavar="COLUMN",
        help="The subscriber: a column by name, or by number from 1 in an edge list; default user, process, ... or 1.",
        show_default=False,
    ),
]
TopicColumn = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="COLUMN",
        help="The topic: a column by name, or by number from 1 in an edge list; default page, topic, ... or 2.",
        show_default=False,
    ),
]
Where = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="Only rows that meet this condition.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


@app.callback()
def universe() -> None:
    """Universes: who subscribes to what, for experiments on many topics; on Apache Spark."""


@contextmanager
def running(
    title: str, steps: int, master: str | None, cores: int | None
) -> Iterator[tuple[SparkSession, output.Steps]]:
    """A session for a command, with a bar."""
    from antiphon.pipeline.session import SessionOptions, spark_session

    try:
        with terminated_as_interrupted(), output.progress(title, steps) as bar:
            bar.reach(0, "starting Spark")
            with spark_session(f"antiphon {title}", SessionOptions(master=master, cores=cores)) as session:
                yield session, bar
    except KeyboardInterrupt as interrupt:
        output.complain("interrupted; nothing is left behind")
        raise typer.Exit(130) from interrupt


@app.command()
def make(
    source: SourcePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory for the universe.", show_default=False)],
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", help="The number of random topics to begin with; default all.", show_default=False
        ),
    ] = None,
    enlarge: Annotated[
        Literal["random", "own"],
        typer.Option(
            "--enlarge",
            help="What subscribers of the seeds add: a random topic of theirs (Wikipedia), or the topic that has their "
            "own name (LiveJournal).",
        ),
    ] = "random",
    members: Annotated[
        Literal["enlarged", "seeds"],
        typer.Option("--members", help="Processes are the subscribers of the enlarged set, or of the seeds alone."),
    ] = "enlarged",
    prune: Annotated[int, typer.Option("--prune", metavar="N", help="Drop topics with fewer subscribers.")] = 30,
    prune_by: Annotated[
        Literal["universe", "source"],
        typer.Option("--prune-by", help="Count subscribers in the universe, or in the whole source."),
    ] = "universe",
    candidates: Annotated[
        int, typer.Option("--candidates", metavar="N", help="Make so many, and keep the median.")
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The seed of all draws.")] = 1,
    process: ProcessColumn = None,
    topic: TopicColumn = None,
    where: Where = None,
    format_: FormatOption = None,
    master: Master = None,
    cores: Cores = None,
    json: Json = False,
) -> None:
    """Take a self-contained universe from raw subscriptions, by the method of the thesis of M. Matos (section 3.3.1).

    Random topics are drawn; their subscribers add topics; topics with few subscribers are dropped. This is done for a
    hundred candidates at once, of which the one with the median number of topics per process is kept. OUT has the
    subscriptions as Parquet, the names of processes and topics, and universe.json with all candidates.
    With [bold]--members seeds --prune-by source[/] universes are about as large as those of Table 3.1.

    Example: [bold]antiphon universe make soc-LiveJournal1.txt.gz lj --seeds 100 --enlarge own[/]

    Example: [bold]antiphon universe make revisions.csv.gz wp --process user --topic page --seeds 20[/]
    """
    from antiphon_lab.universes.jobs import STEPS_OF_MAKE
    from antiphon_lab.universes.jobs import make as make_universe
    from antiphon_lab.universes.method import Method

    method = Method(seeds, enlarge, members, prune_by, prune, candidates, seed)
    chosen = source_of(source, format_, process, topic, where)
    write(
        out,
        running("universe make", STEPS_OF_MAKE, master, cores),
        lambda session, step: make_universe(session, chosen, method, out, step),
        json,
    )


@app.command()
def generate(
    law: Annotated[
        Literal["wikipedia", "livejournal"],
        typer.Argument(metavar="LAW", help="wikipedia or livejournal.", show_default=False),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory for the universe.", show_default=False)],
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", metavar="N", help="Default 1381 (wikipedia), 4689 (livejournal).", show_default=False
        ),
    ] = None,
    topics: Annotated[
        int | None,
        typer.Option("--topics", metavar="N", help="Default as many per process as in Table 3.1.", show_default=False),
    ] = None,
    least: Annotated[
        float | None,
        typer.Option(
            "--least", metavar="N", help="Subscribers of the least popular topics; default 30.", show_default=False
        ),
    ] = None,
    mix: Annotated[
        float | None,
        typer.Option(
            "--mix",
            metavar="SHARE",
            help="How likely a process of another community is to subscribe, beside one of the own; 1: no communities.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The seed of all draws.")] = 1,
    master: Master = None,
    cores: Cores = None,
    json: Json = False,
) -> None:
    """Draw a synthetic universe of any size: power laws of popularity and activity, and communities of interest.

    The laws are calibrated stand-ins for the universes W8 and L8 of the thesis of M. Matos, whose traces are not
    published. A larger universe has more communities of the same size. The same law and seed give the same universe,
    whatever the number of cores and machines.

    Example: [bold]antiphon universe generate livejournal lj --processes 301315 --topics 28904 --least 14[/]
    """
    from antiphon_lab.universes.jobs import STEPS_OF_GENERATE
    from antiphon_lab.universes.jobs import generate as generate_universe
    from antiphon_lab.universes.law import law_named

    chosen = law_named(law)
    if processes is not None or topics is not None:
        chosen = chosen.scaled(chosen.processes if processes is None else processes, topics)
    if least is not None:
        chosen = replace(chosen, least_popularity=least)
    if mix is not None:
        chosen = replace(chosen, mix=mix)
    write(
        out,
        running("universe generate", STEPS_OF_GENERATE, master, cores),
        lambda session, step: generate_universe(session, chosen, seed, out, step),
        json,
    )


@app.command()
def stats(
    source: SourcePath,
    page: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a page (.html) with figures and the heat map, or the heat map alone (.png).",
            show_default=False,
        ),
    ] = None,
    topics: Annotated[
        int, typer.Option("--topics", metavar="N", min=2, help="Topics in the heat map, drawn if there are more.")
    ] = MOST_TOPICS,
    process: ProcessColumn = None,
    topic: TopicColumn = None,
    where: Where = None,
    format_: FormatOption = None,
    master: Master = None,
    cores: Cores = None,
    json: Json = False,
) -> None:
    """Look at a universe, or at raw subscriptions: popularity, activity, fitted power laws, correlation of topics.

    Exponents are the most likely ones for the tail that a power law fits best. Correlation is Pearson's, of columns
    that have 1 where a process subscribes to a topic.

    Example: [bold]antiphon universe stats lj -o lj.html[/]
    """
    from antiphon_lab.universes.files import read_about
    from antiphon_lab.universes.source import distinct_pairs, format_of, read_names
    from antiphon_lab.universes.statistics import statistics_of

    if page is not None and page.suffix not in (".html", ".png"):
        raise UsageError(f"cannot write {page.name}: a page ends in .html and a picture in .png")
    chosen = source_of(source, format_, process, topic, where)
    known = read_about(Path(source)).processes if format_of(chosen) == "universe" else None
    with running("universe stats", 1, master, cores) as (session, steps):
        names = read_names(session, chosen)
        pairs = names if known is not None else distinct_pairs(names).cache()
        found = interruptible(lambda: statistics_of(pairs, known, topics))
        steps.step("looked at")
    if not found.subscriptions:
        raise UsageError("no row of the source has a process and a topic; check --process, --topic and --where")
    columns = columns_of(found)
    if page is not None:
        draw(found, columns, source, page)
    if json:
        output.print_json(in_plain(found, columns))
    else:
        show_statistics(found, columns, page)


def source_of(path: str, format_: Format | None, process: str | None, topic: str | None, where: str | None) -> Source:
    """The source of a command; refuses errors that can be found without Spark."""
    from antiphon_lab.universes.source import Source, check_there, format_of

    source = Source(path, format_, process, topic, where)
    check_there(source)
    format_of(source)
    return source


def write(
    out: Path,
    work: AbstractContextManager[tuple[SparkSession, output.Steps]],
    make: Callable[[SparkSession, Step], About],
    json: bool,
) -> None:
    """Write a universe into a new directory, which is removed if that fails, and print its summary."""
    from antiphon_lab.universes.jobs import claim, removed_if_broken

    claim(out)
    begun = time.perf_counter()
    with removed_if_broken(out), work as (session, steps):
        about = interruptible(lambda: make(session, steps.step))
    show(about, out, time.perf_counter() - begun, json)


def show(about: About, out: Path, seconds: float, json: bool) -> None:
    """Print a summary of the written universe."""
    if json:
        output.print_json({"out": str(out), "seconds": seconds, "universe": about})
        return
    output.console.print(
        f"{out}: {about.processes:,} processes, {about.topics:,} topics, {about.subscriptions:,} subscriptions "
        f"({seconds:.1f} s)"
    )
    if len(about.candidates) > 1:
        usable = sorted((one for one in about.candidates if one.processes), key=lambda one: one.ratio)
        output.console.print(
            f"median of {len(about.candidates)} candidates: {about.topics / about.processes:.4f} topics per process, "
            f"from {usable[0].ratio:.4f} to {usable[-1].ratio:.4f}"
        )
    if about.source.startswith("synthetic"):
        output.console.print("This is a synthetic stand-in and no trace.")


def draw(found: Statistics, columns: Columns, source: str, place: Path) -> None:
    """Write the page or the picture."""
    from antiphon_lab.report.universe_page import HeatMap, write_page, write_picture
    from antiphon_lab.universes.figures import tail_figure, tail_series

    correlation = found.correlation
    heat = None
    if correlation is not None:
        caption = (
            f"Correlation of {len(correlation.topics)} topics: white is none, black is full; similar ones are put side "
            f"by side. The mean is {correlation.mean:.3f}, with the most similar topic {correlation.mean_largest:.3f}."
        )
        heat = HeatMap(correlation.matrix, caption)
    if place.suffix == ".png":
        if heat is None:
            raise UsageError("a heat map needs at least two topics; the source has fewer")
        write_picture(heat, place)
        return
    figures = [
        tail_figure(
            "topics", "Subscribers per topic", "subscribers", [tail_series("topics", "wikipedia", found.popularity)]
        ),
        tail_figure(
            "processes",
            "Subscriptions per process",
            "subscriptions",
            [tail_series("processes", "livejournal", found.activity)],
        ),
    ]
    sizes = {"processes": found.processes, "topics": found.topics, "subscriptions": found.subscriptions}
    write_page(source, sizes, columns, figures, heat, place)


def described(distribution: Distribution) -> dict[str, float | int | None]:
    """A distribution in a few numbers."""
    fit = distribution.fit()
    return {
        "mean": distribution.mean,
        "median": distribution.median,
        "largest": distribution.largest,
        "share_below_mean": distribution.share_below_mean,
        "share_of_top_tenth": distribution.top_share,
        "exponent": None if fit is None else fit.exponent,
        "fitted_from": None if fit is None else fit.least,
        "distance": None if fit is None else fit.distance,
    }


def columns_of(found: Statistics) -> Columns:
    """Both distributions in a few numbers."""
    return {BY_TOPIC: described(found.popularity), BY_PROCESS: described(found.activity)}


def in_plain(found: Statistics, columns: Columns) -> dict[str, object]:
    """Statistics for machines."""
    correlation = found.correlation
    return {
        "processes": found.processes,
        "topics": found.topics,
        "subscriptions": found.subscriptions,
        "popularity": columns[BY_TOPIC],
        "activity": columns[BY_PROCESS],
        "correlation": None
        if correlation is None
        else {
            "topics": len(correlation.topics),
            "mean": correlation.mean,
            "mean_largest": correlation.mean_largest,
        },
    }


def show_statistics(found: Statistics, columns: Columns, page: Path | None) -> None:
    """Statistics for people."""
    output.console.print(
        f"{found.processes:,} processes, {found.topics:,} topics, {found.subscriptions:,} subscriptions"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for key in next(iter(columns.values())):
        values = [column[key] for column in columns.values()]
        table.add_row(key.replace("_", " "), *(as_text(value) for value in values))
    output.console.print(table)
    if found.correlation is not None:
        output.console.print(
            f"correlation of {len(found.correlation.topics)} topics: mean {found.correlation.mean:.3f}, with the most "
            f"similar topic {found.correlation.mean_largest:.3f}"
        )
    if page is not None:
        output.console.print(f"written: {page}")
