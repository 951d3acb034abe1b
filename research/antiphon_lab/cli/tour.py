"""The laboratory's part of ``antiphon demo``: a simulation, a tree, and a published figure measured again."""

from __future__ import annotations

from rich.table import Table
from rich.tree import Tree

from antiphon.cli import output
from antiphon.cli.demo.command import Stage, Tour
from antiphon_lab.cli.reproduce import rows_table


def show_broadcast(tour: Tour) -> None:
    """64 nodes publish over a network that lets messages overtake each other; causal order is kept."""
    from antiphon_lab.experiments.vcube.causal_room import run_room

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
    from antiphon_lab.report.pictures import Branch, published_trees_svg, tree_of

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
    from antiphon_lab.experiments.vcube.broadcasts import SRPT, VCUBE_PS, BroadcastCase
    from antiphon_lab.experiments.vcube.several_publishers import FIG_5_8A, SHORT_TICKS

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
        one, many = (latency[f"latency, {BroadcastCase(trees, nodes, 100, SHORT_TICKS)}"] for trees in (SRPT, VCUBE_PS))
        table.add_row(str(nodes), f"{one:.0f}", f"{many:.0f}", f"{one / many:.2f}")
    output.console.print(table)
    tour.say("What the text of the thesis says about it, and what was measured just now:")
    output.console.print(rows_table([row for row in report.rows if row.published is not None]))


STAGES: tuple[Stage, ...] = (
    ("A broadcast in causal order, simulated", show_broadcast),
    ("One tree", show_tree),
    ("Measured against published", show_comparison),
)
