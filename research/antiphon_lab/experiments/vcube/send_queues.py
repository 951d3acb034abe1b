"""Output queues: Table 5.1 of the thesis, Table I of the SBAC-PAD paper.

1024 nodes all publish once; nodes are counted by the average length of their output queue. The table does not define
its average. Its SRPT column fixes it: a node with ``c`` children that is otherwise idle must score ``(c + 1) / 2``,
which is the mean over copies of the queue that each finds, itself included; :mod:`antiphon_lab.reproduction.metrics`
defines it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.vcube.broadcasts import (
    MANY_TREES,
    MODEL,
    SRPT,
    VCUBE_PS,
    WINDOW_TICKS,
    BroadcastCase,
    root_of,
    simulate,
)
from antiphon_lab.reproduction.documents import Table, document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Series, published_point, published_series
from antiphon_lab.reproduction.metrics import in_classes, mean_per_node, queue_lengths, tree_sends
from antiphon_lab.reproduction.verdicts import Refutation, agrees

PROPAGATION_TICKS = 100
BORDERS = (0, 2, 4, 8, 16, 32, 4096, 8192)
"""The classes of nodes: 0, then the upper end of every ``(low,high]`` of the published table."""


@dataclass(frozen=True)
class Queues:
    """The queues of one run: nodes per class, the mean of all nodes, and the queue that copies of the root find.

    Where every publisher has its own tree, node 0 takes the place of the root.
    """

    classes: tuple[int, ...]
    mean: float
    root_mean: float
    root_deviation: float
    root_largest: float


def measure(case: BroadcastCase, seed: int) -> Queues:
    """Run a case with a full trace and look at the queues."""
    trace = MemoryTrace("everything")
    simulate(case, seed, trace.recorder)
    root = root_of(case, seed)
    sends = tree_sends(trace.table(), root)
    node, length = queue_lengths(sends)
    average = mean_per_node(node, length, case.nodes)
    seen = length[node == (0 if root is None else root)]
    return Queues(
        classes=tuple(in_classes(average, BORDERS)),
        mean=float(average.mean()),
        root_mean=float(seen.mean()),
        root_deviation=float(seen.std()),
        root_largest=float(seen.max()),
    )


def published_table() -> Table:
    """The table as published."""
    return document("thesis").tables["table-5.1"]


def case_of(trees: str, nodes: int, acknowledged: bool = False, largest_first: bool = False) -> BroadcastCase:
    """All nodes publish once."""
    return BroadcastCase(trees, nodes, 100, PROPAGATION_TICKS, acknowledged, largest_first)


def variants(nodes: int) -> list[tuple[BroadcastCase, str]]:
    """Cases that the documents do not show."""
    return [
        (case_of(MANY_TREES, nodes, largest_first=True), "largest first"),
        (case_of(VCUBE_PS, nodes, acknowledged=True), "acknowledged"),
    ]


def cases(plan: Plan) -> list[BroadcastCase]:
    """Both systems as published, and the variants of the better one."""
    nodes = plan.sizes[0]
    return [case_of(VCUBE_PS, nodes), case_of(SRPT, nodes), *(case for case, _ in variants(nodes))]


def compare(plan: Plan, results: Results[BroadcastCase, Queues]) -> Iterator[Finding]:
    """The table, the sentences about it, and the variants."""
    nodes = plan.sizes[0]
    table = published_table()
    for trees in (VCUBE_PS, SRPT):
        for row, name in enumerate(table.rows):
            label = f"{trees}, nodes with a mean queue in {name}"
            measured, number = class_sample(trees, row, nodes, results), table.number(trees, row)
            is_compared = nodes == table.nodes and not number.unmeasured
            yield Row(label, table.unit, measured, number if is_compared else None)
    yield figure(nodes, results)
    if nodes == table.nodes:
        yield from compare_sentences(nodes, results)
    else:
        yield Note(f"Published for {table.nodes} nodes; nothing is compared at {nodes}.")
    for case, name in [(case_of(VCUBE_PS, nodes), "as published"), *variants(nodes)]:
        yield Row(
            f"VCube-PS, mean queue of all nodes, {name}", "copies", results.sample(case, lambda queues: queues.mean)
        )


def class_sample(trees: str, row: int, nodes: int, results: Results[BroadcastCase, Queues]) -> Sample:
    """How many nodes are in one class."""
    return results.sample(case_of(trees, nodes), lambda queues: queues.classes[row])


def figure(nodes: int, results: Results[BroadcastCase, Queues]) -> Figure:
    """The table as a picture."""
    table = published_table()
    rows = range(len(table.rows))
    series: list[Series] = []
    for trees in (VCUBE_PS, SRPT):
        measured = tuple(class_sample(trees, row, nodes, results).point(row) for row in rows)
        series.append(Series(trees, trees, measured, "bars"))
        if nodes == table.nodes:
            published = [published_point(row, table.number(trees, row)) for row in rows]
            series += published_series(trees, trees, published)
    return Figure(
        "queues",
        f"Nodes by the mean length of their output queue, {nodes} nodes",
        Axis("mean queue", "copies", categories=table.rows),
        Axis("nodes"),
        tuple(series),
    )


def compare_sentences(nodes: int, results: Results[BroadcastCase, Queues]) -> Iterator[Row | Note]:
    """The statements of the text about the table."""
    numbers = document("thesis").numbers
    share = results.sample(case_of(VCUBE_PS, nodes), lambda queues: 100 * sum(queues.classes[3:5]) / nodes)
    yield compared("VCube-PS, share of nodes in (4,16]", share, numbers["table-5.1/vcube-ps-4-16"])
    share = results.sample(case_of(SRPT, nodes), lambda queues: 100 * queues.classes[1] / nodes)
    yield compared("SRPT, share of nodes in (0,2]", share, numbers["table-5.1/srpt-0-2"])
    yield from compare_root(nodes, results)


def compare_root(nodes: int, results: Results[BroadcastCase, Queues]) -> Iterator[Row | Note]:
    """The queue of the single root: as the text words it, and as the table allows."""
    numbers = document("thesis").numbers
    first, second = numbers["table-5.1/srpt-root-average"], numbers["table-5.1/srpt-root-deviation"]
    case = case_of(SRPT, nodes)
    mean = results.sample(case, lambda queues: queues.root_mean)
    largest = results.sample(case, lambda queues: queues.root_largest)
    deviation = results.sample(case, lambda queues: queues.root_deviation)
    highest = 8192
    statement = f"an average queue of {first.value:g} with a deviation of {second.value:g} at the root"
    check = (
        f"the table has the root in (4096,{highest}], where no node with that average can be; {first.value:g} and "
        f"{second.value:g} are its largest and its average queue, and the rows that say so agree"
    )
    holds = first.value > highest and agrees(first, largest.values) and agrees(second, mean.values)
    yield compared(
        "SRPT root, average queue",
        mean,
        first,
        Refutation(statement, check, holds, *second.interval.ends(second.value)),
    )
    # A queue that grows evenly to its largest value, and falls as evenly, has the deviation of a uniform variable.
    uniform = first.value / sqrt(12)
    yield compared(
        "SRPT root, deviation of the queue",
        deviation,
        second,
        Refutation(statement, check, holds, 0.9 * uniform, 1.1 * uniform),
    )
    yield compared("SRPT root, largest queue, against the published average", largest, first)
    yield compared("SRPT root, mean queue, against the published deviation", mean, second)
    yield Note(
        f"With a tree per publisher every node sends about {nodes - 1} copies within "
        f"{WINDOW_TICKS + PROPAGATION_TICKS} ticks, one per tick: more than nine tenths of what it can. So queues "
        "depend on how evenly a run spreads its publications, and the number of nodes with more than 16 copies differs "
        f"by a factor of three between runs. {calmness(nodes, results)}"
    )
    copies = nodes * (nodes.bit_length() - 1)
    yield Note(
        f"The root has {copies} copies to send, one per tick, and everything is published within {WINDOW_TICKS} ticks: "
        f"about {copies - WINDOW_TICKS} are left at the end of publication, which is the largest queue."
    )


def calmness(nodes: int, results: Results[BroadcastCase, Queues]) -> str:
    """How the published run compares with ours in the class that has no verdict."""
    table = published_table()
    row = table.rows.index("(16,32]")
    ours, number = class_sample(VCUBE_PS, row, nodes, results), table.number(VCUBE_PS, row)
    deviation = ours.deviation
    if not deviation:
        return f"The published {number.value:g} is that of one run."
    away = abs(number.value - ours.mean) / deviation
    return (
        f"The published {number.value:g} is that of one run, {away:.1f} standard deviations from our mean of "
        f"{ours.mean:.0f}; half and twice as much would be no stranger, so it has no verdict."
    )


TABLE_5_1: Experiment[BroadcastCase, Queues] = Experiment(
    name="vcube-ps/table-5.1",
    document="thesis, Table 5.1 (SBAC-PAD paper, Table I)",
    description="nodes by the average length of their output queue when everybody publishes",
    default=Plan((1024,), repetitions=6, large_repetitions=6),
    full=Plan((1024,), repetitions=40, large_repetitions=40, full=True),
    parameters={
        **MODEL,
        "propagation_ticks": PROPAGATION_TICKS,
        "publisher_percent": 100,
        "queue": "length that a copy finds, itself included; mean over the copies a node sends down a tree",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Who waits where? With a tree per publisher nearly every node has a short queue of 4 to 16 copies: all of "
    "them work, none is special. With a single root half of the nodes have nothing to do and one has thousands of "
    "copies waiting. Averages over nodes hide that, so look at the longest queue when you choose a topology. The "
    "published average and deviation of the root are its largest and its mean queue.",
)
