"""One tree against many: Figure 2.9 of the thesis, repeated as its Figure 4.8 and as Figure 1 of the ICPP paper.

All nodes broadcast. With one tree for all, the root has ``N log2 N`` copies to send within the window of publication;
above 128 nodes that is more than one per tick, and its queue grows. With one tree per source nobody is special.
The figure's axis has no readable values; what can be compared is the size at which the root begins to queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.lab.broadcasts import MANY_TREES, MODEL, ONE_TREE, WINDOW_TICKS, Broadcasts, hop_ticks, latency_of
from antiphon.lab.documents import document
from antiphon.lab.experiment import LARGE_NODES, Experiment, Note, Plan, Results, Row, Sample, compared

PROPAGATION_TICKS = 100
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


def case_of(trees: str, nodes: int, largest_first: bool = False) -> Broadcasts:
    """All nodes publish once."""
    return Broadcasts(trees, nodes, 100, PROPAGATION_TICKS, largest_first=largest_first)


def cases(plan: Plan) -> list[Broadcasts]:
    """Both kinds of tree, as published and with the largest subtree served first."""
    return [
        case_of(trees, nodes, largest_first)
        for nodes in plan.sizes
        for trees in (MANY_TREES, ONE_TREE)
        for largest_first in (False, True)
    ]


def largest_without_queue(plan: Plan, results: Results[Broadcasts, float]) -> Sample:
    """The largest size at which the root keeps up: what it adds, beyond the hop to it, is less than one more hop."""
    hop = hop_ticks(PROPAGATION_TICKS)
    repetitions = min(plan.repetitions_of(nodes) for nodes in plan.sizes)
    largest = [0] * repetitions
    for nodes in plan.sizes:
        many, one = results.of(case_of(MANY_TREES, nodes)), results.of(case_of(ONE_TREE, nodes))
        for repetition in range(repetitions):
            if one[repetition] - many[repetition] - hop < hop:
                largest[repetition] = max(largest[repetition], nodes)
    return Sample(tuple(largest))


def why(largest: int) -> Note:
    """What decides the size at which the root begins to queue."""
    fits, too_many = (nodes * (nodes.bit_length() - 1) for nodes in (largest, 2 * largest))
    return Note(
        "The root has N log2 N copies to send, one per tick, while everything is published within "
        f"{WINDOW_TICKS} ticks: {fits} for {largest} nodes, {too_many} for {2 * largest}. It is said to keep up while "
        "the single tree costs less than one hop more than the hop to the root does."
    )


def compare(plan: Plan, results: Results[Broadcasts, float]) -> Iterator[Row | Note]:
    """The one statement of the text, then the figure as numbers."""
    number = document("thesis").numbers["fig-2.9/largest-without-queue"]
    if max(plan.sizes) > number.value:
        yield compared("largest size at which the single root keeps up", largest_without_queue(plan, results), number)
        yield why(int(number.value))
    else:
        yield Note(f"The root begins to queue above {number.value:g} nodes, more than were simulated.")
    for largest_first in (False, True):
        for nodes in plan.sizes:
            many = results.sample(case_of(MANY_TREES, nodes, largest_first), float)
            one = results.sample(case_of(ONE_TREE, nodes, largest_first), float)
            variant = f"{nodes} nodes, largest first" if largest_first else f"{nodes} nodes"
            yield Row(f"latency, many trees, {variant}", "ticks", many)
            yield Row(f"latency, one tree, {variant}", "ticks", one)


FIG_2_9: Experiment[Broadcasts, float] = Experiment(
    name="vcube/fig-2.9",
    document="thesis, Figure 2.9 (Figure 4.8; ICPP paper, Figure 1)",
    description="one spanning tree for all publishers against one for each: reception latency by number of nodes",
    default=Plan(SIZES, repetitions=5, large_repetitions=1),
    full=Plan((*SIZES, 2 * LARGE_NODES, 4 * LARGE_NODES), repetitions=40, large_repetitions=40, full=True),
    parameters={**MODEL, "propagation_ticks": PROPAGATION_TICKS, "publisher_percent": 100},
    cases=cases,
    measure=latency_of,
    compare=compare,
)
