"""Several publishers: Figure 5.8 of the thesis, Figure 5 of the SBAC-PAD paper.

All nodes are members of one topic; 25 % or 100 % of them publish. Figure (a) has a propagation time of 100 ticks,
(b) of 1000. The axes have no readable values; the text gives ratios and increases, which are compared here.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial

from antiphon.lab.broadcasts import (
    MANY_TREES,
    MODEL,
    ONE_TREE,
    PROCESSING_TICKS,
    TRANSMISSION_TICKS,
    WINDOW_TICKS,
    Broadcasts,
    hop_ticks,
    latency_of,
)
from antiphon.lab.documents import document
from antiphon.lab.experiment import LARGE_NODES, Experiment, Explanation, Note, Plan, Results, Row, Sample, compared

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
SHORT_TICKS = 100
LONG_TICKS = 1000


def cases(propagation_ticks: int, plan: Plan) -> list[Broadcasts]:
    """Both systems with few and with many publishers, and variants of the largest common size.

    Above ``LARGE_NODES`` a default plan runs only what the text gives a number for.
    """
    found = []
    for nodes in plan.sizes:
        systems = (MANY_TREES, ONE_TREE) if plan.full or nodes <= LARGE_NODES else (MANY_TREES,)
        found += [Broadcasts(trees, nodes, percent, propagation_ticks) for trees in systems for percent in (25, 100)]
    return found + variants(propagation_ticks, plan)


def variants(propagation_ticks: int, plan: Plan) -> list[Broadcasts]:
    """What the documents do not show: a better order of sending, and acknowledgements that cost what they cost."""
    nodes = max((size for size in plan.sizes if size <= LARGE_NODES), default=min(plan.sizes))
    return [
        Broadcasts(trees, nodes, 100, propagation_ticks, acknowledged, largest_first=not acknowledged)
        for acknowledged in (False, True)
        for trees in (MANY_TREES, ONE_TREE)
    ]


class Latencies:
    """The measured latencies of one figure, asked for by system, size and share of publishers."""

    def __init__(self, propagation_ticks: int, plan: Plan, results: Results[Broadcasts, float]) -> None:
        self.propagation_ticks = propagation_ticks
        self.plan = plan
        self._results = results

    def of(self, trees: str, nodes: int, percent: int) -> Sample:
        """One point of the figure."""
        return self.of_case(Broadcasts(trees, nodes, percent, self.propagation_ticks))

    def of_case(self, case: Broadcasts) -> Sample:
        """One point, variants included."""
        return self._results.sample(case, float)

    def has(self, *sizes: int) -> bool:
        """Whether all these sizes were simulated."""
        return set(sizes) <= set(self.plan.sizes)

    def ratio(self, nodes: int) -> Sample:
        """How many times slower the single root is when everybody publishes."""
        return self.of(ONE_TREE, nodes, 100).over(self.of(MANY_TREES, nodes, 100))

    def rows(self) -> Iterator[Row | Note]:
        """The figure as numbers, then the variants."""
        for case in cases(self.propagation_ticks, self.plan):
            yield Row(f"latency, {case}", "ticks", self.of_case(case))

    def missing(self, *sizes: int) -> Iterator[Row | Note]:
        """A note on published sizes that were not simulated."""
        absent = [str(size) for size in sizes if not self.has(size)]
        if absent:
            yield Note(f"Published for sizes that were not simulated, and so not compared: {', '.join(absent)} nodes.")


def compare_short(plan: Plan, results: Results[Broadcasts, float]) -> Iterator[Row | Note]:
    """Figure 5.8(a)."""
    latencies = Latencies(SHORT_TICKS, plan, results)
    thesis, paper = document("thesis").numbers, document("sbac-pad").numbers
    if latencies.has(8, 16, 32, 64, 128):
        yield compared("SRPT above VCube-PS, 8 to 128 nodes", extra_hops(latencies), thesis["fig-5.8a/extra-hops-128"])
    if latencies.has(256):
        yield compared("SRPT / VCube-PS, 256 nodes", latencies.ratio(256), thesis["fig-5.8a/ratio-256"])
    if latencies.has(256, 1024):
        growth = latencies.ratio(1024).over(latencies.ratio(256))
        yield compared("growth of that ratio, 256 to 1024 nodes", growth, thesis["fig-5.8a/growth-256-1024"])
    if latencies.has(1024):
        yield compared(
            "VCube-PS, 25 % to 100 % publish, 1024 nodes", increase(latencies, 1024), paper["fig-5a/increase-1024"]
        )
    if latencies.has(4096):
        yield compared(
            "VCube-PS, 25 % to 100 % publish, 4096 nodes",
            increase(latencies, 4096),
            thesis["fig-5.8a/increase-4096"],
            too_much_to_send(latencies, 4096, thesis["fig-5.8a/increase-4096"].value),
        )
    yield from latencies.missing(128, 256, 1024, 4096)
    yield from latencies.rows()


def extra_hops(latencies: Latencies) -> Sample:
    """By how many hops the single root is slower, on average over the sizes at which it keeps up."""
    hop = hop_ticks(SHORT_TICKS)
    total = Sample((0.0,) * latencies.plan.repetitions)
    sizes = [size for size in latencies.plan.sizes if size <= 128]
    for nodes in sizes:
        extra = latencies.of(ONE_TREE, nodes, 100).with_other(operator.sub, latencies.of(MANY_TREES, nodes, 100))
        total = total.with_other(operator.add, extra)
    return Sample(tuple(value / hop / len(sizes) for value in total.values))


def increase(latencies: Latencies, nodes: int) -> Sample:
    """What four times the publishers cost, in percent."""
    return latencies.of(MANY_TREES, nodes, 100).increase_over(latencies.of(MANY_TREES, nodes, 25))


def too_much_to_send(latencies: Latencies, nodes: int, published_percent: float) -> Explanation:
    """Why the published increase is impossible in the published model, by counting copies."""
    # Every reception is one copy, handled a fixed time after it left its sender. Everybody sends nodes - 1 copies in
    # all, in different ticks, so they leave at tick nodes / 2 on average or later; publications are at window / 2.
    bound = nodes * TRANSMISSION_TICKS / 2 + SHORT_TICKS + PROCESSING_TICKS - WINDOW_TICKS / 2
    few = latencies.of(MANY_TREES, nodes, 25).mean
    least_percent = 100 * (bound / few - 1)
    return Explanation(
        f"cannot be right. With one tree per publisher each of the {nodes} nodes sends {nodes - 1} copies, one per "
        f"tick, so a copy leaves at tick {nodes // 2} on average or later, while publications happen at tick "
        f"{WINDOW_TICKS // 2} on average. The mean latency is therefore at least {bound:.0f} ticks, "
        f"{least_percent:.0f} % above the {few:.0f} measured with 25 % of publishers, not {published_percent:g} %. "
        "The authors must have used a longer window or a faster output at this size.",
        holds=increase(latencies, nodes).mean >= least_percent > published_percent,
    )


def compare_long(plan: Plan, results: Results[Broadcasts, float]) -> Iterator[Row | Note]:
    """Figure 5.8(b)."""
    latencies = Latencies(LONG_TICKS, plan, results)
    if latencies.has(256):
        more = latencies.of(ONE_TREE, 256, 100).increase_over(latencies.of(MANY_TREES, 256, 100))
        yield compared("SRPT above VCube-PS, 256 nodes", more, document("sbac-pad").numbers["fig-5b/increase-256"])
    yield from latencies.missing(256)
    yield from latencies.rows()


FULL = Plan((*SIZES, 2 * LARGE_NODES, 4 * LARGE_NODES), repetitions=40, large_repetitions=40, full=True)

FIG_5_8A: Experiment[Broadcasts, float] = Experiment(
    name="vcube-ps/fig-5.8a",
    document="thesis, Figure 5.8(a) (SBAC-PAD paper, Figure 5(a))",
    description="several publishers, propagation 100: VCube-PS against a single root per topic",
    default=Plan((*SIZES, 4 * LARGE_NODES), repetitions=5, large_repetitions=1),
    full=FULL,
    parameters={**MODEL, "propagation_ticks": SHORT_TICKS},
    cases=partial(cases, SHORT_TICKS),
    measure=latency_of,
    compare=compare_short,
)

FIG_5_8B: Experiment[Broadcasts, float] = Experiment(
    name="vcube-ps/fig-5.8b",
    document="thesis, Figure 5.8(b) (SBAC-PAD paper, Figure 5(b))",
    description="several publishers, propagation 1000: VCube-PS against a single root per topic",
    default=Plan(SIZES, repetitions=5, large_repetitions=1),
    full=FULL,
    parameters={**MODEL, "propagation_ticks": LONG_TICKS},
    cases=partial(cases, LONG_TICKS),
    measure=latency_of,
    compare=compare_long,
)
