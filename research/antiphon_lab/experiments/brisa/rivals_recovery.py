"""Recovery of parents under churn, BRISA beside TAG: Figure 4.19 of the thesis of M. Matos.

The churn of Table 4.1 (:mod:`antiphon_lab.experiments.brisa.churn`), 3 % of 128 processes every minute. Here those of a
minute fail at the same moment: the list of TAG breaks only where two in a row fail together, and if processes failed
one after the other there would be nothing to compare. Hard repairs are rare all the same, less than one in a run, so
there are runs with 12 % too.

A repair begins when a process has no parent any more, and ends when something comes from a new one. It is hard where no
neighbour was known that could be one (BRISA), or where the list was broken before the process too (TAG).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace

from antiphon_lab.experiments.brisa.churn import (
    CHURN_FROM_MS,
    CHURN_MINUTES,
    CHURN_TO_MS,
    DRAIN_MS,
    JOIN_MS,
    STREAM_FROM_MS,
    BrisaReplacement,
    repairs_of,
)
from antiphon_lab.experiments.brisa.model import GAP_MS, Growth, numbers_of
from antiphon_lab.experiments.brisa.rivals import BRISA, RIVALS_MODEL, TAG, Rival
from antiphon_lab.protocols.gossip.tag import Tag
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.verdicts import Refutation

NODES = 128
SHARE, MANY = 3, 12
"""How many percent are replaced every minute: as published, and enough to see hard repairs."""
BATCH = 4
MINUTE_MS = 60_000
MESSAGES = (CHURN_TO_MS - STREAM_FROM_MS) // GAP_MS
SYSTEMS = (BRISA, TAG)


@dataclass(frozen=True)
class RecoveryCase(Rival):
    """One simulation; ``share`` of the processes, in percent, are replaced every minute."""

    share: int = SHARE

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.share} %"

    @property
    def per_minute(self) -> int:
        """How many processes are replaced every minute."""
        return max(1, round(self.nodes * self.share / 100))

    @property
    def expected_breaks(self) -> float:
        """The average number of simultaneous failures of two neighbours in such a list, per run."""
        return CHURN_MINUTES * self.per_minute * (self.per_minute - 1) / self.nodes


@dataclass(frozen=True)
class Recovery:
    """Repairs of a run, added up over all processes; times in ms. ``missing`` are deliveries at those that stay.

    ``breaks`` is how often the list of TAG was broken, with or without a parent lost.
    """

    soft: int
    hard: int
    recovered_soft: int
    soft_ms: int
    recovered_hard: int
    hard_ms: int
    missing: int
    breaks: int


class RivalGrowth(Growth):
    """A system that grows, whose parents are where its protocol keeps them."""

    def parents(self, tree: int) -> dict[int, list[int]]:
        if not isinstance(self.brisa_of(self.present[0]), Tag):
            return super().parents(tree)
        found = {}
        for node in self.present:
            process = self.brisa_of(node)
            assert isinstance(process, Tag), "all are"
            parent = int(process.place(0).parent)
            found[node] = [parent] if parent >= 0 else []
        return found


def measure(case: RecoveryCase, seed: int) -> Recovery:
    """Let a system grow, and replace processes while a stream goes through it."""
    growth = RivalGrowth(case, seed, spare=case.per_minute * CHURN_MINUTES, join_gap_ms=JOIN_MS)
    if case.has_coordinator:
        growth.source = 0
    end = growth.publish_from(STREAM_FROM_MS)
    newcomer = case.nodes
    for minute in range(CHURN_MINUTES):
        for _ in range(case.per_minute):
            growth.engine.at(CHURN_FROM_MS + minute * MINUTE_MS + MINUTE_MS // 2, BrisaReplacement(growth, newcomer))
            newcomer += 1
    growth.engine.run(end + DRAIN_MS)
    repairs = repairs_of(growth)
    stable = [node for node in growth.present if node < case.nodes]
    hard_ms = sum(int(each.hard_recovery_ticks) for each in repairs)
    recovered_hard = sum(int(each.recovered_hard) for each in repairs)
    return Recovery(
        soft=sum(int(each.soft) for each in repairs),
        hard=sum(int(each.hard) for each in repairs),
        recovered_soft=sum(int(each.recovered) for each in repairs) - recovered_hard,
        soft_ms=sum(int(each.recovery_ticks) for each in repairs) - hard_ms,
        recovered_hard=recovered_hard,
        hard_ms=hard_ms,
        missing=sum(case.messages - growth.receipts.count[node] for node in stable),
        breaks=sum(
            int(process.brisa.place(0).breaks) for process in growth.processes if isinstance(process.brisa, Tag)
        ),
    )


Found = Results[RecoveryCase, Recovery]


def case_of(plan: Plan, system: str, share: int) -> RecoveryCase:
    """One of the two, under one churn."""
    return RecoveryCase(max(plan.sizes), MESSAGES, system=system, batch=BATCH if system == TAG else 1, share=share)


def cases(plan: Plan) -> list[RecoveryCase]:
    """Both systems, under both."""
    return [case_of(plan, system, share) for share in (SHARE, MANY) for system in SYSTEMS]


def pooled(results: Found, case: RecoveryCase) -> Recovery:
    """All repetitions together: hard repairs are too few to look at one run."""
    return Recovery(*(sum(values) for values in zip(*map(astuple, results.of(case)), strict=True)))


def mean_ms(total: int, count: int) -> float:
    """The mean time of some repairs; 0 if there are none."""
    return total / count if count else 0.0


def hard_ms(found: Recovery) -> float:
    """The mean time of hard repairs."""
    return mean_ms(found.hard_ms, found.recovered_hard)


def soft_ms(found: Recovery) -> float:
    """The mean time of soft repairs."""
    return mean_ms(found.soft_ms, found.recovered_soft)


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """Delays, then numbers of repairs, under both churns."""
    everything = [pooled(results, case_of(plan, BRISA, share)) for share in (SHARE, MANY)]
    missing = [found.missing for found in everything]
    yield promised("deliveries missing at processes that stay, BRISA", missing, "deliveries")
    for share in (SHARE, MANY):
        yield from compare_hard(plan, results, share)
        delays = ratios(plan, results, share, lambda brisa, tag: (soft_ms(brisa), soft_ms(tag)))
        if delays:
            yield Row(f"delay of soft repairs, BRISA against TAG, {share} %", "times", Sample(delays))
    for case in cases(plan):
        yield from numbers_of_case(case, len(results.of(case)), pooled(results, case))
    for share in (SHARE, MANY):
        yield recovery_figure(share, *(pooled(results, case_of(plan, system, share)) for system in SYSTEMS))
    yield Note(
        "Repairs of all repetitions are taken together. Failures are noticed after 1 s in both systems; that is not in "
        f"the delays. TAG gets up to {BATCH} messages for each question here, for with one it could not follow the "
        "stream; what it waits for the next question, 200 ms on average, is part of its delays, and so is what BRISA "
        "waits for the next message, 100 ms on average."
    )


def ratios(
    plan: Plan, results: Found, share: int, quantity: Callable[[Recovery, Recovery], tuple[float, float]]
) -> tuple[float, ...]:
    """A quantity of one system over that of the other, for each repetition in which both have it."""
    pairs = zip(*(results.of(case_of(plan, system, share)) for system in SYSTEMS), strict=True)
    found = [quantity(brisa, tag) for brisa, tag in pairs]
    return tuple(one / other for one, other in found if one > 0 and other > 0)


def compare_hard(plan: Plan, results: Found, share: int) -> Iterator[Finding]:
    """The figure shows how long hard repairs take, and how many there are."""
    numbers = numbers_of("fig-4.19")
    delays = ratios(plan, results, share, lambda brisa, tag: (hard_ms(brisa), hard_ms(tag)))
    label = f"delay of hard repairs, BRISA against TAG, {share} %"
    if delays:
        yield compared(label, Sample(delays), numbers["delay"])
    counts = ratios(plan, results, share, lambda brisa, tag: (float(tag.hard), float(brisa.hard)))
    if counts:
        why = list_breaks(case_of(plan, TAG, share), results)
        yield compared(f"number of hard repairs, TAG against BRISA, {share} %", Sample(counts), numbers["hard"], why)
    runs = len(results.of(case_of(plan, TAG, share)))
    if len(delays) < runs:
        yield Note(
            f"{share} %: both systems had a hard repair in {len(delays)} of {runs} repetitions; the others say nothing "
            "about the delay."
        )


def list_breaks(case: RecoveryCase, results: Found) -> Refutation:
    """The number of hard repairs of TAG, against the number that follows by counting."""
    runs = len(results.of(case))
    tag = pooled(results, case)
    brisa = pooled(results, replace(case, system=BRISA, batch=1))
    breaks = case.expected_breaks * runs
    most = breaks / max(1, brisa.hard)
    return Refutation(
        "that TAG has about twice as many hard repairs as BRISA",
        "the list of TAG breaks where two in a row fail together, which can be counted: among "
        f"{case.per_minute} of {case.nodes} that fail at once, in {case.expected_breaks:.1f} cases in ten minutes "
        f"({tag.breaks / runs:.1f} seen), and only those are hard that lost their parent as well",
        0.4 * breaks <= tag.breaks <= 2.5 * breaks,
        most / 20,
        2.5 * most,
    )


def numbers_of_case(case: RecoveryCase, runs: int, found: Recovery) -> Iterator[Row]:
    """The counts of the runs of a case."""
    about = f"{case.system}, {case.share} %"
    yield Row(f"hard repairs per run, {about}", "repairs", Sample((found.hard / runs,)))
    yield Row(f"soft repairs per run, {about}", "repairs", Sample((found.soft / runs,)))
    yield Row(f"mean delay of hard repairs, {about}", "ms", Sample((hard_ms(found),)))
    yield Row(f"mean delay of soft repairs, {about}", "ms", Sample((soft_ms(found),)))
    if case.system == TAG:
        yield Row(f"broken lists per run, {about}", "breaks", Sample((found.breaks / runs,)))
        missing = Sample((float(found.missing),))
        yield Row(f"deliveries missing at processes that stay, {about}", "deliveries", missing)


def recovery_figure(share: int, brisa: Recovery, tag: Recovery) -> Figure:
    """Mean delays as bars."""
    series = []
    for system, found in ((BRISA, brisa), (TAG, tag)):
        points = tuple(Sample((value,)).point(at) for at, value in enumerate((soft_ms(found), hard_ms(found))))
        series.append(Series(system, system, points, "bars"))
    return Figure(
        f"recovery-{share}",
        f"Mean delay until something comes from a new parent, {share} % replaced every minute",
        Axis("repair", categories=("soft", "hard")),
        Axis("delay", "ms"),
        tuple(series),
    )


FIG_4_19: Experiment[RecoveryCase, Recovery] = Experiment(
    name="brisa/fig-4.19",
    document="thesis of M. Matos, Figure 4.19",
    description="BRISA and TAG: recovery of parents, 128 processes, 3 % replaced every minute",
    default=Plan((NODES,), repetitions=3, large_repetitions=3),
    full=Plan((NODES,), repetitions=20, large_repetitions=20, full=True),
    parameters={**RIVALS_MODEL, "shares_per_minute": [SHARE, MANY], "minutes": CHURN_MINUTES, "messages": MESSAGES},
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What if neither of two has anybody left to turn to? BRISA asks all its neighbours, which are connected "
    "already; TAG asks for its place in the list and walks along it.",
)
