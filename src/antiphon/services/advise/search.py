"""Looks for pairs of calls with which something is wrong, and makes what it finds small.

For each pair of operations it draws scripts (Hypothesis) and notes every kind of finding; then it looks for the
smallest script of each kind. The same seed finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from antiphon.services.advise.pairs import AFTER, ALONE, Bench, Branches, Finding, PairScript
from antiphon.services.advise.values import Calls
from antiphon.services.calls import BoundCall

MOST_BEFORE: Final = 6
"""Calls that lead to a state."""
MOST_EACH: Final = 3
"""Calls to either operation of a pair."""

Drawn = TypeVar("Drawn")
Fact = tuple[Finding, str, str]
"""A finding with the names of two operations. The second one is to blame for ``alone`` and ``after``; otherwise they
are in the order of the sources.
"""


class FactFound(Exception):  # noqa: N818 (not an error)
    """Ends the execution of one example."""


@dataclass(frozen=True)
class Trial:
    """Calls one after the other, and calls to try in pairs on every state on the way."""

    before: tuple[BoundCall, ...]
    ones: tuple[BoundCall, ...]
    others: tuple[BoundCall, ...]
    """Empty if both calls of a pair are to the same operation."""

    def pairs(self) -> Iterator[tuple[BoundCall, BoundCall]]:
        """The pairs to try."""
        return product(self.ones, self.others) if self.others else combinations_with_replacement(self.ones, 2)


@dataclass
class PairFindings:
    """The findings about pairs of calls, and the number of scripts that were tried."""

    scripts: dict[Fact, PairScript] = field(default_factory=dict)
    """The first script of each finding."""
    tried: dict[tuple[str, str], int] = field(default_factory=dict)
    """Scripts for each pair of operations."""

    def tried_with(self, name: str) -> int:
        """Scripts with an operation in the pair."""
        return sum(count for pair, count in self.tried.items() if name in pair)

    def of(self, *kinds: Finding) -> dict[Fact, PairScript]:
        """The findings of some kinds."""
        return {fact: script for fact, script in self.scripts.items() if fact[0] in kinds}


class PairSearch:
    """Tries pairs of operations of a service."""

    def __init__(self, bench: Bench, scales: Sequence[Calls], examples: int, start: int) -> None:
        self._bench = bench
        self._scales = scales
        self._examples = examples
        self._seed = start
        self._names = list(scales[0])
        self.found = PairFindings()

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of operations, also of an operation and itself."""
        return list(combinations_with_replacement(self._names, 2))

    def try_pair(self, pair: tuple[str, str]) -> None:
        """Draw calls to two operations; keep the first script of each kind of finding."""
        count = 0

        def note(trial: Trial) -> None:
            nonlocal count
            for fact, script in self.facts(trial):
                count += not fact
                if fact:
                    self.found.scripts.setdefault(fact, script)

        explore(self._trials(pair), note, self._examples, self._seed)
        self.found.tried[pair] = count

    def small(self, fact: Fact) -> PairScript:
        """The smallest script of a finding."""
        first = self.found.scripts[fact]
        # An operation that is to blame alone may have been seen beside another one.
        pair = sorted((first.one.call.name, first.other.call.name), key=self._names.index)
        drawn, has = self._trials((pair[0], pair[1])), self._has(fact)
        trial = smallest(
            drawn, lambda one: any(found == fact for found, _ in self.facts(one)), self._examples, self._seed
        )
        if trial is not None:
            first = min((script for found, script in self.facts(trial) if found == fact), key=PairScript.size)
        return shortened(first, has)

    def facts(self, trial: Trial) -> Iterator[tuple[Fact | None, PairScript]]:
        """All scripts of a trial, and the findings of each."""
        state = self._bench.empty()
        for length in range(len(trial.before) + 1):
            if state.broken is not None:
                return
            branches = Branches(self._bench, state)
            for one, other in trial.pairs():
                script = PairScript(trial.before[:length], one, other)
                yield None, script
                for each in (script, PairScript(script.before, other, one)):
                    for fact in self._facts_of(each, branches.findings(each.one, each.other)):
                        yield fact, each
            if length < len(trial.before):
                state = self._bench.after(state, trial.before[length])

    def _facts_of(self, script: PairScript, findings: Collection[Finding]) -> Iterator[Fact]:
        """Findings of a script with the operations that they are about."""
        one, other = script.one.call.name, script.other.call.name
        for finding in sorted(findings):
            if finding == ALONE:
                yield finding, other, other
            elif finding == AFTER or self._names.index(one) <= self._names.index(other):
                yield finding, one, other
            else:
                yield finding, other, one

    def _has(self, fact: Fact) -> Callable[[PairScript], bool]:
        return lambda script: fact in self._facts_of(script, self._bench.findings(script))

    def _trials(self, pair: tuple[str, str]) -> SearchStrategy[Trial]:
        return st.one_of([trials(calls, pair) for calls in self._scales])


def trials(calls: Calls, pair: tuple[str, str]) -> SearchStrategy[Trial]:
    """Trials of two operations."""
    one, other = (st.lists(calls[name], min_size=2, max_size=MOST_EACH).map(tuple) for name in pair)
    before = st.lists(st.one_of(list(calls.values())), max_size=MOST_BEFORE).map(tuple)
    return st.builds(Trial, before, one, other if pair[0] != pair[1] else st.just(()))


def shortened(script: PairScript, is_wanted: Callable[[PairScript], bool]) -> PairScript:
    """The script without the calls before it that make no difference."""
    place = len(script.before)
    while place > 0:
        place -= 1
        shorter = PairScript(script.before[:place] + script.before[place + 1 :], script.one, script.other)
        if is_wanted(shorter):
            script = shorter
    return script


def quiet(examples: int, *phases: Phase) -> settings:
    """Settings under which Hypothesis writes and prints nothing, and looks at no clock."""
    return settings(
        max_examples=examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def explore(strategy: SearchStrategy[Drawn], look: Callable[[Drawn], Any], examples: int, start: int) -> None:
    """Look at values of a strategy."""

    @seed(start)
    @quiet(examples, Phase.generate)
    @given(strategy)
    def run(drawn: Drawn) -> None:
        look(drawn)

    run()


def smallest(
    strategy: SearchStrategy[Drawn], is_wanted: Callable[[Drawn], bool], examples: int, start: int
) -> Drawn | None:
    """The smallest value of a strategy that is wanted, or None if none was found."""
    last: list[Drawn] = []

    @seed(start)
    @quiet(examples, Phase.generate, Phase.shrink)
    @given(strategy)
    def run(drawn: Drawn) -> None:
        if is_wanted(drawn):
            last[:] = [drawn]
            raise FactFound

    try:
        run()
    except FactFound:
        # The last example that Hypothesis shows is the smallest.
        return last[0]
    return None
