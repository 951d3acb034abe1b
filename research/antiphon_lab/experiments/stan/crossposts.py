"""Events that are posted to three topics at a time: Figure 3.15 of the thesis of M. Matos (section 3.3.8).

For each topic the two most correlated ones are taken; some processes that are subscribed to all three post one event
each to all three. SimpleFlood floods each topic by itself; CrosspostFlood sends one copy to a neighbour for all topics
that the two share (:mod:`antiphon_lab.protocols.gossip.crosspost`). In a complete flood each process sends to all its
neighbours once, so the number of copies follows from the views; hops are those of a breadth-first search from the
publishers.

Open points of the thesis: correlation is Pearson's; sets of three topics without a common subscriber are left out, and
counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from antiphon_lab.experiments.brisa.graphs import hops_from
from antiphon_lab.experiments.stan.figures import L8, LEAST_COMPARED
from antiphon_lab.experiments.stan.fitness import cumulative
from antiphon_lab.experiments.stan.overlays import INITIAL, STAN, Overlays, TopicOverlayCase, arranged
from antiphon_lab.experiments.stan.runs import LIVEJOURNAL, LOST_DATA, MODEL, universe_named
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, compared, compared_from
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.universes.law import Integers, Reals
from antiphon_lab.universes.universe import Universe, correlation_matrix

NUMBERS = document("stan").numbers
PUBLISHED_RUNS = 10
PUBLISHERS = 10
CROSSPOST_STREAM = 154
SAVED_PERCENT = 10
MOST_HOPS = 16


@dataclass(frozen=True)
class CrosspostCase:
    """All overlays of a universe, arranged in one way; events are posted around every ``step``-th topic."""

    kind: str
    nodes: int
    arrangement: str
    step: int = 1

    def __str__(self) -> str:
        return f"crossposts, {self.arrangement} overlays, {self.nodes} processes like {self.kind}, topics / {self.step}"


@dataclass(frozen=True)
class CrosspostOutcome:
    """The results of all events together."""

    simple: Integers
    """Copies that each process has sent with SimpleFlood."""
    shared: Integers
    """The same with CrosspostFlood."""
    simple_hops: Integers
    """The number of deliveries by hops from the publisher."""
    shared_hops: Integers
    left_out: int


def most_correlated(universe: Universe) -> list[tuple[int, int, int]]:
    """Each topic that has subscribers with the two most correlated ones, the lower number first among equals."""
    used = np.flatnonzero(universe.popularity > 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = correlation_matrix(universe, used)
    np.fill_diagonal(correlation, -np.inf)
    nearest = np.argsort(-np.nan_to_num(correlation, nan=-1.0), axis=1, kind="stable")[:, :2]
    return [(int(topic), int(used[one]), int(used[other])) for topic, (one, other) in zip(used, nearest, strict=True)]


def measure(case: CrosspostCase, seed: int) -> CrosspostOutcome:
    """Post all events."""
    universe = universe_named(case.kind, case.nodes)
    overlays = Overlays(universe, arranged(TopicOverlayCase(case.kind, case.nodes, case.arrangement), seed))
    random = np.random.default_rng([CROSSPOST_STREAM, seed])
    simple, shared = np.zeros(universe.processes, np.int64), np.zeros(universe.processes, np.int64)
    simple_hops, shared_hops = np.zeros(MOST_HOPS, np.int64), np.zeros(MOST_HOPS, np.int64)
    left_out = 0
    for triple in most_correlated(universe)[:: case.step]:
        members = [universe.processes_of(topic) for topic in triple]
        in_all = np.intersect1d(np.intersect1d(members[0], members[1]), members[2])
        if len(in_all) == 0:
            left_out += 1
            continue
        among = np.unique(np.concatenate(members))
        publishers = np.searchsorted(among, random.choice(in_all, min(PUBLISHERS, len(in_all)), replace=False))
        graphs = [overlays.graph(topic, among) for topic in triple]
        # A process relays in those topics only that it is subscribed to: elsewhere its row is empty.
        union = graphs[0] | graphs[1] | graphs[2]
        simple[among] += len(publishers) * sum(graph.sum(axis=1) for graph in graphs)
        shared[among] += len(publishers) * union.sum(axis=1)
        hops = hops_from(union, publishers)
        for topic_members, graph in zip(members, graphs, strict=True):
            places = np.searchsorted(among, topic_members)
            simple_hops += counted(hops_from(graph, publishers)[:, places])
            shared_hops += counted(hops[:, places])
    return CrosspostOutcome(simple, shared, simple_hops, shared_hops, left_out)


def counted(hops: Integers) -> Integers:
    """The number of other processes by hops."""
    return np.bincount(np.minimum(hops[hops > 0], MOST_HOPS - 1), minlength=MOST_HOPS)


def savings(outcome: CrosspostOutcome) -> Reals:
    """Of each process that sent anything, which percentage of its copies it saves."""
    sent = outcome.simple > 0
    return 100 * (1 - outcome.shared[sent] / outcome.simple[sent])


def savers(outcome: CrosspostOutcome) -> float:
    """The percentage of processes that save more than a tenth."""
    return float(100 * np.mean(savings(outcome) > SAVED_PERCENT))


def mean_hops(hops: Integers) -> float:
    """The mean of a distribution of hops."""
    return float((hops * np.arange(len(hops))).sum() / hops.sum())


LEAST_PROCESSES = 300
"""Fewer have too few topics for one to be near two others."""


def cases(plan: Plan) -> list[CrosspostCase]:
    """Before and after StaN."""
    step = 1 if plan.full else 4
    return [
        CrosspostCase(LIVEJOURNAL, max(size, LEAST_PROCESSES), arrangement, step)
        for size in plan.sizes
        for arrangement in (INITIAL, STAN)
    ]


def compare(plan: Plan, results: Results[CrosspostCase, CrosspostOutcome]) -> Iterator[Finding]:
    """Savings and hops."""
    every = cases(plan)
    for before, after in zip(every[::2], every[1::2], strict=True):
        label = f"processes that save over {SAVED_PERCENT} %"
        for case, published in ((before, NUMBERS["fig-3.15/before"]), (after, NUMBERS["fig-3.15/after"])):
            sample = results.sample(case, savers)
            yield compared_from(LEAST_COMPARED, min(plan.sizes), f"{label}, {case}", sample, published)
        fewer = results.sample(after, lambda outcome: mean_hops(outcome.shared_hops)).over(
            results.sample(after, lambda outcome: mean_hops(outcome.simple_hops))
        )
        yield compared(f"hops, CrosspostFlood / SimpleFlood, {after}", fewer, NUMBERS["fig-3.15/hops"])
        for case in (before, after):
            total = results.sample(case, lambda outcome: float(100 * (1 - outcome.shared.sum() / outcome.simple.sum())))
            yield Row(f"copies saved in all, {case}", "%", total)
            left_out = results.sample(case, lambda outcome: float(outcome.left_out))
            yield Row(f"topics left out, {case}", "topics", left_out)
        series = [
            Series(name, "StaN", cumulative(savings(results.of(case)[0])), "steps", variant)
            for variant, (name, case) in enumerate((("before StaN", before), ("with StaN", after)))
        ]
        yield Figure(
            "savings",
            f"What CrosspostFlood saves, {before.nodes} processes like livejournal",
            Axis("copies saved", "%"),
            Axis("processes that save no more", "%"),
            tuple(series),
            caption="The published figure has no readable values.",
        )
    yield Note(LOST_DATA)
    yield Note(
        "How many save over a tenth depends on the law of popularity, which was not fitted to this figure: the steeper "
        "it is, the fewer topics a process has in common with its neighbours."
    )


FIG_3_15: Experiment[CrosspostCase, CrosspostOutcome] = Experiment(
    name="stan/fig-3.15",
    document="thesis of M. Matos, section 3.3.8, Figure 3.15",
    description="CrosspostFlood against SimpleFlood for events in three topics, before and after StaN",
    default=Plan((L8 // 4,), repetitions=3, large_repetitions=3),
    full=Plan((L8,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "computed": "the fixed point, directly", "publishers_per_topic": PUBLISHERS},
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="An event in three topics takes a link once instead of up to three times. That saves next to nothing while "
    "topics have links of their own; when StaN has laid them onto each other many processes save a tenth and more, and "
    "events arrive no later.",
)
