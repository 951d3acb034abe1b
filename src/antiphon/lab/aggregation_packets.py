"""How many packets causal aggregation saves, and how large they are: Tables 4.1 to 4.3 and Figure 4.3 of the thesis.

All numbers stand twice, calibrated and literal (:mod:`antiphon.lab.aggregation` says what that is). Table 4.1 also has
the rivals that the thesis describes and does not measure: bundles that wait for a timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from antiphon.lab.aggregation import (
    AGGREGATION,
    CALIBRATED,
    LITERAL,
    MODEL,
    NO_AGGREGATION,
    TIMER,
    WHY_LITERAL,
    Broadcasts,
    Measured,
    measure,
)
from antiphon.lab.documents import Number, document
from antiphon.lab.experiment import Experiment, Explanation, Note, Plan, Results, Row, Sample, compared

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
TIMERS = (1, 10, 50, 100, 200)
TIMER_NODES = 256
BYTE_BORDERS = (0, 100, 200, 300, 400)

Found = Results[Broadcasts, Measured]
Quantity = Callable[[Measured], float]


def both_starts(nodes: int, protocol: str = AGGREGATION, payload_bytes: int = 50) -> list[Broadcasts]:
    """A case with calibrated and with literal start times."""
    return [Broadcasts(nodes, protocol, starts, payload_bytes) for starts in (CALIBRATED, LITERAL)]


def side_by_side(
    label: str,
    number: Number | None,
    calibrated: Sample,
    literal: Sample,
    *,
    unit: str = "%",
    why: Explanation | None = None,
) -> Iterator[Row]:
    """One quantity twice; ``unit`` is for what has no published number, ``why`` for what has a reason of its own.

    The start times cannot be recovered, so a value that they decide cannot be held to the published one.
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


def both(results: Found, cases: list[Broadcasts], quantity: Quantity) -> tuple[Sample, Sample]:
    """One quantity, calibrated and literal."""
    calibrated, literal = (results.sample(case, quantity) for case in cases)
    return calibrated, literal


def share(counts: np.ndarray, low: int, high: int | None = None) -> float:
    """Percent of all that is counted under numbers above ``low`` and up to ``high``."""
    stop = None if high is None else high + 1
    return float(100 * counts[low + 1 : stop].sum() / counts.sum())


def share_of(counts: Callable[[Measured], np.ndarray], low: int, high: int | None) -> Quantity:
    """The same as a quantity of a run."""
    return lambda found: share(counts(found), low, high)


def reduction_of(nodes: int) -> Quantity:
    """How many packets are saved at a size."""
    return lambda found: found.reduction_percent(nodes)


# Table 4.1.


def timer_cases(plan: Plan) -> list[Broadcasts]:
    """Bundles that wait, at one size."""
    nodes = min(TIMER_NODES, max(plan.sizes))
    return [Broadcasts(nodes, TIMER, timer_ticks=ticks) for ticks in TIMERS]


def packet_cases(plan: Plan) -> list[Broadcasts]:
    """All sizes with both start times, without aggregation, and timers."""
    sizes = [case for nodes in plan.sizes for case in both_starts(nodes)]
    timers = timer_cases(plan)
    return [*sizes, *timers, Broadcasts(timers[0].nodes, NO_AGGREGATION)]


