"""How much publications carry for causal order: Figure 3.1 of the thesis.

Messages are broadcast at a given rate, each by a source drawn uniformly; compared are the entries of Birman's
compressed vector clocks and of causal barriers that a message carries on average. The figure takes its data from the
runs of two papers and says neither the rate nor how many messages there were. This workload is therefore ours: 112
publications with exponential gaps of 100 ticks on average, over one tree per source. A compressed vector holds all
sources received since the own last publication; where most publish for the first time these are all sources so far. The
number of publications is chosen such that 47 entries result. A barrier holds the publications in transit at the same
time, about one latency's worth, and does not depend on how long the system runs. With one publication per hop
that is below 6.

Each case is run with both orders. They are both exact, so all deliveries must be the same, and the two means differ by
the indirect predecessors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.kernel.message import Publication
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.orders.barriers import CausalBarriers
from antiphon.orders.order import Order
from antiphon.orders.vectors import CausalVectors
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.scenario.scenario import RateWorkload
from antiphon.simulator.scenario.workload import plan_rate
from antiphon_lab.experiments.vcube.one_topic import MODEL, REPAIRED, Build, Group, TopicRun, as_repaired, draw_group
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    compared,
    promised,
)
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series, published_point, published_series
from antiphon_lab.reproduction.verdicts import Fitted, Refutation

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
LARGEST = 1024
MEAN_GAP_TICKS = 100
PUBLICATIONS = 112
WORKLOAD_STREAM = 105


@dataclass(frozen=True)
class InformationCase:
    """One workload."""

    nodes: int
    mean_gap: int = MEAN_GAP_TICKS
    publications: int = PUBLICATIONS

    def __str__(self) -> str:
        variant = f", gaps of {self.mean_gap}" if self.mean_gap != MEAN_GAP_TICKS else ""
        variant += f", {self.publications} publications" if self.publications != PUBLICATIONS else ""
        return f"{self.nodes} nodes{variant}"


@dataclass(frozen=True)
class Information:
    """The average causal information of publications, and the most indirect predecessors that one vector named."""

    vector: float
    barrier: float
    most_indirect: float
    repaired: float
    violations: int


class Sizes(SimulatedApplication):
    """Records the causal information of each publication when its own source delivers it."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], int] = {}

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        if node == publication.source:
            assert isinstance(publication, Publication), "these publications carry what they depend on"
            self.of[node, publication.sequence] = len(publication.dependencies)


def broadcasting(nodes: int, order: Callable[[int], Order]) -> Build:
    """One tree per source with an order above it; acknowledgements, which decide nothing here, are left out."""
    cube = full_or_partial(nodes)

    def build(environment: Environment) -> Process:
        return TreeBroadcast(environment, cube, order(environment.identifier), acknowledge=False)

    return build


def simulate(case: InformationCase, group: Group, build: Build, seed: int, charged: bool) -> tuple[TopicRun, Sizes]:
    """Publish the stream over one system."""
    sizes = Sizes()
    run = TopicRun(group, build, seed, charged, "deliveries", sizes)
    workload = RateWorkload(mean_gap=case.mean_gap, count=case.publications)
    for publication in plan_rate(workload, case.nodes, RandomStream(seed, WORKLOAD_STREAM)):
        run.engine.at(publication.at, PublishAction(publication.node))
    run.finish()
    return run, sizes


def measure(case: InformationCase, seed: int) -> Information:
    """Run the stream with vectors, with barriers, and over the repaired VCube-PS with all its traffic charged."""
    group = draw_group(case.nodes, case.nodes, seed)
    by_vector, vectors = simulate(case, group, broadcasting(case.nodes, CausalVectors), seed, charged=True)
    by_barrier, barriers = simulate(case, group, broadcasting(case.nodes, CausalBarriers), seed, charged=True)
    assert by_vector.trace.table() == by_barrier.trace.table(), "both orders are exact, so they deliver the same"
    repaired, repaired_sizes = simulate(case, group, as_repaired(group), seed, charged=True)
    findings = [judge(by_barrier.trace.table(), case.nodes, everybody=True), repaired.judgement()]
    indirect = [vectors.of[publication] - size for publication, size in barriers.of.items()]
    return Information(
        vector=float(np.mean(list(vectors.of.values()))),
        barrier=float(np.mean(list(barriers.of.values()))),
        most_indirect=float(max(indirect)),
        repaired=float(np.mean(list(repaired_sizes.of.values()))),
        violations=sum(sum(found.counts.values()) for found in findings),
    )


