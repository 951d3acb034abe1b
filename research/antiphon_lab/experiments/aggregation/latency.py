"""Latency under causal aggregation: Figures 4.4 and 4.5 of the thesis.

The plots have no readable values; the statements of the text about them are compared. All numbers are given twice,
calibrated and literal (:mod:`antiphon_lab.experiments.aggregation.model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    FIXED,
    LAWS,
    LITERAL,
    MODEL,
    NO_AGGREGATION,
    AggregationCase,
    AggregationMeasures,
    Journeys,
    measure,
    travel,
)
from antiphon_lab.experiments.aggregation.packets import (
    SIZES,
    Found,
    Quantity,
    both_starts,
    numbers_of,
    start_name,
)
from antiphon_lab.experiments.aggregation.start_laws import FittingLaws, law_cases, laws_tried, side_by_side
from antiphon_lab.reproduction.documents import Number, document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Mark, Series, published_point, published_series
from antiphon_lab.reproduction.verdicts import Fitted

LARGEST = 1024


def gain_of(results: Found, nodes: int, law: str, quantity: Quantity) -> Sample:
    """By how much a quantity is higher with aggregation, in percent."""
    together, alone = (
        results.sample(AggregationCase(nodes, protocol, law), quantity) for protocol in (AGGREGATION, NO_AGGREGATION)
    )
    return together.increase_over(alone)


def gain(results: Found, nodes: int, quantity: Quantity) -> tuple[Sample, Sample]:
    """The same, calibrated and literal."""
    return gain_of(results, nodes, CALIBRATED, quantity), gain_of(results, nodes, LITERAL, quantity)


def negated_gain(results: Found, nodes: int, starts: str, quantity: Quantity) -> Sample:
    """By how much a quantity is higher without aggregation, in percent; 0 where there is nothing without."""
    together, alone = (
        results.sample(AggregationCase(nodes, protocol, starts), quantity) for protocol in (AGGREGATION, NO_AGGREGATION)
    )
    return alone.with_other(lambda one, other: 100 * (one / other - 1) if other > 0 else 0.0, together)


def size_of(sample: Sample) -> float:
    """How far a mean difference is from none."""
    return abs(sample.mean)


def absolute(sample: Sample) -> Sample:
    """A difference with the sign that makes its mean positive."""
    return negated(sample) if sample.mean < 0 else sample


def negated(sample: Sample) -> Sample:
    """A decrease as an increase."""
    return Sample(tuple(-value for value in sample.values))


def reception(found: AggregationMeasures) -> float:
    """The mean time from broadcast to arrival."""
    return found.reception


def delivery(found: AggregationMeasures) -> float:
    """The mean time from broadcast to delivery."""
    return found.delivery


# Figure 4.4.


MIDDLE = 256
PROTOCOLS = (AGGREGATION, NO_AGGREGATION)


def latency_cases(plan: Plan) -> list[AggregationCase]:
    """All sizes with and without aggregation, with both start times; two sizes with other laws."""
    laws = laws_tried(LARGEST, plan.full)
    at_rest = [AggregationCase(SIZES[0], protocol, law) for law in laws for protocol in PROTOCOLS]
    by_law = [case for nodes in plan.sizes for case in law_cases(nodes, PROTOCOLS, full=plan.full)]
    return [*both_latency_cases(plan), *by_law, *(at_rest if LARGEST in plan.sizes else [])]


def both_latency_cases(plan: Plan) -> list[AggregationCase]:
    """All sizes with and without aggregation, with both start times."""
    return [case for nodes in plan.sizes for protocol in PROTOCOLS for case in both_starts(nodes, protocol)]


def compare_latencies(plan: Plan, results: Found) -> Iterator[Finding]:
    """The statements of the text, then the figure as numbers."""
    number = numbers_of("fig-4.4")
    if LARGEST in plan.sizes and SIZES[0] in plan.sizes:
        yield from compare_growth(plan, results, number)
        yield from compare_largest(results, number)
    if MIDDLE in plan.sizes:
        others = FittingLaws(results, MIDDLE).under(lambda law: gain_of(results, MIDDLE, law, reception))
        label = f"{MIDDLE} nodes, reception with aggregation against without"
        yield from side_by_side(label, number("reception-256"), *gain(results, MIDDLE, reception), others=others)
    for nodes in plan.sizes:
        longer = [negated_gain(results, nodes, starts, pending) for starts in (CALIBRATED, LITERAL)]
        published = number(f"pending-{nodes}") if nodes in (SIZES[1], LARGEST) else None
        by_law = FittingLaws(results, nodes).under(partial(pending_longer, results, nodes))
        label = f"{nodes} nodes, pending longer without aggregation by"
        yield from side_by_side(label, published, *longer, others=by_law)
    small = [nodes for nodes in plan.sizes if nodes <= LARGEST // 2]
    if small:
        per_size = [gain(results, nodes, delivery) for nodes in small]
        # The text gives averages by size, and the largest difference of them.
        worst = [absolute(max((samples[start] for samples in per_size), key=size_of)) for start in (0, 1)]
        label = f"delivery, largest difference up to {max(small)} nodes"
        yield from side_by_side(label, number("delivery-to-512"), *worst)
    yield from latency_figures(plan, results, number)
    for case in both_latency_cases(plan):
        for name, quantity in (("reception", reception), ("delivery", delivery), ("pending", pending)):
            yield Row(f"{name}, {case}", "ticks", results.sample(case, quantity))


def latency_figures(plan: Plan, results: Found, number: Callable[[str], Number]) -> Iterator[Figure]:
    """Figure 4.4, and the differences of which the text speaks."""
    quantities: tuple[tuple[str, Quantity], ...] = (("delivery", delivery), ("reception", reception))
    series = [
        Series(
            f"{name}, {protocol}",
            protocol,
            tuple(results.sample(AggregationCase(nodes, protocol), quantity).point(nodes) for nodes in plan.sizes),
            variant=variant,
        )
        for protocol in (AGGREGATION, NO_AGGREGATION)
        for variant, (name, quantity) in enumerate(quantities)
    ]
    yield Figure(
        "latency",
        f"Reception and delivery latency, {start_name(CALIBRATED)}",
        NODES,
        Axis("latency", "ticks"),
        tuple(series),
        caption="The published plot has no readable values; the text gives ratios and differences.",
    )
    differences = [
        Series(
            f"{name}, {start_name(starts)}",
            name,
            tuple(gain(results, nodes, quantity)[variant].point(nodes) for nodes in plan.sizes),
            variant=variant,
        )
        for name, quantity in quantities
        for variant, starts in enumerate((CALIBRATED, LITERAL))
    ]
    received = [
        published_point(MIDDLE, number("reception-256")),
        published_point(LARGEST, number("reception-1024"), sign=-1),
    ]
    delivered = [published_point(LARGEST, number("delivery-1024"), sign=-1)]
    yield Figure(
        "difference",
        "Latency with aggregation against without",
        NODES,
        Axis("more latency", "%"),
        (
            *differences,
            *published_series("reception", "reception", received),
            *published_series("delivery", "delivery", delivered),
        ),
        caption="Below zero, aggregation is faster.",
    )


def send_wait(found: AggregationMeasures) -> float:
    """The mean time in the queue of a sender."""
    return found.send_wait


def pending(found: AggregationMeasures) -> float:
    """The mean time from arrival to delivery."""
    return found.pending


def pending_longer(results: Found, nodes: int, law: str) -> Sample:
    """By how much messages are pending longer without aggregation, in percent."""
    return negated_gain(results, nodes, law, pending)


def compare_growth(plan: Plan, results: Found, number: Callable[[str], Number]) -> Iterator[Row | Note]:
    """How reception latency grows from 8 nodes to 1024: at the end, and as the mean over the sizes above 8."""
    laws = FittingLaws(results, LARGEST)
    for protocol, name in ((AGGREGATION, "with"), (NO_AGGREGATION, "without")):
        growth = partial(growth_of, results, protocol, LARGEST)
        samples = (growth(CALIBRATED), growth(LITERAL))
        label, others = f"reception at 1024 over 8 nodes, {protocol}", laws.under(growth)
        yield from side_by_side(label, number(f"growth-{name}"), *samples, others=others)
        means = []
        for starts in (CALIBRATED, LITERAL):
            ratios = [growth_of(results, protocol, nodes, starts).values for nodes in plan.sizes[1:]]
            means.append(Sample(tuple(float(np.mean(values)) for values in zip(*ratios, strict=False))))
        yield from side_by_side(f"reception over 8 nodes, mean, {protocol}", number(f"mean-growth-{name}"), *means)


def growth_of(results: Found, protocol: str, nodes: int, law: str) -> Sample:
    """The reception at a size over the mean of that at 8 nodes, which is repeated more often."""
    first = results.sample(AggregationCase(SIZES[0], protocol, law), reception).mean
    found = results.sample(AggregationCase(nodes, protocol, law), reception)
    return Sample(tuple(value / first for value in found.values))


def compare_largest(results: Found, number: Callable[[str], Number]) -> Iterator[Row | Note]:
    """The size at which the output queues fill."""
    laws = FittingLaws(results, LARGEST)
    quantities: tuple[tuple[str, str, Callable[[str], Sample]], ...] = (
        ("reception faster by", "reception-1024", lambda law: negated(gain_of(results, LARGEST, law, reception))),
        (
            "wait to be sent, no aggregation",
            "send-wait-1024",
            lambda law: results.sample(AggregationCase(LARGEST, NO_AGGREGATION, law), send_wait),
        ),
        ("delivery faster by", "delivery-1024", lambda law: negated(gain_of(results, LARGEST, law, delivery))),
        (
            "wait to be sent, longer without aggregation by",
            "send-wait-more-1024",
            lambda law: negated_gain(results, LARGEST, law, send_wait),
        ),
    )
    for label, name, quantity in quantities:
        samples = (quantity(CALIBRATED), quantity(LITERAL))
        others = laws.under(quantity)
        yield from side_by_side(f"{LARGEST} nodes, {label}", number(name), *samples, others=others)
    for case in both_starts(LARGEST):
        yield Row(f"wait to be sent, {case}", "ticks", results.sample(case, send_wait))
    yield Note(
        "The text gives 53.4 % both for the wait before sending and for the time in pending; the two are different "
        "quantities, and stand in separate rows here."
    )


# Figure 4.5.


@dataclass(frozen=True)
class Pairs:
    """Messages that came in a packet of two, and the same messages at the same nodes without aggregation.

    Means over the messages, in ticks; all 0 where there was no such packet.
    """

    packets: int
    saved_percent: float
    reception: float
    delivery: float
    reception_alone: float
    delivery_alone: float

    @property
    def comparable(self) -> bool:
        """Whether there was such a packet, and anything waited without aggregation."""
        return self.packets > 0 and self.delivery_alone > self.reception_alone

    def reception_increase(self) -> float:
        """In percent."""
        return 100 * (self.reception / self.reception_alone - 1)

    def delivery_increase(self) -> float:
        """In percent."""
        return 100 * (self.delivery / self.delivery_alone - 1)

    def pending_decrease(self) -> float:
        """In percent."""
        return 100 * (1 - (self.delivery - self.reception) / (self.delivery_alone - self.reception_alone))


def measure_pairs(case: AggregationCase, seed: int) -> Pairs:
    """Run a case with and without aggregation, with delays that depend on link and time alone."""
    together = travel(case, seed)
    alone = travel(replace(case, protocol=NO_AGGREGATION), seed)
    chosen = together.together == 2

    def mean(run: Journeys, times: np.ndarray) -> float:
        return float((times - run.starts[:, None])[chosen].mean()) if chosen.any() else 0.0

    return Pairs(
        packets=int(np.count_nonzero(chosen)) // 2,
        saved_percent=100 * (1 - int(together.engine.sent) / int(alone.engine.sent)),
        reception=mean(together, together.received),
        delivery=mean(together, together.delivered),
        reception_alone=mean(alone, alone.received),
        delivery_alone=mean(alone, alone.delivered),
    )


def pair_cases(plan: Plan) -> list[AggregationCase]:
    """All sizes with both start times, and with fixed delays."""
    found = [replace(case, paired=True) for nodes in plan.sizes for case in both_starts(nodes)]
    return found + [with_fixed_delays(nodes) for nodes in plan.sizes if nodes > SIZES[0]]


def with_fixed_delays(nodes: int) -> AggregationCase:
    """A case in which pairs meet the same delays because links never change theirs."""
    return AggregationCase(nodes, AGGREGATION, FIXED, paired=True)


PairsFound = Results[AggregationCase, Pairs]


def of_pairs(results: PairsFound, nodes: int, quantity: Callable[[Pairs], float]) -> tuple[Sample, Sample]:
    """One quantity, calibrated and literal."""
    calibrated, literal = (results.sample(replace(case, paired=True), quantity) for case in both_starts(nodes))
    return calibrated, literal


def compare_pairs(plan: Plan, results: PairsFound) -> Iterator[Finding]:
    """Reception, delivery and time in pending of packets with two messages, against the same sent alone."""
    number = numbers_of("fig-4.5")
    published = {512: number("pending-512"), 64: number("pending-64")}
    receptions: list[tuple[Sample, Sample]] = []
    compared_sizes: list[int] = []
    for nodes in plan.sizes:
        packets = of_pairs(results, nodes, lambda pairs: float(pairs.packets))
        least = number("packets-8") if nodes == SIZES[0] else None
        yield from side_by_side(f"{nodes} nodes, packets of two", least, *packets, unit="packets")
        found = [pairs for case in both_starts(nodes) for pairs in results.of(replace(case, paired=True))]
        if not all(pairs.comparable for pairs in found):
            yield Note(f"{nodes} nodes: too few packets of two to compare what they delay.")
            continue
        compared_sizes.append(nodes)
        receptions.append(of_pairs(results, nodes, Pairs.reception_increase))
        yield from side_by_side(f"{nodes} nodes, reception", None, *receptions[-1])
        yield from side_by_side(f"{nodes} nodes, delivery", None, *of_pairs(results, nodes, Pairs.delivery_increase))
        waits = of_pairs(results, nodes, Pairs.pending_decrease)
        yield from side_by_side(f"{nodes} nodes, time in pending shorter by", published.get(nodes), *waits)
    if receptions:
        # The text gives averages by size, and the largest of them.
        most = [max((samples[start] for samples in receptions), key=lambda sample: sample.mean) for start in (0, 1)]
        yield from compare_fixed_delays(plan, results, most)
    if compared_sizes:
        yield pairs_figure(compared_sizes, results, published)
    yield Note("Pairs meet the same delays: a delay depends on the link and the time alone. Rows are in percent.")


def pairs_figure(sizes: list[int], results: PairsFound, published: dict[int, Number]) -> Figure:
    """Figure 4.5 as differences; the time in pending, which becomes shorter, as a negative one."""
    quantities: tuple[tuple[str, Callable[[Pairs], float]], ...] = (
        ("reception", Pairs.reception_increase),
        ("delivery", Pairs.delivery_increase),
        ("time in pending", lambda pairs: -pairs.pending_decrease()),
    )
    series = [
        Series(
            f"{name}, {start_name(starts)}",
            name,
            tuple(of_pairs(results, nodes, quantity)[variant].point(nodes) for nodes in sizes),
            variant=variant,
        )
        for name, quantity in quantities
        for variant, starts in enumerate((CALIBRATED, LITERAL))
    ]
    points = [published_point(nodes, number, sign=-1) for nodes, number in sorted(published.items())]
    most = document("thesis").numbers["fig-4.5/reception"]
    return Figure(
        "difference",
        "Messages in packets of two against the same messages sent alone",
        NODES,
        Axis("more time", "%"),
        (*series, *published_series("time in pending", "time in pending", points)),
        (Mark("y", most.value, f"published: reception up to +{most.value:g} %"),),
    )


def compare_fixed_delays(plan: Plan, results: PairsFound, most: list[Sample]) -> Iterator[Row | Note]:
    """The largest increase of the reception, and where it comes from: links that keep their delays."""
    number = numbers_of("fig-4.5")
    increases: list[Sample] = []
    deliveries: list[Sample] = []
    for nodes in plan.sizes:
        case = with_fixed_delays(nodes)
        if nodes == SIZES[0] or not all(pairs.comparable for pairs in results.of(case)):
            continue
        found = results.sample(case, Pairs.reception_increase)
        increases.append(found)
        yield Row(f"{nodes} nodes, reception, fixed delays", "%", found)
        deliveries.append(results.sample(case, Pairs.delivery_increase))
        yield Row(f"{nodes} nodes, delivery, fixed delays", "%", deliveries[-1])
        saved = results.sample(case, lambda pairs: pairs.saved_percent)
        yield Row(f"{nodes} nodes, fewer packets, fixed delays", "%", saved)
    if not increases:
        return
    means = [sample.mean for sample in increases]
    yield Note(
        "The text compares pairs in exactly the same scenario and finds their deliveries equal, which they are where "
        f"every link keeps its delay: with a deviation of {LAWS[FIXED].deviation_ticks}, drawn once per link, the "
        f"reception increases by {min(means):.3g} to {max(means):.3g} % by size. Where delays are drawn for every "
        "packet a late packet is late once, and less is held back."
    )
    label = "reception, largest increase"
    yield from side_by_side(label, None, *most)
    basis = Fitted(f"delays that links keep ({LAWS[FIXED]})", "Table 4.1 and the reception of Figure 4.4 at 256 nodes")
    largest = max(increases, key=lambda sample: sample.mean)
    yield Row(f"{label}, fixed delays", "%", largest, number("reception"), None, basis)
    means_by_run = zip(*(sample.values for sample in deliveries), strict=False)
    same = Sample(tuple(float(np.mean(values)) for values in means_by_run))
    yield Row("delivery, mean increase, fixed delays", "%", same, number("delivery"), None, basis)


FIG_4_4: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/fig-4.4",
    document="thesis, Figure 4.4 (ICPP paper, Figure 7)",
    description="reception and delivery latency with and without aggregation, by number of nodes",
    default=Plan(SIZES, repetitions=3, large_repetitions=3, small_repetitions=30),
    full=Plan(SIZES, repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=latency_cases,
    measure=measure,
    compare=compare_latencies,
    meaning="Does aggregation delay anybody? Up to 512 nodes delivery takes the same time with and without it, within "
    "about three percent: what waits for company could not have been delivered earlier. With 1024 nodes output queues "
    "are full without aggregation, and it delivers sooner, by more here than published. How much reception is put off "
    "at middle sizes depends on the spread of delays and is less here than published. It is safe to leave aggregation "
    "on.",
)

FIG_4_5: Experiment[AggregationCase, Pairs] = Experiment(
    name="aggregation/fig-4.5",
    document="thesis, Figure 4.5 (ICPP paper, Figure 8)",
    description="messages in packets of two against the same messages sent alone, by number of nodes",
    default=Plan(SIZES[:-1], repetitions=3, large_repetitions=3, small_repetitions=30),
    full=Plan(SIZES, repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=pair_cases,
    measure=measure_pairs,
    compare=compare_pairs,
    meaning="What happens to the messages that travel in pairs? They arrive a few percent later than if each had gone "
    "alone, and are delivered at the same time or slightly sooner, because most of the wait in the receiver's buffer "
    "is gone: it is spent at the sender, where it saves a packet. The published increase of reception is larger than "
    "ours; it needs wider delays than those that save the published number of packets.",
)