def compare_packets(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """Both columns of percentages for every size, then the timers."""
    numbers = document("thesis").numbers
    for nodes in plan.sizes:
        cases = both_starts(nodes)
        reduction = both(results, cases, reduction_of(nodes))
        yield from side_by_side(
            f"{nodes} nodes, fewer packets", numbers.get(f"table-4.1/reduction-{nodes}"), *reduction
        )
        aggregated = both(results, cases, lambda found: 100 * found.aggregated / found.packets)
        name = f"table-4.1/aggregated-{nodes}"
        yield from side_by_side(f"{nodes} nodes, packets with several messages", numbers.get(name), *aggregated)
    yield from compare_timers(plan, results)


def compare_timers(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """What a timer would save, and what it costs; not in the documents."""
    nodes = timer_cases(plan)[0].nodes
    rivals = [Broadcasts(nodes, NO_AGGREGATION), Broadcasts(nodes), *timer_cases(plan)]
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


def one_size(plan: Plan) -> list[Broadcasts]:
    """The size of the table with both start times."""
    return both_starts(max(plan.sizes))


def compare_messages(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """The share of packets by number of messages."""
    table = document("thesis").tables["table-4.2"]
    nodes = max(plan.sizes)
    for row, name in enumerate(table.rows):
        low, high = (5, None) if name.startswith("(") else (int(name) - 1, int(name))
        samples = both(results, one_size(plan), share_of(lambda found: found.by_publications, low, high))
        number = table.number("all", row) if nodes == table.nodes else None
        yield from side_by_side(f"packets with {name} messages", number, *samples)
    largest = both(results, one_size(plan), lambda found: float(len(found.by_publications) - 1))
    yield from side_by_side("most messages in one packet", None, *largest, unit="messages")
    if nodes != table.nodes:
        yield Note(f"Published for {table.nodes} nodes; nothing is compared at {nodes}.")


# Figure 4.3.


def compare_dependencies(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """How many entries messages carry beside their own."""
    numbers = document("thesis").numbers
    at_size = max(plan.sizes) == TIMER_NODES
    for name, low, high in (("none", -1, 0), ("1-to-4", 0, 4), ("5-to-9", 4, 9), ("more-than-12", 12, None)):
        samples = both(
            results,
            one_size(plan),
            share_of(lambda found: np.bincount(found.dependencies), low, high),
        )
        label = f"messages with {name.replace('-', ' ')} dependencies"
        yield from side_by_side(label, numbers[f"fig-4.3/{name}"] if at_size else None, *samples)
        if name == "5-to-9" and at_size:
            yield from side_by_side(f"{label} (ICPP paper)", document("icpp").numbers["fig-6/5-to-9"], *samples)
    most = both(results, one_size(plan), lambda found: float(found.dependencies.max()))
    yield from side_by_side("most dependencies", numbers["fig-4.3/largest"] if at_size else None, *most, unit="entries")
    yield Note("No simple law of start times fits every class; the published shape lies between uniform and normal.")


# Table 4.3.


def size_cases(plan: Plan) -> list[Broadcasts]:
    """With and without aggregation, with both start times."""
    return [case for protocol in (NO_AGGREGATION, AGGREGATION) for case in both_starts(max(plan.sizes), protocol)]


def compare_sizes(plan: Plan, results: Found) -> Iterator[Row | Note]:
    """The share of packets by size; then what the text says about large ones."""
    table = document("thesis").tables["table-4.3"]
    nodes = max(plan.sizes)
    for protocol in (NO_AGGREGATION, AGGREGATION):
        for row, name in enumerate(table.rows):
            low = BYTE_BORDERS[row]
            high = BYTE_BORDERS[row + 1] if row + 1 < len(BYTE_BORDERS) else None
            samples = both(
                results,
                both_starts(nodes, protocol),
                share_of(lambda found: found.by_bytes, low, high),
            )
            number = table.number(protocol, row) if nodes == table.nodes else None
            yield from side_by_side(f"{protocol}, packets of {name} bytes", number, *samples)
    yield from compare_large(nodes, nodes == table.nodes, results)
    yield Note(
        "The ICPP paper's Table 3 has the two columns interchanged; its own text and the thesis agree with ours."
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


TABLE_4_1: Experiment[Broadcasts, Measured] = Experiment(
    name="aggregation/table-4.1",
    document="thesis, Table 4.1 (ICPP paper, Table 1)",
    description="packets saved by causal aggregation, by number of nodes; beside it timers",
    default=Plan(SIZES, repetitions=2, large_repetitions=2),
    full=Plan(SIZES, repetitions=30, large_repetitions=30, full=True),
    parameters={**MODEL, "timers_ticks": TIMERS},
    cases=packet_cases,
    measure=measure,
    compare=compare_packets,
)

TABLE_4_2: Experiment[Broadcasts, Measured] = Experiment(
    name="aggregation/table-4.2",
    document="thesis, Table 4.2 (ICPP paper, Table 2)",
    description="packets by the number of messages in them, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=one_size,
    measure=measure,
    compare=compare_messages,
)

TABLE_4_3: Experiment[Broadcasts, Measured] = Experiment(
    name="aggregation/table-4.3",
    document="thesis, Table 4.3 (ICPP paper, Table 3)",
    description="packets by size in bytes, with and without aggregation, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=size_cases,
    measure=measure,
    compare=compare_sizes,
)

FIG_4_3: Experiment[Broadcasts, Measured] = Experiment(
    name="aggregation/fig-4.3",
    document="thesis, Figure 4.3 (ICPP paper, Figure 6)",
    description="messages by the number of dependencies that they carry, 256 nodes",
    default=Plan((256,), repetitions=6, large_repetitions=6),
    full=Plan((256,), repetitions=30, large_repetitions=30, full=True),
    parameters=MODEL,
    cases=one_size,
    measure=measure,
    compare=compare_dependencies,
)
