"""Parents on the broker tree by place: the search of an orphan, as in ``ginger/parents``, over drawn cities."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon_lab.experiments.ginger.parents import (
    BY_HOPS,
    DETECTION_MS,
    FAN_OUT,
    QUANTITIES,
    TOTAL_DEGREE,
    WAYS,
    AdoptionOutcome,
    ParentsCase,
    cases,
    measure_on,
    sizes_of,
)
from antiphon_lab.experiments.places.model import MATRICES, drawn_delays_us
from antiphon_lab.reproduction.experiment import Experiment, Finding, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series


def measure(case: ParentsCase, seed: int) -> AdoptionOutcome:
    """Let a broker crash, and see where the brokers below it go."""
    rows = [[max(1, round(delay / 1000)) for delay in row] for row in drawn_delays_us(case.nodes, seed)]
    for place, row in enumerate(rows):
        row[place] = 0
    return measure_on(rows, case, seed)


def compare(plan: Plan, results: Results[ParentsCase, AdoptionOutcome]) -> Iterator[Finding]:
    """Each quantity by the way of asking, and against the document's."""
    yield promised(
        "banks in disorder and brokers stuck, all runs",
        [found.wrong for case in cases(plan) for found in results.of(case)],
    )
    for label, (unit, quantity) in QUANTITIES.items():
        for case in cases(plan):
            sample = results.sample(case, quantity)
            yield Row(f"{label}, {case}", unit, sample)
            if case.way != BY_HOPS:
                usual = results.sample(ParentsCase(BY_HOPS, case.nodes), quantity)
                yield Row(f"{label}, {case}, against {BY_HOPS}", "times", sample.over(usual))
    label, (unit, quantity) = next(iter(QUANTITIES.items()))
    yield Figure(
        "brokers",
        "Time until an orphan has everything, over cities",
        Axis("brokers", categories=tuple(str(nodes) for nodes in sizes_of(plan))),
        Axis(label, unit),
        tuple(
            Series(
                way,
                "Ginger, ours",
                tuple(
                    results.sample(ParentsCase(way, nodes), quantity).point(place)
                    for place, nodes in enumerate(sizes_of(plan))
                ),
                "bars",
                variant,
            )
            for variant, way in enumerate(WAYS)
        ),
    )


BROKERS: Experiment[ParentsCase, AdoptionOutcome] = Experiment(
    name="places/brokers",
    document="not measured in the dissertation on Ginger: section 4.2 describes the search",
    description="the broker tree over cities: repairs and the tree after them, by the order in which orphans ask",
    default=Plan((40, 121), repetitions=20, large_repetitions=20),
    full=Plan((40, 121), repetitions=60, large_repetitions=60, full=True),
    parameters={
        "matrices": MATRICES,
        "fan_out": FAN_OUT,
        "total_degree": TOTAL_DEGREE,
        "detection_ms": DETECTION_MS,
        "faults": "the first broker of the second level, in the middle third",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Is the nearest broker the best parent where distances are those between cities? In three regions most "
    "brokers have others of their region near. Between cities every distance differs, so asking the nearest first has "
    "more to gain, and a probe to far brokers costs more.",
)
