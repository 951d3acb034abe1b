"""Whom an orphan asks first: by hops, ancestors first, or the brokers that answer first.

The dissertation on Ginger asks ancestors first in its text and the nearest by hops in its log, and measures neither.
``nearest_first`` is ours and off by default: an orphan sends a probe to every broker of its local view and
asks in the order of the answers. Here regular trees of brokers, which lie in the three regions of the document by
chance, lose a broker two levels below the root under the load of BankService. Its parent has room for one orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.network.delays import MatrixDelay
from antiphon_lab.experiments.ginger.bank_service import BankRun, BankSetup
from antiphon_lab.experiments.ginger.model import (
    AMERICA,
    ASIA,
    BETWEEN_MS,
    COLLECT_MS,
    EUROPE,
    INTERVAL_MS,
    KEYS,
    MODEL,
    ORDERS,
    PATIENCE_MS,
    WITHIN_MS,
    crashes_of,
)
from antiphon_lab.experiments.ginger.repairs import NotingBroker, repairs_in
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series

BY_HOPS, ANCESTORS, NEAREST = "by hops", "ancestors first", "nearest first"
WAYS = (BY_HOPS, ANCESTORS, NEAREST)
FAN_OUT, TOTAL_DEGREE, MAX_HOPS = 3, 4, 3
OPERATIONS = 200
REGION_STREAM = 180
DETECTION_MS = max(BETWEEN_MS.values())
CRASHED = 4
ORPHANS = tuple(range(FAN_OUT * CRASHED + 1, FAN_OUT * (CRASHED + 1) + 1))


@dataclass(frozen=True)
class ParentsCase:
    """One way of asking, in a tree of this size."""

    way: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.way}, {self.nodes} brokers"


@dataclass(frozen=True)
class AdoptionOutcome:
    """The results of a run. ``reach_ms`` is the mean delay from the root to a broker in the tree at the end."""

    synchronised_ms: float
    rounds: float
    reach_ms: float
    eventual_ms: float
    total_ms: float
    wrong: int


def regional_delays(nodes: int, seed: int) -> list[list[int]]:
    """A region for every broker, and from that the delay between any two."""
    random = RandomStream(seed, REGION_STREAM)
    regions = [(EUROPE, AMERICA, ASIA)[random.below(3)] for _ in range(nodes)]
    rows = [[0] * nodes for _ in range(nodes)]
    for one in range(nodes):
        for other in range(one):
            between = BETWEEN_MS.get(frozenset((regions[one], regions[other])))
            rows[one][other] = rows[other][one] = int(random.between(*WITHIN_MS)) if between is None else between
    return rows


def setup_of(case: ParentsCase, delays: list[list[int]], seed: int) -> BankSetup:
    """The system and its load; customers are at the brokers that will be orphans, and at two others."""
    return BankSetup(
        nodes=case.nodes,
        tree=TreeTableOptions(
            fan_out=FAN_OUT,
            total_degree=TOTAL_DEGREE,
            max_hops=MAX_HOPS,
            ancestors_first=case.way == ANCESTORS,
            nearest_first=case.way == NEAREST,
            patience=PATIENCE_MS,
            collect=COLLECT_MS,
            strict_session=False,
        ),
        places=(tuple(dict.fromkeys((*ORPHANS, case.nodes - 2, case.nodes - 1))),),
        delay=MatrixDelay(delays),
        accounts=KEYS,
        operations=OPERATIONS,
        interval_ticks=INTERVAL_MS,
        detection_ticks=DETECTION_MS,
        crashes=crashes_of((CRASHED,), OPERATIONS, seed),
    )


def measure(case: ParentsCase, seed: int) -> AdoptionOutcome:
    """Let a broker crash, and see where the brokers below it go."""
    return measure_on(regional_delays(case.nodes, seed), case, seed)


def measure_on(delays: list[list[int]], case: ParentsCase, seed: int) -> AdoptionOutcome:
    """The same on other delays, in milliseconds."""
    run = BankRun(setup_of(case, delays, seed), seed, None, NotingBroker)
    run.run()
    orphans = [repair for repair in repairs_in(run) if repair.is_orphan]
    times = [repair.synchronised for repair in orphans]
    assert len(orphans) == FAN_OUT and None not in times, "every orphan finds a parent"
    return AdoptionOutcome(
        synchronised_ms=sum(time or 0 for time in times) / len(orphans),
        rounds=sum(repair.rounds for repair in orphans) / len(orphans),
        reach_ms=mean_reach_ms(run, delays),
        eventual_ms=run.service.latency["none"].mean,
        total_ms=run.service.latency["total"].mean,
        wrong=sum(not audit.is_good for audit in run.audit()) + run.stuck(),
    )


def mean_reach_ms(run: BankRun, delays: list[list[int]]) -> float:
    """How far brokers are from the root, on average over those that are left."""
    broker = run.processes()[0]
    assert isinstance(broker, TreeBroker), "all are brokers"
    overlay = broker.view.overlay
    living = [int(process.me) for process in run.processes()]
    reaches = [sum(delays[one][other] for one, other in pairwise(overlay.path_of(place))) for place in living]
    return sum(reaches) / len(reaches)


QUANTITIES: dict[str, tuple[str, Callable[[AdoptionOutcome], float]]] = {
    "until the last missed message, orphans": ("ms", lambda found: found.synchronised_ms),
    "brokers that an orphan asks": ("brokers", lambda found: found.rounds),
    "from the root to a broker afterwards": ("ms", lambda found: found.reach_ms),
    f"latency, {ORDERS['none']}": ("ms", lambda found: found.eventual_ms),
    f"latency, {ORDERS['total']}": ("ms", lambda found: found.total_ms),
}


def cases(plan: Plan) -> list[ParentsCase]:
    """All ways at all sizes."""
    return [ParentsCase(way, nodes) for nodes in sizes_of(plan) for way in WAYS]


def sizes_of(plan: Plan) -> list[int]:
    """The sizes of a plan, none too small to have all orphans."""
    return [max(nodes, ORPHANS[-1] + 1) for nodes in plan.sizes]


def compare(plan: Plan, results: Results[ParentsCase, AdoptionOutcome]) -> Iterator[Finding]:
    """Each quantity by the way of asking, and against the document's."""
    yield from compare_ways(plan, results, "parents", "Time until an orphan has everything")
    yield Note(
        "A probe costs one round trip to the nearest broker before the first question. Repetitions draw other regions; "
        "the three ways meet the same regions, load and moment."
    )


