"""Where EpTO begins to have holes: Figures 5.10 and 5.11 of the thesis of M. Matos (section 5.3).

Periods far below the delay of messages, rounds that drift by more than a period, and nodes that come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from antiphon_lab.experiments.epto.figures import DOCUMENT, LEAST_COMPARED, PUBLISHED_RUNS, SIZES, in_same_order
from antiphon_lab.experiments.epto.runs import GLOBAL, LOGICAL, MODEL, EptoCase, EptoOutcome, measure
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared_from
from antiphon_lab.reproduction.figures import Axis, Figure, Series

RATE = 0.5
PERIODS = (5, 10, 15, 25, 41, 62, 125)
"""41 ticks are a third of the median delay, 15 its fifth percentile."""
MEDIAN_TICKS = 125
MOST_PERCENT = 90
"""With this share of nodes without holes it has not degraded importantly."""
UNNOTICEABLE = 0.05
"""By how much the delay may differ."""
DRIFTS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
SOME_DRIFTS = (1.0, 3.0)
CHURNS = (0, 1, 5, 10, 20)
SOME_CHURNS = (0, 10, 20)
SMALL = (50,)
"""The size of default plans for short periods."""
CLOCKS = (GLOBAL, LOGICAL)

Found = Results[EptoCase, EptoOutcome]
NUMBERS = document("epto").numbers


def delivered(outcome: EptoOutcome) -> float:
    """The share of deliveries that were made."""
    return outcome.delivered_share


def figure_of(
    name: str,
    title: str,
    axis: Axis,
    series: dict[str, list[EptoCase]],
    results: Found,
    quantity: Callable[[EptoOutcome], float],
    unit: Axis,
) -> Figure:
    """A line for each clock or size, with a point for each case."""
    lines = [
        Series(
            label, "EpTO", tuple(results.sample(case, quantity).point(at) for at, case in enumerate(cases)), "line", i
        )
        for i, (label, cases) in enumerate(series.items())
    ]
    caption = "Mean over the repetitions. The published figure has no readable values."
    return Figure(name, title, axis, unit, tuple(lines), caption=caption)


# Figure 5.10(a).


def clocks_of(plan: Plan) -> tuple[str, ...]:
    """With a logical clock holes are so rare that only full plans look for them."""
    return CLOCKS if plan.full else CLOCKS[:1]


def periods_of(plan: Plan) -> tuple[int, ...]:
    """The shortest periods take longest: balls are large when messages are slow."""
    return PERIODS if plan.full else PERIODS[1:]


def period_cases(plan: Plan) -> list[EptoCase]:
    """Every size, period and clock."""
    return [
        EptoCase(size, RATE, clock, period=period)
        for size in plan.sizes
        for clock in clocks_of(plan)
        for period in periods_of(plan)
    ]


def compare_periods(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many nodes have no holes, by period."""
    for size in plan.sizes:
        label = f"median delay / shortest period with {MOST_PERCENT} % of nodes without holes, {size} nodes"
        yield compared_from(
            LEAST_COMPARED, size, label, shortest_period(plan, size, results), NUMBERS["fig-5.10a/third-of-median"]
        )
    for case in period_cases(plan):
        about = f"period {case.period}, {case.nodes} nodes, {case.clock} clock"
        yield Row(f"without holes, {about}", "% of nodes", results.sample(case, in_same_order))
        yield Row(f"delivered, {about}", "share", results.sample(case, delivered))
    yield from no_disorder(period_cases(plan), results)
    yield figure_of(
        "period",
        "Nodes without holes, by the length of a period",
        Axis("period", "ticks", categories=tuple(map(str, periods_of(plan)))),
        {
            f"{size} nodes, {clock} clock": [EptoCase(size, RATE, clock, period=period) for period in periods_of(plan)]
            for size in plan.sizes
            for clock in clocks_of(plan)
        },
        results,
        in_same_order,
        Axis("nodes without holes", "%"),
    )


def shortest_period(plan: Plan, size: int, results: Found) -> Sample:
    """How often the shortest period that is good enough fits into the median delay, for each repetition."""
    cases = [EptoCase(size, RATE, period=period) for period in periods_of(plan)]
    values = []
    for number in range(len(results.of(cases[0]))):
        good = [case.period for case in cases if in_same_order(results.of(case)[number]) >= MOST_PERCENT]
        values.append(MEDIAN_TICKS / min(good) if good else 0.0)
    return Sample(tuple(values))


def no_disorder(cases: list[EptoCase], results: Found) -> Iterator[Row]:
    """Holes are allowed, another order is not."""
    worst = max((case for case in cases), key=lambda case: results.sample(case, lambda one: one.disorders).mean)
    yield Row("neighbours out of order in the worst case", "pairs", results.sample(worst, lambda one: one.disorders))


FIG_5_10A: Experiment[EptoCase, EptoOutcome] = Experiment(
    name="epto/fig-5.10a",
    document=f"{DOCUMENT}, Figure 5.10(a)",
    description="EpTO: holes when rounds are far shorter than messages take",
    default=Plan(SMALL, repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "rate": RATE, "periods": PERIODS},
    cases=period_cases,
    measure=measure,
    compare=compare_periods,
    meaning="If rounds are too quick an event counts as old before it has arrived anywhere, and what comes later finds "
    "its place taken: a hole. It takes a period below a third of the median delay to see many of them with clocks that "
    "agree, and a tenth with counts, which wait twice as long.",
)


