"""Causal aggregation over one tree and over many: Figure 4.9 of the thesis.

The plot has no readable values; the statements of the text about it are compared. All numbers are given twice,
calibrated and literal (:mod:`antiphon_lab.experiments.aggregation.model`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    MODEL,
    SINGLE_TREE,
    AggregationCase,
    AggregationMeasures,
    measure,
)
from antiphon_lab.experiments.aggregation.packets import SIZES, Found, both_starts, numbers_of, start_name
from antiphon_lab.experiments.aggregation.start_laws import side_by_side
from antiphon_lab.reproduction.experiment import Experiment, Finding, Plan, Row, Sample
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Mark, Point, Series


def tree_cases(plan: Plan) -> list[AggregationCase]:
    """Aggregation over one tree and over many."""
    return [
        case for nodes in plan.sizes for protocol in (AGGREGATION, SINGLE_TREE) for case in both_starts(nodes, protocol)
    ]


def messages_aggregated(found: AggregationMeasures) -> float:
    """Messages that travelled with others."""
    counts = found.by_publications
    return float((counts * np.arange(len(counts)))[2:].sum())


def messages_delayed(found: AggregationMeasures) -> float:
    """Messages that had to wait for their delivery."""
    return float(found.delayed)


def compare_trees(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many fewer there are with one tree; the text gives the smallest difference over the sizes from 16 up."""
    number = numbers_of("fig-4.9")
    sizes = [nodes for nodes in plan.sizes if nodes >= 32]
    yield from tree_figures(plan, results)
    for name, quantity in (("aggregations", messages_aggregated), ("delayed", messages_delayed)):
        fewer: list[list[Sample]] = [[], []]
        for nodes in plan.sizes:
            for start, (many, one) in enumerate(zip(both_starts(nodes), both_starts(nodes, SINGLE_TREE), strict=True)):
                several, single = results.sample(many, quantity), results.sample(one, quantity)
                yield Row(f"messages {name}, {many}", "messages", several)
                yield Row(f"messages {name}, {one}", "messages", single)
                if nodes in sizes and min(several.values) > 0:
                    fewer[start].append(single.with_other(lambda one, all_: 100 * (1 - one / all_), several))
        if name == "aggregations" and {512, 1024} <= set(plan.sizes):
            drops = [
                results.sample(large, quantity).with_other(ratio_if_any, results.sample(small, quantity))
                for small, large in zip(both_starts(512, SINGLE_TREE), both_starts(1024, SINGLE_TREE), strict=True)
            ]
            label = "messages aggregated over one tree, 1024 nodes against 512"
            yield from side_by_side(label, number("drop-1024"), *drops)
        if all(fewer):
            least = [
                Sample(tuple(min(values) for values in zip(*(sample.values for sample in samples), strict=True)))
                for samples in fewer
            ]
            yield from side_by_side(f"messages {name}, one tree has fewer by at least", number(name), *least)


def ratio_if_any(one: float, other: float) -> float:
    """A ratio; 0 where one tree aggregated nothing, as it may with literal start times."""
    return one / other if other > 0 else 0.0


def tree_figures(plan: Plan, results: Found) -> Iterator[Figure]:
    """Figure 4.9 with its logarithmic axis, and by how much one tree has fewer."""
    quantities = (("aggregated", messages_aggregated), ("delayed", messages_delayed))
    series = [
        Series(
            f"{name}, {'one tree' if protocol == SINGLE_TREE else 'one tree per source'}",
            protocol,
            tuple(
                point
                for nodes in plan.sizes
                if (point := results.sample(AggregationCase(nodes, protocol), quantity).point(nodes)).y > 0
            ),
            variant=variant,
        )
        for protocol in (AGGREGATION, SINGLE_TREE)
        for variant, (name, quantity) in enumerate(quantities)
    ]
    yield Figure(
        "messages",
        f"Messages that were aggregated and that were delayed, {start_name(CALIBRATED)}",
        NODES,
        Axis("messages", scale="log10"),
        tuple(series),
        caption="Both axes are logarithmic, as published; sizes at which there were none are left out.",
    )
    fewer = []
    for name, quantity in quantities:
        points = []
        for nodes in plan.sizes:
            several, single = (
                results.sample(AggregationCase(nodes, protocol), quantity).mean
                for protocol in (AGGREGATION, SINGLE_TREE)
            )
            if several > 0:
                points.append(Point(nodes, 100 * (1 - single / several)))
        fewer.append(Series(name, name, tuple(points)))
    number = numbers_of("fig-4.9")
    marks = [
        Mark("y", number(key).value, f"published: {name} at least {number(key).value:g} % fewer")
        for key, name in (("aggregations", "aggregated"), ("delayed", "delayed"))
    ]
    yield Figure(
        "fewer",
        "How many fewer messages one tree aggregates and delays",
        NODES,
        Axis("fewer than with one tree per source", "%"),
        tuple(fewer),
        tuple(marks),
    )


FIG_4_9: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/fig-4.9",
    document="thesis, Figure 4.9 (ICPP paper, Figure 11)",
    description="messages aggregated and delayed over one tree and over many, by number of nodes",
    default=Plan(SIZES, repetitions=3, large_repetitions=3),
    full=Plan(SIZES, repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=tree_cases,
    measure=measure,
    compare=compare_trees,
    meaning="Does aggregation need many trees? Over a single tree all messages take the same paths, so they seldom "
    "overtake each other, and there is little to aggregate and little to delay: each is rarer by four fifths or more. "
    "That is no argument for one tree, whose root is the bottleneck of the other figures; it says that aggregation is "
    "made for systems in which messages do overtake each other.",
)
