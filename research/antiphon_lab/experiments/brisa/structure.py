"""The structures of BRISA: Figures 4.7 to 4.9 of the thesis of M. Matos."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, cos, pi, sin

import numpy as np

from antiphon_lab.experiments.brisa.model import MODEL, StreamCase, StreamMeasures, measure, numbers_of
from antiphon_lab.report.pictures import Branch, layout
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Plan,
    Results,
    Row,
    Sample,
    counted,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Refutation

Found = Results[StreamCase, StreamMeasures]
Values = Callable[[StreamMeasures], np.ndarray]
Quantity = Callable[[StreamMeasures], float]

PROCESSES = 512
FULL_MESSAGES = 500
FEW_MESSAGES = 50
VIEWS = (4, 8)
TREE, GRAPH = 1, 2
SHAPES = tuple((view, parents) for parents in (TREE, GRAPH) for view in VIEWS)


def messages_of(plan: Plan) -> int:
    """How long a stream is; the shape of a structure does not depend on it."""
    return FULL_MESSAGES if plan.full else FEW_MESSAGES


def at_full_size(plan: Plan) -> bool:
    """Whether the system is as large as the published one."""
    return max(plan.sizes) == PROCESSES


def links(found: StreamMeasures) -> np.ndarray:
    """The neighbours of each node."""
    return found.links


def duplicates(found: StreamMeasures) -> np.ndarray:
    """Copies too many at each node, per publication."""
    return found.duplicates


def depth(found: StreamMeasures) -> np.ndarray:
    """The depth of each node."""
    return found.depth


def children(found: StreamMeasures) -> np.ndarray:
    """The children of each node."""
    return np.asarray(found.children[0])


def mean(values: Values) -> Quantity:
    """The mean over the nodes."""
    return lambda found: float(values(found).mean())


def share_above(values: Values, border: float) -> Quantity:
    """The share of nodes with more, in percent."""
    return lambda found: float(100 * np.mean(values(found) > border))


def share_at(values: Values, at: float) -> Quantity:
    """The share of nodes with exactly so much, in percent."""
    return lambda found: float(100 * np.mean(values(found) == at))


def share_up_to(values: Values, border: float) -> Quantity:
    """The share of nodes with no more, in percent."""
    return lambda found: float(100 * np.mean(values(found) <= border))


def curve(
    results: Found, case: StreamCase, values: Values, share: Callable[[Values, float], Quantity]
) -> tuple[Point, ...]:
    """Shares of the nodes at every whole number."""
    most = max(ceil(values(found).max(initial=0)) for found in results.of(case))
    return tuple(results.sample(case, share(values, at)).point(at) for at in range(most + 1))


def complete(cases: list[StreamCase], results: Found) -> Row:
    """Every node gets everything, in all runs."""
    missing = sum(found.missing for case in cases for found in results.of(case))
    return promised("deliveries that are missing, all runs", [missing], "deliveries")


# Figures 4.7 and 4.8.


def shape_cases(plan: Plan) -> list[StreamCase]:
    """Trees and graphs over two sizes of views."""
    return [StreamCase(max(plan.sizes), messages_of(plan), view, parents) for view, parents in SHAPES]


def deepest(found: StreamMeasures) -> float:
    """The depth of the deepest node."""
    return float(found.depth.max())


def shortest(found: StreamMeasures) -> float:
    """The mean of the shortest ways."""
    return found.shortest


def leaves(found: StreamMeasures) -> float:
    """Nodes without children, in percent."""
    return float(100 * np.mean(found.children[0] == 0))


def placed(cases: list[StreamCase], results: Found) -> Iterator[Row]:
    """The necessary properties of every structure."""
    nowhere = sum(int(np.count_nonzero(found.depth < 0)) for case in cases for found in results.of(case))
    yield promised("processes on a cycle or without a way from the source, all runs", [nowhere], "processes")
    for case in cases:
        if case.parents == TREE:
            # A link that has just come is in use until the next message shows that it is one too many.
            steady = tuple(float(found.active_links) for found in results.of(case) if found.last_links >= 0)
            if steady:
                says = "a tree has one link less than processes"
                yield counted(f"links in use, {name_of(case)}", Sample(steady), case.nodes - 1, "links", says)
        else:
            yield Row(f"processes with two parents, {name_of(case)}", "%", results.sample(case, two_parents))
            unserved = results.sample(case, lambda found: float(found.unserved))
            yield Row(f"processes that lack a parent they could have, {name_of(case)}", "processes", unserved)


def two_parents(found: StreamMeasures) -> float:
    """Of all nodes but the source, those with as many parents as wanted, in percent."""
    return float(100 * np.mean(found.parents[found.others] == GRAPH))


def name_of(case: StreamCase) -> str:
    """A shape in few words."""
    text = f"{'tree' if case.parents == TREE else 'DAG'}, view {case.active}"
    return text if case.strategy == "first-come" else f"{text}, {case.strategy}"


def pair_ratios(
    cases: list[StreamCase], results: Found, quantity: Quantity, by_view: bool, deeper_first: bool
) -> Iterator[tuple[str, Sample]]:
    """Each pair of shapes that differ in the view, or in the number of parents, as the ratio of a quantity."""
    small, large = VIEWS
    for one in cases:
        if (one.active != small) if by_view else (one.parents != TREE):
            continue
        other = next(
            each
            for each in cases
            if (each.active, each.parents) == ((large, one.parents) if by_view else (one.active, GRAPH))
        )
        first, second = (one, other) if deeper_first else (other, one)
        ratio = results.sample(first, quantity).over(results.sample(second, quantity))
        yield f"{name_of(first)} against {name_of(second)}", ratio


def compare_depths(plan: Plan, results: Found) -> Iterator[Finding]:
    """How deep structures are."""
    numbers = numbers_of("fig-4.7")
    cases = shape_cases(plan)
    yield complete(cases, results)
    yield from placed(cases, results)
    for case in cases:
        yield Row(f"largest depth, {name_of(case)}", "hops", results.sample(case, deepest))
        yield Row(f"mean depth, {name_of(case)}", "hops", results.sample(case, mean(depth)))
    published = at_full_size(plan)
    for case in cases:
        yield Row(f"mean of the shortest ways, {name_of(case)}", "hops", results.sample(case, shortest))
    nearer = dict(pair_ratios(cases, results, shortest, True, True))
    for pair, ratio in pair_ratios(cases, results, deepest, True, True):
        why = Refutation(
            "that larger views make DAGs shallower where depth is the longest way",
            "with a larger view more processes find a second parent of their own depth, and each of them moves down, "
            f"with all below it; the shortest ways do become {nearer[pair].mean:.3f} times shorter",
            nearer[pair].mean > 1 and pair.startswith("DAG"),
            0.6,
            1.1,
        )
        yield Row(f"largest depth, {pair}", "times", ratio, numbers["view"] if published else None, why)
    for pair, ratio in pair_ratios(cases, results, mean(depth), True, True):
        yield Row(f"mean depth, {pair}", "times", ratio)
    for pair, ratio in pair_ratios(cases, results, mean(depth), False, False):
        yield Row(f"mean depth, {pair}", "times", ratio, numbers["graph"] if published else None)
    series = [
        Series(
            name_of(case),
            "BRISA tree" if case.parents == TREE else "BRISA DAG",
            curve(results, case, depth, share_at),
            "line",
            VIEWS.index(case.active),
        )
        for case in cases
    ]
    yield Figure(
        "depth",
        f"Depth of processes, {cases[0].nodes} processes",
        Axis("depth", "hops"),
        Axis("share of the processes", "%"),
        tuple(series),
    )


def compare_degrees(plan: Plan, results: Found) -> Iterator[Finding]:
    """To how many others nodes send."""
    numbers = numbers_of("fig-4.8")
    cases = shape_cases(plan)
    yield complete(cases, results)
    for case in cases:
        yield Row(f"leaves, {name_of(case)}", "%", results.sample(case, leaves))
        above = results.sample(case, share_above(children, case.active))
        yield Row(f"processes with more children than the view asks for, {name_of(case)}", "%", above)
        above = results.sample(case, share_above(links, case.active))
        yield Row(f"processes with more links than the view asks for, {name_of(case)}", "%", above)
    published = at_full_size(plan)
    for pair, ratio in pair_ratios(cases, results, leaves, True, False):
        yield Row(f"leaves, {pair}", "times", ratio, numbers["view"] if published else None)
    for pair, ratio in pair_ratios(cases, results, leaves, False, True):
        yield Row(f"leaves, {pair}", "times", ratio, numbers["graph"] if published else None)
    series = [
        Series(
            name_of(case),
            "BRISA tree" if case.parents == TREE else "BRISA DAG",
            curve(results, case, children, share_up_to),
            "steps",
            VIEWS.index(case.active),
        )
        for case in cases
    ]
    yield Figure(
        "degree",
        f"Children of processes, {cases[0].nodes} processes",
        Axis("children"),
        Axis("processes with no more", "%"),
        tuple(series),
        caption="Where a curve begins is the share of leaves.",
    )


# Figure 4.9.


def sample_cases(plan: Plan) -> list[StreamCase]:
    """Trees over views that may not grow."""
    return [StreamCase(max(plan.sizes), FEW_MESSAGES, view, expansion=1.0) for view in VIEWS]


def compare_samples(plan: Plan, results: Found) -> Iterator[Finding]:
    """Two trees as pictures, and how balanced they are."""
    cases = sample_cases(plan)
    yield complete(cases, results)
    yield from placed(cases, results)
    for case in cases:
        yield Row(f"largest depth, {name_of(case)}", "hops", results.sample(case, deepest))
        yield Row(f"leaves, {name_of(case)}", "%", results.sample(case, leaves))
    small, large = (results.sample(case, leaves) for case in cases)
    number = numbers_of("fig-4.9")["view"] if max(plan.sizes) == SAMPLE_PROCESSES else None
    yield Row("leaves, view 8 against view 4", "times", large.over(small), number)
    for case in cases:
        yield radial_figure(case, results.of(case)[0])


def radial_figure(case: StreamCase, found: StreamMeasures) -> Figure:
    """A tree around its root: leaves at equal angles, every other node in the middle of its children."""
    children_of: dict[int, list[int]] = {}
    for node, parent in enumerate(found.parent.tolist()):
        if parent >= 0:
            children_of.setdefault(parent, []).append(node)

    def branch(node: int) -> Branch:
        return Branch(node, tuple(branch(child) for child in children_of.get(node, ())))

    tree = branch(found.source)
    placed = layout(tree)
    turn = 2 * pi / (1 + max(node.column for node in placed))
    points = {
        node.identifier: Point(node.row * cos(turn * node.column), node.row * sin(turn * node.column))
        for node in placed
    }

    def walk(at: Branch) -> Iterator[Point]:
        yield points[at.identifier]
        for child in at.children:
            yield from walk(child)
            yield points[at.identifier]

    return Figure(
        f"tree-{case.active}",
        f"A tree of {case.nodes} processes, view {case.active}",
        Axis("hops from the source"),
        Axis("hops from the source"),
        (Series(f"view {case.active}", "BRISA tree", tuple(walk(tree))),),
        caption="The source is in the middle; every process is as far from it as it is deep.",
    )


SAMPLE_PROCESSES = 100
SMALL = Plan((PROCESSES,), repetitions=3, large_repetitions=3)
LARGE = Plan((PROCESSES,), repetitions=10, large_repetitions=10, full=True)

FIG_4_7: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.7",
    document="thesis of M. Matos, Figure 4.7",
    description="BRISA: how deep trees and DAGs are, views of 4 and 8, 512 processes",
    default=SMALL,
    full=LARGE,
    parameters={**MODEL, "messages": [FEW_MESSAGES, FULL_MESSAGES], "views": VIEWS, "parents": [TREE, GRAPH]},
    cases=shape_cases,
    measure=measure,
    compare=compare_depths,
    meaning="How far is the last process from the source? Structures that nobody plans are shallow: a few hops, fewer "
    "with larger views. In a graph the longest way counts, so it is deeper than a tree over the same views. No chain "
    "appears, although each process keeps whoever was first.",
)

FIG_4_8: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.8",
    document="thesis of M. Matos, Figure 4.8",
    description="BRISA: to how many others processes send, views of 4 and 8, 512 processes",
    default=SMALL,
    full=LARGE,
    parameters={**MODEL, "messages": [FEW_MESSAGES, FULL_MESSAGES], "views": VIEWS, "parents": [TREE, GRAPH]},
    cases=shape_cases,
    measure=measure,
    compare=compare_degrees,
    meaning="Who does the work? In a tree about half of all processes or more are leaves and send nothing, the more "
    "the larger the views are. With two parents for everybody twice as many links are used, and far fewer processes "
    "have nothing to do. Views may grow to twice their size, and yet few processes have more children than the view "
    "asks for.",
)

FIG_4_9: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.9",
    document="thesis of M. Matos, Figure 4.9",
    description="BRISA: two sample trees of 100 processes, views of 4 and 8 that may not grow",
    default=Plan((SAMPLE_PROCESSES,), repetitions=5, large_repetitions=5),
    full=Plan((SAMPLE_PROCESSES,), repetitions=20, large_repetitions=20, full=True),
    parameters={**MODEL, "messages": FEW_MESSAGES, "views": VIEWS, "expansion": 1},
    cases=sample_cases,
    measure=measure,
    compare=compare_samples,
    meaning="What does such a tree look like? Drawn around its source it fills the circle evenly: no long arm, no "
    "process that carries half of the system. A view of 8 makes it one or two hops shallower than a view of 4, and "
    "leaves more processes without children.",
)
