"""Causal aggregation over cities: the packets that it saves, and by how much it moves deliveries.

Every node broadcasts one message in a short window, once with causal aggregation and once without; delays are those of
a drawn matrix, the same for every packet of a link. Without output queues a node that holds a message back waits for
another one that must be delivered before it anyway, so nothing is delivered later. With queues packets wait for each
other, and a packet more or less moves those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.simulator.network.delays import MatrixDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    NO_AGGREGATION,
    WINDOW_TICKS,
    AggregationCase,
    Journeys,
    travel_over,
)
from antiphon_lab.experiments.places.model import MATRICES, drawn_delays_ms
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series


@dataclass(frozen=True)
class AggregationOverCities:
    """A system, with output queues that take a tick for each packet, or without."""

    nodes: int
    has_queues: bool

    def __str__(self) -> str:
        return f"{self.nodes} places, {'with' if self.has_queues else 'without'} output queues"


@dataclass(frozen=True)
class Aggregated:
    """With aggregation against without: packets saved, and deliveries that moved. A tick is a millisecond."""

    saved_percent: float
    mean_change_percent: float
    moved: int
    largest_move_ticks: int


def measure(case: AggregationOverCities, seed: int) -> Aggregated:
    """Run the same broadcasts with and without aggregation."""
    return compared_over(drawn_delays_ms(case.nodes, seed), case, seed)


def compared_over(rows: list[list[int]], case: AggregationOverCities, seed: int) -> Aggregated:
    """The comparison over a matrix of delays in ticks."""

    def run(protocol: str) -> Journeys:
        ticks = 1 if case.has_queues else 0
        network = NetworkModel(MatrixDelay(rows), ticks, 0, charge_control=False)
        return travel_over(AggregationCase(case.nodes, protocol), seed, network)

    held, plain = run(AGGREGATION), run(NO_AGGREGATION)
    with_packets, packets = held.measured().packets, plain.measured().packets
    moves = (held.delivered - plain.delivered)[~np.eye(case.nodes, dtype=bool)]
    return Aggregated(
        saved_percent=100 * (1 - with_packets / packets),
        mean_change_percent=100 * (held.measured().delivery / plain.measured().delivery - 1),
        moved=int(np.count_nonzero(moves)),
        largest_move_ticks=int(np.abs(moves).max()),
    )


def cases(plan: Plan) -> list[AggregationOverCities]:
    """All sizes, without and with queues."""
    return [AggregationOverCities(nodes, queues) for nodes in plan.sizes for queues in (False, True)]


QUANTITIES: dict[str, tuple[str, Callable[[Aggregated], float]]] = {
    "packets saved": ("%", lambda found: found.saved_percent),
    "mean time to delivery, change": ("%", lambda found: found.mean_change_percent),
    "deliveries that moved": ("deliveries", lambda found: found.moved),
    "largest move of a delivery": ("ms", lambda found: found.largest_move_ticks),
}


def compare(plan: Plan, results: Results[AggregationOverCities, Aggregated]) -> Iterator[Finding]:
    """What aggregation changes."""
    alone = [found.moved for case in cases(plan) if not case.has_queues for found in results.of(case)]
    yield promised("deliveries that moved although there are no queues, all runs", alone, "deliveries")
    for label, (unit, quantity) in QUANTITIES.items():
        for case in cases(plan):
            yield Row(f"{label}, {case}", unit, results.sample(case, quantity))
    yield Figure(
        "saved",
        "Packets that causal aggregation saves over cities",
        NODES,
        Axis("packets saved", "%"),
        tuple(
            Series(
                name,
                "VCube",
                tuple(
                    results.sample(AggregationOverCities(nodes, queues), QUANTITIES["packets saved"][1]).point(nodes)
                    for nodes in plan.sizes
                ),
                variant=variant,
            )
            for variant, (name, queues) in enumerate((("without queues", False), ("with queues", True)))
        ),
    )
    yield Note(f"All nodes broadcast once within {WINDOW_TICKS} ms. A tick is a millisecond.")


AGGREGATION_OVER_CITIES: Experiment[AggregationOverCities, Aggregated] = Experiment(
    name="places/aggregation",
    document="chapter 4 of the thesis on VCube-PS measures aggregation on drawn delays of mean 100",
    description="causal aggregation over cities: packets saved, and deliveries that move, without and with queues",
    default=Plan((16, 32, 64, 128), repetitions=5, large_repetitions=5),
    full=Plan((16, 32, 64, 128), repetitions=20, large_repetitions=20, full=True),
    parameters={
        "matrices": MATRICES,
        "window_ms": WINDOW_TICKS,
        "transmission_ms": "0 without queues, 1 with",
        "publishers": "every node once",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What does causal aggregation bring where delays differ as much as between cities, and what does it cost? "
    "It holds a message back until another one that must come first has arrived, and sends both in one packet. Without "
    "queues nobody waits for that. With queues there are fewer packets to wait for, and some come later.",
)
