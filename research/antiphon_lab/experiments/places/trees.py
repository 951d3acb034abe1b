"""Tree latency on the cube by number of places, with identifiers at random, greedy, annealed, and given to newcomers.

Every node publishes once over its own tree; the latencies are those of simulated deliveries, not those that the search
computes. ``live`` gives each newcomer a free identifier next to near nodes and changes no other; it arrives in the same
random order that decides the identifiers of ``random``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from antiphon.placement.assignment import STEPS, Annealing, at_random, cost_of, greedily
from antiphon.placement.newcomers import SPARE_BITS, arrived
from antiphon_lab.experiments.places.model import MATRICES, TreeLatencies, drawn_delays_us, simulated
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series

RANDOM, GREEDY, ANNEALED, LIVE = "random", "greedy", "annealed", "live"
WAYS = (RANDOM, GREEDY, ANNEALED, LIVE)


@dataclass(frozen=True)
class PlacingCase:
    """One way of choosing identifiers for so many places."""

    way: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.way}, {self.nodes} places"


def placed(case: PlacingCase, rows: list[list[int]], seed: int) -> dict[int, int]:
    """The place of each identifier."""
    order = at_random(case.nodes, seed)
    if case.way == RANDOM:
        return dict(enumerate(order))
    if case.way == LIVE:
        return arrived(rows, order)
    cost = cost_of(rows)
    chosen = greedily(cost, seed)
    if case.way == ANNEALED:
        search = Annealing(cost, chosen, seed)
        for _ in range(STEPS):
            search.step()
        chosen = search.best
    return dict(enumerate(chosen))


def measure(case: PlacingCase, seed: int) -> TreeLatencies:
    """Draw a matrix, choose identifiers, and let every node publish."""
    rows = drawn_delays_us(case.nodes, seed)
    return simulated(placed(case, rows, seed), rows)


def cases(plan: Plan) -> list[PlacingCase]:
    """All ways at all sizes."""
    return [PlacingCase(way, nodes) for nodes in plan.sizes for way in WAYS]


QUANTITIES: dict[str, Callable[[TreeLatencies], float]] = {
    "mean tree latency": lambda found: found.mean_ms,
    "largest tree latency": lambda found: found.largest_ms,
}


def compare(plan: Plan, results: Results[PlacingCase, TreeLatencies]) -> Iterator[Finding]:
    """Each way beside identifiers at random."""
    missing = [case.nodes * (case.nodes - 1) - found.deliveries for case in cases(plan) for found in results.of(case)]
    yield promised("deliveries missing, all runs", missing)
    for label, quantity in QUANTITIES.items():
        for case in cases(plan):
            sample = results.sample(case, quantity)
            yield Row(f"{label}, {case}", "ms", sample)
            if case.way != RANDOM:
                usual = results.sample(PlacingCase(RANDOM, case.nodes), quantity)
                yield Row(f"{label}, {case}, against {RANDOM}", "%", sample.increase_over(usual))
    yield Figure(
        "latency",
        "Mean tree latency by number of places",
        NODES,
        Axis("mean latency", "ms"),
        tuple(
            Series(
                way,
                "VCube-PS repaired",
                tuple(
                    results.sample(PlacingCase(way, nodes), QUANTITIES["mean tree latency"]).point(nodes)
                    for nodes in plan.sizes
                ),
                variant=variant,
            )
            for variant, way in enumerate(WAYS)
        ),
    )
    yield Note(
        "All ways meet the same matrices. Each repetition draws another one, so none was used to choose a number of "
        "the search. Queues and processing are left out: the latency is the way alone."
    )


TREES: Experiment[PlacingCase, TreeLatencies] = Experiment(
    name="places/trees",
    document="not measured in the documents: nodes of VCube are numbered as they come",
    description="the cube: tree latency by number of places, for four ways of choosing identifiers",
    default=Plan((16, 32, 64, 128), repetitions=5, large_repetitions=5),
    full=Plan((8, 16, 32, 64, 128), repetitions=20, large_repetitions=20, full=True),
    parameters={
        "matrices": MATRICES,
        "publishers": "every node once, one after the other",
        "spare_bits_of_live": SPARE_BITS,
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="How much of the latency of a wide-area cube is a matter of identifiers? Every message travels between "
    "neighbours on the cube, so identifiers that follow the distances shorten every way. The search needs all places "
    "in advance. The live way gives each newcomer one of the free identifiers, and changes nothing for the others.",
)
