"""How many packets causal aggregation saves, and how large they are: Tables 4.1 to 4.3 of the thesis.

All numbers are given twice, calibrated and literal (:mod:`antiphon_lab.experiments.aggregation.model` defines both).
Table 4.1 also has the rivals that the thesis describes and does not measure: bundles that wait for a timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from antiphon_lab.experiments.aggregation.model import (
    AGGREGATION,
    CALIBRATED,
    LITERAL,
    MODEL,
    NO_AGGREGATION,
    TIMER,
    AggregationCase,
    AggregationMeasures,
    measure,
)
from antiphon_lab.experiments.aggregation.start_laws import (
    FittingLaws,
    aggregated_percent,
    law_cases,
    side_by_side,
    table_rows,
)
from antiphon_lab.reproduction.documents import Number, Table, document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series, published_point, published_series

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
TIMERS = (1, 10, 50, 100, 200)
TIMER_NODES = 256
BYTE_BORDERS = (0, 100, 200, 300, 400)

Found = Results[AggregationCase, AggregationMeasures]
Quantity = Callable[[AggregationMeasures], float]


def numbers_of(figure: str) -> Callable[[str], Number]:
    """The published numbers of one figure, by the rest of their names."""
    return lambda name: document("thesis").numbers[f"{figure}/{name}"]


def both_starts(nodes: int, protocol: str = AGGREGATION, payload_bytes: int = 50) -> list[AggregationCase]:
    """A case with calibrated and with literal start times."""
    return [AggregationCase(nodes, protocol, starts, payload_bytes) for starts in (CALIBRATED, LITERAL)]


def both(results: Found, cases: list[AggregationCase], quantity: Quantity) -> tuple[Sample, Sample]:
    """One quantity, calibrated and literal."""
    calibrated, literal = (results.sample(case, quantity) for case in cases)
    return calibrated, literal


def share(counts: np.ndarray, low: int, high: int | None = None) -> float:
    """Percent of all that is counted under numbers above ``low`` and up to ``high``."""
    stop = None if high is None else high + 1
    return float(100 * counts[low + 1 : stop].sum() / counts.sum())


def share_of(counts: Callable[[AggregationMeasures], np.ndarray], low: int, high: int | None) -> Quantity:
    """The same as a quantity of a run."""
    return lambda found: share(counts(found), low, high)


def reduction_of(nodes: int) -> Quantity:
    """How many packets are saved at a size."""
    return lambda found: found.reduction_percent(nodes)


def start_name(starts: str) -> str:
    """How legends call a law of start times."""
    return f"{starts} starts"


# Table 4.1.


def timer_cases(plan: Plan) -> list[AggregationCase]:
    """Bundles that wait, at one size."""
    nodes = min(TIMER_NODES, max(plan.sizes))
    return [AggregationCase(nodes, TIMER, timer_ticks=ticks) for ticks in TIMERS]


def packet_cases(plan: Plan) -> list[AggregationCase]:
    """All sizes with both start times, without aggregation, and timers."""
    sizes = [case for nodes in plan.sizes for case in both_starts(nodes)]
    timers = timer_cases(plan)
    return [*sizes, *timers, AggregationCase(timers[0].nodes, NO_AGGREGATION)]


def compare_packets(plan: Plan, results: Found) -> Iterator[Finding]:
    """Both columns of percentages for every size, then the timers."""
    numbers = document("thesis").numbers
    for nodes in plan.sizes:
        cases = both_starts(nodes)
        for label, name, quantity in (
            ("fewer packets", "reduction", reduction_of(nodes)),
            ("packets with several messages", "aggregated", aggregated_percent),
        ):
            number = numbers.get(f"table-4.1/{name}-{nodes}")
            calibrated, literal = both(results, cases, quantity)
            yield from table_rows(f"{nodes} nodes, {label}", nodes, number, calibrated, literal)
    yield from packet_figures(plan, results)
    yield timer_figure(plan, results)
    yield from compare_timers(plan, results)


def packet_figures(plan: Plan, results: Found) -> Iterator[Figure]:
    """Both columns of percentages by number of nodes."""
    numbers = document("thesis").numbers
    columns: tuple[tuple[str, str, Callable[[int], Quantity]], ...] = (
        ("reduction", "Packets that causal aggregation saves", reduction_of),
        ("aggregated", "Packets that hold several messages", lambda _: aggregated_percent),
    )
    for name, title, quantity in columns:
        series = [
            Series(
                start_name(starts),
                AGGREGATION,
                tuple(
                    results.sample(AggregationCase(nodes, starts=starts), quantity(nodes)).point(nodes)
                    for nodes in plan.sizes
                ),
                variant=variant,
            )
            for variant, starts in enumerate((CALIBRATED, LITERAL))
        ]
        keys = [(nodes, f"table-4.1/{name}-{nodes}") for nodes in SIZES]
        published = [published_point(nodes, numbers[key]) for nodes, key in keys if key in numbers]
        yield Figure(
            name,
            title,
            NODES,
            Axis("share of the packets", "%"),
            (*series, *published_series(AGGREGATION, AGGREGATION, published)),
            caption="All values of the published table are shown.",
        )


def timer_figure(plan: Plan, results: Found) -> Figure:
    """Savings against costs: up and to the left is better."""
    nodes = timer_cases(plan)[0].nodes
    series = []
    for protocol, cases in (
        (NO_AGGREGATION, [AggregationCase(nodes, NO_AGGREGATION)]),
        (AGGREGATION, [AggregationCase(nodes)]),
        (TIMER, timer_cases(plan)),
    ):
        points = []
        for case in cases:
            delivery = results.sample(case, lambda found: found.delivery).mean
            label = f"{case.timer_ticks} ticks" if case.protocol == TIMER else ""
            points.append(results.sample(case, reduction_of(nodes)).point(delivery, label))
        series.append(Series(protocol, protocol, tuple(points), "line" if len(points) > 1 else "points"))
    return Figure(
        "timers",
        f"Packets saved against delivery latency, {nodes} nodes",
        Axis("delivery latency", "ticks"),
        Axis("fewer packets", "%"),
        tuple(series),
        caption="Not in the documents: bundles that wait for a timer at every hop, beside causal aggregation.",
    )


def compare_timers(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """The savings and the costs of a timer; not in the documents."""
    nodes = timer_cases(plan)[0].nodes
    rivals = [AggregationCase(nodes, NO_AGGREGATION), AggregationCase(nodes), *timer_cases(plan)]
    for case in rivals:
        name = f"timer of {case.timer_ticks}" if case.protocol == TIMER else case.protocol
        saved = results.sample(case, reduction_of(nodes))
        yield Row(f"{nodes} nodes, {name}, fewer packets", "%", saved)
        yield Row(f"{nodes} nodes, {name}, bytes", "bytes", results.sample(case, lambda found: found.bytes_sent))
        yield Row(f"{nodes} nodes, {name}, delivery", "ticks", results.sample(case, lambda found: found.delivery))
    yield Note(
        "Timers save more packets and pay with latency at every hop; causal aggregation saves its packets without "
        "delaying any delivery. The documents describe timers and do not measure them."
    )


# Table 4.2.


def one_size(plan: Plan) -> list[AggregationCase]:
    """The size of the table with both start times."""
    return both_starts(max(plan.sizes))


def one_size_by_law(plan: Plan) -> list[AggregationCase]:
    """The same, and other laws."""
    return [*one_size(plan), *law_cases(max(plan.sizes), (AGGREGATION,), full=plan.full)]


def compare_messages(plan: Plan, results: Found) -> Iterator[Finding]:
    """The share of packets by number of messages."""
    table = document("thesis").tables["table-4.2"]
    nodes = max(plan.sizes)
    laws = FittingLaws(results, nodes)
    for row, name in enumerate(table.rows):
        samples = both(results, one_size(plan), share_of_messages(name))
        number = table.number("all", row) if nodes == table.nodes else None
        others = laws.of(AGGREGATION, share_of_messages(name))
        yield from side_by_side(f"packets with {name} messages", number, *samples, others=others)
    several = document("thesis").tables["table-4.2/several"]
    for row, name in enumerate(several.rows):
        samples = both(results, one_size(plan), share_of_several(name))
        number = several.number("several", row) if nodes == table.nodes else None
        others = laws.of(AGGREGATION, share_of_several(name))
        yield from side_by_side(f"packets with {name} of those with several messages", number, *samples, others=others)
    yield messages_figure(nodes, table, results)
    numbers = document("thesis").numbers
    for label, name, unit, quantity in (
        ("packets with two or three of those with several messages", "two-or-three", "%", two_or_three),
        ("most messages in one packet", "largest", "messages", fullest),
    ):
        samples = both(results, one_size(plan), quantity)
        number = numbers[f"table-4.2/{name}"] if nodes == table.nodes else None
        yield from side_by_side(label, number, *samples, unit=unit, others=laws.of(AGGREGATION, quantity))
    if nodes != table.nodes:
        yield Note(f"Published for {table.nodes} nodes; nothing is compared at {nodes}.")


def share_of_messages(name: str) -> Quantity:
    """The share of packets in one class of the table."""
    low, high = (5, None) if name.startswith("(") else (int(name) - 1, int(name))
    return share_of(lambda found: found.by_publications, low, high)


def share_of_several(name: str) -> Quantity:
    """The share in one class of the packets that hold several messages."""
    low, high = (5, None) if name.startswith("(") else (int(name) - 1, int(name))

    def share_in(found: AggregationMeasures) -> float:
        several = found.by_publications.copy()
        several[:2] = 0
        return share(several, low, high) if several.any() else 0.0

    return share_in


def two_or_three(found: AggregationMeasures) -> float:
    """The share of packets with two or three messages in those with several."""
    return share_of_several("2")(found) + share_of_several("3")(found)


def fullest(found: AggregationMeasures) -> float:
    """The most messages in one packet."""
    return float(len(found.by_publications) - 1)


def messages_figure(nodes: int, table: Table, results: Found) -> Figure:
    """The table as a picture."""
    series = [
        Series(
            start_name(case.starts),
            AGGREGATION,
            tuple(results.sample(case, share_of_messages(name)).point(place) for place, name in enumerate(table.rows)),
            "bars",
            variant,
        )
        for variant, case in enumerate(both_starts(nodes))
    ]
    published = [published_point(row, table.number("all", row)) for row in range(len(table.rows))]
    return Figure(
        "messages",
        f"Packets by the number of messages in them, {nodes} nodes",
        Axis("messages in a packet", categories=table.rows),
        Axis("share of all packets", "%", "log10"),
        (*series, *published_series(AGGREGATION, AGGREGATION, published if nodes == table.nodes else [])),
        caption="The axis of shares is logarithmic, so that the rare large packets can be seen.",
    )


# Table 4.3.


def size_cases(plan: Plan) -> list[AggregationCase]:
    """With and without aggregation, with both start times."""
    protocols = (NO_AGGREGATION, AGGREGATION)
    found = [case for protocol in protocols for case in both_starts(max(plan.sizes), protocol)]
    return found + law_cases(max(plan.sizes), protocols, full=plan.full)


def compare_sizes(plan: Plan, results: Found) -> Iterator[Finding]:
    """The share of packets by size; then the statements of the text about large ones."""
    table = document("thesis").tables["table-4.3"]
    nodes = max(plan.sizes)
    laws = FittingLaws(results, nodes)
    for protocol in (NO_AGGREGATION, AGGREGATION):
        for row, name in enumerate(table.rows):
            samples = both(results, both_starts(nodes, protocol), share_of_bytes(row))
            number = table.number(protocol, row) if nodes == table.nodes else None
            others = laws.of(protocol, share_of_bytes(row))
            yield from side_by_side(f"{protocol}, packets of {name} bytes", number, *samples, others=others)
    yield sizes_figure(nodes, table, results)
    yield from compare_large(laws, nodes == table.nodes, results)
    yield Note(
        "The ICPP paper's Table 3 has the two columns interchanged; its own text and the thesis agree with ours."
    )


def share_of_bytes(row: int) -> Quantity:
    """The share of packets in one class of the table."""
    high = BYTE_BORDERS[row + 1] if row + 1 < len(BYTE_BORDERS) else None
    return share_of(lambda found: found.by_bytes, BYTE_BORDERS[row], high)


def sizes_figure(nodes: int, table: Table, results: Found) -> Figure:
    """The table as a picture."""
    series: list[Series] = []
    rows = range(len(table.rows))
    for protocol in (NO_AGGREGATION, AGGREGATION):
        points = tuple(results.sample(AggregationCase(nodes, protocol), share_of_bytes(row)).point(row) for row in rows)
        series.append(Series(f"{protocol}, {start_name(CALIBRATED)}", protocol, points, "bars"))
        if nodes == table.nodes:
            series += published_series(
                protocol, protocol, [published_point(row, table.number(protocol, row)) for row in rows]
            )
    return Figure(
        "sizes",
        f"Packets by size, {nodes} nodes",
        Axis("size", "bytes", categories=table.rows),
        Axis("share of the packets", "%"),
        tuple(series),
    )


def compare_large(laws: FittingLaws, at_size: bool, results: Found) -> Iterator[Row]:
    """Packets larger than all without aggregation, those near the limit, and those that had no room left."""
    numbers = document("thesis").numbers

    def larger(law: str) -> Sample:
        """Packets larger than the largest that the same law gives without aggregation."""
        alone, together = (AggregationCase(laws.nodes, protocol, law) for protocol in (NO_AGGREGATION, AGGREGATION))
        pairs = zip(results.of(alone), results.of(together), strict=True)
        return Sample(tuple(share(found.by_bytes, int(np.flatnonzero(other.by_bytes).max())) for other, found in pairs))

    for label, name, unit, quantity in (
        ("packets larger than all without aggregation", "larger-than-all", "%", larger),
        ("packets above 1400 bytes", "above-1400", "%", by_law(results, laws.nodes, above_1400)),
        ("packets closed for lack of room", "closed", "packets", by_law(results, laws.nodes, packets_closed)),
    ):
        number = numbers[f"table-4.3/{name}"] if at_size else None
        others = laws.under(quantity)
        yield from side_by_side(label, number, quantity(CALIBRATED), quantity(LITERAL), unit=unit, others=others)


def by_law(results: Found, nodes: int, quantity: Quantity) -> Callable[[str], Sample]:
    """A quantity with aggregation, by law."""
    return lambda law: results.sample(AggregationCase(nodes, AGGREGATION, law), quantity)


def above_1400(found: AggregationMeasures) -> float:
    """Packets near the limit, in percent."""
    return share(found.by_bytes, 1400)


def packets_closed(found: AggregationMeasures) -> float:
    """Packets that had no room for more."""
    return float(found.closed)


TABLE_4_1: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/table-4.1",
    document="thesis, Table 4.1 (ICPP paper, Table 1)",
    description="packets saved by causal aggregation, by number of nodes; beside it timers",
    default=Plan(SIZES, repetitions=3, large_repetitions=3, small_repetitions=30),
    full=Plan(SIZES, repetitions=30, large_repetitions=30, full=True),
    parameters={**MODEL, "timers_ticks": TIMERS},
    cases=packet_cases,
    measure=measure,
    compare=compare_packets,
    meaning="How many packets does causal aggregation save? What a neighbour could not deliver yet waits for what it "
    "lacks and travels in the same packet: a fifth of the packets with 256 nodes and nearly a third with 1024, at no "
    "cost in latency. The published start times do not give the published savings, calibrated ones give them at all "
    "sizes. Timers would save more, and every tick of them is paid at every hop; aggregation is the part that is "
    "free.",
)

TABLE_4_2: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/table-4.2",
    document="thesis, Table 4.2 (ICPP paper, Table 2)",
    description="packets by the number of messages in them, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=one_size_by_law,
    measure=measure,
    compare=compare_messages,
    meaning="How full are packets? Most hold one message, one in six or seven holds several, and the largest a dozen "
    "or more: aggregation happens where messages overtake each other, and no packet waits in order to be filled. With "
    "calibrated start times the published shares come out class by class. Do not expect full packets from this "
    "method; expect fewer of them where the network reorders.",
)

TABLE_4_3: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/table-4.3",
    document="thesis, Table 4.3 (ICPP paper, Table 3)",
    description="packets by size in bytes, with and without aggregation, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=size_cases,
    measure=measure,
    compare=compare_sizes,
    meaning="Do packets become too large? Aggregation moves some of them up a class, and with 256 nodes a few percent "
    "are larger than any packet without it, but nearly all stay far below the 1500 bytes of a frame. Packets near the "
    "limit are rarer here than in the published run. The ICPP paper has the two columns interchanged; the thesis and "
    "our runs agree.",
)
