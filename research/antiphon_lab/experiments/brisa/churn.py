"""BRISA under churn: Table 4.1 of the thesis of M. Matos.

As in Listing 4.1: a process joins every second; from second 1000 to 1600 a share of all processes is replaced every
minute, one after the other, by new processes. The source never fails, nor do the four contacts. The source publishes
five times per second all the while: the document states that 500 messages were sent, which would be over before the
churn begins to show. Repairs are counted at the processes, those that fail later included.

Shares of soft repairs are shares of all lost parents: for 128 processes 20 of 23, 37 of 40, 27 of 34 and 63 of 70 give
exactly the table, while 92.5 % of the two orphans of a DAG would not be a whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, sqrt

from antiphon.fabrics.gossip.structure import Repairs
from antiphon.simulator.engine.engine import Action, Engine
from antiphon_lab.experiments.brisa.hops import CLUSTER
from antiphon_lab.experiments.brisa.model import (
    CONTACTS,
    GAP_MS,
    MODEL,
    Growth,
    StreamCase,
    numbers_of,
    published,
)
from antiphon_lab.reproduction.documents import Number
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
    counted,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series, published_point, published_series
from antiphon_lab.reproduction.verdicts import Refutation, agrees

JOIN_MS = 1000
CHURN_FROM_MS, CHURN_TO_MS = 1_000_000, 1_600_000
CHURN_MINUTES = (CHURN_TO_MS - CHURN_FROM_MS) // 60_000
STREAM_FROM_MS = CHURN_FROM_MS - 10_000
DRAIN_MS = 60_000
SHARES = (3, 5)
STRUCTURES = {1: "tree", 2: "DAG"}
VIEW = 4
SMALL, LARGE = 128, 512
EXPANSIONS = (2.0, 1.0)


@dataclass(frozen=True)
class BrisaChurnCase:
    """One simulation."""

    nodes: int
    share: int
    parents: int
    expansion: float = 2.0

    def __str__(self) -> str:
        text = f"{self.nodes} nodes, {self.row}"
        return text if self.expansion == 2 else f"{text}, expansion {self.expansion:g}"

    @property
    def row(self) -> str:
        """The name of the row in the published table."""
        return f"{self.share} %, {STRUCTURES[self.parents]}"

    @property
    def replaced(self) -> int:
        """How many processes are replaced in all."""
        return ceil(self.nodes * self.share * CHURN_MINUTES / 100)


@dataclass(frozen=True)
class Churned:
    """The time of churn, added up over all processes.

    ``parents_failed`` are lost parents that failed; the others made room for newcomers. ``soft`` repairs of orphans and
    of processes with another parent count the same. ``missing`` are deliveries at processes that were present all the
    time; ``left_out`` processes did not get the last message.
    """

    parents_lost: int
    parents_failed: int
    orphaned: int
    orphaned_by_failure: int
    soft: int
    hard: int
    recovered: int
    recovery_ms: int
    longest_recovery_ms: int
    missing: int
    left_out: int

    @property
    def soft_share(self) -> float:
        """Repairs that needed no more than one known neighbour, in percent; of none, all."""
        return 100 * self.soft / (self.soft + self.hard) if self.soft + self.hard else 100.0


class BrisaReplacement(Action):
    """A process fails, and a new one joins."""

    def __init__(self, growth: Growth, newcomer: int) -> None:
        self._growth = growth
        self._newcomer = newcomer
        self.children = 0
        self.only_children = 0

    def run(self, engine: Engine) -> None:
        present = self._growth.present
        place = self._growth.random.below(len(present))
        while present[place] < CONTACTS or present[place] == self._growth.source:
            place = (place + 1) % len(present)
        failing = present.pop(place)
        left_with = [len(parents) - 1 for parents in self._growth.parents(0).values() if failing in parents]
        self.children = len(left_with)
        self.only_children = left_with.count(0)
        engine.crash(failing)
        engine.join(self._newcomer)


def repairs_of(growth: Growth) -> list[Repairs]:
    """The counters of all processes that there ever were."""
    return [each for process in growth.processes for each in process.brisa.repairs()]


def measure(case: BrisaChurnCase, seed: int) -> Churned:
    """Let a system grow, and replace processes while a stream goes through it."""
    messages = (CHURN_TO_MS - STREAM_FROM_MS) // GAP_MS
    stream = StreamCase(case.nodes, messages, VIEW, case.parents, case.expansion, network=CLUSTER)
    growth = Growth(stream, seed, spare=case.replaced, join_gap_ms=JOIN_MS)
    end = growth.publish_from(STREAM_FROM_MS)
    replacements: list[BrisaReplacement] = []
    for number in range(case.replaced):
        at = CHURN_FROM_MS + (2 * number + 1) * (CHURN_TO_MS - CHURN_FROM_MS) // (2 * case.replaced)
        replacements.append(BrisaReplacement(growth, case.nodes + number))
        growth.engine.at(at, replacements[-1])
    growth.engine.run(CHURN_FROM_MS - 1)
    before = total(repairs_of(growth))
    growth.engine.run(end + DRAIN_MS)
    repairs = repairs_of(growth)
    after = total(repairs)
    stable = [node for node in growth.present if node < case.nodes]
    last = end - GAP_MS
    lost, orphaned, soft, hard, recovered, ticks = (late - early for late, early in zip(after, before, strict=True))
    return Churned(
        parents_lost=lost,
        parents_failed=sum(replacement.children for replacement in replacements),
        orphaned=orphaned,
        orphaned_by_failure=sum(replacement.only_children for replacement in replacements),
        soft=soft,
        hard=hard,
        recovered=recovered,
        recovery_ms=ticks,
        longest_recovery_ms=max(int(each.longest_recovery) for each in repairs),
        missing=sum(messages - growth.receipts.count[node] for node in stable),
        # A process that loses its parents behind the last message waits for the next to choose others.
        left_out=sum(growth.receipts.last[node] < last for node in growth.present if node != growth.source),
    )


def total(repairs: list[Repairs]) -> tuple[int, ...]:
    """The counters, added up."""
    return (
        sum(int(each.parents_lost) for each in repairs),
        sum(int(each.orphaned) for each in repairs),
        sum(int(each.soft + each.topped_up) for each in repairs),
        sum(int(each.hard) for each in repairs),
        sum(int(each.recovered) for each in repairs),
        sum(int(each.recovery_ticks) for each in repairs),
    )


Found = Results[BrisaChurnCase, Churned]


def cases(plan: Plan) -> list[BrisaChurnCase]:
    """All conditions at all sizes."""
    return [
        BrisaChurnCase(nodes, share, parents, expansion)
        for expansion in EXPANSIONS
        for nodes in plan.sizes
        for share in SHARES
        for parents in STRUCTURES
    ]


def cell(case: BrisaChurnCase, kind: str, column: str) -> Number | None:
    """A published cell, if there is one for such a system."""
    if case.expansion != max(EXPANSIONS):
        return None
    table = published().tables.get(f"table-4.1/{kind}-{case.nodes}")
    return None if table is None else table.number(column, table.rows.index(case.row))


def per_minute(count: float) -> float:
    """How often in a minute."""
    return count / CHURN_MINUTES


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """Rates, repairs, and missed messages."""
    everything = [found for case in cases(plan) for found in results.of(case)]
    missing = [found.missing for found in everything]
    yield promised("deliveries missing at processes that stay, all runs", missing, "deliveries")
    left_out = [found.left_out for found in everything]
    yield promised("processes that the last message did not reach, all runs", left_out, "processes")
    for case in cases(plan):
        yield from compare_case(case, results)
    for nodes in plan.sizes:
        yield from compare_structures(nodes, results)
    yield repair_figure(plan, results)
    yield Note(
        "A process has about as many children as parents, so counting gives as many lost parents as failures, times "
        "the number of parents. The published rates are 0.5 to 1.45 times that, and do not grow with the churn at 512 "
        "processes. Here a process also loses a parent when a newcomer takes its place in a full view."
    )
    yield Note(
        "A repair begins when the broken link is noticed, one second after the failure, and ends with the first "
        "message from a new parent; messages come every 200 ms."
    )


def compare_case(case: BrisaChurnCase, results: Found) -> Iterator[Row]:
    """One row of the table."""
    expected = case.replaced / CHURN_MINUTES * case.parents
    lost = results.sample(case, lambda found: per_minute(found.parents_lost))
    failed = results.sample(case, lambda found: per_minute(found.parents_failed))
    yield Row(f"parents lost, {case}", "per minute", lost)
    number = cell(case, "rates", "parents lost")
    why = too_few_losses(case, expected, number)
    yield Row(f"parents that failed, {case}", "per minute", failed, number, why)
    yield Row(f"parents that failed, by counting, {case}", "per minute", Sample((expected,)))
    yield Row(f"orphans, {case}", "per minute", results.sample(case, lambda found: per_minute(found.orphaned)))
    orphans = results.sample(case, lambda found: per_minute(found.orphaned_by_failure))
    # With two parents the document has two or three orphans in ten minutes: too few to hold anything against.
    number = cell(case, "rates", "orphans") if case.parents == 1 else None
    yield Row(f"orphans of failures, {case}", "per minute", orphans, number, why)
    if case.parents == 1:
        difference = failed.with_other(lambda one, other: one - other, orphans)
        says = "a process with one parent that loses it is an orphan"
        yield counted(f"parents that failed without leaving an orphan, {case}", difference, 0, "per minute", says)
    yield from compare_repairs(case, results)


def too_few_losses(case: BrisaChurnCase, expected: float, number: Number | None) -> Refutation | None:
    """Counting against a published rate: every process has as many children as parents, on average."""
    if number is None:
        return None
    error = sqrt(expected / CHURN_MINUTES)
    return Refutation(
        f"{number.value:g} lost parents per minute where {case.share} % of {case.nodes} processes are replaced",
        f"a process has as many children as parents on average, so {expected:.1f} per minute are lost, with a standard "
        f"error of {error:.2f} in {CHURN_MINUTES} minutes",
        abs(number.value - expected) > 2 * error,
        expected - 3 * error,
        expected + 3 * error,
    )


def compare_repairs(case: BrisaChurnCase, results: Found) -> Iterator[Row]:
    """How parents were replaced."""
    soft = results.sample(case, soft_share)
    number = cell(case, "repairs", "soft repairs")
    yield Row(f"soft repairs, {case}", "%", soft, number, too_many_neighbours(case, number, results))
    mean = results.sample(case, lambda found: found.recovery_ms / max(1, found.recovered))
    yield Row(f"mean recovery, {case}", "ms", mean)
    yield Row(f"longest recovery, {case}", "ms", results.sample(case, lambda found: float(found.longest_recovery_ms)))


def soft_share(found: Churned) -> float:
    """Repairs by a known neighbour, in percent."""
    return found.soft_share


def too_many_neighbours(case: BrisaChurnCase, number: Number | None, results: Found) -> Refutation | None:
    """Views that may grow against a published share: who knows twice as many neighbours seldom needs a hard repair."""
    if number is None:
        return None
    fixed = results.sample(replace(case, expansion=min(EXPANSIONS)), soft_share)
    return Refutation(
        f"an expansion factor of {case.expansion:g}, and {number.value:g} % of soft repairs",
        f"views of {VIEW} that may grow to twice that size nearly always hold a neighbour that can be the next parent; "
        f"with views that may not grow the same run has {fixed.mean:.3g} % of soft repairs, which agrees",
        agrees(number, fixed.values),
        95,
        100,
    )


def compare_structures(nodes: int, results: Found) -> Iterator[Row]:
    """The conclusion of the document: a process with two parents is seldom without any."""
    number = numbers_of("table-4.1")["softer"]
    for share in SHARES:
        tree, graph = (BrisaChurnCase(nodes, share, parents) for parents in STRUCTURES)
        orphans = results.sample(tree, lambda found: float(found.orphaned))
        fewer = orphans.over(results.sample(graph, lambda found: float(max(1, found.orphaned))))
        yield compared(f"orphans, tree against DAG, {nodes} nodes, {share} %", fewer, number)
    if nodes == LARGE:
        number = numbers_of("table-4.1")["disconnected"]
        measured = results.sample(BrisaChurnCase(nodes, 5, 2), lambda found: float(found.orphaned_by_failure))
        yield compared(
            f"processes disconnected in {CHURN_MINUTES} minutes, {BrisaChurnCase(nodes, 5, 2)}", measured, number
        )


def repair_figure(plan: Plan, results: Found) -> Figure:
    """Lost parents and orphans, measured and published."""
    rows = [case for case in cases(plan) if case.expansion == max(EXPANSIONS)]
    quantities: dict[str, Callable[[Churned], float]] = {
        "parents lost": lambda found: per_minute(found.parents_failed),
        "orphans": lambda found: per_minute(found.orphaned_by_failure),
    }
    series: list[Series] = []
    for variant, (column, quantity) in enumerate(quantities.items()):
        points = tuple(results.sample(case, quantity).point(place) for place, case in enumerate(rows))
        series.append(Series(f"{column} by failures", "BRISA tree", points, "bars", variant))
        known = [(place, cell(case, "rates", column)) for place, case in enumerate(rows)]
        cells = [published_point(place, number) for place, number in known if number is not None]
        series += published_series(column, "BRISA tree", cells, variant)
    return Figure(
        "churn",
        "Parents lost and processes without any, per minute",
        Axis("churn per minute and structure", categories=tuple(str(case) for case in rows)),
        Axis("per minute"),
        tuple(series),
    )


TABLE_4_1: Experiment[BrisaChurnCase, Churned] = Experiment(
    name="brisa/table-4.1",
    document="thesis of M. Matos, Table 4.1",
    description="BRISA: parents lost, orphans and repairs while 3 % and 5 % of the processes are replaced per minute",
    default=Plan((SMALL,), repetitions=3, large_repetitions=3),
    full=Plan((SMALL, LARGE), repetitions=10, large_repetitions=10, full=True),
    parameters={
        **MODEL,
        "joins": f"one per second, through the first {CONTACTS} processes, which do not fail",
        "churn": "from second 1000 to 1600, each failure with a join at the same time",
        "publications": f"one source, one per {GAP_MS} ms, from second {STREAM_FROM_MS // 1000} to 1600",
        "failures": "noticed by neighbours one second later",
        "view": VIEW,
        "expansion": EXPANSIONS,
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What happens to the structure while processes come and go? In a tree every lost parent leaves an orphan; "
    "with two parents hardly anybody is ever without one. Most repairs are soft: a neighbour that is known to be no "
    "descendant becomes the parent, and the stream goes on a moment later. Nobody who stays misses a message.",
)