def compare_ways(
    plan: Plan, results: Results[ParentsCase, AdoptionOutcome], figure: str, title: str
) -> Iterator[Finding]:
    """The same for any delays, with a figure of this name and title."""
    yield promised(
        "banks in disorder and brokers stuck, all runs",
        [found.wrong for case in cases(plan) for found in results.of(case)],
    )
    for label, (unit, quantity) in QUANTITIES.items():
        for case in cases(plan):
            sample = results.sample(case, quantity)
            yield Row(f"{label}, {case}", unit, sample)
            if case.way != BY_HOPS:
                usual = results.sample(ParentsCase(BY_HOPS, case.nodes), quantity)
                yield Row(f"{label}, {case}, against {BY_HOPS}", "times", sample.over(usual))
    names = tuple(str(nodes) for nodes in sizes_of(plan))
    label, (unit, quantity) = next(iter(QUANTITIES.items()))
    yield Figure(
        figure,
        title,
        Axis("brokers", categories=names),
        Axis(label, unit),
        tuple(
            Series(
                way,
                "Ginger, ours",
                tuple(
                    results.sample(ParentsCase(way, nodes), quantity).point(place)
                    for place, nodes in enumerate(sizes_of(plan))
                ),
                "bars",
                variant,
            )
            for variant, way in enumerate(WAYS)
        ),
    )


PARENTS: Experiment[ParentsCase, AdoptionOutcome] = Experiment(
    name="ginger/parents",
    document="not measured in the dissertation on Ginger: section 4.2 describes the search",
    description="the broker tree: the time of a repair and the tree after it, by the order in which orphans ask",
    default=Plan((40, 121), repetitions=20, large_repetitions=20),
    full=Plan((40, 121, 364), repetitions=40, large_repetitions=40, full=True),
    parameters={
        **{key: MODEL[key] for key in ("patience_ms", "collect_ms", "interval_ms", "load", "latency")},
        "fan_out": FAN_OUT,
        "total_degree": TOTAL_DEGREE,
        "max_hops": MAX_HOPS,
        "operations_per_client": OPERATIONS,
        "keys": KEYS,
        "regions": "drawn for each repetition; delays between them as in the document",
        "faults": "the first broker of the second level, in the middle third",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Does it pay to measure distances before asking for a place? The probe costs a round trip, and every later "
    "message to the parent is shorter. Whether the tree as a whole gets better is another question: the nearest broker "
    "may itself be far from the root.",
)
