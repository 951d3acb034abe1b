"""Which operations need total order: decides from the pairs that do not commute.

Two operations conflict if two of their calls about a common key do not commute. It is enough that one of the two is
total. So the total operations must cover all conflicts: of each conflicting pair one, and each operation that conflicts
with itself. The answer keeps to the declaration: it adds as few total operations as it can, and leaves out as many
declared ones as it can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import Final

Conflict = tuple[str, str]

MOST_TRIED: Final = 200_000
"""Sets of operations that are tried before the answer is only nearly the smallest."""


def uncovered(conflicts: Iterable[Conflict], total: Collection[str]) -> list[Conflict]:
    """The conflicts in which neither operation is total."""
    return [pair for pair in conflicts if pair[0] not in total and pair[1] not in total]


def needed_totals(names: list[str], conflicts: Collection[Conflict], declared: Mapping[str, str]) -> set[str]:
    """The operations that have to be total."""
    declared_totals = {name for name in names if declared[name] == "total"}
    open_conflicts = uncovered(conflicts, declared_totals)
    added = smallest_cover([name for name in names if name not in declared_totals], open_conflicts, set())
    chosen = declared_totals | added
    # With what was added, perhaps fewer of the declared ones are needed.
    return added | smallest_cover(
        [name for name in names if name in declared_totals], conflicts, chosen - declared_totals
    )


def smallest_cover(candidates: list[str], conflicts: Collection[Conflict], given: set[str]) -> set[str]:
    """The fewest candidates that, with those that are given, cover conflicts; of equal ones those declared last."""
    left = uncovered(conflicts, given)
    forced = {one for one, other in left if one == other}
    left = uncovered(left, forced)
    others = [name for name in reversed(candidates) if name not in forced and any(name in pair for pair in left)]
    tried = 0
    for size in range(len(others) + 1):
        for some in combinations(others, size):
            tried += 1
            if tried > MOST_TRIED:
                return forced | greedy_cover(others, left)
            if not uncovered(left, some):
                return forced | set(some)
    return forced | set(others)


def greedy_cover(candidates: list[str], conflicts: list[Conflict]) -> set[str]:
    """A cover that is not always the smallest: again and again the operation with the most conflicts."""
    chosen: set[str] = set()
    left = conflicts
    while left:
        chosen.add(max(candidates, key=lambda name: sum(name in pair for pair in left)))
        left = uncovered(left, chosen)
    return chosen