# Figure 5.10(b).


def drift_cases(plan: Plan) -> list[EptoCase]:
    """Every size, drift and clock."""
    return [
        EptoCase(size, RATE, clock, drift=drift)
        for size in plan.sizes
        for clock in clocks_of(plan)
        for drift in drifts_of(plan)
    ]


def drifts_of(plan: Plan) -> tuple[float, ...]:
    """The drifts of the text, and in full plans all."""
    return DRIFTS if plan.full else SOME_DRIFTS


def compare_drifts(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many nodes have no holes, by drift."""
    for size in plan.sizes:
        share = results.sample(EptoCase(size, RATE, drift=1.0), in_same_order)
        yield compared_from(
            LEAST_COMPARED, size, f"without holes, drift 1.0, {size} nodes", share, NUMBERS["fig-5.10b/drift-1"]
        )
    for case in drift_cases(plan):
        about = f"drift {case.drift:g}, {case.nodes} nodes, {case.clock} clock"
        yield Row(f"without holes, {about}", "% of nodes", results.sample(case, in_same_order))
    yield from no_disorder(drift_cases(plan), results)
    yield figure_of(
        "drift",
        "Nodes without holes, by the drift of rounds",
        Axis("drift", "periods", categories=tuple(f"{drift:g}" for drift in drifts_of(plan))),
        {
            f"{size} nodes, {clock} clock": [EptoCase(size, RATE, clock, drift=drift) for drift in drifts_of(plan)]
            for size in plan.sizes
            for clock in clocks_of(plan)
        },
        results,
        in_same_order,
        Axis("nodes without holes", "%"),
    )


FIG_5_10B: Experiment[EptoCase, EptoOutcome] = Experiment(
    name="epto/fig-5.10b",
    document=f"{DOCUMENT}, Figure 5.10(b)",
    description="EpTO: holes when rounds drift by more than a period",
    default=Plan(SIZES[:1], repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "rate": RATE, "drifts": DRIFTS},
    cases=drift_cases,
    measure=measure,
    compare=compare_drifts,
    meaning="Nodes do not run their rounds in step, and some are quicker than others. Rounds that come anything from "
    "at once to two periods later leave 99 % of the nodes without holes; beyond that it gets worse quickly.",
)


# Figure 5.11.


def churn_cases(plan: Plan) -> list[EptoCase]:
    """Every size and churn; without churn, the same nodes are measured."""
    return [EptoCase(size, RATE, churn=churn) for size in plan.sizes for churn in churns_of(plan)]


def churns_of(plan: Plan) -> tuple[int, ...]:
    """The churn rates of the text, and in full plans all."""
    return CHURNS if plan.full else SOME_CHURNS


NOTICED, COMPLETE = 10, 20
"""The churn up to which the text says that the delay is the same, and that everything is delivered, in percent."""


def delay_of(outcome: EptoOutcome) -> float:
    """The mean delay of deliveries."""
    return outcome.ordered_ticks


def compare_churn(plan: Plan, results: Found) -> Iterator[Finding]:
    """Delay and holes at the nodes that stay."""
    for size in plan.sizes:
        calm, churning = (EptoCase(size, RATE, churn=churn) for churn in (0, NOTICED))
        delay = results.sample(churning, delay_of).over(results.sample(calm, delay_of))
        label = f"delay with {NOTICED} % churn / without, {size} nodes"
        yield compared_from(LEAST_COMPARED, size, label, delay, NUMBERS["fig-5.11/delay"])
        share = results.sample(EptoCase(size, RATE, churn=COMPLETE), in_same_order)
        label = f"without holes, {COMPLETE} % churn, all events, {size} nodes"
        yield compared_from(LEAST_COMPARED, size, label, share, NUMBERS["fig-5.11/complete"])
    for case in churn_cases(plan):
        about = f"churn {case.churn} %, {case.nodes} nodes"
        yield Row(f"delay, {about}", "ticks", results.sample(case, lambda outcome: outcome.ordered_ticks))
        yield Row(f"without holes, {about}", "% of nodes", results.sample(case, in_same_order))
    yield figure_of(
        "churn",
        "Delay at nodes that stay, by churn",
        Axis("nodes replaced per period", "%", categories=tuple(map(str, churns_of(plan)))),
        {f"{size} nodes": [EptoCase(size, RATE, churn=churn) for churn in churns_of(plan)] for size in plan.sizes},
        results,
        lambda outcome: outcome.ordered_ticks,
        Axis("delay", "ticks"),
    )
    yield Note(
        "Percentages are of the whole system, and those who go are drawn from one half of it. Nodes that stay are "
        "measured, with what they published: what a node publishes that is gone before it has relayed it is lost with "
        "it, and newcomers deliver late what is old."
    )


FIG_5_11: Experiment[EptoCase, EptoOutcome] = Experiment(
    name="epto/fig-5.11",
    document=f"{DOCUMENT}, Figure 5.11",
    description="EpTO: the delay under churn",
    default=Plan(SIZES[:1], repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "rate": RATE, "churn_percent": CHURNS},
    cases=churn_cases,
    measure=measure,
    compare=compare_churn,
    meaning="A fifth of all nodes is replaced in every period, and those who stay notice nothing: every event reaches "
    "them, in one order, as fast as ever. No node is special and no link is kept, so nobody is missed.",
)
