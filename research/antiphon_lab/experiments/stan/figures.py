"""How many links StaN saves: Figures 3.7 to 3.9 of the thesis of M. Matos (section 3.3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from antiphon_lab.experiments.stan.runs import (
    GRID,
    LIVEJOURNAL,
    LOST_DATA,
    MODEL,
    WIKIPEDIA,
    StanCase,
    StanOutcome,
    key_of,
    measure,
    subscriptions_of,
    topics_of,
    universe_named,
)
from antiphon_lab.protocols.gossip.stan_options import NOTHING
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
    compared_from,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Fitted
from antiphon_lab.universes.law import LIVEJOURNAL as LIVEJOURNAL_LAW
from antiphon_lab.universes.law import WIKIPEDIA as WIKIPEDIA_LAW
from antiphon_lab.universes.law import Reals
from antiphon_lab.universes.stan_links import Links, links_of

DOCUMENT = "thesis of M. Matos, section 3.3.4"
PUBLISHED_RUNS = 10
NUMBERS = document("stan").numbers

GRID_PROCESSES = 100
GRID_ROUNDS = 8
PLANETLAB_LOSS = 0.05
"""The thesis states that messages are lost on PlanetLab, and not how many."""

W8, L8 = WIKIPEDIA_LAW.processes, LIVEJOURNAL_LAW.processes


# Figure 3.7.


def grid_cases(plan: Plan) -> list[StanCase]:
    """The simulator of the thesis, and something like PlanetLab."""
    return [
        StanCase(GRID, size, GRID_ROUNDS, loss, learning=NOTHING)
        for size in plan.sizes
        for loss in (0.0, PLANETLAB_LOSS)
    ]


GRID_LAW = Fitted("the exponents of the grid workload", "how fast links fall, and what message loss costs")
TUNED = Fitted(
    "the law of a universe of the size of W8",
    "the gain by process, the fitness of overlays, loss, churn, growth and the comparison with greedy",
)


def compare_grid(plan: Plan, results: Results[StanCase, StanOutcome]) -> Iterator[Finding]:
    """Links by round."""
    for size in plan.sizes:
        simulated, lossy = (case for case in grid_cases(plan) if case.nodes == size)
        rows = (
            ("initial physical links", lambda outcome: outcome.physical[0], "initial"),
            (f"physical links after {GRID_ROUNDS} rounds", lambda outcome: outcome.physical[-1], "final"),
            ("logical links, end / start", lambda outcome: outcome.logical[-1] / outcome.logical[0], "logical"),
        )
        for label, quantity, name in rows:
            sample = results.sample(simulated, quantity)
            is_published = size == GRID_PROCESSES or name == "logical"
            number = NUMBERS[f"fig-3.7/{name}"]
            text = f"{label}, {size} processes"
            basis = GRID_LAW if name != "logical" else None
            yield Row(text, number.unit, sample, number if is_published else None, basis=basis)
        worse = results.sample(lossy, lambda outcome: outcome.physical[3]).over(
            results.sample(simulated, lambda outcome: outcome.physical[3])
        )
        label = f"with {100 * PLANETLAB_LOSS:g} % lost / without, round 3, {size} processes"
        yield compared(label, worse, NUMBERS["fig-3.7/planetlab"])
        yield round_figure(size, simulated, lossy, results)
    yield Note(
        "The thesis does not give the exponents of its grid workload. These were chosen such that 100 processes have "
        "about the published numbers of links, so agreement on these is no evidence; how fast they fall is."
    )


def round_figure(size: int, simulated: StanCase, lossy: StanCase, results: Results[StanCase, StanOutcome]) -> Figure:
    """Figure 3.7(a)."""

    def line(name: str, case: StanCase, quantity: Callable[[StanOutcome, int], float], variant: int) -> Series:
        points = tuple(
            results.sample(case, lambda outcome, at=at: quantity(outcome, at)).point(at)  # type: ignore[misc]
            for at in range(GRID_ROUNDS + 1)
        )
        return Series(name, "StaN", points, variant=variant)

    return Figure(
        "rounds",
        f"Links by round, {size} processes",
        Axis("round"),
        Axis("mean number of links"),
        (
            line("logical links", simulated, lambda outcome, at: outcome.logical[at], 0),
            line("physical links", simulated, lambda outcome, at: outcome.physical[at], 1),
            line("physical links, messages lost", lossy, lambda outcome, at: outcome.physical[at], 2),
        ),
        caption="Mean over processes with a subscription. The published figure has no readable values.",
    )


FIG_3_7: Experiment[StanCase, StanOutcome] = Experiment(
    name="stan/fig-3.7",
    document=f"{DOCUMENT}, Figure 3.7",
    description="StaN: links by round on a small synthetic workload",
    default=Plan((GRID_PROCESSES,), repetitions=5, large_repetitions=5),
    full=Plan((GRID_PROCESSES,), repetitions=5, large_repetitions=5, full=True),
    parameters={**MODEL, "learning": NOTHING, "rounds_run": GRID_ROUNDS, "loss": PLANETLAB_LOSS},
    cases=grid_cases,
    measure=measure,
    compare=compare_grid,
    meaning="Walks bring a process better neighbours in every topic, and the same ones in many. Logical links stay as "
    "many as they were; physical links fall by two fifths, most of it in the first three rounds.",
)


# Figure 3.8.


@dataclass(frozen=True)
class LinkCase:
    """The links of all processes of a universe, before StaN and at rest."""

    kind: str
    nodes: int

    def __str__(self) -> str:
        return f"links of {self.nodes} processes like {self.kind}"


def measure_links(case: LinkCase, seed: int) -> Links:
    """The fixed point, computed directly."""
    owners, of = subscriptions_of(universe_named(case.kind, case.nodes))
    return links_of(topics_of(case.kind, case.nodes), owners, of, seed, key_of(seed))


def improvement(links: Links) -> Reals:
    """Of each process, which percentage of its physical links it saves."""
    return 100 * (1 - links.aligned / links.initial)


def livejournal_size(size: int) -> int:
    """A universe like LiveJournal's is to L8 as one like Wikipedia's is to W8."""
    return round(size * L8 / W8)


LEAST_COMPARED = 100
"""Fewer processes share too few topics to compare with the published numbers."""


def scatter_cases(plan: Plan) -> list[LinkCase]:
    """Both universes."""
    return [
        case
        for size in plan.sizes
        for case in (LinkCase(WIKIPEDIA, size), LinkCase(LIVEJOURNAL, livejournal_size(size)))
    ]


FoundLinks = Results[LinkCase, Links]


def share_above(percent: float) -> Callable[[Links], float]:
    """The percentage of processes that save more than so much."""
    return lambda links: float(100 * np.mean(improvement(links) > percent))


def low_links_of_losers(links: Links) -> float:
    """The mean initial number of links where it rises, relative to that of all; 0 if it rises nowhere."""
    losers = links.aligned > links.initial
    return float(links.initial[losers].mean() / links.initial.mean()) if losers.any() else 0.0


def compare_scatter(plan: Plan, results: FoundLinks) -> Iterator[Finding]:
    """The gain by process."""
    for size in plan.sizes:
        wikipedia, livejournal = LinkCase(WIKIPEDIA, size), LinkCase(LIVEJOURNAL, livejournal_size(size))
        for case in (wikipedia, livejournal):
            under = results.sample(case, lambda links: float(100 * np.mean(links.aligned <= links.initial)))
            yield compared_from(
                LEAST_COMPARED, size, f"on or under the diagonal, {case}", under, NUMBERS["fig-3.8/under-diagonal"]
            )
            low = results.sample(case, low_links_of_losers)
            label = f"links of those who lose / of all, {case}"
            if min(low.values) > 0:
                yield compared_from(LEAST_COMPARED, size, label, low, NUMBERS["fig-3.8/negative-only-low"])
        gain = results.sample(wikipedia, share_above(40))
        yield compared_from(
            LEAST_COMPARED, size, f"saving over 40 %, {wikipedia}", gain, NUMBERS["fig-3.8/wikipedia-majority"]
        )
        if min(gain.values) > 0:
            fewer = results.sample(livejournal, share_above(40)).over(gain)
            yield compared_from(
                LEAST_COMPARED,
                size,
                f"saving over 40 %, LiveJournal / Wikipedia, {size}",
                fewer,
                NUMBERS["fig-3.8/livejournal-fewer"],
            )
        most = results.sample(wikipedia, lambda links: float(np.quantile(improvement(links), 0.95)))
        label = f"saving of the best twentieth, {wikipedia}"
        yield compared_from(LEAST_COMPARED, size, label, most, NUMBERS["section-3.5/up-to-60-percent"])
        for case in (wikipedia, livejournal):
            yield Row(f"median saving, {case}", "%", results.sample(case, lambda links: median_of(improvement(links))))
            yield scatter_figure(case, results)
    yield Note(LOST_DATA)


def median_of(values: Reals) -> float:
    """The median."""
    return float(np.median(values))


def scatter_figure(case: LinkCase, results: FoundLinks) -> Figure:
    """Figure 3.8: a few hundred processes, evenly spread over the order of their links."""
    links = results.of(case)[0]
    chosen = np.argsort(links.initial, kind="stable")[:: max(1, len(links.initial) // 300)]
    points = tuple(Point(float(links.initial[at]), float(links.aligned[at])) for at in chosen.tolist())
    most = float(links.initial.max())
    return Figure(
        f"scatter-{case.kind}",
        f"Physical links before and after, {case.nodes} processes like {case.kind}",
        Axis("initial physical links"),
        Axis("final physical links"),
        (
            Series("processes", "StaN", points, "points"),
            Series("no change", "initial", (Point(0, 0), Point(most, most))),
        ),
        caption="The published figure has no readable values.",
    )


FIG_3_8: Experiment[LinkCase, Links] = Experiment(
    name="stan/fig-3.8",
    document=f"{DOCUMENT}, Figure 3.8, and section 3.5",
    description="StaN: physical links of each process before and after",
    default=Plan((W8,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "computed": "the fixed point, directly"},
    cases=scatter_cases,
    measure=measure_links,
    compare=compare_scatter,
    meaning="Whoever has many links saves most of them: most processes of the universe like Wikipedia's save over two "
    "fifths, the best three fifths. Where subscriptions are less alike, as in LiveJournal, the gain is smaller. Few "
    "processes, with hardly any links, lose one or two that were shared by chance.",
)


# Figure 3.9.

WIKIPEDIA_SIZES = (1381, 5957, 33956, 108620)
"""W8, W7, W6 and W5 of Table 3.1. Larger ones are for the job on Spark."""


def growth_cases(plan: Plan) -> list[LinkCase]:
    """Both kinds at all sizes."""
    return [LinkCase(kind, size) for kind in (WIKIPEDIA, LIVEJOURNAL) for size in plan.sizes]


def factor(links: Links) -> float:
    """How many times as many physical links there were before."""
    return float(links.initial.sum() / links.aligned.sum())


def compare_growth(plan: Plan, results: FoundLinks) -> Iterator[Finding]:
    """Links by number of topics."""
    number = NUMBERS["fig-3.9/factor-two"]
    for case in growth_cases(plan):
        label = f"initial / final physical links, {case}"
        sample = results.sample(case, factor)
        if case.kind == WIKIPEDIA and case.nodes == W8:
            yield compared(label, sample, number, basis=TUNED)
        else:
            yield Row(label, number.unit, sample)
    for case in growth_cases(plan):
        yield Row(f"initial, {case}", "links", mean_links(results, case, "initial"))
        yield Row(f"final, {case}", "links", mean_links(results, case, "aligned"))
    for kind in (WIKIPEDIA, LIVEJOURNAL):
        yield growth_figure(kind, plan, results)
    yield Note(LOST_DATA)


def mean_links(results: FoundLinks, case: LinkCase, which: str) -> Sample:
    """Mean over the processes that subscribe to anything."""
    return results.sample(case, lambda links: float(getattr(links, which).mean()))


def growth_figure(kind: str, plan: Plan, results: FoundLinks) -> Figure:
    """Figure 3.9."""
    series = []
    for variant, (which, name) in enumerate((("initial", "before StaN"), ("aligned", "with StaN"))):
        points = tuple(
            mean_links(results, LinkCase(kind, size), which).point(universe_named(kind, size).topics)
            for size in plan.sizes
        )
        series.append(Series(name, "StaN", points, variant=variant))
    return Figure(
        f"growth-{kind}",
        f"Physical links by number of topics, universes like {kind}",
        Axis("topics", scale="log10"),
        Axis("mean physical links"),
        tuple(series),
        caption="The published figure has no readable values.",
    )


FIG_3_9: Experiment[LinkCase, Links] = Experiment(
    name="stan/fig-3.9",
    document=f"{DOCUMENT}, Figure 3.9",
    description="StaN: how physical links grow with the number of topics",
    default=Plan((W8 // 4, W8), repetitions=3, large_repetitions=3),
    full=Plan(WIKIPEDIA_SIZES, repetitions=3, large_repetitions=1, full=True),
    parameters={**MODEL, "computed": "the fixed point, directly"},
    cases=growth_cases,
    measure=measure_links,
    compare=compare_growth,
    meaning="Links grow with the number of topics a process cares for, and about half as fast with StaN where "
    "subscriptions are as alike as in the universe like W8. The gain is no constant of StaN: it follows from how alike "
    "subscriptions are.",
)
