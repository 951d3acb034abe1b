"""Where EpTO begins to have holes: Figures 5.10 and 5.11 of the thesis of M. Matos (section 5.3).

Periods far below the delay of messages, rounds that drift by more than a period, and nodes that come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from antiphon.lab.documents import document
from antiphon.lab.epto_figures import DOCUMENT, PUBLISHED_RUNS, SIZES, in_same_order
from antiphon.lab.epto_runs import GLOBAL, LOGICAL, MODEL, EptoCase, Outcome, measure
from antiphon.lab.experiment import Experiment, Finding, Note, Plan, Results, Row, compared
from antiphon.lab.figures import Axis, Figure, Series

RATE = 0.5
PERIODS = (5, 10, 15, 25, 42, 62, 125)
"""42 ticks are a third of the median delay, 15 its fifth percentile."""
THIRD_OF_MEDIAN, FAR_BELOW = 42, 15
DRIFTS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
CHURNS = (0, 1, 5, 10, 20)
CLOCKS = (GLOBAL, LOGICAL)

Found = Results[EptoCase, Outcome]
NUMBERS = document("epto").numbers


def delivered(outcome: Outcome) -> float:
    """The share of deliveries that were made."""
    return outcome.delivered_share


def figure_of(
    name: str,
    title: str,
    axis: Axis,
    series: dict[str, list[EptoCase]],
    results: Found,
    quantity: Callable[[Outcome], float],
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


def period_cases(plan: Plan) -> list[EptoCase]:
    """Every size, period and clock."""
    return [EptoCase(size, RATE, clock, period=period) for size in plan.sizes for clock in CLOCKS for period in PERIODS]


def compare_periods(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many nodes have no holes, by period."""
    for size in plan.sizes:
        for period, name in ((THIRD_OF_MEDIAN, "third-of-median"), (FAR_BELOW, "far-below")):
            share = results.sample(EptoCase(size, RATE, period=period), in_same_order)
            yield compared(f"without holes, period {period}, {size} nodes", share, NUMBERS[f"fig-5.10a/{name}"])
    for case in period_cases(plan):
        about = f"period {case.period}, {case.nodes} nodes, {case.clock} clock"
        yield Row(f"without holes, {about}", "share of nodes", results.sample(case, in_same_order))
        yield Row(f"delivered, {about}", "share", results.sample(case, delivered))
    yield from no_disorder(period_cases(plan), results)
    yield figure_of(
        "period",
        "Nodes without holes, by the length of a period",
        Axis("period", "ticks", categories=tuple(map(str, PERIODS))),
        {
            f"{size} nodes, {clock} clock": [EptoCase(size, RATE, clock, period=period) for period in PERIODS]
            for size in plan.sizes
            for clock in CLOCKS
        },
        results,
        in_same_order,
        Axis("share of nodes"),
    )


def no_disorder(cases: list[EptoCase], results: Found) -> Iterator[Row]:
    """Holes are allowed, another order is not."""
    worst = max((case for case in cases), key=lambda case: results.sample(case, lambda one: one.disorders).mean)
    yield Row("neighbours out of order in the worst case", "pairs", results.sample(worst, lambda one: one.disorders))


FIG_5_10A: Experiment[EptoCase, Outcome] = Experiment(
    name="epto/fig-5.10a",
    document=f"{DOCUMENT}, Figure 5.10(a)",
    description="EpTO: holes when rounds are far shorter than messages take",
    default=Plan(SIZES[:1], repetitions=1, large_repetitions=1),
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
    return [EptoCase(size, RATE, clock, drift=drift) for size in plan.sizes for clock in CLOCKS for drift in DRIFTS]


def compare_drifts(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many nodes have no holes, by drift."""
    for size in plan.sizes:
        share = results.sample(EptoCase(size, RATE, drift=1.0), in_same_order)
        yield compared(f"without holes, drift 1.0, {size} nodes", share, NUMBERS["fig-5.10b/drift-1"])
    for case in drift_cases(plan):
        about = f"drift {case.drift:g}, {case.nodes} nodes, {case.clock} clock"
        yield Row(f"without holes, {about}", "share of nodes", results.sample(case, in_same_order))
    yield from no_disorder(drift_cases(plan), results)
    yield figure_of(
        "drift",
        "Nodes without holes, by the drift of rounds",
        Axis("drift", "periods", categories=tuple(f"{drift:g}" for drift in DRIFTS)),
        {
            f"{size} nodes, {clock} clock": [EptoCase(size, RATE, clock, drift=drift) for drift in DRIFTS]
            for size in plan.sizes
            for clock in CLOCKS
        },
        results,
        in_same_order,
        Axis("share of nodes"),
    )


FIG_5_10B: Experiment[EptoCase, Outcome] = Experiment(
    name="epto/fig-5.10b",
    document=f"{DOCUMENT}, Figure 5.10(b)",
    description="EpTO: holes when rounds drift by more than a period",
    default=Plan(SIZES[:1], repetitions=2, large_repetitions=1),
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
    return [EptoCase(size, RATE, churn=churn) for size in plan.sizes for churn in CHURNS]


def compare_churn(plan: Plan, results: Found) -> Iterator[Finding]:
    """Delay and holes at the nodes that stay."""
    for size in plan.sizes:
        calm = results.sample(EptoCase(size, RATE), lambda outcome: outcome.ordered_ticks)
        for churn in CHURNS[1:]:
            case = EptoCase(size, RATE, churn=churn)
            if churn <= 10:
                times = results.sample(case, lambda outcome: outcome.ordered_ticks).over(calm)
                yield compared(f"delay, churn {churn} % / none, {size} nodes", times, NUMBERS["fig-5.11/delay"])
            share = results.sample(case, in_same_order)
            yield compared(f"without holes, churn {churn} %, {size} nodes", share, NUMBERS["fig-5.11/complete"])
    for case in churn_cases(plan):
        label = f"delay, churn {case.churn} %, {case.nodes} nodes"
        yield Row(label, "ticks", results.sample(case, lambda outcome: outcome.ordered_ticks))
    yield figure_of(
        "churn",
        "Delay at nodes that stay, by churn",
        Axis("nodes replaced per period", "%", categories=tuple(map(str, CHURNS))),
        {f"{size} nodes": [EptoCase(size, RATE, churn=churn) for churn in CHURNS] for size in plan.sizes},
        results,
        lambda outcome: outcome.ordered_ticks,
        Axis("delay", "ticks"),
    )
    yield Note(
        "Percentages are of the whole system, and those who go are drawn from one half of it. Nodes that stay are "
        "measured, with what they published: what a node publishes that is gone before it has relayed it is lost with "
        "it, and newcomers deliver late what is old."
    )


FIG_5_11: Experiment[EptoCase, Outcome] = Experiment(
    name="epto/fig-5.11",
    document=f"{DOCUMENT}, Figure 5.11",
    description="EpTO: the delay under churn",
    default=Plan(SIZES[:1], repetitions=1, large_repetitions=1),
    full=Plan(SIZES, repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "rate": RATE, "churn_percent": CHURNS},
    cases=churn_cases,
    measure=measure,
    compare=compare_churn,
    meaning="A fifth of all nodes is replaced in every period, and those who stay notice nothing: every event reaches "
    "them, in one order, as fast as ever. No node is special and no link is kept, so nobody is missed.",
)
