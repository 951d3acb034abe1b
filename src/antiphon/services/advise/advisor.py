"""Tries a service in every way, and says which order each operation needs.

First each operation twice on one state, then pairs of operations in both orders, then whole schedules. The findings
become an :class:`Advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from hypothesis import strategies as st

from antiphon.kernel.errors import UsageError
from antiphon.services.advise import explanations
from antiphon.services.advise.needs import needed_totals, uncovered
from antiphon.services.advise.pairs import (
    AFTER,
    ALONE,
    APART,
    APART_SENSIBLY,
    CONCURRENT,
    SENSIBLY,
    TOGETHER,
    Bench,
)
from antiphon.services.advise.repeats import RepeatSearch
from antiphon.services.advise.search import MOST_BEFORE, Fact, PairFindings, PairSearch, explore, smallest
from antiphon.services.advise.values import calls_of
from antiphon.services.advise.world import FABRICS, Schedule, World
from antiphon.services.description import ServiceDescription
from antiphon.services.marks import ORDER_CHOICES, check_order

Verdict = Literal["fine", "too weak", "stronger than needed"]
Step = Callable[[str], None]

LARGEST_SEED: Final = (1 << 31) - 1


class AdviceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How much to try, and how."""

    seed: int = 0
    examples: int = 200
    """Trials for each pair of operations, of many scripts each."""
    schedules: int = 200
    """Schedules on each fabric."""
    trust_callers: bool = False
    """Whether calls are made only where they neither raise nor break an invariant."""
    orders: dict[str, str] = {}
    """Orders to try in place of the declared ones."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, with the smallest script that shows it."""

    operations: list[str]
    what: str
    script: list[str]


class OperationAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about the order of one operation."""

    name: str
    needed: str
    declared: str
    verdict: Verdict
    tried: int
    """Scripts with this operation in the pair."""
    why: str
    script: list[str]
    """The counterexample to a weaker order; empty if there is none."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about a service."""

    service: str
    options: AdviceOptions
    operations: list[OperationAdvice]
    problems: list[Problem]
    """Mistakes that no order mends, and schedules that went wrong."""
    scripts: int
    """Pairs that were tried."""
    schedules: int
    """Schedules that were run and judged."""

    @property
    def has_failed(self) -> bool:
        """Whether something is wrong with the service as it is declared."""
        return bool(self.problems) or any(one.verdict == "too weak" for one in self.operations)


