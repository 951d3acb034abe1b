"""Churn by rate: Figure 5.11(b) of the thesis, with 1000 members of which 1 % to 10 % are replaced per second.

:mod:`antiphon_lab.experiments.vcube.churn` describes the simulation and the readings of the text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial

from antiphon_lab.experiments.vcube.churn import (
    CALL,
    EFFECTIVE,
    PUBLICATION_GAP_TICKS,
    RULES,
    SUCCESSOR,
    TICKS_PER_SECOND,
    ChurnRunCase,
    Endured,
    measure,
    median_ticks,
)
from antiphon_lab.experiments.vcube.churn_runs import (
    CONTENTION,
    DEFAULT_BUDGET_B,
    DEFAULT_PERCENTS,
    FULL_BUDGET,
    LEAST,
    MOST,
    OVERLOADED_PERCENTS,
    PARAMETERS,
    PERCENTS,
    RATE_NODES,
    Budget,
    Runs,
    depends_on_rule,
    false_positives,
    from_start,
    judged_cases,
    latency,
    members_of,
    root_wait,
)
from antiphon_lab.experiments.vcube.one_topic import ONE_ROOT, PUBLISHED, REPAIRED, TRANSMISSION_TICKS
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon_lab.reproduction.figures import (
    Axis,
    Figure,
    Mark,
    Point,
    Series,
    limit_of,
    published_point,
    published_series,
)
from antiphon_lab.reproduction.verdicts import Fitted, Refutation


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
    points.append(Point(MOST, longest.value * TICKS_PER_SECOND, limit=limit_of(longest)))
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


def compare_vcube_ps(runs: Runs) -> Iterator[Row | Note]:
    """Ten times the churn, for VCube-PS; short runs are not held to what long ones gave."""
    budget, numbers, nodes = runs.budget, document("thesis").numbers, runs.plan.sizes[0]
    least = runs.of(budget.case(PUBLISHED, nodes, median_ticks(LEAST)))
    rules = (EFFECTIVE, CALL) if runs.plan.full else (EFFECTIVE,)
    for rule in rules:
        case = budget.case(PUBLISHED, nodes, median_ticks(MOST), rule)
        growth = runs.of(case).over(least)
        label = f"VCube-PS, {LEAST} % to {MOST} % per second, {rule}"
        number = numbers["fig-5.11b/vcube-ps-growth"]
        yield Row(label, number.unit, growth, number if runs.plan.full else None)
        yield waiting_publishers(runs)
        label = f"VCube-PS, false positives, {MOST} %, {rule}"
        number = numbers["fig-5.11b/vcube-ps-false-positives"]
        yield Row(label, number.unit, runs.of(case, false_positives), number if runs.plan.full else None)
        yield leaving_takes_a_wave(runs, case)
    case = budget.case(PUBLISHED, nodes, median_ticks(MOST))
    label = f"VCube-PS, mean wait in queues, {MOST} %"
    number = numbers["fig-5.11b/vcube-ps-queue-wait"]
    wait = runs.of(case, operator.attrgetter("queue_wait"))
    yield compared(label, wait, number, idle_outputs(runs, number.value))


def idle_outputs(runs: Runs, published: float) -> Refutation:
    """The wait that copies can have at an output which is idle most of the time.

    Copies come in groups, those of one node to its children, ``height`` of them at most. A group waits as customers do
    that arrive in groups at one server with a fixed time of service.
    """
    nodes = runs.plan.sizes[0]
    height = nodes.bit_length() - 1
    rate = 2 * members_of(nodes) * MOST / 100 + TICKS_PER_SECOND / PUBLICATION_GAP_TICKS
    load = rate * TRANSMISSION_TICKS / TICKS_PER_SECOND
    # Half of the group before a copy, and what is left of other groups.
    longest = (load / (2 * (1 - load)) + (height - 1) / (2 * (1 - load))) * TRANSMISSION_TICKS
    return Refutation(
        f"a wait of {published:g} ms in queues at {MOST} % churn",
        f"a node has {rate:.0f} copies per second to send, one per millisecond, so its output is busy for "
        f"{100 * load:.0f} % of the time; even if copies came in groups of {height} they would wait {longest:.1f} ms",
        published > 2 * longest,
        longest / 10,
        1.2 * longest,
    )


def waiting_publishers(runs: Runs) -> Note:
    """Why the latency of VCube-PS depends on the rule too, although nothing is overloaded."""
    least, most = (
        runs.of(runs.budget.case(PUBLISHED, runs.plan.sizes[0], median_ticks(percent)), from_start).mean
        for percent in (LEAST, MOST)
    )
    return Note(
        "Nearly all of the increase of VCube-PS is the wait of publishers whose subscription is not acknowledged yet; "
        f"from the start of a publication latency grows only {most / least:.2f} times. A session of {100 // MOST} s is "
        "not long compared with the 2 s that a subscription takes, so it matters when sessions begin, which the text "
        "does not say. In 100 s of simulated time latency grew 2.0 times where they begin with their effect, 3.4 times "
        "where they begin with the call. Default runs are shorter and get no verdict on it."
    )


def leaving_takes_a_wave(runs: Runs, case: ChurnRunCase) -> Note:
    """How many false positives there can be."""
    rate = runs.of(case, lambda endured: endured.changes_per_second).mean
    flight = runs.of(case, from_start).mean / TICKS_PER_SECOND
    bound = 100 * rate * 2 * flight / case.members
    return Note(
        "A copy goes to a node that has left only while the end of the subscription is on its way to a sender; "
        f"with {rate:.0f} changes per second, and about {flight:.2f} s for both the publication and the end of the "
        f"subscription, that can be at most {bound:.1f} % of the copies. "
        "How much of it comes to pass depends on who forwards to whom."
    )


def compare_root(runs: Runs) -> Iterator[Row | Note]:
    """Where contention begins for SRPT, and how long copies wait at the overloaded root."""
    budget, numbers, nodes = runs.budget, document("thesis").numbers, runs.plan.sizes[0]
    percents = percents_of(runs.plan)
    latencies = {percent: runs.of(budget.case(ONE_ROOT, nodes, median_ticks(percent))) for percent in percents}
    first = tuple(
        float(min((percent for percent in percents if at[percent] > CONTENTION * at[LEAST]), default=MOST + 1))
        for at in (
            dict(zip(percents, values, strict=True))
            for values in zip(*(latencies[percent].values for percent in percents), strict=True)
        )
    )
    yield compared(
        f"SRPT, least churn with latency {CONTENTION} times that of {LEAST} %",
        Sample(first),
        numbers["fig-5.11b/srpt-contention"],
    )
    for percent, nearest in zip(OVERLOADED_PERCENTS, (EFFECTIVE, CALL), strict=True):
        number = numbers[f"fig-5.11b/srpt-wait-{percent}"]
        ticks_per_unit = TICKS_PER_SECOND if number.unit == "s" else 1
        wait = partial(root_wait_in, ticks_per_unit)
        by_rule = {rule: runs.of(budget.case(ONE_ROOT, nodes, median_ticks(percent), rule), wait) for rule in RULES}
        basis = Fitted(f"the rule for waiting changes, '{nearest}'", "the other waits and growths of overloaded roots")
        yield Row(
            f"SRPT, wait at the root, {percent} %, {nearest}",
            number.unit,
            by_rule[nearest],
            # An overloaded queue is as long as the run.
            number if runs.plan.full else None,
            basis=basis,
        )
        yield depends_on_rule(by_rule, number.unit, longest_queue(nodes) / ticks_per_unit)


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


FIG_5_11B: Experiment[ChurnRunCase, Endured] = Experiment(
    name="vcube-ps/fig-5.11b",
    document="thesis, Figure 5.11(b)",
    description="churn: 1000 members of which 1 % to 10 % are replaced per second",
    default=Plan((RATE_NODES,), repetitions=3, large_repetitions=3),
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
