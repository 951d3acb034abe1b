"""``antiphon demo``: the tour of the system, in stages.

A stage is a function that gets a :class:`Tour` and prints. The laboratory adds stages about simulations and published
experiments (:mod:`antiphon.plugins`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from antiphon.cli import output
from antiphon.cli.audit import show as show_audit
from antiphon.kernel.errors import PeerError
from antiphon.plugins import LABORATORY, TOUR, plugins


@dataclass(frozen=True)
class Tour:
    """The argument of every stage: the output directory, and the seed."""

    directory: Path
    seed: int

    def say(self, text: str) -> None:
        """Print a paragraph."""
        output.console.print(text)

    def write(self, name: str, text: str) -> Path:
        """Write a file for the reader to open."""
        path = self.directory / name
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PeerError(
                f"cannot write {path}: {error.strerror or error}; choose another place with --out"
            ) from error
        return path


def show_cluster(tour: Tour) -> None:
    """Four processes on loopback: a question, its answer, traffic among all, and the audit of their traces."""
    from antiphon.audit.report import CLEAN
    from antiphon.cli.demo.cluster import run_cluster

    story = run_cluster()
    tour.say(
        f"{len(story.addresses)} processes became a cluster in {story.start_seconds:.1f} seconds: "
        f"{', '.join(story.addresses)}.\nNode 0 asked, node 1 answered what it had heard, and at node 2 came:"
    )
    for line in story.conversation:
        output.console.print(f"  {line}", markup=False)
    tour.say(
        f"Then everybody published to everybody, in causal order: {story.deliveries:,} deliveries in "
        f"{story.traffic_seconds:.2f} seconds, {story.deliveries / story.traffic_seconds:,.0f} per second, with all "
        "publishers and subscribers in one process. All left, and an independent judge read the traces of all nodes:"
    )
    show_audit(story.audit)
    if story.audit.verdict != CLEAN:
        raise PeerError("the live cluster broke a promise; please report this with the lines above")


def show_spark(tour: Tour) -> None:
    """A live topic, averages over windows in Spark, and a topic with the results; the last batch is run twice."""
    if find_spec("pyspark") is None:
        tour.say("Apache Spark is not installed; with `pip install 'antiphon[spark]'` the tour has one stage more.")
        return
    from antiphon.cli.demo.spark import run_windows

    story = run_windows()
    tour.say(
        f"Two thermometers published {story.readings} readings on a topic. Spark started in {story.start_seconds:.1f} "
        f"seconds, read the topic, and published averages over 20 seconds on another in {story.query_seconds:.1f}:"
    )
    for line in story.results:
        output.console.print(f"  {line}", markup=False)
    tour.say(
        f"Then Spark lost the note that batch {story.again} was done, and did it again. Every node knows the rows by "
        f"query, batch and partition: there were {len(story.results)} results, and there are {story.results_after}."
    )
    if story.results_after != len(story.results):
        raise PeerError("results were lost or published twice; please report this with the lines above")


def show_next(_: Tour) -> None:
    """Print what to try next."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("[bold]antiphon up -n 4[/]", "a cluster of your own, for antiphon pub, sub and top")
    table.add_row("[bold]antiphon torture --seeds 200[/]", "try to break it: random schedules with faults, judged")
    table.add_row("[bold]antiphon reproduce --list[/]", f"which published experiments can be run ({LABORATORY})")
    table.add_row("[bold]antiphon --help[/]", "everything else")
    output.console.print(table)


Stage = tuple[str, Callable[[Tour], None]]

FIRST: tuple[Stage, ...] = (
    ("A cluster of four processes", show_cluster),
    ("From a topic through Spark to a topic", show_spark),
)
LAST: Stage = ("What to try next", show_next)


def stages() -> list[Stage]:
    """The stages of the tour, those of other distributions included."""
    return [*FIRST, *(stage for more in plugins(TOUR).values() for stage in more), LAST]


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIRECTORY", help="Where pictures are written.")] = Path("out"),
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed tells the same story.")] = 1,
) -> None:
    """The tour: what the system does, in less than two minutes."""
    output.warn_if_not_compiled()
    tour = Tour(out, seed)
    started = time.perf_counter()
    for number, (title, stage) in enumerate(stages(), 1):
        output.console.print(f"\n[bold cyan]{number}. {title}[/]")
        stage(tour)
    output.console.print(f"\n[dim]The tour took {time.perf_counter() - started:.1f} seconds.[/]")