def variants(nodes: int) -> list[InformationCase]:
    """Other rates, and more publications: the dependencies of the two kinds of information."""
    return [
        InformationCase(nodes, mean_gap=MEAN_GAP_TICKS // 5),
        InformationCase(nodes, mean_gap=5 * MEAN_GAP_TICKS),
        InformationCase(nodes, publications=2 * PUBLICATIONS),
    ]


def cases(plan: Plan) -> list[InformationCase]:
    """All sizes, and the variants of the largest."""
    return [*(InformationCase(nodes) for nodes in plan.sizes), *variants(max(plan.sizes))]


def compare(plan: Plan, results: Results[InformationCase, Information]) -> Iterator[Finding]:
    """The three numbers of the text, then the figure and the variants."""
    if LARGEST in plan.sizes:
        yield from compare_numbers(results)
    else:
        yield Note(f"Published for {LARGEST} nodes, which were not simulated; nothing is compared.")
    found = [information.violations for case in cases(plan) for information in results.of(case)]
    yield promised("violations found by the oracle in all runs", found)
    yield figure(plan, results)
    for case in cases(plan):
        yield Row(f"compressed vector, {case}", "entries", results.sample(case, lambda found: found.vector))
        yield Row(f"causal barrier, {case}", "entries", results.sample(case, lambda found: found.barrier))
        yield Row(f"VCube-PS repaired, {case}", "entries", results.sample(case, lambda found: found.repaired))
    yield Note(
        "The workload is not published; ours has the two parameters that matter. The number of publications decides "
        f"the size of vectors and is chosen such that {LARGEST} nodes have the published one; the rate decides the "
        "size of barriers. The own last publication, which the sequence number implies, is not counted. The repaired "
        "VCube-PS is charged for its acknowledgements."
    )


def compare_numbers(results: Results[InformationCase, Information]) -> Iterator[Row | Note]:
    """The statements of the text about the largest system."""
    numbers = document("thesis").numbers
    case = InformationCase(LARGEST)
    vector = results.sample(case, lambda found: found.vector)
    barrier = results.sample(case, lambda found: found.barrier)
    most = results.sample(case, lambda found: found.most_indirect)
    entries, below, indirect = (numbers[f"fig-3.1/{name}"] for name in ("vector", "barrier", "indirect"))
    chosen = Fitted(f"{PUBLICATIONS} publications", "the size of barriers, and how vectors grow with the system")
    yield compared(f"compressed vector, {LARGEST} nodes", vector, entries, basis=chosen)
    yield compared(f"causal barrier, {LARGEST} nodes", barrier, below)
    least = entries.value - below.value
    yield compared(
        f"most indirect predecessors in one vector, {LARGEST} nodes",
        most,
        indirect,
        Refutation(
            f"up to {indirect.value:g} indirect dependencies",
            f"{entries.value:g} entries on average in vectors and fewer than {below.value:g} in barriers are more than "
            f"{least:g} indirect ones on average, so some message has more than {least:g}",
            holds=least > indirect.value,
            low=least,
            high=PUBLICATIONS,
        ),
    )


VECTORS = "compressed vector clocks"
BARRIERS = "causal barriers"


def figure(plan: Plan, results: Results[InformationCase, Information]) -> Figure:
    """Entries per message by number of nodes."""
    quantities: tuple[tuple[str, Callable[[Information], float]], ...] = (
        (VECTORS, lambda found: found.vector),
        (BARRIERS, lambda found: found.barrier),
        (REPAIRED, lambda found: found.repaired),
    )
    series = [
        Series(name, name, tuple(results.sample(InformationCase(nodes), quantity).point(nodes) for nodes in plan.sizes))
        for name, quantity in quantities
    ]
    numbers = document("thesis").numbers
    published = [
        published_series(system, system, [published_point(LARGEST, numbers[f"fig-3.1/{key}"])])
        for system, key in ((VECTORS, "vector"), (BARRIERS, "barrier"))
    ]
    return Figure(
        "entries",
        "Entries that a message carries for causal order",
        NODES,
        Axis("entries per message, mean"),
        (*series, *published[0], *published[1]),
        caption=f"The text gives one value for vectors and a bound for barriers, both for {LARGEST} nodes. The number "
        "of publications was chosen such that the vectors of that size come out; the barriers follow.",
    )


FIG_3_1: Experiment[InformationCase, Information] = Experiment(
    name="vcube-ps/fig-3.1",
    document="thesis, Figure 3.1",
    description="entries of compressed vector clocks and of causal barriers in a message, by number of nodes",
    default=Plan(SIZES, repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=40, large_repetitions=40, full=True),
    parameters={
        **MODEL,
        "mean_gap_ticks": MEAN_GAP_TICKS,
        "publications": PUBLICATIONS,
        "workload": "ours, the document defines none: exponential gaps, sources uniform",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="How much must a message carry so that causal order can be kept? A compressed vector names every source "
    "heard since the own last message and grows with the system, to about 46 entries with 1024 nodes; a causal "
    "barrier names direct predecessors only and stays below 5. Both orders deliver exactly the same. So barriers are "
    "what to use where many nodes publish now and then, and their size depends on how much is on its way at a time, "
    "not on how many nodes there are.",
)
