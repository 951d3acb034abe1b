"""The effect of StaN on overlays: sections 3.3.5 and 3.3.7 of the thesis of M. Matos, with Figures 3.10 and 3.14."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from antiphon_lab.experiments.stan.figures import W8, livejournal_size
from antiphon_lab.experiments.stan.overlays import (
    ARRANGEMENTS,
    INITIAL,
    LARGEST_TOPIC,
    STAN,
    Fitness,
    TopicOverlayCase,
    measure,
)
from antiphon_lab.experiments.stan.runs import (
    LIVEJOURNAL,
    LOST_DATA,
    MODEL,
    WIKIPEDIA,
    StanCase,
    StanOutcome,
    universe_named,
)
from antiphon_lab.experiments.stan.runs import measure as measure_run
from antiphon_lab.protocols.gossip.stan_options import NOTHING, SOURCES, WALKS
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Refutation
from antiphon_lab.universes.law import Reals

PUBLISHED_RUNS = 10
NUMBERS = document("stan").numbers

Found = Results[TopicOverlayCase, Fitness]
Quantity = Callable[[Fitness], float]

QUANTITIES: tuple[tuple[str, str, Quantity], ...] = (
    ("clustering", "share", lambda fitness: float(fitness.clustering.mean())),
    ("mean path", "hops", lambda fitness: float(fitness.path_length.mean())),
    ("diameter", "hops", lambda fitness: float(fitness.diameter.mean())),
)


def connected_share(fitness: Fitness) -> float:
    """The percentage of overlays that hang together, whichever way links point."""
    return 100 * fitness.connected / fitness.overlays


def strong_share(fitness: Fitness) -> float:
    """The percentage of overlays in which every process reaches all others."""
    return 100 * fitness.strongly_connected / fitness.overlays


# Figure 3.10.


def fitness_cases(plan: Plan) -> list[TopicOverlayCase]:
    """Both universes before and after."""
    universes = [(WIKIPEDIA, size) for size in plan.sizes] + [
        (LIVEJOURNAL, livejournal_size(size)) for size in plan.sizes
    ]
    return [TopicOverlayCase(kind, size, arrangement) for kind, size in universes for arrangement in (INITIAL, STAN)]


def compare_fitness(plan: Plan, results: Found) -> Iterator[Finding]:
    """Each property after StaN against the same before."""
    cases = fitness_cases(plan)
    for before, after in zip(cases[::2], cases[1::2], strict=True):
        about = f"{before.nodes} processes like {before.kind}"
        for name, unit, quantity in QUANTITIES:
            changed = results.sample(after, quantity).over(results.sample(before, quantity))
            yield compared(f"{name}, after / before, {about}", changed, NUMBERS["fig-3.10/unchanged"])
            yield Row(f"{name} before, {about}", unit, results.sample(before, quantity))
            yield Row(f"{name} after, {about}", unit, results.sample(after, quantity))
        whole = results.sample(after, connected_share)
        yield compared(f"overlays in one piece, {about}", whole, NUMBERS["section-3.3.5/connected"])
        yield Row(f"overlays in which all reach all before, {about}", "%", results.sample(before, strong_share))
        yield Row(f"overlays in which all reach all after, {about}", "%", results.sample(after, strong_share))
        yield distribution("clustering", before, after, results, lambda fitness: fitness.clustering)
        yield distribution("path", before, after, results, lambda fitness: fitness.path_length)
    yield Note(
        f"Overlays of topics with up to {LARGEST_TOPIC} members. One piece means that links are followed both ways; "
        "views are sized for all to reach all along their direction in 99 of 100 overlays."
    )
    yield Note(LOST_DATA)


def distribution(
    name: str, before: TopicOverlayCase, after: TopicOverlayCase, results: Found, quantity: Callable[[Fitness], Reals]
) -> Figure:
    """Figures 3.10(a) and (b): the distribution over overlays."""
    series = [
        Series(text, "StaN", cumulative(quantity(results.of(case)[0])), "steps", variant)
        for variant, (text, case) in enumerate((("initial", before), ("final", after)))
    ]
    return Figure(
        f"{name}-{before.kind}",
        f"{name.capitalize()} of overlays, {before.nodes} processes like {before.kind}",
        Axis("clustering coefficient" if name == "clustering" else "mean path", "" if name == "clustering" else "hops"),
        Axis("overlays with no more", "%"),
        tuple(series),
        caption="The published figure has no readable values; its lines overlap.",
    )


def cumulative(values: Reals) -> tuple[Point, ...]:
    """A distribution in fifty steps."""
    return tuple(Point(float(np.quantile(values, share / 50)), 2.0 * share) for share in range(51))


FIG_3_10: Experiment[TopicOverlayCase, Fitness] = Experiment(
    name="stan/fig-3.10",
    document="thesis of M. Matos, section 3.3.5, Figure 3.10",
    description="StaN: clustering, paths, diameters and connectivity of overlays before and after",
    default=Plan((W8 // 2,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "computed": "the fixed point, directly", "largest_topic": LARGEST_TOPIC},
    cases=fitness_cases,
    measure=measure,
    compare=compare_fitness,
    meaning="An epidemic needs overlays that are as good as random: short paths, little clustering, nobody left out. "
    "Weights are as good as random, so the overlays are random graphs after StaN as they were before: nothing "
    "that matters to an epidemic changes, although half of the physical links are gone.",
)


# Section 3.3.5, connectivity: processes that no other one knows.

ROUNDS = 10
SLOTS = 2


def leak_cases(plan: Plan) -> list[StanCase]:
    """The published protocol and its correction."""
    found = []
    for size in plan.sizes:
        found += [StanCase(WIKIPEDIA, size, ROUNDS, learning=learning) for learning in (NOTHING, SOURCES, WALKS)]
        found.append(StanCase(WIKIPEDIA, size, ROUNDS, learning=NOTHING, random_slots=SLOTS))
    return found


def compare_leaks(plan: Plan, results: Results[StanCase, StanOutcome]) -> Iterator[Finding]:
    """Subscriptions that no other process knows, and the cost of having fewer."""
    number = NUMBERS["section-3.3.5/nobody-lost"]
    for case in leak_cases(plan):
        subscriptions = universe_named(case.kind, case.nodes).subscriptions
        lost = results.sample(case, lambda outcome, all_=subscriptions: 10_000 * outcome.unheard / all_)  # type: ignore[misc]
        why = Refutation(
            "that no process is ever disconnected",
            "while views improve, a process may be dropped from the last view that held it before those meet it that "
            "would rank it high. It still has neighbours, so components that ignore the direction of links show "
            "nothing; but no walk and no event comes to it",
            lost.mean > 0,
            0.1,
            100,
        )
        # What teaches the visited is our own: nothing is published about it.
        is_published = case.learning == NOTHING and not case.random_slots
        label = f"subscriptions in nobody's view, {case}"
        yield Row(label, number.unit, lost, number if is_published else None, why)
    for case in leak_cases(plan):
        yield Row(f"physical links, {case}", "links", results.sample(case, lambda outcome: outcome.physical[-1]))
        share = results.sample(case, lambda outcome: 100 * outcome.at_fixed_point)
        yield Row(f"entries that stay for ever, {case}", "%", share)
    yield Note(LOST_DATA)


LEAKS: Experiment[StanCase, StanOutcome] = Experiment(
    name="stan/connectivity",
    document="thesis of M. Matos, section 3.3.5; what mends it is our own",
    description="StaN: who is known to nobody after ten rounds, as published and corrected",
    default=Plan((W8 // 8,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "learning": (NOTHING, SOURCES, WALKS), "random_slots": SLOTS, "rounds_run": ROUNDS},
    cases=leak_cases,
    measure=measure_run,
    compare=compare_leaks,
    meaning="The thesis saw no overlay fall apart. That is so if one follows links both ways; along their direction a "
    "few subscriptions in a thousand end up in nobody's view, and get nothing. If those whom a walk visits consider "
    "its sender, or all whom it has met, that mends itself and costs no message.",
)


# Figure 3.14.


def greedy_cases(plan: Plan) -> list[TopicOverlayCase]:
    """All arrangements."""
    return [TopicOverlayCase(WIKIPEDIA, size, arrangement) for size in plan.sizes for arrangement in ARRANGEMENTS]


def physical_mean(fitness: Fitness) -> float:
    """Mean physical links of a process."""
    return float(fitness.physical[fitness.physical > 0].mean())


NEAR_600 = (550, 650)


def reduction_near_600(results: Found, size: int) -> Sample:
    """The number of links that processes with about 600 of them lose; repetitions are paired."""
    found = []
    pairs = zip(
        results.of(TopicOverlayCase(WIKIPEDIA, size, INITIAL)),
        results.of(TopicOverlayCase(WIKIPEDIA, size, STAN)),
        strict=True,
    )
    for before, after in pairs:
        near = (before.physical >= NEAR_600[0]) & (before.physical <= NEAR_600[1])
        if near.any():
            found.append(float((before.physical[near] - after.physical[near]).mean()))
    return Sample(tuple(found))


def compare_greedy(plan: Plan, results: Found) -> Iterator[Finding]:
    """Links and clustering of the three arrangements."""
    for size in plan.sizes:
        initial, stan, greedy = (TopicOverlayCase(WIKIPEDIA, size, arrangement) for arrangement in ARRANGEMENTS)
        fewer = results.sample(stan, physical_mean).over(results.sample(greedy, physical_mean))
        yield compared(f"physical links, StaN / greedy, {size}", fewer, NUMBERS["fig-3.14/greedy-fewer-links"])
        near = reduction_near_600(results, size)
        if near.values:
            yield compared(f"links saved by those with about 600, {size}", near, NUMBERS["fig-3.14/reduction-at-600"])
        clustered = results.sample(greedy, QUANTITIES[0][2])
        yield compared(f"clustering, greedy, {size}", clustered, NUMBERS["fig-3.14/greedy-clusters"])
        unchanged = results.sample(stan, QUANTITIES[0][2]).over(results.sample(initial, QUANTITIES[0][2]))
        yield compared(f"clustering, StaN / initial, {size}", unchanged, NUMBERS["fig-3.10/unchanged"])
        for case in (initial, stan, greedy):
            yield Row(f"physical links, {case}", "links", results.sample(case, physical_mean))
            yield Row(f"clustering, {case}", "share", results.sample(case, QUANTITIES[0][2]))
            yield Row(f"overlays in which all reach all, {case}", "%", results.sample(case, strong_share))
        series = [
            Series(case.arrangement, case.arrangement, cumulative(results.of(case)[0].clustering), "steps")
            for case in (initial, stan, greedy)
        ]
        yield Figure(
            "clustering",
            f"Clustering of overlays, {size} processes like wikipedia",
            Axis("clustering coefficient"),
            Axis("overlays with no more", "%"),
            tuple(series),
            caption="The published figure has no readable values; initial and StaN overlap.",
        )
    yield Note(LOST_DATA)


FIG_3_14: Experiment[TopicOverlayCase, Fitness] = Experiment(
    name="stan/fig-3.14",
    document="thesis of M. Matos, section 3.3.7, Figure 3.14",
    description="StaN against a greedy choice by common interests that knows everything",
    default=Plan((W8,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "computed": "the fixed point, directly", "largest_topic": LARGEST_TOPIC},
    cases=greedy_cases,
    measure=measure,
    compare=compare_greedy,
    meaning="Who links to those with the same interests needs far fewer links than with StaN. But neighbours then know "
    "each other: nearly all overlays fall into groups that do not reach each other. StaN's stay random graphs.",
)
