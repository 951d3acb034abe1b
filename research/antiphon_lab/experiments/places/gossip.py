"""Parents in gossip by place: the neighbour that delivered first, or the one with the shortest round trip.

BRISA on an overlay over drawn cities; nodes publish in turn. ``first-come`` keeps the neighbour whose copy came first,
which is the end of the shortest way as long as nothing waits. ``delay`` takes the neighbour with the shortest round
trip, whatever lies before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import MatrixLaw, NetworkTable, RateWorkload, Scenario
from antiphon_lab.experiments.places.model import MATRICES, drawn_delays_ms
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series

FIRST_COME, DELAY = "first-come", "delay"
STRATEGIES = (FIRST_COME, DELAY)
START_MS = 60_000
"""Until then the overlay is there, and round trips have been measured."""

MESSAGES, GAP_MS = 200, 500


@dataclass(frozen=True)
class GossipCase:
    """One way of choosing parents."""

    strategy: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.strategy}, {self.nodes} places"


@dataclass(frozen=True)
class GossipLatency:
    """The mean latency of deliveries elsewhere, how many there were, and the messages sent for each."""

    mean_ms: float
    deliveries: int
    messages: float


def measure(case: GossipCase, seed: int) -> GossipLatency:
    """Let the overlay grow, and nodes publish."""
    rows = drawn_delays_ms(case.nodes, seed)
    scenario = Scenario(
        seed=seed,
        nodes=case.nodes,
        fabric="gossip",
        protocol="brisa",
        order="none",
        protocol_options={"strategy": case.strategy},
        network=NetworkTable(delay=MatrixLaw(rows=rows), transmission=0, processing=0, in_order=True),
        workload=RateWorkload(mean_gap=GAP_MS, count=MESSAGES, start=START_MS),
    )
    engine = Simulation(scenario).engine
    engine.run()
    elsewhere = int(engine.deliveries - engine.own_deliveries)
    return GossipLatency(int(engine.latency_sum) / elsewhere, elsewhere, int(engine.sent) / elsewhere)


def cases(plan: Plan) -> list[GossipCase]:
    """Both ways at all sizes."""
    return [GossipCase(strategy, nodes) for nodes in plan.sizes for strategy in STRATEGIES]


QUANTITIES: dict[str, tuple[str, Callable[[GossipLatency], float]]] = {
    "mean latency": ("ms", lambda found: found.mean_ms),
    "messages per delivery": ("messages", lambda found: found.messages),
}


def compare(plan: Plan, results: Results[GossipCase, GossipLatency]) -> Iterator[Finding]:
    """Parents by round trip beside parents by arrival."""
    for label, (unit, quantity) in QUANTITIES.items():
        for case in cases(plan):
            sample = results.sample(case, quantity)
            yield Row(f"{label}, {case}", unit, sample)
            if case.strategy != FIRST_COME:
                usual = results.sample(GossipCase(FIRST_COME, case.nodes), quantity)
                yield Row(f"{label}, {case}, against {FIRST_COME}", "%", sample.increase_over(usual))
    yield Figure(
        "latency",
        "Mean latency in gossip by choice of parents",
        NODES,
        Axis("mean latency", "ms"),
        tuple(
            Series(
                strategy,
                "BRISA",
                tuple(
                    results.sample(GossipCase(strategy, nodes), QUANTITIES["mean latency"][1]).point(nodes)
                    for nodes in plan.sizes
                ),
                variant=variant,
            )
            for variant, strategy in enumerate(STRATEGIES)
        ),
    )
    yield Note("Queues and processing are left out, so the first copy comes on the shortest way of the overlay.")


GOSSIP: Experiment[GossipCase, GossipLatency] = Experiment(
    name="places/gossip",
    document="section 4.2.5 of the thesis of M. Matos names both strategies; over cities neither is measured",
    description="gossip: latency over cities, by the choice of parents",
    default=Plan((16, 32, 64), repetitions=5, large_repetitions=5),
    full=Plan((16, 32, 64, 128), repetitions=20, large_repetitions=20, full=True),
    parameters={
        "matrices": MATRICES,
        "messages": MESSAGES,
        "mean_gap_ms": GAP_MS,
        "publishers": "drawn for each message",
        "start_ms": START_MS,
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Is the nearest neighbour the best parent? A parent that is near may itself be far from the publisher. The "
    "first copy has come on the shortest way there is, and a node that keeps its sender keeps that way.",
)
