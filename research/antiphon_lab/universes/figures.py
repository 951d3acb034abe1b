"""Figures 3.4 to 3.6 of the thesis of M. Matos: how subscriptions are distributed, and how topics are correlated.

The traces are not published; stand-ins are measured (see :mod:`antiphon_lab.universes.table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

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
from antiphon_lab.universes.fits import Distribution, Fit, distribution_of
from antiphon_lab.universes.law import FEWEST_SUBSCRIBERS, Population, law_named
from antiphon_lab.universes.samples import UniverseSampler
from antiphon_lab.universes.table import DATA, KINDS, STAND_IN, TableCase, size_of, source
from antiphon_lab.universes.universe import Universe, correlation_matrix, synthetic_universe, universe_of

DOCUMENT = "thesis of M. Matos, section 3.3.2"
DEFAULT_PROCESSES, FULL_PROCESSES = 40_000, 301_315
INDICES = (0, 1, 6)
"""Of the universes of Table 3.1 that are taken from the stand-in for the whole trace."""
CANDIDATES = 11
MOST_POINTS = 60
QUANTILES = 50

LEAST_COMPARED = 1000
"""With fewer processes rows only report the measured values; the smallest published universe has 1,381."""

UNKNOWN = Fit(exponent=0.0, least=0, distance=1.0, tail=0)

Numbers = list[tuple[int, int]]


# Figures 3.4 and 3.5.


@dataclass(frozen=True)
class CurveCase:
    """One universe: of an index taken from the stand-in for a trace, or drawn by itself as large as the smallest."""

    kind: str
    nodes: int
    index: int

    @property
    def name(self) -> str:
        """Its name in the thesis."""
        return f"{KINDS[self.kind]}{self.index}"

    def __str__(self) -> str:
        return f"{self.name} of a stand-in for {self.kind} with {self.nodes} processes"


class UniverseCurves(msgspec.Struct, frozen=True):
    """Distributions as numbers of subscriptions and how many have each."""

    processes: int
    topics: int
    popularity: Numbers
    activity: Numbers


def made(case: CurveCase, seed: int) -> Universe:
    """The universe of a case."""
    if case.index == 8:
        return synthetic_universe(case.kind, seed=seed)
    whole = source(case.kind, case.nodes, seed)
    if case.index == 0:
        return whole
    method = TableCase(case.kind, case.nodes, CANDIDATES).method(case.index, "seeds")
    assert method is not None, "the sizes are large enough for these indices"
    sampler = UniverseSampler(whole)
    return sampler.universe(sampler.median(replace(method, seed=seed)))


def measure_curves(case: CurveCase, seed: int) -> UniverseCurves:
    """Count subscribers and subscriptions."""
    universe = made(case, seed)
    popularity, activity = distribution_of(universe.popularity), distribution_of(universe.activity)
    return UniverseCurves(universe.processes, universe.topics, in_pairs(popularity), in_pairs(activity))


def in_pairs(distribution: Distribution) -> Numbers:
    """A distribution in plain numbers."""
    return list(zip(distribution.values.tolist(), distribution.counts.tolist(), strict=True))


def in_arrays(pairs: Numbers) -> Distribution:
    """A distribution that was written in plain numbers."""
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Distribution(both[:, 0], both[:, 1])


def curve_cases(kind: str) -> Callable[[Plan], list[CurveCase]]:
    """The universes of a figure."""

    def cases(plan: Plan) -> list[CurveCase]:
        size = size_of(plan)
        possible = [0, *TableCase(kind, size, CANDIDATES).indices()]
        return [CurveCase(kind, size, index) for index in (*INDICES, 8) if index == 8 or index in possible]

    return cases


def quantity(side: str, of: Callable[[Distribution], float]) -> Callable[[UniverseCurves], float]:
    """A number that a distribution has; ``side`` is ``popularity`` or ``activity``."""
    return lambda curves: of(in_arrays(curves.popularity if side == "popularity" else curves.activity))


def fits_of(curves: UniverseCurves) -> dict[str, Fit]:
    """The power laws of both sides; one of which nothing is known where there are too few values."""
    sides = {"popularity": curves.popularity, "activity": curves.activity}
    return {side: in_arrays(pairs).fit() or UNKNOWN for side, pairs in sides.items()}


def times_median(distribution: Distribution) -> float:
    """How much the first has, beside the one in the middle."""
    return distribution.largest / distribution.median


CLAIMS: tuple[tuple[str, str, str, Callable[[Distribution], float]], ...] = (
    ("most popular topic / median topic", "popularity", "popular-topics", times_median),
    ("topics below the mean", "popularity", "small-topics", lambda one: 100 * one.share_below_mean),
    ("most active process / median process", "activity", "active-processes", times_median),
    ("processes below the mean", "activity", "most-processes", lambda one: 100 * one.share_below_mean),
)


def compare_curves(kind: str) -> Callable[[Plan, Results[CurveCase, UniverseCurves]], Iterator[Finding]]:
    """Claims on every universe, and the fitted laws."""

    def compare(plan: Plan, results: Results[CurveCase, UniverseCurves]) -> Iterator[Finding]:
        yield STAND_IN
        cases = curve_cases(kind)(plan)
        numbers = DATA.numbers
        smallest = {case: min(curves.processes for curves in results.of(case)) for case in cases}
        for case in cases:
            for label, side, name, of in CLAIMS:
                measured, about = results.sample(case, quantity(side, of)), f"{label}, {case.name}"
                yield compared_from(LEAST_COMPARED, smallest[case], about, measured, numbers[f"fig-3.4/{name}"])
        for case in cases:
            fits = [fits_of(curves) for curves in results.of(case)]
            distance = Sample(tuple(fit["popularity"].distance for fit in fits))
            label = f"distance of popularity from a power law, {case.name}"
            yield compared_from(LEAST_COMPARED, smallest[case], label, distance, numbers["fig-3.4/power-law"])
            yield Row(f"processes, {case.name}", "processes", results.sample(case, lambda curves: curves.processes))
            yield Row(f"topics, {case.name}", "topics", results.sample(case, lambda curves: curves.topics))
            for side in ("popularity", "activity"):
                exponent = Sample(tuple(fit[side].exponent for fit in fits))
                yield Row(f"exponent of {side}, {case.name}", "exponent", exponent)
                least = Sample(tuple(float(fit[side].least) for fit in fits))
                yield Row(f"{side} is fitted from, {case.name}", "subscriptions", least)
        yield curve_figure("topics", "Subscribers per topic", "subscribers", "popularity", cases, results)
        yield curve_figure("processes", "Subscriptions per process", "subscriptions", "activity", cases, results)
        yield Note(
            "Exponents are the most likely ones for whole numbers, for the tail that a power law fits best (A. "
            "Clauset, C. Shalizi and M. Newman, 2009). The published figures have no readable values."
        )

    return compare


def curve_figure(
    name: str, title: str, unit: str, side: str, cases: list[CurveCase], results: Results[CurveCase, UniverseCurves]
) -> Figure:
    """The curves of all universes, of the first repetition."""
    found = []
    for variant, case in enumerate(cases):
        first = results.of(case)[0]
        pairs = first.popularity if side == "popularity" else first.activity
        found.append(tail_series(case.name, case.kind, in_arrays(pairs), variant))
    return tail_figure(name, title, unit, found)


def tail_series(name: str, system: str, distribution: Distribution, variant: int = 0) -> Series:
    """The share that has at least a number."""
    shares = 100 * np.cumsum(distribution.counts[::-1])[::-1] / distribution.total
    # As many points in every part of a logarithmic axis, the first and the last among them.
    steps = np.geomspace(distribution.values[0], distribution.largest, MOST_POINTS)
    places = np.unique(np.searchsorted(distribution.values, np.rint(steps)))
    points = tuple(Point(float(distribution.values[place]), float(shares[place])) for place in places)
    return Series(name, system, points, variant=variant)


def tail_figure(name: str, title: str, unit: str, series: Iterable[Series]) -> Figure:
    """A figure of such shares, both axes logarithmic."""
    return Figure(
        name,
        title,
        Axis(unit, scale="log10"),
        Axis(f"{name} with as many or more", "%", scale="log10"),
        tuple(series),
    )


def curves_experiment(kind: str, figure: str) -> Experiment[CurveCase, UniverseCurves]:
    """Figure 3.4 or 3.5."""
    return Experiment(
        name=f"stan/fig-{figure}",
        document=f"{DOCUMENT}, Figure {figure}",
        description=f"universes of subscriptions: popularity of topics and activity of processes, like {kind}",
        default=Plan((DEFAULT_PROCESSES,), repetitions=3, large_repetitions=3),
        full=Plan((FULL_PROCESSES,), repetitions=3, large_repetitions=3, full=True),
        parameters={"candidates": CANDIDATES, "source": "synthetic stand-ins; the traces are not published"},
        cases=curve_cases(kind),
        measure=measure_curves,
        compare=compare_curves(kind),
        meaning="Few topics are popular and few processes are busy, in the whole as in the small universes that are "
        "taken from it. The law of the stand-in puts power laws in; that small universes keep them is what is seen.",
    )


FIG_3_4 = curves_experiment("livejournal", "3.4")
FIG_3_5 = curves_experiment("wikipedia", "3.5")


# Figure 3.6.


@dataclass(frozen=True)
class CorrelationCase:
    """A universe as large as L8 or W8; as it is, or with subscribers that are drawn by chance alone."""

    kind: str
    nodes: int
    chance: bool = False

    @property
    def name(self) -> str:
        """Its name in the thesis."""
        return f"{KINDS[self.kind]}8{' by chance' if self.chance else ''}"

    def __str__(self) -> str:
        return f"{self.name}, {self.nodes} processes"


class Correlations(msgspec.Struct, frozen=True):
    """How much pairs of topics have in common, of all pairs."""

    mean: float
    mean_largest: float
    """Of every topic its most similar one, and the mean of these."""
    quantiles: list[float]


def measure_correlations(case: CorrelationCase, seed: int) -> Correlations:
    """Correlate all topics."""
    law = law_named(case.kind).scaled(case.nodes)
    if case.chance:
        law = replace(law, mix=1.0, largest_activity=1.0)
    process, topic = Population(law, seed).subscriptions(0, law.topics)
    matrix = correlation_matrix(universe_of(process, topic, law.processes, law.topics))
    np.fill_diagonal(matrix, -np.inf)
    largest = matrix.max(axis=1)
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    steps = np.quantile(pairs, np.linspace(0, 1, QUANTILES + 1))
    return Correlations(float(pairs.mean()), float(largest.mean()), steps.tolist())


def correlation_cases(_plan: Plan) -> list[CorrelationCase]:
    """L8 and W8, each beside one by chance."""
    return [CorrelationCase(kind, law_named(kind).processes, chance) for kind in KINDS for chance in (False, True)]


def compare_correlations(_plan: Plan, results: Results[CorrelationCase, Correlations]) -> Iterator[Finding]:
    """More than by chance, and more on Wikipedia."""
    yield STAND_IN
    largest: dict[str, Sample] = {}
    for kind, letter in KINDS.items():
        case = CorrelationCase(kind, law_named(kind).processes)
        largest[kind] = results.sample(case, lambda one: one.mean_largest)
        chance = results.sample(replace(case, chance=True), lambda one: one.mean_largest)
        label = f"correlation with the most similar topic, {letter}8 / by chance"
        yield compared(label, largest[kind].over(chance), DATA.numbers["fig-3.6/non-negligible"])
    ratio = largest["wikipedia"].over(largest["livejournal"])
    label = "correlation with the most similar topic, W8 / L8"
    yield compared(label, ratio, DATA.numbers["fig-3.6/wikipedia-stronger"])
    for case in correlation_cases(_plan):
        yield Row(
            f"mean correlation of two topics, {case.name}", "coefficient", results.sample(case, lambda one: one.mean)
        )
        most = results.sample(case, lambda one: one.mean_largest)
        yield Row(f"correlation with the most similar topic, {case.name}", "coefficient", most)
    yield correlation_figure(results)
    yield Note(
        "The heat map itself: `antiphon universe generate wikipedia w8`, then `antiphon universe stats w8 -o w8.html`. "
        "The published one has no readable values."
    )


def correlation_figure(results: Results[CorrelationCase, Correlations]) -> Figure:
    """How many pairs of topics are correlated how much."""
    series = []
    for kind in KINDS:
        for variant, chance in enumerate((False, True)):
            case = CorrelationCase(kind, law_named(kind).processes, chance)
            steps = results.of(case)[0].quantiles
            points = tuple(Point(value, 100 - 100 * place / QUANTILES) for place, value in enumerate(steps))
            series.append(Series(case.name, kind, points, variant=variant))
    return Figure(
        "correlation",
        "Correlation of topics",
        Axis("Pearson's coefficient"),
        Axis("pairs of topics with as much or more", "%"),
        tuple(series),
    )


FIG_3_6: Experiment[CorrelationCase, Correlations] = Experiment(
    name="stan/fig-3.6",
    document=f"{DOCUMENT}, Figure 3.6",
    description="universes of subscriptions: how much topics have in common",
    default=Plan((law_named("livejournal").processes,), repetitions=3, large_repetitions=3),
    full=Plan((law_named("livejournal").processes,), repetitions=10, large_repetitions=10, full=True),
    parameters={
        "fewest_subscribers": FEWEST_SUBSCRIBERS,
        "source": "synthetic stand-ins; the traces are not published",
    },
    cases=correlation_cases,
    measure=measure_correlations,
    compare=compare_correlations,
    meaning="Who shares one topic shares others: a topic's most similar one is far more like it than chance would make "
    "it, and more so on Wikipedia than on LiveJournal. Sharing links between topics rests on this. Busy processes "
    "alone make topics alike; communities make some pairs more alike than others.",
)
