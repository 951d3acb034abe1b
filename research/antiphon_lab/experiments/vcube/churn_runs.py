"""Shared by both parts of Figure 5.11: the length of runs, their rows and notes, and parameters.

Where a single root is overloaded the text has three numbers, and they depend on a rule that it does not give: the limit
of changes. All rules are simulated there. Each number is compared with the nearest rule.

Everything is a mean over a stationary run, so its length matters little. A run is as long as the published one where
that takes seconds, and otherwise as long as a number of events allows; the report states the length.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from antiphon_lab.experiments.vcube.churn import (
    EFFECTIVE,
    PUBLICATION_GAP_TICKS,
    PUBLISHED_SECONDS,
    RULES,
    TICKS_PER_SECOND,
    WARM_UP_SHARE,
    ChurnRunCase,
    Endured,
    events_per_second,
    median_ticks,
)
from antiphon_lab.experiments.vcube.one_topic import MODEL, ONE_ROOT, PUBLISHED, REPAIRED
from antiphon_lab.reproduction.experiment import Note, Plan, Results, Row, Sample, promised

MINUTE_TICKS = 60 * TICKS_PER_SECOND
STATIC = None
MEDIANS = (STATIC, 60 * MINUTE_TICKS, 30 * MINUTE_TICKS, MINUTE_TICKS)
SHORTEST = MINUTE_TICKS
SIZES = (512, 1024, 2048, 4096)
OVERLOADED_NODES = 4096

PERCENTS = tuple(range(1, 11))
DEFAULT_PERCENTS = (1, 4, 5, 10)
LEAST, MOST = PERCENTS[0], PERCENTS[-1]
RATE_NODES = 1024
OVERLOADED_PERCENTS = (5, MOST)
CONTENTION = 1.1
"""Latency above this many times that of the least churn is called contention."""

EVENT_COST = {PUBLISHED: 1.0, ONE_ROOT: 0.5, REPAIRED: 2.0}
"""The cost of an event, compared with one of VCube-PS as published."""

JUDGED_NODES = 64
JUDGED_SECONDS = 120


@dataclass(frozen=True)
class Budget:
    """The limit of a simulation: a number of events of VCube-PS as published, or the same cost, and seconds."""

    events: float
    seconds: int = PUBLISHED_SECONDS

    def case(
        self, system: str, nodes: int, median: int | None, rule: str = EFFECTIVE, charged: bool | None = None
    ) -> ChurnRunCase:
        """The longest possible case; VCube-PS repaired is charged for acknowledgements unless told otherwise."""
        costs = system == REPAIRED if charged is None else charged
        case = ChurnRunCase(system, members_of(nodes), median, self.seconds, costs, rule=rule)
        seconds = int(self.events / (events_per_second(case) * EVENT_COST[system]))
        return ChurnRunCase(system, case.members, median, max(10, min(self.seconds, seconds)), costs, rule=rule)


FULL_BUDGET = Budget(40e6)
DEFAULT_BUDGET_A = Budget(2.1e6, 1000)
DEFAULT_BUDGET_B = Budget(6e6, 60)


def members_of(nodes: int) -> int:
    """How many of the nodes are members: 1000 of 1024."""
    return nodes * 125 // 128


def judged_cases() -> list[ChurnRunCase]:
    """Small systems with much churn, which the oracle judges."""
    members, median = members_of(JUDGED_NODES), median_ticks(MOST)
    return [
        ChurnRunCase(PUBLISHED, members, median, JUDGED_SECONDS, judged=True, rule=EFFECTIVE),
        ChurnRunCase(REPAIRED, members, median, JUDGED_SECONDS, charged=True, judged=True, rule=EFFECTIVE),
    ]


latency: Callable[[Endured], float] = operator.attrgetter("latency")
false_positives: Callable[[Endured], float] = operator.attrgetter("false_positives")
root_wait: Callable[[Endured], float] = operator.attrgetter("root_wait")


def from_start(endured: Endured) -> float:
    """Latency since the publisher could start."""
    return endured.latency - endured.start_wait


class Runs:
    """The measurements for one figure, and the rows and notes of both figures."""

    def __init__(self, plan: Plan, budget: Budget, results: Results[ChurnRunCase, Endured]) -> None:
        self.plan = plan
        self.budget = budget
        self._results = results

    def of(self, case: ChurnRunCase, quantity: Callable[[Endured], float] = latency) -> Sample:
        """One point."""
        return self._results.sample(case, quantity)

    def rows(self, cases: list[ChurnRunCase]) -> Iterator[Row]:
        """All quantities of all cases, and the findings of the oracle."""
        for case in judged_cases():
            found = self.of(case, operator.attrgetter("violations"))
            label = f"violations found by the oracle in {JUDGED_SECONDS} s, {case}"
            # The published protocol loses publications under churn; the repaired one promises not to.
            yield promised(label, found.values) if case.system == REPAIRED else Row(label, "deliveries", found)
        shown = [case for case in cases if not case.judged]
        for case in shown:
            yield Row(f"latency, {case}", "ticks", self.of(case))
        for case in shown:
            if case.median_ticks is not None:
                yield Row(f"latency from the start, {case}", "ticks", self.of(case, from_start))
        for case in shown:
            if case.median_ticks is not None:
                yield Row(f"false positives, {case}", "%", self.of(case, false_positives))
        for case in shown:
            if case.system != ONE_ROOT:
                waiting = self.of(case, lambda endured: endured.stuck)
                yield Row(f"never finished, {case}", "waits", waiting)

    def notes(self, cases: list[ChurnRunCase]) -> Iterator[Note]:
        """Notes that explain the rows."""
        shorter = [f"{case} {case.seconds}" for case in cases if case.seconds < PUBLISHED_SECONDS and not case.judged]
        if shorter:
            yield Note(
                f"Not simulated for {PUBLISHED_SECONDS} s as published, but for so many seconds: {'; '.join(shorter)}. "
                f"The first of {WARM_UP_SHARE} equal parts of every run is not measured."
            )
        yield Note(
            "The text gives rates of churn per minute. They are per second: 69 s and 1 %, 17 s and 4 %, 7 s and 10 %, "
            "46 changes of 4000 members for a median of 1 minute are pairs of ln 2 / median per second."
        )
        yield Note(
            "As published, members that miss a publication because a newcomer did not know them yet wait for ever for "
            "what they missed: that is what is counted as never finished. The published latencies are of receptions "
            "and do not show it. The repaired protocol must have none, and its latencies are of deliveries."
        )


def depends_on_rule(by_rule: dict[str, Sample], unit: str, limit: float = 0.0) -> Note:
    """Overload depends on the rule for waiting changes. ``limit`` is the last value of ``CALL``, if known."""
    means = {rule: sample.mean for rule, sample in by_rule.items()}
    spoken = "; ".join(f"{mean:.3g} {unit} with '{rule}'" for rule, mean in means.items())
    if limit > 0:
        spoken += f", which grows up to {limit:.3g} when every node has a change in the queue"
    return Note(
        "The root is overloaded, so the wait at it depends on what holds changes back, which the text does not say: "
        f"{spoken}. No rule that was tried gives all three numbers that the text has on overloaded roots."
    )


PARAMETERS = {
    **MODEL,
    "ticks_per_second": TICKS_PER_SECOND,
    "publication_gap_ticks": PUBLICATION_GAP_TICKS,
    "nodes": "the next power of two above the number of members",
    "sessions": "exponential, with the given median",
    "rules": RULES,
    "rule": f"{EFFECTIVE}, except in rows that say otherwise",
    "switches": "VCube-PS: the published protocol with minimal corrections; repaired: its defaults",
    "acknowledgements": "free of charge, except in rows that say otherwise; repaired: charged",
    "latency": "of receptions, from the application's call, except in rows that say otherwise; repaired: of deliveries",
    "false_positives": "receptions by nodes that have been told to unsubscribe, or were never told to subscribe",
}
