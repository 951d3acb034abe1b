"""Aggregation as published, our extensions, and its rivals, on the same work.

This experiment is our own: most of it was never published, so no number is compared with a document. Every system does
the work of chapter 4 (:mod:`antiphon_lab.experiments.aggregation.model`, calibrated): every node broadcasts one
message. A delay depends on the link and the time alone, so that systems which send at the same time have the same
delays; ratios are taken pair by pair, each against its own kind without aggregation.

* **Ride-along**: while a message is held back from a child, later messages for that child wait and travel with it.
* **Hybrid**: every message waits for others, at most for a timer; a released message takes all waiting ones along.
* **VCube-PS with aggregation**: the topic protocol on causal barriers, whose forwarders hold messages back.
* **Timer bundling** and the **single tree** are the rivals of the thesis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    HYBRID,
    MODEL,
    NO_AGGREGATION,
    RIDE_ALONG,
    SINGLE_TREE,
    TIMER,
    TOPIC,
    TOPIC_AGGREGATION,
    AggregationCase,
    AggregationMeasures,
    measure,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series

TIMERS = (2, 10, 50)
"""Ticks; a hop takes about 100."""

SYSTEMS = (
    AggregationCase(0, NO_AGGREGATION),
    AggregationCase(0, AGGREGATION),
    AggregationCase(0, RIDE_ALONG),
    *(AggregationCase(0, RIDE_ALONG, timer_ticks=ticks) for ticks in TIMERS[1:]),
    *(AggregationCase(0, HYBRID, timer_ticks=ticks) for ticks in TIMERS),
    *(AggregationCase(0, TIMER, timer_ticks=ticks) for ticks in TIMERS),
    AggregationCase(0, SINGLE_TREE),
    AggregationCase(0, TOPIC),
    AggregationCase(0, TOPIC_AGGREGATION),
)

Found = Results[AggregationCase, AggregationMeasures]


def of_size(system: AggregationCase, nodes: int) -> AggregationCase:
    """The case of a system at a size."""
    return replace(system, nodes=nodes, starts=CALIBRATED, paired=True)


def without(case: AggregationCase) -> AggregationCase:
    """The same without aggregation, on vectors or on barriers."""
    protocol = TOPIC if case.protocol in (TOPIC, TOPIC_AGGREGATION) else NO_AGGREGATION
    return replace(case, protocol=protocol, timer_ticks=0)


def cases(plan: Plan) -> list[AggregationCase]:
    """All systems at all sizes."""
    return [of_size(system, nodes) for nodes in plan.sizes for system in SYSTEMS]


def against(results: Found, case: AggregationCase, quantity: Callable[[AggregationMeasures], float]) -> Sample:
    """By how many percent a quantity is higher than without aggregation, pair by pair."""
    return results.sample(case, quantity).increase_over(results.sample(without(case), quantity))


def packets(found: AggregationMeasures) -> float:
    """Packets with messages."""
    return float(found.packets)


def bytes_sent(found: AggregationMeasures) -> float:
    """Bytes of these packets."""
    return float(found.bytes_sent)


def reception(found: AggregationMeasures) -> float:
    """The mean time from broadcast to arrival."""
    return found.reception


def delivery(found: AggregationMeasures) -> float:
    """The mean time from broadcast to delivery."""
    return found.delivery


def kept(found: AggregationMeasures) -> float:
    """The most messages that a node kept undelivered, on average over the nodes."""
    return float(found.pending_peaks.mean())


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """Savings and costs, system by system."""
    for nodes in plan.sizes:
        for system in SYSTEMS:
            case = of_size(system, nodes)
            yield Row(f"packets, {case}", "packets", results.sample(case, packets))
            if case != without(case):
                yield Row(f"packets against none, {case}", "%", against(results, case, packets))
                yield Row(f"bytes against none, {case}", "%", against(results, case, bytes_sent))
            yield Row(f"bytes, {case}", "bytes", results.sample(case, bytes_sent))
            yield Row(f"reception, {case}", "ticks", results.sample(case, reception))
            yield Row(f"delivery, {case}", "ticks", results.sample(case, delivery))
            if case != without(case):
                yield Row(f"delivery against none, {case}", "%", against(results, case, delivery))
            yield Row(f"most kept undelivered, mean of nodes, {case}", "messages", results.sample(case, kept))
            if case.protocol in (TOPIC, TOPIC_AGGREGATION):
                answers = results.sample(case, lambda found: float(found.answers))
                yield Row(f"packets with acknowledgements, {case}", "packets", answers)
    yield from best_trade(plan, results)
    yield trade_figure(max(plan.sizes), results)


def trade_figure(nodes: int, results: Found) -> Figure:
    """Savings and costs of each system at the largest size: one point for each."""
    found: dict[str, list[Point]] = {}
    for system in SYSTEMS:
        case = of_size(system, nodes)
        if case != without(case) and case.protocol != SINGLE_TREE:
            saved, later = -against(results, case, packets).mean, against(results, case, delivery).mean
            label = f"{case.timer_ticks} ticks" if case.timer_ticks > 0 else ""
            found.setdefault(case.protocol, []).append(Point(saved, later, label=label))
    series = tuple(Series(name, name, tuple(sorted_points(points)), "points") for name, points in found.items())
    return Figure(
        "trade",
        f"What is saved, and how much later deliveries are, {nodes} nodes",
        Axis("packets saved", "%"),
        Axis("delivery later", "%"),
        series,
        caption="Timers and hybrids with their ticks. The single tree saves nothing and is left out.",
    )


def sorted_points(points: list[Point]) -> list[Point]:
    """Points from left to right."""
    return sorted(points, key=lambda point: point.x)


def best_trade(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """The delivery time that a saved packet costs, for systems that delay deliveries."""
    nodes = max(plan.sizes)
    for system in SYSTEMS:
        case = of_size(system, nodes)
        saved = -against(results, case, packets).mean if case != without(case) else 0.0
        later = float(np.mean(against(results, case, delivery).values)) if saved > 0 else 0.0
        if saved > 0 and later > 0.5:
            yield Row(f"delivery later per percent of packets saved, {case}", "%", Sample((later / saved,)))
    yield Note(
        "Published aggregation and the one on barriers delay no delivery where delays are equal; the rest waits on "
        "purpose. Barriers name fewer dependencies than vectors, so the same packets are smaller, and a forwarder "
        "sees less of what it could wait for. Transmission takes one tick per packet whatever its size."
    )


AGGREGATION_BETTER: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/better",
    document="nothing published: our own",
    description="aggregation as published beside ride-along, hybrid, aggregation on barriers, timers and one tree",
    default=Plan((64, 256), repetitions=2, large_repetitions=2),
    full=Plan((64, 256, 1024), repetitions=20, large_repetitions=5, full=True),
    parameters={**MODEL, "timers_ticks": TIMERS, "delays": "by link and time alone, so that pairs meet the same"},
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="How many packets can be saved, and at what price? Aggregation as published saves a fifth of the packets "
    "of 256 nodes and delays no delivery; on causal barriers, inside VCube-PS, it saves the same. Riders that wait "
    "while something is held back anyway save about twice as much for hardly any delay. Timers save as much and delay "
    "everything. Who counts packets lets riders wait for a tenth of a hop; who counts time takes the published rule.",
)
