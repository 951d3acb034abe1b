"""Parents on the broker tree by place: the search of an orphan, as in ``ginger/parents``, over drawn cities."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon_lab.experiments.ginger.parents import (
    DETECTION_MS,
    FAN_OUT,
    TOTAL_DEGREE,
    AdoptionOutcome,
    ParentsCase,
    cases,
    compare_ways,
    measure_on,
)
from antiphon_lab.experiments.places.model import MATRICES, drawn_delays_ms
from antiphon_lab.reproduction.experiment import Experiment, Finding, Plan, Results


def measure(case: ParentsCase, seed: int) -> AdoptionOutcome:
    """Let a broker crash, and see where the brokers below it go."""
    return measure_on(drawn_delays_ms(case.nodes, seed, least_ms=1), case, seed)


def compare(plan: Plan, results: Results[ParentsCase, AdoptionOutcome]) -> Iterator[Finding]:
    """Each quantity by the way of asking, and against the document's."""
    yield from compare_ways(plan, results, "brokers", "Time until an orphan has everything, over cities")


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
