"""One tree against many: Figure 2.9 of the thesis, repeated as its Figure 4.8 and as Figure 1 of the ICPP paper.

It cites the SBAC-PAD paper, so the systems are VCube-PS and a single root per topic. All nodes broadcast. With one tree
for all, the root has ``N log2 N`` copies to send within the window of publication; above 128 nodes that is more than
one per tick, and its queue grows. With one tree per source no node is special. The figure's axis has no readable
values; only the size at which the root begins to queue can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon_lab.experiments.vcube.broadcasts import (
    MANY_TREES,
    MODEL,
    ONE_TREE,
    SRPT,
    VCUBE_PS,
    WINDOW_TICKS,
    BroadcastCase,
    hop_ticks,
    latency_of,
)
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import (
    LARGE_NODES,
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
)
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Mark, Series

PROPAGATION_TICKS = 100
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


def case_of(trees: str, nodes: int, largest_first: bool = False) -> BroadcastCase:
    """All nodes publish once."""
    return BroadcastCase(trees, nodes, 100, PROPAGATION_TICKS, largest_first=largest_first)


def cases(plan: Plan) -> list[BroadcastCase]:
    """VCube-PS and a single root as published, and both kinds of tree with the largest subtree served first."""
    return [
        case_of(trees, nodes, largest_first)
        for nodes in plan.sizes
        for largest_first in (False, True)
        for trees in systems_of(largest_first)
    ]


def systems_of(largest_first: bool) -> tuple[str, str]:
    """Many trees and one: the figure is that of VCube-PS and SRPT; largest first there are the trees alone."""
    return (MANY_TREES, ONE_TREE) if largest_first else (VCUBE_PS, SRPT)


def largest_without_queue(plan: Plan, results: Results[BroadcastCase, float]) -> Sample:
    """The largest size at which the root keeps up: it adds, beyond the hop to it, less than one more hop."""
    hop = hop_ticks(PROPAGATION_TICKS)
    repetitions = min(plan.repetitions_of(nodes) for nodes in plan.sizes)
    largest = [0] * repetitions
    for nodes in plan.sizes:
        many, one = results.of(case_of(VCUBE_PS, nodes)), results.of(case_of(SRPT, nodes))
        for repetition in range(repetitions):
            if one[repetition] - many[repetition] - hop < hop:
                largest[repetition] = max(largest[repetition], nodes)
    return Sample(tuple(largest))


def why(largest: int) -> Note:
    """The reason for the size at which the root begins to queue."""
    fits, too_many = (nodes * (nodes.bit_length() - 1) for nodes in (largest, 2 * largest))
    return Note(
        "The root has N log2 N copies to send, one per tick, while everything is published within "
        f"{WINDOW_TICKS} ticks: {fits} for {largest} nodes, {too_many} for {2 * largest}. It is said to keep up while "
        "the single tree costs less than one hop more than the hop to the root does."
    )


def compare(plan: Plan, results: Results[BroadcastCase, float]) -> Iterator[Finding]:
    """The one statement of the text, then the figure, also as numbers."""
    number = document("thesis").numbers["fig-2.9/largest-without-queue"]
    if max(plan.sizes) > number.value:
        yield compared("largest size at which the single root keeps up", largest_without_queue(plan, results), number)
        yield why(int(number.value))
    else:
        yield Note(f"The root begins to queue above {number.value:g} nodes, more than were simulated.")
    yield figure(plan, results)
    for largest_first in (False, True):
        for nodes in plan.sizes:
            many, one = (
                results.sample(case_of(trees, nodes, largest_first), float) for trees in systems_of(largest_first)
            )
            variant = f"{nodes} nodes, largest first" if largest_first else f"{nodes} nodes"
            yield Row(f"latency, many trees, {variant}", "ticks", many)
            yield Row(f"latency, one tree, {variant}", "ticks", one)


def figure(plan: Plan, results: Results[BroadcastCase, float]) -> Figure:
    """Reception latency by number of nodes."""
    series = [
        Series(
            f"{name}{', largest subtree first' if largest_first else ''}",
            trees,
            tuple(results.sample(case_of(trees, nodes, largest_first), float).point(nodes) for nodes in plan.sizes),
            variant=int(largest_first),
        )
        for largest_first in (False, True)
        for trees, name in zip(systems_of(largest_first), ("one tree per source", "one tree for all"), strict=True)
    ]
    number = document("thesis").numbers["fig-2.9/largest-without-queue"]
    return Figure(
        "latency",
        "Reception latency when every node broadcasts",
        NODES,
        Axis("reception latency", "ticks", "log10"),
        tuple(series),
        (Mark("x", number.value, f"published: the root queues above {number.value:g}"),),
        "The published curves have no readable values; what the text gives is the size above which the root queues.",
    )


FIG_2_9: Experiment[BroadcastCase, float] = Experiment(
    name="vcube/fig-2.9",
    document="thesis, Figure 2.9 (Figure 4.8; ICPP paper, Figure 1)",
    description="one spanning tree for all publishers against one for each: reception latency by number of nodes",
    default=Plan(SIZES, repetitions=5, large_repetitions=3),
    full=Plan((*SIZES, 2 * LARGE_NODES, 4 * LARGE_NODES), repetitions=40, large_repetitions=40, full=True),
    parameters={**MODEL, "propagation_ticks": PROPAGATION_TICKS, "publisher_percent": 100},
    cases=cases,
    measure=latency_of,
    compare=compare,
    meaning="Can one spanning tree serve all publishers? Up to 128 nodes it costs only the hop to its root. Beyond "
    "that the root has more copies to send than there is time, and latency grows in proportion to the number of "
    "nodes, while a tree per source stays nearly flat: with 1024 nodes the single tree is about nine times slower. A "
    "system in which many publish should spread its roots, and serving the largest subtree first does not replace "
    "that.",
)
