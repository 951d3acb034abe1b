"""EpTO against no order at all: Figures 5.7 to 5.9 of the thesis of M. Matos (section 5.3).

They show message delays, how far from any order events arrive by themselves, and the cost of waiting for order.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.network.delays import QuantileDelay
from antiphon_lab.experiments.epto.runs import (
    GLOBAL,
    LOGICAL,
    MODEL,
    PERIOD_TICKS,
    PLANETLAB,
    EptoCase,
    EptoOutcome,
    measure,
)
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
from antiphon_lab.reproduction.verdicts import Derived, Refutation

DOCUMENT = "thesis of M. Matos, section 5.3"
RATES = (0.01, 0.1, 0.5)
CLOCKS = (GLOBAL, LOGICAL)
SIZES = (100, 200, 500)
PUBLISHED_RUNS = 20
DRAWS = 100_000
DELAY_STREAM = 142

Found = Results[EptoCase, EptoOutcome]
NUMBERS = document("epto").numbers


# Figure 5.7.


@dataclass(frozen=True)
class DelayCase:
    """The number of delays to draw, for two ends."""

    draws: int = DRAWS
    nodes: int = 2

    def __str__(self) -> str:
        return f"{self.draws} delays"


def draw_delays(case: DelayCase, seed: int) -> list[int]:
    """Delays in ascending order."""
    law, random = QuantileDelay(PLANETLAB), RandomStream(seed, DELAY_STREAM)
    return sorted(int(law.draw(0, 1, random)) for _ in range(case.draws))


def compare_delays(_plan: Plan, results: Results[DelayCase, list[int]]) -> Iterator[Finding]:
    """The numbers that the text gives."""
    case = DelayCase()
    given = Derived("the law of delays, which was drawn through these numbers: an input of the other figures")
    yield compared("mean", results.sample(case, statistics.fmean), NUMBERS["fig-5.7/mean"], basis=given)
    deviation = results.sample(case, statistics.pstdev)
    yield compared("standard deviation", deviation, NUMBERS["fig-5.7/deviation"], basis=given)
    for percent in (5, 50, 95):

        def percentile(delays: list[int], percent: int = percent) -> float:
            return float(delays[len(delays) * percent // 100])

        number = NUMBERS[f"fig-5.7/percentile-{percent}"]
        yield compared(f"percentile {percent}", results.sample(case, percentile), number, basis=given)
    delays = results.of(case)[0]
    points = [Point(float(delays[min(len(delays) - 1, len(delays) * p // 100)]), float(p)) for p in range(0, 101, 2)]
    yield Figure(
        "delays",
        "How long messages take",
        Axis("delay", "ticks"),
        Axis("messages that take no longer", "%"),
        (Series("stand-in for PlanetLab", "EpTO", tuple(points)),),
        caption="The published figure has no readable values; the stand-in has the mean, the deviation and the three "
        "percentiles of the text, with straight lines between eight points.",
    )


FIG_5_7: Experiment[DelayCase, list[int]] = Experiment(
    name="epto/fig-5.7",
    document=f"{DOCUMENT}, Figure 5.7",
    description="EpTO: the distribution of delays that all its experiments use",
    default=Plan((2,), repetitions=3, large_repetitions=3),
    full=Plan((2,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={"delay_points": PLANETLAB, "draws": DRAWS},
    cases=lambda _plan: [DelayCase()],
    measure=draw_delays,
    compare=compare_delays,
    meaning="Messages between PlanetLab nodes take 125 ticks in the median and nearly three times that in one case of "
    "twenty. The experiments on EpTO draw from this distribution; it was made to fit the numbers of the text, so this "
    "checks the stand-in and no claim.",
)


# Figure 5.8.


def all_cases(plan: Plan) -> list[EptoCase]:
    """Every size, rate and clock."""
    return [EptoCase(size, rate, clock) for size in plan.sizes for rate in RATES for clock in CLOCKS]


def median_similarity(outcome: EptoOutcome) -> float:
    """The median over nodes of the share of received events that were in order."""
    return statistics.median(outcome.similarities)


LEAST_COMPARED = 50
"""With fewer nodes than half of the smallest published size, rows only report the measured values."""


def in_same_order(outcome: EptoOutcome) -> float:
    """The share of nodes that delivered everything, in the one order, in percent."""
    return 100 * outcome.hole_free_share if outcome.disorders == 0 else 0.0


def compare_order(plan: Plan, results: Found) -> Iterator[Finding]:
    """The bound of the text, the growth of the quantities, and EpTO beside it."""
    highest = RATES[-1]
    for size in plan.sizes:
        best = results.sample(EptoCase(size, highest), lambda outcome: max(outcome.similarities))
        label = f"best of {size} nodes at rate {highest}, unordered"
        yield compared_from(LEAST_COMPARED, size, label, best, NUMBERS["fig-5.8/at-most-half"])
    for case in all_cases(plan):
        label = f"in the same order, all of it, {case.nodes} nodes, rate {case.rate:g}, {case.clock} clock"
        yield compared(label, results.sample(case, in_same_order), NUMBERS["fig-5.8/with-epto"])
    if len(plan.sizes) > 1:
        few, many = plan.sizes[0], plan.sizes[-1]
        by_rate = drop(results, EptoCase(few, 0.1), EptoCase(few, 0.5))
        by_size = drop(results, EptoCase(few, 0.1), EptoCase(many, 0.1))
        label = f"loss of order: 5 times the rate / {many // few} times the nodes"
        yield compared(label, by_rate.over(by_size), NUMBERS["fig-5.8/rate-matters-more"])
    for case in all_cases(plan):
        label = f"median node, unordered, {case.nodes} nodes, rate {case.rate:g}, {case.clock} clock"
        yield Row(label, "share in order", results.sample(case, median_similarity))
    yield similarity_figure(plan, results)
    yield Note(
        "Similarity is the longest part of a node's sequence that is in the one order, gaps allowed. The thesis speaks "
        "of common sequences and does not define them."
    )


def drop(results: Found, one: EptoCase, other: EptoCase) -> Sample:
    """By which factor the median node is less in order in another case."""
    return results.sample(one, median_similarity).over(results.sample(other, median_similarity))


def similarity_figure(plan: Plan, results: Found) -> Figure:
    """Figure 5.8."""
    series = [
        Series(
            f"{size} nodes",
            "EpTO",
            tuple(
                results.sample(EptoCase(size, rate), median_similarity).point(place) for place, rate in enumerate(RATES)
            ),
            "bars",
            variant,
        )
        for variant, size in enumerate(plan.sizes)
    ]
    return Figure(
        "order",
        "How much arrives in order by itself",
        Axis("publications per node and round", categories=tuple(f"{rate:g}" for rate in RATES)),
        Axis("share in order"),
        tuple(series),
        caption="Median node, global clock. With EpTO all bars would be 1. The published figure has no readable "
        "values.",
    )


FIG_5_8: Experiment[EptoCase, EptoOutcome] = Experiment(
    name="epto/fig-5.8",
    document=f"{DOCUMENT}, Figure 5.8",
    description="EpTO: how much of a gossiped stream arrives in order by itself, and with it",
    default=Plan(SIZES[:1], repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "rates": RATES},
    cases=all_cases,
    measure=measure,
    compare=compare_order,
    meaning="Gossip brings events to everybody, but in an order of its own at each node. Here each node's sequence is "
    "compared with the one order of all events. With half of the nodes publishing in a round not even half of what a "
    "node hears is in order; with EpTO all of it is, at all nodes, whatever the clock.",
)


# Figure 5.9.


def compare_delay(plan: Plan, results: Found) -> Iterator[Finding]:
    """Ordered against unordered delay."""
    for size in plan.sizes:
        for clock in CLOCKS:
            case = EptoCase(size, RATES[-1], clock)
            times = results.sample(case, lambda outcome: outcome.ordered_ticks / outcome.unordered_ticks)
            yield compared(
                f"{clock} clock / unordered, {size} nodes", times, NUMBERS[f"fig-5.9/{clock}"], slower(case, results)
            )
    if len(plan.sizes) > 1:
        few, many = plan.sizes[0], plan.sizes[-1]
        grown = ordered(results, EptoCase(many, 0.5)).over(ordered(results, EptoCase(few, 0.1)))
        explanation = Refutation(
            "a twofold delay with five times the nodes and events",
            "rounds last one period whatever the size, and ttl grows with the logarithm; nothing in the algorithm "
            "could double the delay",
            2 * int(EptoCase(many, 0.5).options().ttl) < 3 * int(EptoCase(few, 0.1).options().ttl),
            1.0,
            1.5,
        )
        yield compared(f"{many // few} times nodes and rate", grown, NUMBERS["fig-5.9/fivefold"], explanation)
    for case in all_cases(plan):
        about = f"{case.nodes} nodes, rate {case.rate:g}, {case.clock} clock"
        yield Row(f"ordered, {about}", "ticks", ordered(results, case))
        yield Row(f"unordered, {about}", "ticks", results.sample(case, lambda outcome: outcome.unordered_ticks))
    yield delay_figure(plan, results)
    yield Note(
        "Delay is from the broadcast to the delivery at another node. Unordered is the moment at which a node first "
        f"hears of the event; counted from round to round it would be half a period, {PERIOD_TICKS // 2} ticks, more."
    )


def ordered(results: Found, case: EptoCase) -> Sample:
    """The mean delay of deliveries."""
    return results.sample(case, lambda outcome: outcome.ordered_ticks)


def slower(case: EptoCase, results: Found) -> Refutation:
    """Why the literal algorithm takes longer than the text states."""
    ttl = int(case.options().ttl)
    rounds = 2 * ttl if case.clock == LOGICAL else ttl
    unordered = results.sample(case, lambda outcome: outcome.unordered_ticks).mean
    least, most = (rounds * share * PERIOD_TICKS / max(unordered, 1.0) for share in (0.5, 1.2))
    number = NUMBERS[f"fig-5.9/{case.clock}"]
    return Refutation(
        f"order at {number.value:g} times the unordered delay, with the printed algorithm and a ttl of {ttl}",
        f"an event is delivered when its age is above {rounds}, and grows old by one in a round, or faster while it is "
        f"relayed along quick ways, so it takes 0.5 to 1.2 times {rounds} periods of {PERIOD_TICKS} ticks, where an "
        f"unordered event takes {unordered:.0f} ticks",
        PERIOD_TICKS / 2 < unordered < 3 * PERIOD_TICKS and least > number.value,
        least,
        most,
    )


def delay_figure(plan: Plan, results: Found) -> Figure:
    """Figure 5.9."""
    places = [(size, rate) for size in plan.sizes for rate in RATES]
    unordered = tuple(
        results.sample(EptoCase(size, rate), lambda outcome: outcome.unordered_ticks).point(place)
        for place, (size, rate) in enumerate(places)
    )
    series = [Series("unordered", "EpTO", unordered, "bars", 0)]
    for variant, clock in enumerate(CLOCKS, 1):
        points = tuple(
            ordered(results, EptoCase(size, rate, clock)).point(place) for place, (size, rate) in enumerate(places)
        )
        series.append(Series(f"{clock} clock", "EpTO", points, "bars", variant))
    return Figure(
        "delay",
        "What waiting for order costs",
        Axis("nodes, rate", categories=tuple(f"{size}, {rate:g}" for size, rate in places)),
        Axis("delay", "ticks"),
        tuple(series),
        caption="Mean over all deliveries at other nodes. The published figure has no readable values.",
    )


FIG_5_9: Experiment[EptoCase, EptoOutcome] = Experiment(
    name="epto/fig-5.9",
    document=f"{DOCUMENT}, Figure 5.9",
    description="EpTO: the delay of ordered and unordered delivery",
    default=Plan(SIZES[:1], repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "rates": RATES},
    cases=all_cases,
    measure=measure,
    compare=compare_delay,
    meaning="Order costs waiting: an event is delivered when it is so old that everybody has it. That takes about five "
    "periods with clocks that agree and twelve with counts, three and eight times as long as the news itself takes, "
    "where the thesis speaks of two and four. It hardly grows with the system or with the load.",
)
