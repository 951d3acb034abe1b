"""How many packets causal aggregation saves, and how large they are: Tables 4.1 to 4.3 and Figure 4.3 of the thesis.

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
    WHY_LITERAL,
    AggregationCase,
    AggregationMeasures,
    measure,
)
from antiphon_lab.reproduction.documents import Number, Table, document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Explanation,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
)
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


def side_by_side(
    label: str,
    number: Number | None,
    calibrated: Sample,
    literal: Sample,
    *,
    unit: str = "%",
    why: Explanation | None = None,
) -> Iterator[Row]:
    """One quantity twice; ``unit`` is for rows without a published number, ``why`` for rows with a reason of their own.

    The start times cannot be recovered, so a value that depends on them cannot be held to the published one.
    """
    if number is None:
        yield Row(f"{label}, calibrated", unit, calibrated)
        yield Row(f"{label}, literal", unit, literal)
        return
    gap = abs(calibrated.mean - number.value)
    swing = abs(literal.mean - calibrated.mean)
    between = min(literal.mean, calibrated.mean) <= number.value <= max(literal.mean, calibrated.mean)
    decided_by_starts = Explanation(
        f"depends on the start times, which cannot be recovered from the documents: between the calibrated and the "
        f"literal ones it changes by {swing:.3g}, more than the {gap:.3g} that are missing here.",
        holds=gap < swing or between,
    )
    yield compared(f"{label}, calibrated", calibrated, number, decided_by_starts if why is None else why)
    nearer = gap <= abs(literal.mean - number.value)
    yield compared(f"{label}, literal", literal, number, Explanation(WHY_LITERAL, holds=nearer or between))


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
        reduction = both(results, cases, reduction_of(nodes))
        yield from side_by_side(
            f"{nodes} nodes, fewer packets", numbers.get(f"table-4.1/reduction-{nodes}"), *reduction
        )
        aggregated = both(results, cases, aggregated_percent)
        name = f"table-4.1/aggregated-{nodes}"
        yield from side_by_side(f"{nodes} nodes, packets with several messages", numbers.get(name), *aggregated)
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


def aggregated_percent(found: AggregationMeasures) -> float:
    """The share of packets with several messages."""
    return 100 * found.aggregated / found.packets


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


def compare_messages(plan: Plan, results: Found) -> Iterator[Finding]:
    """The share of packets by number of messages."""
    table = document("thesis").tables["table-4.2"]
    nodes = max(plan.sizes)
    for row, name in enumerate(table.rows):
        samples = both(results, one_size(plan), share_of_messages(name))
        number = table.number("all", row) if nodes == table.nodes else None
        yield from side_by_side(f"packets with {name} messages", number, *samples)
    yield messages_figure(nodes, table, results)
    largest = both(results, one_size(plan), lambda found: float(len(found.by_publications) - 1))
    yield from side_by_side("most messages in one packet", None, *largest, unit="messages")
    if nodes != table.nodes:
        yield Note(f"Published for {table.nodes} nodes; nothing is compared at {nodes}.")


def share_of_messages(name: str) -> Quantity:
    """The share of packets in one class of the table."""
    low, high = (5, None) if name.startswith("(") else (int(name) - 1, int(name))
    return share_of(lambda found: found.by_publications, low, high)


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


# Figure 4.3.


def compare_dependencies(plan: Plan, results: Found) -> Iterator[Finding]:
    """How many entries messages carry beside their own."""
    numbers = document("thesis").numbers
    at_size = max(plan.sizes) == TIMER_NODES
    for name, low, high in DEPENDENCY_CLASSES:
        samples = both(
            results,
            one_size(plan),
            share_of(dependency_counts, low, high),
        )
        label = f"messages with {name.replace('-', ' ')} dependencies"
        yield from side_by_side(label, numbers[f"fig-4.3/{name}"] if at_size else None, *samples)
        if name == "5-to-9" and at_size:
            yield from side_by_side(f"{label} (ICPP paper)", document("icpp").numbers["fig-6/5-to-9"], *samples)
    yield from dependency_figures(max(plan.sizes), at_size, results)
    most = both(results, one_size(plan), lambda found: float(found.dependencies.max()))
    yield from side_by_side("most dependencies", numbers["fig-4.3/largest"] if at_size else None, *most, unit="entries")
    yield Note("No simple law of start times fits every class; the published shape lies between uniform and normal.")


DEPENDENCY_CLASSES: tuple[tuple[str, int, int | None], ...] = (
    ("none", -1, 0),
    ("1-to-4", 0, 4),
    ("5-to-9", 4, 9),
    ("more-than-12", 12, None),
)
"""The classes of which the text speaks; those with 10 to 12 are in none."""


def dependency_counts(found: AggregationMeasures) -> np.ndarray:
    """Messages by the number of their dependencies."""
    return np.bincount(found.dependencies)


def dependency_figures(nodes: int, at_size: bool, results: Found) -> Iterator[Figure]:
    """The classes of the text, and Figure 4.3 itself: every number of dependencies."""
    numbers = document("thesis").numbers
    series = [
        Series(
            start_name(case.starts),
            AGGREGATION,
            tuple(
                results.sample(case, share_of(dependency_counts, low, high)).point(place)
                for place, (_, low, high) in enumerate(DEPENDENCY_CLASSES)
            ),
            "bars",
            variant,
        )
        for variant, case in enumerate(both_starts(nodes))
    ]
    published = [
        published_point(place, numbers[f"fig-4.3/{name}"]) for place, (name, _, _) in enumerate(DEPENDENCY_CLASSES)
    ]
    yield Figure(
        "classes",
        f"Messages by the number of their dependencies, {nodes} nodes",
        Axis("dependencies", categories=tuple(name.replace("-", " ") for name, _, _ in DEPENDENCY_CLASSES)),
        Axis("share of the messages", "%"),
        (*series, *published_series(AGGREGATION, AGGREGATION, published if at_size else [])),
        caption="The classes are those of the text.",
    )
    calibrated = AggregationCase(nodes)
    most = max(int(found.dependencies.max()) for found in results.of(calibrated))
    shares = tuple(
        results.sample(calibrated, share_of(dependency_counts, number - 1, number)).point(number)
        for number in range(most + 1)
    )
    yield Figure(
        "distribution",
        f"Every number of dependencies, {nodes} nodes",
        Axis("dependencies", "entries"),
        Axis("share of the messages", "%"),
        (Series(start_name(CALIBRATED), AGGREGATION, shares, "bars"),),
        caption="The published plot of the same has no readable values.",
    )


# Table 4.3.


def size_cases(plan: Plan) -> list[AggregationCase]:
    """With and without aggregation, with both start times."""
    return [case for protocol in (NO_AGGREGATION, AGGREGATION) for case in both_starts(max(plan.sizes), protocol)]


def compare_sizes(plan: Plan, results: Found) -> Iterator[Finding]:
    """The share of packets by size; then the statements of the text about large ones."""
    table = document("thesis").tables["table-4.3"]
    nodes = max(plan.sizes)
    for protocol in (NO_AGGREGATION, AGGREGATION):
        for row, name in enumerate(table.rows):
            samples = both(results, both_starts(nodes, protocol), share_of_bytes(row))
            number = table.number(protocol, row) if nodes == table.nodes else None
            yield from side_by_side(f"{protocol}, packets of {name} bytes", number, *samples)
    yield sizes_figure(nodes, table, results)
    yield from compare_large(nodes, nodes == table.nodes, results)
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


def compare_large(nodes: int, at_size: bool, results: Found) -> Iterator[Row | Note]:
    """Packets larger than all without aggregation, those near the limit, and those that had no room left."""
    numbers = document("thesis").numbers

    def number(name: str) -> Number | None:
        return numbers[f"table-4.3/{name}"] if at_size else None

    samples = []
    for alone, together in zip(both_starts(nodes, NO_AGGREGATION), both_starts(nodes), strict=True):
        pairs = zip(results.of(alone), results.of(together), strict=True)
        larger = [share(found.by_bytes, int(np.flatnonzero(other.by_bytes).max())) for other, found in pairs]
        samples.append(Sample(tuple(larger)))
    yield from side_by_side("packets larger than all without aggregation", number("larger-than-all"), *samples)
    above = both(results, both_starts(nodes), lambda found: share(found.by_bytes, 1400))
    closed = both(results, both_starts(nodes), lambda found: float(found.closed))
    published = [numbers[f"table-4.3/{name}"].value for name in ("above-1400", "closed")]
    rarer = (above[0].mean / published[0], closed[0].mean / published[1])
    tail = Explanation(
        "large packets are rarer here than in the published run, whose last class of Table 4.2 must hold nearly ten "
        "messages on average; the calibrated start times give fewer. Packets above 1400 bytes and packets without room "
        f"are both rare by about the same factor ({rarer[0]:.2g} and {rarer[1]:.2g}).",
        holds=0.5 < rarer[0] / max(rarer[1], 1e-9) < 2,
    )
    yield from side_by_side("packets above 1400 bytes", number("above-1400"), *above, why=tail)
    label = "packets closed for lack of room"
    yield from side_by_side(label, number("closed"), *closed, unit="packets", why=tail)


TABLE_4_1: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/table-4.1",
    document="thesis, Table 4.1 (ICPP paper, Table 1)",
    description="packets saved by causal aggregation, by number of nodes; beside it timers",
    default=Plan(SIZES, repetitions=2, large_repetitions=2),
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
    cases=one_size,
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

FIG_4_3: Experiment[AggregationCase, AggregationMeasures] = Experiment(
    name="aggregation/fig-4.3",
    document="thesis, Figure 4.3 (ICPP paper, Figure 6)",
    description="messages by the number of dependencies that they carry, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=one_size,
    measure=measure,
    compare=compare_dependencies,
    meaning="How much does a message depend on? With calibrated start times a third of the messages depend on nothing "
    "and a quarter on more than a dozen others: whoever speaks late has heard many. The published shape lies between "
    "what uniform and normal start times give. Vectors of this kind grow with what was heard, which is what causal "
    "barriers avoid.",
)
