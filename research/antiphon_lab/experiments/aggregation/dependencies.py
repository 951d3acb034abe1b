"""How many other messages a message depends on, with causal aggregation: Figure 4.3 of the thesis.

The number is that of the entries which its vector carries beside its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    MODEL,
    NO_AGGREGATION,
    AggregationCase,
    AggregationMeasures,
    measure,
)
from antiphon_lab.experiments.aggregation.packets import (
    TIMER_NODES,
    Found,
    both,
    both_starts,
    one_size,
    one_size_by_law,
    share_of,
    start_name,
)
from antiphon_lab.experiments.aggregation.start_laws import FittingLaws, side_by_side
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Row, Sample
from antiphon_lab.reproduction.figures import Axis, Figure, Series, published_point, published_series
from antiphon_lab.reproduction.verdicts import Refutation, accepted, agrees


def with_none(plan: Plan) -> list[AggregationCase]:
    """The same with other laws, and without aggregation."""
    return [*one_size_by_law(plan), *both_starts(max(plan.sizes), NO_AGGREGATION)]


def compare_dependencies(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many entries messages carry beside their own."""
    numbers = document("thesis").numbers
    at_size = max(plan.sizes) == TIMER_NODES
    laws = FittingLaws(results, max(plan.sizes))
    for name, low, high in DEPENDENCY_CLASSES:
        quantity = share_of(dependency_counts, low, high)
        samples, others = both(results, one_size(plan), quantity), laws.of(AGGREGATION, quantity)
        label = f"messages with {name.replace('-', ' ')} dependencies"
        yield from side_by_side(label, numbers[f"fig-4.3/{name}"] if at_size else None, *samples, others=others)
        if name == "5-to-9" and at_size:
            yield from icpp_row(label, samples[0])
    yield from compare_variation(plan, at_size, results)
    yield from dependency_figures(max(plan.sizes), at_size, results)
    most, others = both(results, one_size(plan), most_dependencies), laws.of(AGGREGATION, most_dependencies)
    number = numbers["fig-4.3/largest"] if at_size else None
    yield from side_by_side("most dependencies", number, *most, unit="entries", others=others)
    yield Note("No simple law of start times fits every class; the published shape lies between uniform and normal.")


def icpp_row(label: str, calibrated: Sample) -> Iterator[Row]:
    """The ICPP paper prints another share for the same figure and the same sentence."""
    ours, theirs = document("thesis").numbers["fig-4.3/5-to-9"], document("icpp").numbers["fig-6/5-to-9"]
    why = Refutation(
        f"{theirs.value:g} % in the ICPP paper, where the thesis prints {ours.value:g} % for the same figure",
        f"both describe one simulation, so that at most one of them is right, and that of the thesis agrees with "
        f"{calibrated.mean:.3g} %",
        ours.value != theirs.value and agrees(ours, calibrated.values),
        *accepted(ours, calibrated.values),
    )
    yield Row(f"{label} (ICPP paper), calibrated", theirs.unit, calibrated, theirs, why)


def compare_variation(plan: Plan, at_size: bool, results: Found) -> Iterator[Row]:
    """By how many points the classes differ without aggregation, at most."""
    found = []
    for together, alone in zip(one_size(plan), both_starts(max(plan.sizes), NO_AGGREGATION), strict=True):
        shares = [
            results.sample(together, share_of(dependency_counts, low, high)).with_other(
                lambda one, other: abs(one - other), results.sample(alone, share_of(dependency_counts, low, high))
            )
            for _, low, high in DEPENDENCY_CLASSES
        ]
        found.append(Sample(tuple(max(values) for values in zip(*(one.values for one in shares), strict=True))))
    number = document("thesis").numbers["fig-4.3/variation"] if at_size else None
    yield from side_by_side("largest difference of a class without aggregation", number, *found)


DEPENDENCY_CLASSES: tuple[tuple[str, int, int | None], ...] = (
    ("none", -1, 0),
    ("1-to-4", 0, 4),
    ("5-to-9", 4, 9),
    ("more-than-12", 12, None),
)
"""The classes of which the text speaks; those with 10 to 12 are in none."""


def dependency_counts(found: AggregationMeasures) -> np.ndarray:
    """Messages by the number of their dependencies."""
    return np.bincount(found.dependencies)


def most_dependencies(found: AggregationMeasures) -> float:
    """The dependencies of the message that has most of them."""
    return float(found.dependencies.max())


def dependency_figures(nodes: int, at_size: bool, results: Found) -> Iterator[Figure]:
    """The classes of the text, and Figure 4.3 itself: every number of dependencies."""
    numbers = document("thesis").numbers
    series = [
        Series(
            start_name(case.starts),
            AGGREGATION,
            tuple(
                results.sample(case, share_of(dependency_counts, low, high)).point(place)
                for place, (_, low, high) in enumerate(DEPENDENCY_CLASSES)
            ),
            "bars",
            variant,
        )
        for variant, case in enumerate(both_starts(nodes))
    ]
    published = [
        published_point(place, numbers[f"fig-4.3/{name}"]) for place, (name, _, _) in enumerate(DEPENDENCY_CLASSES)
    ]
    yield Figure(
        "classes",
        f"Messages by the number of their dependencies, {nodes} nodes",
        Axis("dependencies", categories=tuple(name.replace("-", " ") for name, _, _ in DEPENDENCY_CLASSES)),
        Axis("share of the messages", "%"),
        (*series, *published_series(AGGREGATION, AGGREGATION, published if at_size else [])),
        caption="The classes are those of the text.",
    )
    calibrated = AggregationCase(nodes)
    most = max(int(found.dependencies.max()) for found in results.of(calibrated))
    shares = tuple(
        results.sample(calibrated, share_of(dependency_counts, number - 1, number)).point(number)
        for number in range(most + 1)
    )
    yield Figure(
        "distribution",
        f"Every number of dependencies, {nodes} nodes",
        Axis("dependencies", "entries"),
        Axis("share of the messages", "%"),
        (Series(start_name(CALIBRATED), AGGREGATION, shares, "bars"),),
        caption="The published plot of the same has no readable values.",
    )


FIG_4_3: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/fig-4.3",
    document="thesis, Figure 4.3 (ICPP paper, Figure 6)",
    description="messages by the number of dependencies that they carry, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=with_none,
    measure=measure,
    compare=compare_dependencies,
    meaning="How much does a message depend on? With calibrated start times a third of the messages depend on nothing "
    "and a quarter on more than a dozen others: whoever speaks late has heard many. The published shape lies between "
    "what uniform and normal start times give. Vectors of this kind grow with what was heard, which is what causal "
    "barriers avoid.",
)
