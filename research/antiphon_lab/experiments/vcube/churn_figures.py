"""Churn: Figure 5.11 of the thesis, where members of a topic join and leave for two hours.

Figure (a) has 500 to 4000 members whose median session is 1, 30 or 60 minutes, beside members that stay. Figure (b) has
1000 members of which 1 % to 10 % are replaced per second. :mod:`antiphon_lab.experiments.vcube.churn` describes the
simulation and the readings of the text.

Where a single root is overloaded the text has three numbers, and they depend on a rule that it does not give: the limit
of changes. All rules are simulated there. Each number is compared with the nearest rule.

Everything is a mean over a stationary run, so its length matters little. A run is as long as the published one where
that takes seconds, and otherwise as long as a number of events allows; the report states the length.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from antiphon_lab.experiments.vcube.churn import (
    CALL,
    EFFECTIVE,
    PUBLICATION_GAP_TICKS,
    PUBLISHED_SECONDS,
    RULES,
    SUCCESSOR,
    TICKS_PER_SECOND,
    WARM_UP_SHARE,
    ChurnRunCase,
    Endured,
    events_per_second,
    measure,
    median_ticks,
)
from antiphon_lab.experiments.vcube.one_topic import MODEL, ONE_ROOT, PUBLISHED, REPAIRED, TRANSMISSION_TICKS
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Explanation,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Mark, Point, Series, published_point, published_series

MINUTE_TICKS = 60 * TICKS_PER_SECOND
STATIC = None
MEDIANS = (STATIC, 60 * MINUTE_TICKS, 30 * MINUTE_TICKS, MINUTE_TICKS)
SHORTEST = MINUTE_TICKS
SIZES = (512, 1024, 2048, 4096)
OVERLOADED_NODES = 4096

PERCENTS = tuple(range(1, 11))
DEFAULT_PERCENTS = (1, 4, 5, 10)
LEAST, MOST = PERCENTS[0], PERCENTS[-1]
RATE_NODES = 1024
OVERLOADED_PERCENTS = (5, MOST)
CONTENTION = 1.1
"""Latency above this many times that of the least churn is called contention."""

EVENT_COST = {PUBLISHED: 1.0, ONE_ROOT: 0.5, REPAIRED: 2.0}
"""The cost of an event, compared with one of VCube-PS as published."""

JUDGED_NODES = 64
JUDGED_SECONDS = 120


@dataclass(frozen=True)
class Budget:
    """The limit of a simulation: a number of events of VCube-PS as published, or the same cost, and seconds."""

    events: float
    seconds: int = PUBLISHED_SECONDS

    def case(
        self, system: str, nodes: int, median: int | None, rule: str = EFFECTIVE, charged: bool | None = None
    ) -> ChurnRunCase:
        """The longest possible case; VCube-PS repaired is charged for acknowledgements unless told otherwise."""
        costs = system == REPAIRED if charged is None else charged
        case = ChurnRunCase(system, members_of(nodes), median, self.seconds, costs, rule=rule)
        seconds = int(self.events / (events_per_second(case) * EVENT_COST[system]))
        return ChurnRunCase(system, case.members, median, max(10, min(self.seconds, seconds)), costs, rule=rule)


FULL_BUDGET = Budget(40e6)
DEFAULT_BUDGET_A = Budget(3e6, 1000)
DEFAULT_BUDGET_B = Budget(12e6, 60)


def members_of(nodes: int) -> int:
    """How many of the nodes are members: 1000 of 1024."""
    return nodes * 125 // 128


def judged_cases() -> list[ChurnRunCase]:
    """Small systems with much churn, which the oracle judges."""
    members, median = members_of(JUDGED_NODES), median_ticks(MOST)
    return [
        ChurnRunCase(PUBLISHED, members, median, JUDGED_SECONDS, judged=True, rule=EFFECTIVE),
        ChurnRunCase(REPAIRED, members, median, JUDGED_SECONDS, charged=True, judged=True, rule=EFFECTIVE),
    ]


latency: Callable[[Endured], float] = operator.attrgetter("latency")
false_positives: Callable[[Endured], float] = operator.attrgetter("false_positives")
root_wait: Callable[[Endured], float] = operator.attrgetter("root_wait")


def from_start(endured: Endured) -> float:
    """Latency since the publisher could start."""
    return endured.latency - endured.start_wait


class Runs:
    """The measurements for one figure, and the rows and notes of both figures."""

    def __init__(self, plan: Plan, budget: Budget, results: Results[ChurnRunCase, Endured]) -> None:
        self.plan = plan
        self.budget = budget
        self._results = results

    def of(self, case: ChurnRunCase, quantity: Callable[[Endured], float] = latency) -> Sample:
        """One point."""
        return self._results.sample(case, quantity)

    def rows(self, cases: list[ChurnRunCase]) -> Iterator[Row]:
        """All quantities of all cases, and the findings of the oracle."""
        for case in judged_cases():
            found = self.of(case, operator.attrgetter("violations"))
            yield Row(f"violations found by the oracle in {JUDGED_SECONDS} s, {case}", "deliveries", found)
        shown = [case for case in cases if not case.judged]
        for case in shown:
            yield Row(f"latency, {case}", "ticks", self.of(case))
        for case in shown:
            if case.median_ticks is not None:
                yield Row(f"latency from the start, {case}", "ticks", self.of(case, from_start))
        for case in shown:
            if case.median_ticks is not None:
                yield Row(f"false positives, {case}", "%", self.of(case, false_positives))
        for case in shown:
            if case.system != ONE_ROOT:
                waiting = self.of(case, lambda endured: endured.stuck)
                yield Row(f"never finished, {case}", "waits", waiting)

    def notes(self, cases: list[ChurnRunCase]) -> Iterator[Note]:
        """Notes that explain the rows."""
        shorter = [f"{case} {case.seconds}" for case in cases if case.seconds < PUBLISHED_SECONDS and not case.judged]
        if shorter:
            yield Note(
                f"Not simulated for {PUBLISHED_SECONDS} s as published, but for so many seconds: {'; '.join(shorter)}. "
                f"The first of {WARM_UP_SHARE} equal parts of every run is not measured."
            )
        yield Note(
            "The text gives rates of churn per minute. They are per second: 69 s and 1 %, 17 s and 4 %, 7 s and 10 %, "
            "46 changes of 4000 members for a median of 1 minute are pairs of ln 2 / median per second."
        )
        yield Note(
            "As published, members that miss a publication because a newcomer did not know them yet wait for ever for "
            "what they missed: that is what is counted as never finished. The published latencies are of receptions "
            "and do not show it. The repaired protocol must have none, and its latencies are of deliveries."
        )


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


def compare_overloaded_root(runs: Runs) -> Iterator[Row]:
    """The one point of Figure 5.11(a) at which the single root has more to send than it can."""
    budget, numbers = runs.budget, document("thesis").numbers
    static = runs.of(budget.case(ONE_ROOT, OVERLOADED_NODES, STATIC))
    by_rule = {rule: runs.of(budget.case(ONE_ROOT, OVERLOADED_NODES, SHORTEST, rule)).over(static) for rule in RULES}
    case = budget.case(ONE_ROOT, OVERLOADED_NODES, SHORTEST, SUCCESSOR)
    number = numbers["fig-5.11a/srpt-overloaded"]
    yield compared(f"over static, {case}", by_rule[SUCCESSOR], number, depends_on_rule(by_rule, number.value, "times"))
    yield compared(
        f"false positives, {case}", runs.of(case, false_positives), numbers["fig-5.11a/srpt-false-positives"]
    )


def depends_on_rule(by_rule: dict[str, Sample], published: float, unit: str, limit: float = 0.0) -> Explanation:
    """Overload depends on the rule for waiting changes. ``limit`` is the last value of ``CALL``, if known."""
    means = {rule: sample.mean for rule, sample in by_rule.items()}
    spoken = "; ".join(f"{mean:.3g} {unit} with '{rule}'" for rule, mean in means.items())
    if limit > 0:
        spoken += f", which grows up to {limit:.3g} when every node has a change in the queue"
    return Explanation(
        f"the root is overloaded, so this depends on what holds changes back, which the text does not say: {spoken}. "
        "No rule that was tried gives all three numbers that the text has on overloaded roots.",
        holds=min(means.values()) < published < max(*means.values(), limit),
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


def cases_of_rates(plan: Plan) -> list[ChurnRunCase]:
    """Figure 5.11(b)."""
    budget, nodes = budget_of_rates(plan), plan.sizes[0]
    found = judged_cases()
    for percent in percents_of(plan):
        median = median_ticks(percent)
        if plan.full or percent in (LEAST, MOST):
            found.append(budget.case(PUBLISHED, nodes, median))
        found.append(budget.case(ONE_ROOT, nodes, median))
        if percent in OVERLOADED_PERCENTS:
            found += [budget.case(ONE_ROOT, nodes, median, rule) for rule in (SUCCESSOR, CALL)]
        if percent in (LEAST, MOST):
            found.append(budget.case(REPAIRED, nodes, median))
    if plan.full:
        found.append(budget.case(PUBLISHED, nodes, median_ticks(MOST), CALL))
        found.append(budget.case(PUBLISHED, nodes, median_ticks(MOST), charged=True))
    return found


def percents_of(plan: Plan) -> tuple[int, ...]:
    """Which rates are simulated."""
    return PERCENTS if plan.full else DEFAULT_PERCENTS


def budget_of_rates(plan: Plan) -> Budget:
    """How long the runs of Figure 5.11(b) may be."""
    return FULL_BUDGET if plan.full else DEFAULT_BUDGET_B


def compare_rates(plan: Plan, results: Results[ChurnRunCase, Endured]) -> Iterator[Finding]:
    """The numbers that the text has on Figure 5.11(b), then everything."""
    runs = Runs(plan, budget_of_rates(plan), results)
    if plan.sizes[0] == RATE_NODES:
        yield from compare_vcube_ps(runs)
        yield from compare_root(runs)
    else:
        yield Note(f"Published for {members_of(RATE_NODES)} members; nothing is compared at {plan.sizes[0]} nodes.")
    cases = cases_of_rates(plan)
    yield from figures_of_rates(runs, cases)
    yield from runs.rows(cases)
    for case in cases:
        if case.system == ONE_ROOT:
            yield Row(f"wait at the root, {case}", "ticks", runs.of(case, root_wait))
    yield from runs.notes(cases)
    yield Note(why_queues_are_short(runs))


def figures_of_rates(runs: Runs, cases: list[ChurnRunCase]) -> Iterator[Figure]:
    """Figure 5.11(b), and the wait at the single root of which the text speaks."""
    nodes, numbers = runs.plan.sizes[0], document("thesis").numbers
    churn = Axis("members replaced per second", "%")
    at_size = nodes == RATE_NODES

    def curve(system: str, rule: str, quantity: Callable[[Endured], float]) -> tuple[Point, ...]:
        found = {}
        for percent in percents_of(runs.plan):
            case = runs.budget.case(system, nodes, median_ticks(percent), rule)
            if case in cases:
                found[percent] = runs.of(case, quantity).point(percent)
        return tuple(found.values())

    contention = numbers["fig-5.11b/srpt-contention"]
    label = f"published: contention at SRPT from {contention.value:g} %"
    yield Figure(
        "latency",
        f"Latency of {members_of(nodes)} members by churn",
        churn,
        Axis("latency", "ticks", "log10"),
        tuple(Series(system, system, curve(system, EFFECTIVE, latency)) for system in (PUBLISHED, REPAIRED, ONE_ROOT)),
        (Mark("x", contention.value, label),) if at_size else (),
        "The published curves have no readable values.",
    )
    points = [published_point(5, numbers["fig-5.11b/srpt-wait-5"])]
    longest = numbers["fig-5.11b/srpt-wait-10"]
    points.append(Point(MOST, longest.value * TICKS_PER_SECOND, limit=longest.tolerance.limit))
    waits = [
        Series(f"{ONE_ROOT}, {rule}", ONE_ROOT, curve(ONE_ROOT, rule, root_wait), variant=variant)
        for variant, rule in enumerate((EFFECTIVE, SUCCESSOR, CALL))
    ]
    yield Figure(
        "wait",
        "How long a publication waits at the single root",
        churn,
        Axis("wait at the root", "ticks", "log10"),
        (*waits, *(published_series(ONE_ROOT, ONE_ROOT, points) if at_size else ())),
        caption="From 5 % on the root is overloaded, and the wait depends on what holds changes back; the text does "
        "not say what, so three rules are shown.",
    )


def compare_vcube_ps(runs: Runs) -> Iterator[Row]:
    """Ten times the churn, for VCube-PS."""
    budget, numbers, nodes = runs.budget, document("thesis").numbers, runs.plan.sizes[0]
    least = runs.of(budget.case(PUBLISHED, nodes, median_ticks(LEAST)))
    rules = (EFFECTIVE, CALL) if runs.plan.full else (EFFECTIVE,)
    for rule in rules:
        case = budget.case(PUBLISHED, nodes, median_ticks(MOST), rule)
        growth = runs.of(case).over(least)
        label = f"VCube-PS, {LEAST} % to {MOST} % per second, {rule}"
        yield compared(label, growth, numbers["fig-5.11b/vcube-ps-growth"], waiting_publishers(runs, growth))
        label = f"VCube-PS, false positives, {MOST} %, {rule}"
        number = numbers["fig-5.11b/vcube-ps-false-positives"]
        yield compared(label, runs.of(case, false_positives), number, leaving_takes_a_wave(runs, case))
    case = budget.case(PUBLISHED, nodes, median_ticks(MOST))
    label = f"VCube-PS, mean wait in queues, {MOST} %"
    number = numbers["fig-5.11b/vcube-ps-queue-wait"]
    yield compared(label, runs.of(case, operator.attrgetter("queue_wait")), number)


def waiting_publishers(runs: Runs, growth: Sample) -> Explanation:
    """Why the latency of VCube-PS depends on the rule too, although nothing is overloaded."""
    least, most = (
        runs.of(runs.budget.case(PUBLISHED, runs.plan.sizes[0], median_ticks(percent)), from_start).mean
        for percent in (LEAST, MOST)
    )
    return Explanation(
        "nearly all of the increase is the wait of publishers whose subscription is not acknowledged yet; from the "
        f"start of a publication latency grows only {most / least:.2f} times. A session of {100 // MOST} s is not long "
        "compared with the 2 s that a subscription takes, so it matters when sessions begin, which the text does not "
        "say. In 100 s of simulated time latency grew 2.0 times where they begin with their effect, 3.4 times where "
        "they begin with the call.",
        holds=most / least < 1 + (growth.mean - 1) / 2,
    )


def leaving_takes_a_wave(runs: Runs, case: ChurnRunCase) -> Explanation:
    """How many false positives there can be."""
    rate = runs.of(case, lambda endured: endured.changes_per_second).mean
    measured = runs.of(case, false_positives).mean
    flight = runs.of(case, from_start).mean / TICKS_PER_SECOND
    bound = 100 * rate * 2 * flight / case.members
    return Explanation(
        "a copy goes to who has left only while the end of the subscription is on its way to somebody who sends it; "
        f"with {rate:.0f} changes per second, and about {flight:.2f} s for both the publication and the end of the "
        f"subscription, that can be at most {bound:.1f} % of the copies, and the published value is no more than that. "
        "How much of it comes to pass depends on who forwards to whom.",
        holds=measured < document("thesis").numbers["fig-5.11b/vcube-ps-false-positives"].value < bound,
    )


def compare_root(runs: Runs) -> Iterator[Row]:
    """Where contention begins for SRPT, and how long copies wait at the overloaded root."""
    budget, numbers, nodes = runs.budget, document("thesis").numbers, runs.plan.sizes[0]
    latencies = {
        percent: runs.of(budget.case(ONE_ROOT, nodes, median_ticks(percent))) for percent in percents_of(runs.plan)
    }
    contended = [percent for percent, sample in latencies.items() if sample.mean > CONTENTION * latencies[LEAST].mean]
    first = Sample((float(min(contended, default=MOST + 1)),))
    yield compared(
        f"SRPT, least churn with latency {CONTENTION} times that of {LEAST} %",
        first,
        numbers["fig-5.11b/srpt-contention"],
    )
    for percent, nearest in zip(OVERLOADED_PERCENTS, (EFFECTIVE, CALL), strict=True):
        number = numbers[f"fig-5.11b/srpt-wait-{percent}"]
        ticks_per_unit = TICKS_PER_SECOND if number.unit == "s" else 1
        wait = partial(root_wait_in, ticks_per_unit)
        by_rule = {rule: runs.of(budget.case(ONE_ROOT, nodes, median_ticks(percent), rule), wait) for rule in RULES}
        yield compared(
            f"SRPT, wait at the root, {percent} %, {nearest}",
            by_rule[nearest],
            number,
            depends_on_rule(by_rule, number.value, number.unit, longest_queue(nodes) / ticks_per_unit),
        )


def root_wait_in(ticks_per_unit: int, endured: Endured) -> float:
    """The wait of a publication at the root, in units of this many ticks."""
    return endured.root_wait / ticks_per_unit


def longest_queue(nodes: int) -> float:
    """How long a copy waits at the root if every node has one change there, in ticks."""
    return nodes * (nodes.bit_length() - 1) * TRANSMISSION_TICKS


def why_queues_are_short(runs: Runs) -> str:
    """The load of the single root, and of a node of VCube-PS."""
    nodes = runs.plan.sizes[0]
    members, height = members_of(nodes), nodes.bit_length() - 1
    publications = TICKS_PER_SECOND / PUBLICATION_GAP_TICKS
    capacity = TICKS_PER_SECOND / TRANSMISSION_TICKS
    rates = {percent: 2 * members * percent / 100 for percent in (4, 5, MOST)}
    loads = ", ".join(f"{(rate + publications) * height:.0f} at {percent} %" for percent, rate in rates.items())
    return (
        f"A root can send {capacity:.0f} copies per second. With {height} children it has to send, if nothing holds "
        f"changes back: {loads}. A node of VCube-PS has {rates[MOST] + publications:.0f} to send at {MOST} %, and "
        "twice that with acknowledgements. So the root is overloaded from 5 % on, as the text says, and waits of 28 ms "
        "are far from what VCube-PS needs. The published 10 s are nearly what a root has to send if every node has one "
        f"change in its queue: {longest_queue(nodes) / TICKS_PER_SECOND:.1f} s."
    )


PARAMETERS = {
    **MODEL,
    "ticks_per_second": TICKS_PER_SECOND,
    "publication_gap_ticks": PUBLICATION_GAP_TICKS,
    "nodes": "the next power of two above the number of members",
    "sessions": "exponential, with the given median",
    "rules": RULES,
    "rule": f"{EFFECTIVE}, except in rows that say otherwise",
    "switches": "VCube-PS: the published protocol with minimal corrections; repaired: its defaults",
    "acknowledgements": "free of charge, except in rows that say otherwise; repaired: charged",
    "latency": "of receptions, from the application's call, except in rows that say otherwise; repaired: of deliveries",
    "false_positives": "receptions by nodes that have been told to unsubscribe, or were never told to subscribe",
}

FIG_5_11A: Experiment[ChurnRunCase, Endured] = Experiment(
    name="vcube-ps/fig-5.11a",
    document="thesis, Figure 5.11(a)",
    description="churn: latency by number of members and length of sessions, VCube-PS against a single root",
    default=Plan(SIZES[:1], repetitions=1, large_repetitions=1),
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

FIG_5_11B: Experiment[ChurnRunCase, Endured] = Experiment(
    name="vcube-ps/fig-5.11b",
    document="thesis, Figure 5.11(b)",
    description="churn: 1000 members of which 1 % to 10 % are replaced per second",
    default=Plan((RATE_NODES,), repetitions=1, large_repetitions=1),
    full=Plan((RATE_NODES,), repetitions=1, large_repetitions=1, full=True),
    parameters=PARAMETERS,
    cases=cases_of_rates,
    measure=measure,
    compare=compare_rates,
    meaning="How much churn can a topic of 1000 members bear? VCube-PS takes 10 % of new members per second with 1.4 "
    "times the latency in the short runs of the default plan, and all of the increase is the wait of newcomers for "
    "their subscription. A single root is overloaded from 5 % on, because every change goes through it; how long "
    "publications then wait depends on what holds changes back, which the text does not say. Plan for the rate of "
    "changes, not only for that of messages, where one node sees all of them.",
)
