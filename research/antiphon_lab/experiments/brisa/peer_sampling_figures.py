"""Peer sampling measured: overlays by size, under churn, and after many nodes have failed at once.

Our own: the thesis of M. Matos describes these services (sections 2.2 and 4.2.1) and measures none of them alone. Its
statement about HyParView, that 80 % of all processes may fail, is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log

import numpy as np

from antiphon_lab.experiments.brisa.model import numbers_of
from antiphon_lab.experiments.brisa.peer_sampling import (
    CHURN_MINUTES,
    HYPARVIEW,
    MODEL,
    REPAIR_MS,
    SERVICES,
    Observed,
    Overlay,
    SamplingCase,
    measure,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Mark, Point, Series

Found = Results[SamplingCase, Observed]
Quantity = Callable[[Overlay], float]

CHURNS = (5, 20)
FAILING = (10, 20, 30, 40, 50, 60, 70, 80, 90)

QUANTITIES: tuple[tuple[str, str, Quantity], ...] = (
    ("mean view", "entries", lambda overlay: overlay.view),
    ("deviation of in-degrees", "entries", lambda overlay: float(overlay.in_degrees.std())),
    ("largest in-degree", "entries", lambda overlay: float(overlay.in_degrees.max())),
    ("smallest in-degree", "entries", lambda overlay: float(overlay.in_degrees.min())),
    ("clustering", "share", lambda overlay: overlay.clustering),
    ("mean path", "hops", lambda overlay: overlay.path_length),
    ("diameter", "hops", lambda overlay: float(overlay.diameter)),
    ("nodes that hang together", "%", lambda overlay: overlay.connected),
    ("nodes that reach each other", "%", lambda overlay: overlay.strongly_connected),
)


def settled(quantity: Quantity) -> Callable[[Observed], float]:
    """A quantity before anything fails."""
    return lambda observed: quantity(observed.settled)


def struck(quantity: Quantity) -> Callable[[Observed], float]:
    """A quantity at once after failures, or at the end of churn."""
    return lambda observed: quantity(observed.struck)


def repaired(quantity: Quantity) -> Callable[[Observed], float]:
    """A quantity when there was time for repairs."""
    return lambda observed: quantity(observed.repaired)


# Properties of overlays.


def overlay_cases(plan: Plan) -> list[SamplingCase]:
    """All services at all sizes, and the largest under churn."""
    still = [SamplingCase(service, nodes) for nodes in plan.sizes for service in SERVICES]
    return still + [SamplingCase(service, max(plan.sizes), churn=churn) for churn in CHURNS for service in SERVICES]


def compare_overlays(plan: Plan, results: Found) -> Iterator[Finding]:
    """Every quantity of every overlay."""
    largest = max(plan.sizes)
    for nodes in plan.sizes:
        for name, unit, quantity in QUANTITIES:
            for service in SERVICES:
                case = SamplingCase(service, nodes)
                yield Row(f"{name}, {case}", unit, results.sample(case, settled(quantity)))
    for churn in CHURNS:
        for service in SERVICES:
            case = SamplingCase(service, largest, churn=churn)
            reach = results.sample(case, struck(lambda overlay: overlay.strongly_connected))
            yield Row(f"nodes that reach each other, {case}", "%", reach)
            yield Row(f"mean view, {case}", "entries", results.sample(case, struck(lambda overlay: overlay.view)))
            dead = results.sample(case, struck(lambda overlay: overlay.dead))
            yield Row(f"entries of nodes that are gone, {case}", "%", dead)
    yield degree_figure(largest, results)
    yield size_figure("clustering", Axis("clustering coefficient"), plan, results, lambda overlay: overlay.clustering)
    yield size_figure("path", Axis("mean path", "hops"), plan, results, lambda overlay: overlay.path_length)
    yield Note(
        "A random graph with views of k entries among n nodes has a clustering coefficient of k / (n - 1) and paths of "
        "about ln n / ln k hops: the views of Cyclon are as good as drawn. Newscast's are more alike, because whole "
        "views are exchanged. HyParView has the fewest links and the longest paths, and its links go both ways."
    )
    yield Note(f"Churn lasts {CHURN_MINUTES} minutes; what is seen is the overlay at its end, before it can recover.")


def degree_figure(nodes: int, results: Found) -> Figure:
    """In how many views nodes are."""
    series = []
    for service in SERVICES:
        case = SamplingCase(service, nodes)
        most = max(int(observed.settled.in_degrees.max()) for observed in results.of(case))
        points = tuple(results.sample(case, settled(share_at(degree))).point(degree) for degree in range(most + 1))
        series.append(Series(service, service, points))
    return Figure(
        "in-degree",
        f"In how many views nodes are, {nodes} nodes",
        Axis("in-degree", "entries"),
        Axis("share of the nodes", "%"),
        tuple(series),
    )


def share_at(degree: int) -> Quantity:
    """The share of nodes with this in-degree."""
    return lambda overlay: float(100 * np.mean(overlay.in_degrees == degree))


def size_figure(name: str, axis: Axis, plan: Plan, results: Found, quantity: Quantity) -> Figure:
    """A quantity by size, for each service."""
    series = []
    for service in SERVICES:
        cases = [SamplingCase(service, nodes) for nodes in plan.sizes]
        points = tuple(results.sample(case, settled(quantity)).point(case.nodes) for case in cases)
        series.append(Series(service, service, points))
    if name == "path":
        # A random graph with the views of each service; the widest and the narrowest bound the rest.
        for variant, service in enumerate((SERVICES[0], SERVICES[1])):
            expected = []
            for nodes in plan.sizes:
                view = results.sample(SamplingCase(service, nodes), settled(lambda overlay: overlay.view)).mean
                expected.append(Point(nodes, log(nodes) / log(view)))
            label = f"random graph with views of {service}"
            series.append(Series(label, "random graph", tuple(expected), variant=variant + 1))
    return Figure(name, f"{axis.label.capitalize()} by size", NODES, axis, tuple(series))


# Effects of failures.


def failure_cases(plan: Plan) -> list[SamplingCase]:
    """Every share of failures for every service."""
    return [SamplingCase(service, max(plan.sizes), failing) for service in SERVICES for failing in FAILING]


def compare_failures(plan: Plan, results: Found) -> Iterator[Finding]:
    """The nodes that are still connected."""
    nodes = max(plan.sizes)
    survived = survived_share(nodes, results)
    number = numbers_of("section-4.2.1")["failures"]
    label = f"share of failures after which all survivors hang together again, {HYPARVIEW}"
    yield Row(label, number.unit, survived, number if nodes in (DEFAULT_NODES, *FULL_SIZES) else None)
    for case in failure_cases(plan):
        at_once = results.sample(case, struck(lambda overlay: overlay.strongly_connected))
        yield Row(f"survivors that reach each other at once, {case}", "%", at_once)
        later = results.sample(case, repaired(lambda overlay: overlay.strongly_connected))
        yield Row(f"survivors that reach each other after repairs, {case}", "%", later)
        dead = results.sample(case, repaired(lambda overlay: overlay.dead))
        yield Row(f"entries of nodes that are gone after repairs, {case}", "%", dead)
    yield failure_figure("at-once", "at once", nodes, results, struck)
    yield failure_figure("repaired", f"{REPAIR_MS // 1000} s later", nodes, results, repaired)
    yield Note(
        "Nobody has a contact to turn to. HyParView loses its overlay and builds it again from its passive views: few "
        "links that are watched. Cyclon and Newscast have so many entries that enough are left; Cyclon forgets the "
        "dead slowly, one per period, and Newscast fast. Scamp drops links that broke and looks for no others."
    )


def survived_share(nodes: int, results: Found) -> Sample:
    """Up to which share of failures HyParView has all survivors in one overlay again, repetition by repetition."""
    found = [0.0] * len(results.of(SamplingCase(HYPARVIEW, nodes, FAILING[0])))
    for repetition in range(len(found)):
        for failing in FAILING:
            if results.of(SamplingCase(HYPARVIEW, nodes, failing))[repetition].repaired.connected < 100:
                break
            found[repetition] = float(failing)
    return Sample(tuple(found))


def failure_figure(
    name: str, when: str, nodes: int, results: Found, at: Callable[[Quantity], Callable[[Observed], float]]
) -> Figure:
    """Survivors that reach each other, by share of failures."""
    series = []
    for service in SERVICES:
        points = tuple(
            results.sample(SamplingCase(service, nodes, failing), at(lambda overlay: overlay.strongly_connected)).point(
                failing
            )
            for failing in FAILING
        )
        series.append(Series(service, service, points))
    return Figure(
        name,
        f"Survivors that reach each other, {when}, {nodes} nodes",
        Axis("nodes that fail at the same time", "%"),
        Axis("largest set of survivors that reach each other", "%"),
        tuple(series),
        (Mark("x", numbers_of("section-4.2.1")["failures"].value, "published: what HyParView tolerates"),),
    )


DEFAULT_NODES = 200
FULL_SIZES = (1000,)

OVERLAYS: Experiment[SamplingCase, Observed] = Experiment(
    name="gossip/overlays",
    document="not published: our own; services of sections 2.2 and 4.2.1 of the thesis of M. Matos",
    description="peer sampling: views, in-degrees, clustering, paths and connectivity by size and under churn",
    default=Plan((64, 128, 256), repetitions=3, large_repetitions=3),
    full=Plan((64, 128, 256, 512, 1024, 2048), repetitions=10, large_repetitions=3, full=True),
    parameters={**MODEL, "churn_percent_per_minute": CHURNS, "churn_minutes": CHURN_MINUTES},
    cases=overlay_cases,
    measure=measure,
    compare=compare_overlays,
    meaning="What does each service make of the same joins? Cyclon's views are nearly a random graph with narrow "
    "in-degrees. Newscast's neighbours know each other, and some nodes are in many views. Scamp's views size "
    "themselves and shrink under churn. HyParView has few links, all of them alive, and longer paths. All "
    "stay connected, but for a node of Scamp now and then, while a fifth of the nodes is replaced every minute.",
)

FAILURES: Experiment[SamplingCase, Observed] = Experiment(
    name="gossip/failures",
    document="thesis of M. Matos, section 4.2.1 (what HyParView tolerates); otherwise not published: our own",
    description="peer sampling: who is still connected after 10 to 90 % of all nodes failed at once",
    default=Plan((DEFAULT_NODES,), repetitions=3, large_repetitions=3),
    full=Plan(FULL_SIZES, repetitions=10, large_repetitions=10, full=True),
    parameters={**MODEL, "failing_percent": FAILING, "repair_s": REPAIR_MS // 1000},
    cases=failure_cases,
    measure=measure,
    compare=compare_failures,
    meaning="How many nodes can fail at the same time? HyParView falls apart at once beyond half, having few links, "
    "and is whole again half a minute later even after 80 %, because its passive views know others. Cyclon and "
    "Newscast hang together through the sheer size of their views. Scamp repairs nothing, and from 70 % on its "
    "survivors no longer reach each other.",
)
