"""``antiphon demo``: the tour of the system, in stages.

A stage is a function that gets a :class:`Tour` and prints. To add one, write it and put it into ``STAGES``.
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
from rich.tree import Tree

from antiphon.cli import output
from antiphon.cli.audit import show as show_audit
from antiphon.cli.reproduce import rows_table
from antiphon.kernel.errors import PeerError


@dataclass(frozen=True)
class Tour:
    """What every stage gets: where files go, and the seed."""

    directory: Path
    seed: int

    def say(self, text: str) -> None:
        """A paragraph."""
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
    from antiphon.cli.demo_cluster import run_cluster

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
    from antiphon.cli.demo_spark import run_windows

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


def show_broadcast(tour: Tour) -> None:
    """64 nodes publish over a network that lets messages overtake each other; causal order is kept."""
    from antiphon.lab.causal_room import run_room

    room = run_room(64, tour.seed)
    result = room.result
    tour.say(
        f"{result.nodes} nodes publish once each, over a network whose delays vary: messages overtake each other.\n"
        f"{result.sent:,} messages travelled. There were {result.deliveries:,} deliveries, {result.latency_mean:.0f} "
        f"ticks after publication on average. An independent judge looked at all of them: {room.findings}.\n"
        f"{result.held_total:,} times a publication came before something that its author had already heard, and had "
        f"to wait, at most {result.held_peak} at one node."
    )
    wait = room.longest_wait
    if wait is not None:
        tour.say(
            f"The longest wait: node {wait.node} got the publication of node {wait.source} at tick {wait.received} and "
            f"delivered it at tick {wait.delivered}, when that of node {wait.after} had arrived at last."
        )


def show_tree(tour: Tour) -> None:
    """The tree of one publisher, on the terminal and as a picture."""
    from antiphon.fabrics.cube import FullCube
    from antiphon.lab.pictures import Branch, published_trees_svg, tree_of

    def grow(tree: Tree, branch: Branch) -> Tree:
        for child in branch.children:
            grow(tree.add(str(child.identifier)), child)
        return tree

    root = tree_of(FullCube(4), 0)
    tour.say("How a publication of node 0 reaches 15 others in at most 4 hops; every publisher has its own such tree:")
    output.console.print(grow(Tree(f"[bold]{root.identifier}[/]"), root))
    path = tour.write("trees.svg", published_trees_svg())
    tour.say(f"The trees that the thesis prints as Figure 2.8 are in {path}.")


def show_comparison(tour: Tour) -> None:
    """One root for all against one tree per publisher, measured against published."""
    from antiphon.lab.broadcasts import MANY_TREES, ONE_TREE, Broadcasts
    from antiphon.lab.several_publishers import FIG_5_8A, SHORT_TICKS

    plan = FIG_5_8A.plan(full=False, node_limit=512, repetitions=3)
    with output.progress("simulating", FIG_5_8A.steps(plan)) as steps:
        report = FIG_5_8A.run(plan, tour.seed, steps.step)
    tour.say(
        f"{FIG_5_8A.document}: everybody publishes within 1000 ticks. With one root for all, the root becomes the "
        "bottleneck; with one tree per publisher nobody does. Mean latency in ticks:"
    )
    latency = {row.label: row.measured.mean for row in report.rows}
    table = Table(box=None, pad_edge=False)
    for heading in ("nodes", "one root", "one tree each", "ratio"):
        table.add_column(heading, justify="right")
    for nodes in plan.sizes:
        one, many = (
            latency[f"latency, {Broadcasts(trees, nodes, 100, SHORT_TICKS)}"] for trees in (ONE_TREE, MANY_TREES)
        )
        table.add_row(str(nodes), f"{one:.0f}", f"{many:.0f}", f"{one / many:.2f}")
    output.console.print(table)
    tour.say("What the text of the thesis says about it, and what was measured just now:")
    output.console.print(rows_table([row for row in report.rows if row.published is not None]))


def show_next(_: Tour) -> None:
    """What to try."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("[bold]antiphon up -n 4[/]", "a cluster of your own, for antiphon pub, sub and top")
    table.add_row("[bold]antiphon reproduce --list[/]", "which published experiments can be run")
    table.add_row("[bold]antiphon reproduce vcube-ps/table-5.1[/]", "one of them, measured against published")
    table.add_row("[bold]antiphon bench simulator[/]", "how fast the simulator is, and how fast SimPy is")
    table.add_row("[bold]antiphon --help[/]", "everything else")
    output.console.print(table)


STAGES: tuple[tuple[str, Callable[[Tour], None]], ...] = (
    ("A cluster of four processes", show_cluster),
    ("From a topic through Spark to a topic", show_spark),
    ("A broadcast in causal order, simulated", show_broadcast),
    ("One tree", show_tree),
    ("Measured against published", show_comparison),
    ("What to try next", show_next),
)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIRECTORY", help="Where pictures are written.")] = Path("out"),
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed tells the same story.")] = 1,
) -> None:
    """The tour: what the system does, in less than two minutes."""
    output.warn_if_not_compiled()
    tour = Tour(out, seed)
    started = time.perf_counter()
    for number, (title, stage) in enumerate(STAGES, 1):
        output.console.print(f"\n[bold cyan]{number}. {title}[/]")
        stage(tour)
    output.console.print(f"\n[dim]The tour took {time.perf_counter() - started:.1f} seconds.[/]")
