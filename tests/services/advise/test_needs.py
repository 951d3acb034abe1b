"""Which operations have to be total, against the smallest answer by brute force."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.services.advise.needs import greedy_cover, needed_totals, uncovered

NAMES = ["a", "b", "c", "d", "e"]
CONFLICTS = st.sets(st.sampled_from([(one, other) for one in NAMES for other in NAMES if one <= other]))
DECLARED = st.fixed_dictionaries({name: st.sampled_from(["causal", "total"]) for name in NAMES})


@given(conflicts=CONFLICTS, declared=DECLARED)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_answer_covers_all_and_adds_as_little_as_can_be(
    conflicts: set[tuple[str, str]], declared: dict[str, str]
) -> None:
    needed = needed_totals(NAMES, conflicts, declared)
    assert uncovered(conflicts, needed) == []
    totals = {name for name in NAMES if declared[name] == "total"}
    others = [name for name in NAMES if name not in totals]
    fewest = next(
        size
        for size in range(len(others) + 1)
        for some in combinations(others, size)
        if not uncovered(conflicts, totals | set(some))
    )
    assert len(needed - totals) == fewest
    # Nothing of it can go.
    assert all(uncovered(conflicts, needed - {name}) for name in needed)


@given(conflicts=CONFLICTS)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_the_quick_answer_covers_all_too(conflicts: set[tuple[str, str]]) -> None:
    assert uncovered(conflicts, greedy_cover(NAMES, sorted(conflicts))) == []


def test_of_two_the_one_that_is_declared_last_becomes_total() -> None:
    assert needed_totals(
        ["deposit", "interest"], [("deposit", "interest")], {"deposit": "causal", "interest": "fifo"}
    ) == {"interest"}
