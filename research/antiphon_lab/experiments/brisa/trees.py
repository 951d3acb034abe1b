"""Several trees for one stream: Figures 4.13 to 4.16 of the thesis of M. Matos.

The shares of leaves depend on the variation of hop times. Both laws are run: one as even as in an idle cluster, and one
with a heavy tail, which models machines that are shared by many processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from antiphon_lab.experiments.brisa.hops import CLUSTER, HEAVY
from antiphon_lab.experiments.brisa.model import (
    GAP_MS,
    MODEL,
    StreamCase,
    StreamMeasures,
    measure,
    numbers_of,
)
from antiphon_lab.experiments.brisa.network import percentile_curve
from antiphon_lab.experiments.brisa.structure import (
    FULL_MESSAGES,
    LARGE,
    PROCESSES,
    Found,
    Values,
    at_full_size,
    complete,
    curve,
    share_above,
    share_at,
    share_up_to,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Row, Sample, counted
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.verdicts import Refutation

TREES = (1, 2, 4, 8)
VIEW = 8
FEW_MESSAGES = 80
SYSTEMS = {CLUSTER: "BRISA tree", HEAVY: "heavy tail"}


def contradiction(figure: str, leaves: float, shares: tuple[float, float]) -> Refutation:
    """The published shares against each other: the leaves of one tree bound those of several.

    ``leaves`` is the measured share of leaves in a tree; ``shares`` what follows if trees have nothing to do with each
    other, and if they are all the same.
    """
    single = numbers_of("fig-4.14")["1-tree"].value / 100
    most_leaves = numbers_of("fig-4.13")["8-trees"].value / 100
    mean_trees, most = 8 * single, 6 * (1 - most_leaves) + 8 * most_leaves
    return Refutation(
        f"{figure}, together with {100 * single:g} % of leaves in a single tree",
        f"then processes are leaves of {mean_trees:.1f} of 8 trees on average, and of at most {most:.1f} if less than "
        f"{100 * most_leaves:g} % are leaves of more than 6",
        mean_trees > most and 0.5 < leaves < 0.9,
        100 * min(shares),
        100 * max(shares),
    )


def tree_case(plan: Plan, trees: int, network: str = CLUSTER, gap_ms: int = GAP_MS) -> StreamCase:
    """A stream that takes its trees in turn."""
    messages = FULL_MESSAGES if plan.full else FEW_MESSAGES
    return StreamCase(max(plan.sizes), messages, VIEW, trees=trees, network=network, gap_ms=gap_ms)


def leaf_cases(plan: Plan) -> list[StreamCase]:
    """Every number of trees, with both laws of hops."""
    return [tree_case(plan, trees, network) for network in SYSTEMS for trees in TREES]


def leaf_share(found: StreamMeasures) -> float:
    """The share of nodes that are leaves in a tree."""
    return float(np.mean(found.children == 0))


def leaf_trees(found: StreamMeasures) -> np.ndarray:
    """In how many trees each node is a leaf."""
    return np.asarray((found.children == 0).sum(axis=0))


def all_children(found: StreamMeasures) -> np.ndarray:
    """The children of each node, over all trees."""
    return np.asarray(found.children.sum(axis=0))


def named(case: StreamCase) -> str:
    """How many trees, and how hops behave."""
    return f"{case.trees} tree{'s' * (case.trees > 1)}, {case.network}"


def leaf_figure(name: str, what: Axis, cases: list[StreamCase], results: Found, values: Values) -> Figure:
    """A distribution over nodes for each number of trees."""
    series = [
        Series(
            named(case),
            SYSTEMS[case.network],
            curve(results, case, values, share_up_to),
            "steps",
            TREES.index(case.trees),
        )
        for case in cases
    ]
    return Figure(
        name,
        f"{what.label.capitalize()}, {cases[0].nodes} processes, view {VIEW}",
        what,
        Axis("processes with no more", "%"),
        tuple(series),
    )


def compare_leaf_trees(plan: Plan, results: Found) -> Iterator[Finding]:
    """In how many trees processes are leaves."""
    numbers = numbers_of("fig-4.13") if at_full_size(plan) else {}
    cases = leaf_cases(plan)
    yield complete(cases, results)
    for case in cases:
        per_tree = results.sample(case, lambda found: float(100 * np.mean(found.children == 0)))
        yield Row(f"leaves per tree, {named(case)}", "%", per_tree)
    single = results.sample(tree_case(plan, 1), leaf_share).mean
    one_of_two = numbers.get("2-trees")
    more_than_six = numbers.get("8-trees")
    for network in SYSTEMS:
        # The document ran on a cluster, where hops are even.
        is_published = network == CLUSTER
        case = tree_case(plan, 2, network)
        share = results.sample(case, share_at(leaf_trees, 1))
        why = contradiction(
            "40 % of the processes as leaves of one of 2 trees", single, (0.01, 2 * single * (1 - single))
        )
        label = f"leaves in one of 2 trees, {network}"
        yield Row(label, "% of the processes", share, one_of_two if is_published else None, why)
        case = tree_case(plan, 8, network)
        share = results.sample(case, share_above(leaf_trees, 6))
        apart = 8 * single**7 * (1 - single) + single**8
        figure = "less than 5 % of the processes as leaves of more than 6 of 8 trees"
        why = contradiction(figure, single, (apart, single))
        label = f"leaves in more than 6 of 8 trees, {network}"
        yield Row(label, "% of the processes", share, more_than_six if is_published else None, why)
    yield leaf_figure("leaf-trees", Axis("trees of which a process is a leaf"), cases, results, leaf_trees)


def compare_children(plan: Plan, results: Found) -> Iterator[Finding]:
    """Children over all trees."""
    numbers = numbers_of("fig-4.14") if at_full_size(plan) else {}
    cases = leaf_cases(plan)
    yield complete(cases, results)
    single = results.sample(tree_case(plan, 1), leaf_share).mean
    idle = {case: results.sample(case, share_at(all_children, 0)) for case in cases}
    for case, share in idle.items():
        is_published = case.network == CLUSTER
        number = {1: numbers.get("1-tree"), 8: numbers.get("8-trees")}.get(case.trees) if is_published else None
        figure = "no process without children in 8 trees"
        why = contradiction(figure, single, (single**8, single)) if case.trees == 8 else None
        yield Row(f"processes without children, {named(case)}", "% of the processes", share, number, why)
        total = results.sample(case, lambda found: float(all_children(found).sum()))
        says = "every tree has one link less than processes"
        links = case.trees * (case.nodes - 1)
        yield counted(f"children of all processes, {named(case)}", total, links, "links", says)
    yield leaf_figure("children", Axis("children over all trees"), cases, results, all_children)


# Figures 4.15 and 4.16.


def delay_cases(plan: Plan) -> list[StreamCase]:
    """Every number of trees, with the same stream."""
    return [tree_case(plan, trees) for trees in TREES]


def mean_reception(found: StreamMeasures) -> float:
    """The mean time from a publication to its arrival."""
    return float(found.reception[found.others].mean())


def compare_reception(plan: Plan, results: Found) -> Iterator[Finding]:
    """How long a message takes."""
    number = numbers_of("fig-4.15")["similar"] if at_full_size(plan) else None
    cases = delay_cases(plan)
    yield complete(cases, results)
    single = results.sample(cases[0], mean_reception)
    for case in cases:
        measured = results.sample(case, mean_reception)
        yield Row(f"mean reception delay, {named(case)}", "ms", measured)
        if case.trees > 1:
            yield Row(f"mean reception delay, {named(case)} against 1 tree", "times", measured.over(single), number)
    yield delay_figure("reception", "Reception delay", cases, results, lambda found: found.reception)
    yield Note(
        "The document has the source say how long ago it published, because its machines have no common clock; a "
        "simulation has one."
    )


def split_cases(plan: Plan) -> list[StreamCase]:
    """Every number of trees, each fed five times per second."""
    return [tree_case(plan, trees, gap_ms=GAP_MS // trees) for trees in TREES]


def mean_dissemination(found: StreamMeasures) -> float:
    """The mean time from the first message to the last at a node."""
    return float(found.dissemination[found.others].mean())


def compare_dissemination(plan: Plan, results: Found) -> Iterator[Finding]:
    """How long all messages take."""
    number = numbers_of("fig-4.16")["trees"] if at_full_size(plan) else None
    cases = split_cases(plan)
    yield complete(cases, results)
    for case, fewer in zip(cases, [None, *cases], strict=False):
        measured = results.sample(case, mean_dissemination)
        seconds = Sample(tuple(value / 1000 for value in measured.values))
        yield Row(f"mean dissemination delay, {named(case)}", "s", seconds)
        yield Row(f"the source alone, {named(case)}", "s", Sample(((case.messages - 1) * case.gap_ms / 1000,)))
        if fewer is not None:
            ratio = results.sample(fewer, mean_dissemination).over(measured)
            yield Row(f"mean dissemination delay, {named(fewer)} against {named(case)}", "times", ratio, number)
    yield delay_figure("dissemination", "Dissemination delay", cases, results, lambda found: found.dissemination)
    yield Note(
        f"Each tree is fed every {GAP_MS} ms, so that several carry several times as much in a second. Fed with one "
        "stream at the rate of one tree, any number of trees takes as long as the source takes to publish it."
    )


def delay_figure(name: str, title: str, cases: list[StreamCase], results: Found, values: Values) -> Figure:
    """A distribution of delays over nodes for each number of trees."""
    series = [
        Series(named(case), "BRISA tree", percentile_curve(results, case, values), variant=variant)
        for variant, case in enumerate(cases)
    ]
    return Figure(
        name,
        f"{title}, {cases[0].nodes} processes, view {VIEW}",
        Axis(title.lower(), "ms"),
        Axis("processes with no more", "%"),
        tuple(series),
    )


DEFAULT = Plan((PROCESSES,), repetitions=3, large_repetitions=3)
PARAMETERS: dict[str, object] = {**MODEL, "messages": [FEW_MESSAGES, FULL_MESSAGES], "view": VIEW, "trees": TREES}

FIG_4_13: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.13",
    document="thesis of M. Matos, Figure 4.13",
    description="BRISA: in how many trees of one stream processes are leaves, 512 processes",
    default=DEFAULT,
    full=LARGE,
    parameters=PARAMETERS,
    cases=leaf_cases,
    measure=measure,
    compare=compare_leaf_trees,
    meaning="Do several trees share the work? Each is a flood's remains of its own, and who is a leaf in one is often "
    "none in the next. The published shares contradict each other a little; even hops reproduce some and hops with a "
    "heavy tail the others. Either way few processes are leaves everywhere.",
)

FIG_4_14: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.14",
    document="thesis of M. Matos, Figure 4.14",
    description="BRISA: children of processes over all trees of one stream, 512 processes",
    default=DEFAULT,
    full=LARGE,
    parameters=PARAMETERS,
    cases=leaf_cases,
    measure=measure,
    compare=compare_children,
    meaning="How many processes upload nothing? With one tree over views of 8 about three in four. Every further tree "
    "gives some of them children, and with eight trees few or none are left over, without anybody coordinating it. The "
    "work is the same as the number of trees says: one link per process and tree.",
)

FIG_4_15: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.15",
    document="thesis of M. Matos, Figure 4.15",
    description="BRISA: reception delays with several trees, 512 processes",
    default=DEFAULT,
    full=LARGE,
    parameters=PARAMETERS,
    cases=delay_cases,
    measure=measure,
    compare=compare_reception,
    meaning="Is a message slower when there are more trees? No: each tree is as deep as the next, and the mean time "
    "from publication to arrival stays within a few percent. The load is spread over more processes and no way gets "
    "longer.",
)

FIG_4_16: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.16",
    document="thesis of M. Matos, Figure 4.16",
    description="BRISA: how long a stream takes that is split over several trees, 512 processes",
    default=DEFAULT,
    full=LARGE,
    parameters=PARAMETERS,
    cases=split_cases,
    measure=measure,
    compare=compare_dissemination,
    meaning="How much sooner is everything there when a stream is split over trees that are fed at the same time? With "
    "each tree at its usual rate the time is divided by the number of trees, almost exactly: what one tree adds to the "
    "time of the source is a few hops. What it costs is upload at processes that were leaves before.",
)