@dataclass
class Advisor:
    """One service under examination."""

    description: ServiceDescription
    options: AdviceOptions
    bench: Bench = field(init=False)

    def __post_init__(self) -> None:
        names = self.description.operations
        if not names:
            raise UsageError(f"{self.description.name} has no operations; there is nothing to advise")
        for name, order in self.options.orders.items():
            if name not in names:
                raise UsageError(f"{self.description.name} has no operation {name!r}; it has {', '.join(names)}")
            check_order(order)
        if not 0 <= self.options.seed <= LARGEST_SEED or self.options.examples < 1 or self.options.schedules < 0:
            raise UsageError("a seed is 0 or more, and there is at least one example")
        self.bench = Bench(self.description)
        self.scales = calls_of(self.description)
        self.names = list(names)
        self.orders = {name: call.order for name, call in names.items()} | self.options.orders

    def steps(self) -> int:
        """How many steps ``advise`` reports."""
        return 1 + len(self.names) * (len(self.names) + 1) // 2 + (len(FABRICS) if self.options.schedules else 0)

    def advise(self, step: Step = lambda _: None) -> Advice:
        """Try everything."""
        problems = self._repeats()
        step("each operation twice")
        unsteady = {name for problem in problems for name in problem.operations}
        steady = [name for name in self.names if name not in unsteady]
        search = self.try_pairs(steady, step)
        found = search.found
        problems += self.problems_of_pairs(search)
        schedules = 0
        for fabric in FABRICS if self.options.schedules and not unsteady else ():
            schedules += self._schedules(fabric, found, problems)
            step(f"schedules on a {fabric}")
        return Advice(
            service=self.description.name,
            options=self.options,
            operations=self.judge(search, steady),
            problems=problems,
            scripts=sum(found.tried.values()),
            schedules=schedules,
        )

    def try_pairs(self, names: Collection[str], step: Step = lambda _: None) -> PairSearch:
        """Try all pairs of operations. The findings do not depend on the orders."""
        scales = [{name: calls[name] for name in names} for calls in self.scales]
        search = PairSearch(self.bench, scales, self.options.examples, self.options.seed)
        for pair in search.pairs():
            search.try_pair(pair)
            step(f"{pair[0]} and {pair[1]}")
        return search

    def _repeats(self) -> list[Problem]:
        search = RepeatSearch(self.bench, Bench(self.description))
        calls = self.scales[0]
        before = st.lists(st.one_of(list(calls.values())), max_size=MOST_BEFORE).map(tuple)
        for each in calls.values():
            search.try_calls(st.tuples(before, each), max(20, self.options.examples // 2), self.options.seed)
        return [
            Problem(
                operations=[mistake.operation],
                what=f"{mistake.operation} {mistake.what}; pass what it needs as an argument",
                script=[*map(str, mistake.before), str(mistake.call)],
            )
            for mistake in search.found.mistakes.values()
        ]

    def problems_of_pairs(self, search: PairSearch) -> list[Problem]:
        """What no order mends."""
        is_trusting = self.options.trust_callers
        problems = []
        for fact in search.found.of(*((APART_SENSIBLY, TOGETHER) if is_trusting else (APART, ALONE))):
            (kind, one, other), script = fact, search.small(fact)
            if kind == ALONE:
                broken = self.bench.after(self.bench.reach(script.before) or self.bench.empty(), script.other).broken
                what = (
                    f"{other} breaks {broken} in every order; let it raise an exception instead, or refuse the argument"
                )
                lines = explanations.alone(self.bench, script)
            elif kind == TOGETHER:
                what = (
                    f"{one} and {other} together break an invariant in every order; let the operation check it itself"
                )
                lines = explanations.both_orders(self.bench, script)
            else:
                what = f"{one} and {other} have no key in common and do not commute: name more keys"
                lines = explanations.both_orders(self.bench, script)
            problems.append(Problem(operations=sorted({one, other}), what=what, script=lines))
        return problems

    def _schedules(self, fabric: str, found: PairFindings, problems: list[Problem]) -> int:
        """Run schedules on a fabric; returns how many were judged."""
        ignored = frozenset(
            broken
            for script in found.of(ALONE).values()
            if (start := self.bench.reach(script.before)) is not None
            and (broken := self.bench.after(start, script.other).broken) is not None
        )
        world = World(self.bench, self.orders, ignored, self.options.trust_callers)
        judged = 0
        failed = False

        def look(schedule: Schedule) -> None:
            nonlocal judged, failed
            outcome = world.run(schedule)
            judged += outcome.is_judged
            failed = failed or outcome.has_failed

        schedules = world.schedules(fabric, self.scales)
        explore(schedules, look, self.options.schedules, self.options.seed)
        if failed:
            small = smallest(
                schedules, lambda one: world.run(one).has_failed, self.options.schedules, self.options.seed
            )
            assert small is not None, "the same seed draws the same schedules"
            what, lines = explanations.schedule(world, world.shortened(small))
            problems.append(Problem(operations=[], what=f"on a {fabric} {what}", script=lines))
        return judged

    def judge(self, search: PairSearch, names: list[str]) -> list[OperationAdvice]:
        """The needed order of each operation."""
        conflicts = search.found.of(SENSIBLY if self.options.trust_callers else CONCURRENT)
        pairs = [(one, other) for _, one, other in conflicts]
        totals = needed_totals(names, pairs, self.orders)
        return [self._operation(name, search, conflicts, totals) for name in names]

    def _operation(
        self, name: str, search: PairSearch, conflicts: Mapping[Fact, object], totals: Collection[str]
    ) -> OperationAdvice:
        found = search.found
        declared = self.orders[name]
        needed, fact = self._needed(name, found, conflicts, totals)
        verdict: Verdict = "fine"
        if ORDER_CHOICES.index(declared) < ORDER_CHOICES.index(needed):
            verdict = "too weak"
        elif declared == "total" and needed != "total":
            verdict = "stronger than needed"
        script = [] if fact is None else explanations.both_orders(self.bench, search.small(fact))
        return OperationAdvice(
            name=name,
            needed=needed,
            declared=declared,
            verdict=verdict,
            tried=found.tried_with(name),
            why=self._why(name, needed, fact, found),
            script=script,
        )

    def _needed(
        self, name: str, found: PairFindings, conflicts: Mapping[Fact, object], totals: Collection[str]
    ) -> tuple[str, Fact | None]:
        """The weakest order of an operation without a counterexample, and the counterexample to a weaker one."""
        if name in totals:
            others = set(totals) - {name}
            # What shows it best: that it was not total, then that it conflicts with itself or with what stays weak.
            declared = [one for one, order in self.orders.items() if order == "total"]
            facts = [fact for fact in conflicts if name in fact[1:]]
            facts.sort(key=lambda fact: (not uncovered([fact[1:]], declared), not uncovered([fact[1:]], others), fact))
            return "total", facts[0]
        if self.options.trust_callers:
            for fact in found.of(AFTER):
                if fact[2] == name and fact[1] not in totals:
                    return "causal", fact
        return "none", None

    def _why(self, name: str, needed: str, fact: Fact | None, found: PairFindings) -> str:
        if fact is None:
            return f"no counterexample in {found.tried_with(name):,}"
        if fact[0] == AFTER:
            return f"it is called because of {fact[1]}, and must not come before it"
        other = fact[2] if fact[1] == name else fact[1]
        whom = "itself" if other == name else other
        why = f"does not commute with {whom}"
        is_only_blind = not self.options.trust_callers and (SENSIBLY, *fact[1:]) not in found.scripts
        if is_only_blind and needed == "total":
            why += ", if it may be called where it raises"
        return why
