"""Buffers under causal aggregation: Figures 4.6 and 4.7 of the thesis.

The plots have no readable values; the statements of the text about them are compared. All numbers are given twice,
calibrated and literal (:mod:`antiphon_lab.experiments.aggregation.model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from antiphon_lab.experiments.aggregation.latency import LARGEST
from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    LITERAL,
    MODEL,
    NO_AGGREGATION,
    AggregationCase,
    AggregationMeasures,
    measure,
)
from antiphon_lab.experiments.aggregation.packets import (
    Found,
    Quantity,
    both,
    both_starts,
    numbers_of,
    start_name,
)
from antiphon_lab.experiments.aggregation.start_laws import FittingLaws, law_cases, side_by_side
from antiphon_lab.reproduction.documents import Number
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Row
from antiphon_lab.reproduction.figures import (
    Axis,
    Figure,
    Mark,
    Point,
    Series,
    limit_of,
    published_point,
    published_series,
)


def buffer_cases(plan: Plan) -> list[AggregationCase]:
    """With and without aggregation, with both start times."""
    protocols = (AGGREGATION, NO_AGGREGATION)
    found = [case for protocol in protocols for case in both_starts(max(plan.sizes), protocol)]
    return found + law_cases(max(plan.sizes), protocols, full=plan.full)


def few(found: AggregationMeasures) -> float:
    """Nodes that never keep more than 50 messages."""
    return float(np.count_nonzero(found.pending_peaks <= 50))


def few_share(found: AggregationMeasures) -> float:
    """The same in percent of all."""
    return float(100 * np.mean(found.pending_peaks <= 50))


def many(found: AggregationMeasures) -> float:
    """Nodes that keep more than 250 messages at some time."""
    return float(np.count_nonzero(found.pending_peaks > 250))


def compare_buffers(plan: Plan, results: Found) -> Iterator[Finding]:
    """Nodes by the most messages that they kept at a time."""
    nodes = max(plan.sizes)
    number = numbers_of("fig-4.6")
    laws = FittingLaws(results, nodes)
    for protocol, name in ((AGGREGATION, "with"), (NO_AGGREGATION, "without")):
        cases = both_starts(nodes, protocol)
        fewest = few if protocol == AGGREGATION else few_share
        for kept, rest, quantity in (
            ("never more than 50", "up-to-50", fewest),
            ("more than 250 once", "above-250", many),
        ):
            published = number(f"{rest}-{name}")
            samples = both(results, cases, quantity)
            label = f"{protocol}, nodes that keep {kept}"
            held = published if nodes == LARGEST else None
            others = laws.of(protocol, quantity)
            yield from side_by_side(label, held, *samples, unit=published.unit, others=others)
        for case in cases:
            largest = results.sample(case, lambda found: float(found.pending_peaks.mean()))
            yield Row(f"mean of the most that nodes keep, {case}", "messages", largest)
    yield buffer_figure(nodes, results, number)
    yield Note(
        "As printed, a message is buffered when it arrives, and leaves when it is delivered, also in the same tick."
    )


BUFFER_STEP = 5


def buffer_figure(nodes: int, results: Found, number: Callable[[str], Number]) -> Figure:
    """Figure 4.6 cumulated: the number of nodes that never keep more than so many messages."""

    def curve(case: AggregationCase) -> tuple[Point, ...]:
        most = max(int(found.pending_peaks.max()) for found in results.of(case))
        borders = range(0, most + 2 * BUFFER_STEP, BUFFER_STEP)
        return tuple(results.sample(case, nodes_up_to(border)).point(border) for border in borders)

    series = [
        Series(f"{protocol}, {name}", protocol, curve(AggregationCase(nodes, protocol, starts)), "steps", variant)
        for protocol in (AGGREGATION, NO_AGGREGATION)
        for variant, (starts, name) in enumerate(((CALIBRATED, start_name(CALIBRATED)), (LITERAL, start_name(LITERAL))))
    ]
    if nodes == LARGEST:
        # The text has nodes above 250, the figure those up to 250; and "less than 25 %" is a bound.
        most = number("up-to-50-without")
        points = {
            AGGREGATION: [
                published_point(50, number("up-to-50-with")),
                Point(250, nodes - number("above-250-with").value),
            ],
            NO_AGGREGATION: [
                Point(50, nodes * most.value / 100, limit=limit_of(most)),
                Point(250, nodes - number("above-250-without").value),
            ],
        }
        for protocol, found in points.items():
            series += published_series(protocol, protocol, found)
    return Figure(
        "buffers",
        f"Nodes that never keep more than so many messages, {nodes} nodes",
        Axis("messages kept at a time", "messages"),
        Axis("nodes"),
        tuple(series),
        caption="Published are the nodes up to 50 and those above 250 messages; here all are added up from the left.",
    )


def nodes_up_to(border: int) -> Quantity:
    """How many nodes never keep more than this."""
    return lambda found: float(np.count_nonzero(found.pending_peaks <= border))


def participation_cases(plan: Plan) -> list[AggregationCase]:
    """Both sizes of payload, with both start times."""
    nodes = max(plan.sizes)
    found = [case for payload in (50, 5) for case in both_starts(nodes, payload_bytes=payload)]
    return found + law_cases(nodes, (AGGREGATION,), payload_bytes=5, full=plan.full)


def within(low: int, high: int) -> Quantity:
    """The share of nodes whose largest packet has a number of messages in this range, in percent."""
    return lambda found: float(100 * np.mean((found.largest_packets >= low) & (found.largest_packets <= high)))


def compare_participation(plan: Plan, results: Found) -> Iterator[Finding]:
    """Nodes by the largest packet that they have put together."""
    nodes = max(plan.sizes)
    number = numbers_of("fig-4.7")
    at_size = nodes == LARGEST
    usual, small = both_starts(nodes), both_starts(nodes, payload_bytes=5)
    laws = FittingLaws(results, nodes)
    taking_part = both(results, usual, lambda found: float(100 * np.mean(found.largest_packets >= 2)))
    label = "50 bytes, nodes that put packets of several together"
    yield from side_by_side(label, number("every-node") if at_size else None, *taking_part)
    held, others = number("7-to-11") if at_size else None, laws.of(AGGREGATION, within(7, 11))
    samples = both(results, usual, within(7, 11))
    yield from side_by_side("50 bytes, nodes with 7 to 11", held, *samples, others=others)
    samples = both(results, usual, lambda found: float(found.largest_packets.max()))
    yield from side_by_side(
        "50 bytes, most messages in one packet", number("largest") if at_size else None, *samples, unit="messages"
    )
    held, others = number("8-to-12") if at_size else None, laws.of(AGGREGATION, within(8, 12), 5)
    samples = both(results, small, within(8, 12))
    yield from side_by_side("5 bytes, nodes with 8 to 12", held, *samples, others=others)
    samples = both(results, small, lambda found: float(found.largest_packets.max()))
    yield from side_by_side("5 bytes, most messages in one packet", None, *samples, unit="messages")
    yield participation_figure(nodes, results)


def participation_figure(nodes: int, results: Found) -> Figure:
    """Figure 4.7."""
    cases = [(payload, AggregationCase(nodes, payload_bytes=payload)) for payload in (50, 5)]
    most = max(int(found.largest_packets.max()) for _, case in cases for found in results.of(case))
    series = [
        Series(
            f"{payload} bytes",
            AGGREGATION,
            tuple(results.sample(case, within(size, size)).point(size) for size in range(1, most + 1)),
            "bars",
            variant,
        )
        for variant, (payload, case) in enumerate(cases)
    ]
    numbers = numbers_of("fig-4.7")
    marks = (
        Mark("x", 6.5, f"published: {numbers('7-to-11').value:g} % of the nodes, 50 bytes", to=11.5),
        Mark("x", 7.5, f"published: {numbers('8-to-12').value:g} % of the nodes, 5 bytes", to=12.5),
    )
    return Figure(
        "participation",
        f"Nodes by the largest packet that they put together, {nodes} nodes, {start_name(CALIBRATED)}",
        Axis("most messages in one packet", "messages"),
        Axis("share of the nodes", "%"),
        tuple(series),
        marks if nodes == LARGEST else (),
        "The text gives shares of ranges, which are marked; single values are in the published plot only.",
    )


FIG_4_6: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/fig-4.6",
    document="thesis, Figure 4.6 (ICPP paper, Figure 9)",
    description="nodes by the most messages that they keep, with and without aggregation, 1024 nodes",
    default=Plan((LARGEST,), repetitions=3, large_repetitions=3),
    full=Plan((LARGEST,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=buffer_cases,
    measure=measure,
    compare=compare_buffers,
    meaning="How much memory do receivers need? With aggregation more than half of 1024 nodes get by with a buffer of "
    "50 messages, as published, because what cannot be delivered yet is kept back where it is sent. Without it none "
    "does here. The published tail above 250 messages does not appear. Aggregation moves the wait to the sender.",
)

FIG_4_7: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/fig-4.7",
    document="thesis, Figure 4.7 (ICPP paper, Figure 10)",
    description="nodes by the largest packet that they put together, for 50 and 5 bytes, 1024 nodes",
    default=Plan((LARGEST,), repetitions=3, large_repetitions=3),
    full=Plan((LARGEST,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=participation_cases,
    measure=measure,
    compare=compare_participation,
    meaning="Who puts packets together? Everybody: the largest packet of about nine in ten of 1024 nodes holds 7 to "
    "11 messages, as published, and nobody exceeds 14 with 50 bytes of payload. With 5 bytes more fit into a packet "
    "and many are larger. The work is spread over the nodes like the trees are; no node is a bottleneck for "
    "aggregation.",
)
