"""The network cost of BRISA: Figures 4.10 to 4.12 of the thesis of M. Matos."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from antiphon_lab.experiments.brisa.busy_hosts import BUSY_MS, RoutingCase, measure_routing
from antiphon_lab.experiments.brisa.hops import PLANETLAB
from antiphon_lab.experiments.brisa.model import (
    CONSTRUCTION,
    GAP_MS,
    MODEL,
    StreamCase,
    StreamMeasures,
    measure,
    numbers_of,
)
from antiphon_lab.experiments.brisa.structure import (
    FEW_MESSAGES,
    FULL_MESSAGES,
    GRAPH,
    LARGE,
    SMALL,
    TREE,
    VIEWS,
    Found,
    Quantity,
    Values,
    at_full_size,
    complete,
    mean,
    name_of,
    pair_ratios,
    placed,
    shape_cases,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Refutation

PLANETLAB_PROCESSES, PLANETLAB_MESSAGES = 150, 200
FLOODING, FIRST_COME, DELAY_AWARE = "flooding", "first-come", "delay-aware"
PAYLOADS_KB = (1, 10, 50, 100)
PERCENTILES = (5, 25, 50, 75, 90)

# Figure 4.10.


def routing_case(nodes: int, name: str, busy_ms: float = 0.0) -> StreamCase:
    """A stream on PlanetLab by one of the three ways, on hosts that are busy or not."""
    parents = 0 if name == FLOODING else 1
    strategy = "delay" if name == DELAY_AWARE else "first-come"
    return RoutingCase(nodes, PLANETLAB_MESSAGES, 4, parents, strategy=strategy, network=PLANETLAB, busy_ms=busy_ms)


def routing_cases(plan: Plan, busy_ms: float = 0.0) -> list[StreamCase]:
    """The three ways."""
    return [routing_case(max(plan.sizes), name, busy_ms) for name in (FLOODING, FIRST_COME, DELAY_AWARE)]


def both_hosts(plan: Plan) -> list[StreamCase]:
    """The three ways in a network alone, and on busy hosts."""
    return [*routing_cases(plan), *routing_cases(plan, BUSY_MS)]


def mean_reception(found: StreamMeasures) -> float:
    """The mean time from a publication to its arrival."""
    return float(found.reception[found.others].mean())


def mean_routing(found: StreamMeasures) -> float:
    """The mean of the round trips on the ways from the source."""
    return float(found.routing[found.others].mean())


def halved(one: StreamMeasures, other: StreamMeasures) -> float:
    """The share of nodes whose routing delay is at most half of that in the other run, in percent."""
    chosen = one.others
    return float(100 * np.mean(one.routing[chosen] <= other.routing[chosen] / 2))


def compare_busy(plan: Plan, results: Found) -> Iterator[Finding]:
    """The same on busy hosts: there the first copy need not have come on the shortest way."""
    numbers = numbers_of("fig-4.10")
    is_published = max(plan.sizes) == PLANETLAB_PROCESSES
    flood, first, aware = routing_cases(plan, BUSY_MS)
    where = f"hosts of {BUSY_MS:g} ms"
    for name, case in ((FLOODING, flood), (FIRST_COME, first), (DELAY_AWARE, aware)):
        yield Row(f"mean routing delay, {name}, {where}", "ms", results.sample(case, mean_routing))
        yield Row(f"mean time to arrive, {name}, {where}", "ms", results.sample(case, mean_reception))
    slower = results.sample(flood, mean_routing).over(results.sample(first, mean_routing))
    number = numbers["flooding"] if is_published else None
    yield Row(f"mean routing delay, flooding against first-come, {where}", "times", slower, number)
    pairs = zip(results.of(aware), results.of(first), strict=True)
    shares = tuple(halved(one, other) for one, other in pairs)
    label = f"processes with half the routing delay, delay-aware against first-come, {where}"
    # The document says nothing about its hosts: this reading shows what could explain its number.
    yield Row(label, numbers["half"].unit, Sample(shares))
    yield Note(
        "On busy hosts the first copy comes from a fast host and not on the shortest way, and parents chosen by delay "
        "can halve routing delays. In single runs few processes or none did up to 30 ms per message, and 77 % at "
        "40 ms, where the slowest hosts are overloaded; the published 40 % lies between."
    )


def compare_routing(plan: Plan, results: Found) -> Iterator[Finding]:
    """Delays by strategy."""
    numbers = numbers_of("fig-4.10")
    nodes = max(plan.sizes)
    flood, first, aware = routing_cases(plan)
    is_published = nodes == PLANETLAB_PROCESSES
    yield complete([flood, first, aware], results)
    yield from placed([first, aware], results)
    for name, case in ((FLOODING, flood), (FIRST_COME, first), (DELAY_AWARE, aware)):
        yield Row(f"mean routing delay, {name}", "ms", results.sample(case, mean_routing))
        yield Row(f"mean time to arrive, {name}", "ms", results.sample(case, mean_reception))
        yield Row(f"mean depth, {name}", "hops", results.sample(case, lambda found: float(found.depth.mean())))
    slower = results.sample(flood, mean_reception).over(results.sample(first, mean_reception))
    number = numbers["flooding"] if is_published else None
    yield Row("mean time to arrive, flooding against first-come", "times", slower, number)
    pairs = zip(results.of(aware), results.of(first), strict=True)
    shares = tuple(halved(one, other) for one, other in pairs)
    first_ms, aware_ms = (results.sample(case, mean_routing).mean for case in (first, aware))
    why = Refutation(
        "that parents chosen by delay halve routing delays in a network whose links keep their delays",
        "there the first copy comes on the shortest way, and a process that keeps its first sender has the shortest "
        "routing delay there is; the mean delay of parents chosen by the last hop alone is "
        f"{aware_ms / max(first_ms, 1e-9):.2f} times that",
        0 < first_ms <= aware_ms,
        0,
        10,
    )
    yield Row(
        "processes with half the routing delay, delay-aware against first-come",
        numbers["half"].unit,
        Sample(shares),
        numbers["half"] if is_published else None,
        why,
    )
    yield from compare_busy(plan, results)
    yield routing_figure(plan, results)
    yield Note(
        "The routing delay adds up, from the source to a process, the round trips that neighbours have measured. In a "
        "flood that is the way of its first message; what the load does to it is seen in the times to arrive."
    )


def percentile_curve(results: Found, case: StreamCase, values: Values) -> tuple[Point, ...]:
    """A cumulative distribution over all nodes and runs, at every fifth percentile."""
    pooled = np.concatenate([values(found)[found.others] for found in results.of(case)])
    return tuple(Point(float(np.percentile(pooled, share)), share) for share in range(0, 101, 5))


def routing_figure(plan: Plan, results: Found) -> Figure:
    """Figure 4.10, and beside it when messages arrive."""
    series = []
    for name, case in zip((FLOODING, FIRST_COME, DELAY_AWARE), routing_cases(plan), strict=True):
        system = {FIRST_COME: "BRISA tree"}.get(name, name)
        routing = percentile_curve(results, case, lambda found: found.routing)
        arrival = percentile_curve(results, case, lambda found: found.reception)
        series.append(Series(f"{name}, routing delay", system, routing))
        series.append(Series(f"{name}, time to arrive", system, arrival, variant=1))
    return Figure(
        "delays",
        f"Delays on PlanetLab, {max(plan.sizes)} processes",
        Axis("delay", "ms"),
        Axis("processes with no more", "%"),
        tuple(series),
    )


# Figures 4.11 and 4.12.


def per_message(case: StreamCase, copies: Values) -> Values:
    """Copies of one message at each node but the source."""
    counted = max(1, case.messages - CONSTRUCTION)
    return lambda found: copies(found)[found.others] / counted


def received(found: StreamMeasures) -> np.ndarray:
    """Copies that each node received."""
    return found.copies_received


def sent(found: StreamMeasures) -> np.ndarray:
    """Copies that each node sent."""
    return found.copies_sent


def management_kbps(case: StreamCase, bytes_of: Values) -> Values:
    """The bytes that are not payload, in kilobytes per second, at each node but the source."""
    seconds = case.messages * case.gap_ms / 1000
    return lambda found: bytes_of(found)[found.others] / seconds / 1000


def bandwidth(
    case: StreamCase,
    payload_kb: int,
    copies: Values,
    bytes_of: Values,
) -> Values:
    """Kilobytes per second at each node but the source."""
    per_second = 1000 / GAP_MS
    copied, managed = per_message(case, copies), management_kbps(case, bytes_of)
    return lambda found: copied(found) * per_second * payload_kb + managed(found)


def percentile(values: Values, share: int) -> Quantity:
    """A percentile over the nodes."""
    return lambda found: float(np.percentile(values(found), share))


def compare_download(plan: Plan, results: Found) -> Iterator[Finding]:
    """The download of processes."""
    numbers = numbers_of("fig-4.11")
    cases = shape_cases(plan)
    yield complete(cases, results)
    for case in cases:
        copies = per_message(case, received)
        if case.parents == TREE:
            fewest = results.sample(case, percentile(copies, 0))
            yield compared(f"fewest copies at a process, {name_of(case)}", fewest, numbers["tree"])
            average = results.sample(case, mean(copies))
            yield compared(f"mean copies at a process, {name_of(case)}", average, numbers["tree"])
            most = results.sample(case, percentile(copies, 100))
            yield Row(f"most copies at a process, {name_of(case)}", "copies", most)
        else:
            median = results.sample(case, percentile(copies, 50))
            number = numbers["graph"] if at_full_size(plan) else None
            yield Row(f"copies at the median process, {name_of(case)}", "copies", median, number)
            for share in (5, 25, 90):
                at = results.sample(case, percentile(copies, share))
                yield Row(f"copies at percentile {share} of the processes, {name_of(case)}", "copies", at)
    yield from bandwidth_findings("download", cases, results, received, lambda found: found.bytes_received)
    yield Note(
        "A process near the source has no second neighbour that is no deeper than itself, and gets one copy; everybody "
        "else gets two. The first publications build the structure, and are not counted."
    )


def compare_upload(plan: Plan, results: Found) -> Iterator[Finding]:
    """The upload of processes."""
    number = numbers_of("fig-4.12")["graph"] if at_full_size(plan) else None
    cases = shape_cases(plan)
    yield complete(cases, results)
    for case in cases:
        copies = per_message(case, sent)
        yield Row(f"mean copies sent, {name_of(case)}", "copies", results.sample(case, mean(copies)))
        for share in (50, 90, 100):
            at = results.sample(case, percentile(copies, share))
            yield Row(f"copies sent at percentile {share} of the processes, {name_of(case)}", "copies", at)
    for pair, ratio in pair_ratios(cases, results, mean(sent), False, False):
        yield Row(f"mean copies sent, {pair}", "times", ratio, number)
    yield from bandwidth_findings("upload", cases, results, sent, lambda found: found.bytes_sent)
    yield Note("Leaves send no copies: what they upload is beats, which say what they have, and shuffles of views.")


def bandwidth_findings(
    what: str, cases: list[StreamCase], results: Found, copies: Values, bytes_of: Values
) -> Iterator[Finding]:
    """Kilobytes per second by payload, as rows and as a figure."""
    for case in cases:
        managed = results.sample(case, mean(management_kbps(case, bytes_of)))
        yield Row(f"mean {what} that is no payload, {name_of(case)}", "kB/s", managed)
        for payload in PAYLOADS_KB:
            median = results.sample(case, percentile(bandwidth(case, payload, copies, bytes_of), 50))
            yield Row(f"median {what}, payload {payload} kB, {name_of(case)}", "kB/s", median)
    series = []
    for case in cases:
        points = []
        for place, payload in enumerate(PAYLOADS_KB):
            shares = [
                results.sample(case, percentile(bandwidth(case, payload, copies, bytes_of), share)).mean
                for share in PERCENTILES
            ]
            points.append(Point(place, shares[2], shares[0], shares[-1]))
        system = "BRISA tree" if case.parents == TREE else "BRISA DAG"
        series.append(Series(name_of(case), system, tuple(points), "bars", VIEWS.index(case.active)))
    yield Figure(
        what,
        f"{what.capitalize()} of processes, {cases[0].nodes} processes, {1000 // GAP_MS} messages per second",
        Axis("payload", "kB", categories=tuple(str(payload) for payload in PAYLOADS_KB)),
        Axis(what, "kB/s"),
        tuple(series),
        caption="Bars are medians over the processes; whiskers go from percentile 5 to 90.",
    )


FIG_4_10: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.10",
    document="thesis of M. Matos, Figure 4.10",
    description="BRISA: routing delays by flooding, first-come and delay-aware parents, 150 processes on PlanetLab",
    default=Plan((PLANETLAB_PROCESSES,), repetitions=5, large_repetitions=5),
    full=Plan((PLANETLAB_PROCESSES,), repetitions=50, large_repetitions=50, full=True),
    parameters={**MODEL, "messages": PLANETLAB_MESSAGES, "view": 4, "busy_ms": BUSY_MS},
    cases=both_hosts,
    measure=measure_routing,
    compare=compare_routing,
    meaning="Does it help to choose the nearest parent? The document saw 40 % of the processes halve their delay. In a "
    "network whose links keep their delays it cannot: the first copy of a flood has come on the shortest way, and a "
    "parent that is near may itself be far from the source. On hosts that are busy with other work it can: slow hosts "
    "are avoided. How many gain depends on how busy hosts are, and the published share needs very busy ones.",
)

FIG_4_11: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.11",
    document="thesis of M. Matos, Figure 4.11",
    description="BRISA: what processes download, trees and DAGs, views of 4 and 8, 512 processes",
    default=SMALL,
    full=LARGE,
    parameters={
        **MODEL,
        "messages": [FEW_MESSAGES, FULL_MESSAGES],
        "views": VIEWS,
        "parents": [TREE, GRAPH],
        "payloads_kb": PAYLOADS_KB,
        "not_counted": f"the first {CONSTRUCTION} messages, which build the structure",
    },
    cases=shape_cases,
    measure=measure,
    compare=compare_download,
    meaning="What does a process download? In a tree one copy of each message, without exception, once the first "
    "messages have shown which links are not needed. With two parents it is two copies, but for the processes near the "
    "source that have nobody else above them. Beats, views and paths are a few kilobytes per second.",
)

FIG_4_12: Experiment[StreamCase, StreamMeasures] = Experiment(
    name="brisa/fig-4.12",
    document="thesis of M. Matos, Figure 4.12",
    description="BRISA: what processes upload, trees and DAGs, views of 4 and 8, 512 processes",
    default=SMALL,
    full=LARGE,
    parameters=FIG_4_11.parameters,
    cases=shape_cases,
    measure=measure,
    compare=compare_upload,
    meaning="What does a process upload? On average what it downloads, because every copy has one sender and one "
    "receiver. But most processes of a tree are leaves and send nothing, and a few send to many: larger views make "
    "that worse, and a second parent for everybody makes it better and twice as dear.",
)
