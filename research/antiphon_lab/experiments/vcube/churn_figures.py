"""Churn by size: Figure 5.11(a) of the thesis, where members of a topic join and leave for two hours.

There are 500 to 4000 members whose median session is 1, 30 or 60 minutes, beside members that stay.
:mod:`antiphon_lab.experiments.vcube.churn` describes the simulation and the readings of the text.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon_lab.experiments.vcube.churn import (
    CALL,
    RULES,
    SUCCESSOR,
    ChurnRunCase,
    Endured,
    measure,
)
from antiphon_lab.experiments.vcube.churn_runs import (
    DEFAULT_BUDGET_A,
    FULL_BUDGET,
    MEDIANS,
    MINUTE_TICKS,
    OVERLOADED_NODES,
    PARAMETERS,
    SHORTEST,
    SIZES,
    STATIC,
    Budget,
    Runs,
    depends_on_rule,
    false_positives,
    from_start,
    judged_cases,
    members_of,
)
from antiphon_lab.experiments.vcube.one_topic import ONE_ROOT, PUBLISHED, REPAIRED
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.verdicts import Fitted


def cases_of_sizes(plan: Plan) -> list[ChurnRunCase]:
    """Figure 5.11(a)."""
    budget = budget_of_sizes(plan)
    found = judged_cases()
    for nodes in plan.sizes:
        found += [budget.case(system, nodes, median) for system in (PUBLISHED, ONE_ROOT) for median in MEDIANS]
        found += [budget.case(REPAIRED, nodes, median) for median in (STATIC, SHORTEST)]
        found.append(budget.case(PUBLISHED, nodes, SHORTEST, charged=True))
        if nodes == OVERLOADED_NODES:
            found += [budget.case(ONE_ROOT, nodes, SHORTEST, rule) for rule in (SUCCESSOR, CALL)]
    return found


def budget_of_sizes(plan: Plan) -> Budget:
    """How long the runs of Figure 5.11(a) may be."""
    return FULL_BUDGET if plan.full else DEFAULT_BUDGET_A


def compare_sizes(plan: Plan, results: Results[ChurnRunCase, Endured]) -> Iterator[Finding]:
    """The numbers that the text has on Figure 5.11(a), then everything."""
    runs = Runs(plan, budget_of_sizes(plan), results)
    numbers = document("thesis").numbers
    compares = plan.sizes[0] in SIZES
    for label, measured, name in (
        ("VCube-PS, most above static", largest_increase(runs, PUBLISHED), "fig-5.11a/vcube-ps-increase"),
        ("SRPT, most above static, up to 2000 members", largest_increase(runs, ONE_ROOT), "fig-5.11a/srpt-increase"),
        ("SRPT / VCube-PS, least for equal churn", least_ratio(runs), "fig-5.11a/srpt-over-vcube-ps"),
    ):
        if compares:
            yield compared(label, measured, numbers[name])
        else:
            yield Row(label, numbers[name].unit, measured)
    if OVERLOADED_NODES in plan.sizes:
        yield from compare_overloaded_root(runs)
    absent = [str(members_of(nodes)) for nodes in SIZES if nodes not in plan.sizes]
    if absent:
        yield Note(f"Published for sizes that were not simulated, and so not compared: {', '.join(absent)} members.")
    cases = cases_of_sizes(plan)
    yield figure_of_sizes(runs)
    yield from runs.rows(cases)
    yield from runs.notes(cases)
    yield Note(why_vcube_ps_is_slower(runs))


def figure_of_sizes(runs: Runs) -> Figure:
    """Figure 5.11(a) as bars: for each number of members the systems, with longer sessions first."""
    sizes = list(enumerate(runs.plan.sizes))
    shown = [(system, median) for system in (PUBLISHED, ONE_ROOT) for median in MEDIANS]
    shown += [(REPAIRED, median) for median in (STATIC, SHORTEST)]
    series = [
        Series(
            f"{system}, {session_name(median)}",
            system,
            tuple(runs.of(runs.budget.case(system, nodes, median)).point(place) for place, nodes in sizes),
            "bars",
            MEDIANS.index(median),
        )
        for system, median in shown
    ]
    return Figure(
        "latency",
        "Latency while members come and go, by the median of their sessions",
        Axis("members", categories=tuple(str(members_of(nodes)) for _, nodes in sizes)),
        Axis("latency", "ticks"),
        tuple(series),
        caption="The text compares churn with the static case and gives no latencies; its numbers are in the table. "
        "VCube-PS repaired is measured at delivery and charged for its acknowledgements, the others are not.",
    )


def session_name(median: int | None) -> str:
    """How the legend calls the length of sessions."""
    return "static" if median is None else f"{median // MINUTE_TICKS} min"


def largest_increase(runs: Runs, system: str) -> Sample:
    """The most by which churn raises latency, over all sizes and sessions that are not overloaded, in percent."""
    increases = [
        runs.of(runs.budget.case(system, nodes, median)).increase_over(runs.of(runs.budget.case(system, nodes, STATIC)))
        for nodes in runs.plan.sizes
        for median in MEDIANS
        if median is not STATIC and (system != ONE_ROOT or nodes != OVERLOADED_NODES)
    ]
    if not increases:
        increases = [Sample((0.0,))]
    return max(increases, key=lambda sample: sample.mean)


def least_ratio(runs: Runs) -> Sample:
    """The least that SRPT takes compared with VCube-PS, over all sizes and sessions."""
    budget = runs.budget
    ratios = [
        runs.of(budget.case(ONE_ROOT, nodes, median)).over(runs.of(budget.case(PUBLISHED, nodes, median)))
        for nodes in runs.plan.sizes
        for median in MEDIANS
    ]
    return min(ratios, key=lambda sample: sample.mean)


def compare_overloaded_root(runs: Runs) -> Iterator[Row | Note]:
    """The one point of Figure 5.11(a) at which the single root has more to send than it can."""
    budget, numbers = runs.budget, document("thesis").numbers
    static = runs.of(budget.case(ONE_ROOT, OVERLOADED_NODES, STATIC))
    by_rule = {rule: runs.of(budget.case(ONE_ROOT, OVERLOADED_NODES, SHORTEST, rule)).over(static) for rule in RULES}
    case = budget.case(ONE_ROOT, OVERLOADED_NODES, SHORTEST, SUCCESSOR)
    number = numbers["fig-5.11a/srpt-overloaded"]
    basis = Fitted(f"the rule for waiting changes, '{SUCCESSOR}'", "the false positives of the same run")
    yield compared(f"over static, {case}", by_rule[SUCCESSOR], number, basis=basis)
    yield depends_on_rule(by_rule, "times")
    yield compared(
        f"false positives, {case}", runs.of(case, false_positives), numbers["fig-5.11a/srpt-false-positives"]
    )


def why_vcube_ps_is_slower(runs: Runs) -> str:
    """Where the increase of VCube-PS comes from."""
    nodes = runs.plan.sizes[-1]
    static, changing = (runs.budget.case(PUBLISHED, nodes, median) for median in (STATIC, SHORTEST))
    called = runs.of(changing).increase_over(runs.of(static)).mean
    started = runs.of(changing, from_start).increase_over(runs.of(static, from_start)).mean
    return (
        "The text explains the increase of VCube-PS by relays, which make paths longer. They do not: counted from the "
        f"start of a publication it is {started:.1f} % with {members_of(nodes)} members and a median of 1 minute; "
        f"counted from the application's call it is {called:.1f} %. What takes time is that a member that has just "
        "subscribed cannot publish before all nodes have acknowledged its subscription."
    )


FIG_5_11A: Experiment[ChurnRunCase, Endured] = Experiment(
    name="vcube-ps/fig-5.11a",
    document="thesis, Figure 5.11(a)",
    description="churn: latency by number of members and length of sessions, VCube-PS against a single root",
    default=Plan(SIZES[:1], repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=1, large_repetitions=1, full=True),
    parameters=PARAMETERS,
    cases=cases_of_sizes,
    measure=measure,
    compare=compare_sizes,
    meaning="What does it cost when members come and go? For both systems very little, while nothing is overloaded: "
    "the paths stay as they are, and what VCube-PS adds is that a newcomer cannot publish before its subscription is "
    "known. A single root also has to pass on every change, and with 4000 members and sessions of a minute that alone "
    "is more than it can send. As published, some publications are never finished under churn, which the latencies do "
    "not show; the repaired protocol has none of these.",
)
