"""The cost of the path in each message of BRISA: section 4.2.4 of the thesis of M. Matos."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log

import numpy as np

from antiphon_lab.experiments.brisa.hops import NODE_BYTES
from antiphon_lab.experiments.brisa.model import MODEL, StreamCase, StreamMeasures, measure, numbers_of
from antiphon_lab.experiments.brisa.structure import FEW_MESSAGES, Found, mean
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Derived

LARGE_PROCESSES = 1_000_000


LARGE_VIEW = 8


def path_cases(plan: Plan) -> list[StreamCase]:
    """Trees of growing size."""
    return [StreamCase(nodes, FEW_MESSAGES, LARGE_VIEW) for nodes in plan.sizes]


def path_bits(found: StreamMeasures) -> np.ndarray:
    """The cost of the path in each message that a node forwards."""
    return found.path_ids * 8 * NODE_BYTES


def compare_paths(plan: Plan, results: Found) -> Iterator[Finding]:
    """The cost of the path in each message."""
    bound = Sample((float(ceil(log(LARGE_PROCESSES, LARGE_VIEW)) * 8 * NODE_BYTES),))
    yield compared(
        f"log to base {LARGE_VIEW} of 10^6 processes, rounded up",
        bound,
        numbers_of("section-4.2.4")["bits"],
        basis=Derived("the view, the number of processes and the bits of an address; nothing is simulated for it"),
    )
    cases = path_cases(plan)
    for case in cases:
        yield Row(f"mean path, {case.nodes} processes", "bits", results.sample(case, mean(path_bits)))
        most = results.sample(case, lambda found: float(path_bits(found).max()))
        yield Row(f"longest path, {case.nodes} processes", "bits", most)
    points = [results.sample(case, mean(path_bits)).point(case.nodes) for case in cases]
    expected = [Point(case.nodes, log(case.nodes, LARGE_VIEW) * 8 * NODE_BYTES) for case in cases]
    yield Figure(
        "path",
        f"The path in a message, view {LARGE_VIEW}",
        Axis("number of processes", scale="log2"),
        Axis("mean path", "bits"),
        (
            Series("measured", "BRISA tree", tuple(points)),
            Series(f"log to base {LARGE_VIEW}", "counting", tuple(expected), variant=1),
        ),
    )
    yield Note("A path names the source and every process down to the one that sends, itself included.")


PATHS: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/path-overhead",
    document="thesis of M. Matos, section 4.2.4",
    description="BRISA: what the path in each message costs",
    default=Plan((64, 128, 256, 512), repetitions=3, large_repetitions=3),
    full=Plan((64, 128, 256, 512, 1024, 2048, 4096), repetitions=10, large_repetitions=3, full=True),
    parameters={**MODEL, "messages": FEW_MESSAGES, "views": LARGE_VIEW, "bits_per_process": 8 * NODE_BYTES},
    cases=path_cases,
    measure=measure,
    compare=compare_paths,
    meaning="In a tree each message names the processes on its way, which is how cycles are seen. That is as many "
    "addresses as the tree is deep, and the depth grows with the logarithm of the size: seven addresses, 336 bits, for "
    "a million processes. The simulated trees follow the logarithm and stay near it.",
)
