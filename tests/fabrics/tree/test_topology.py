"""The tree of an epoch: local views, and who follows the root (dissertation, sections 4.2.2 and 4.2.3)."""

from __future__ import annotations

import pytest

from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.errors import UsageError

PUBLISHED = Overlay(1, 0, {0: -1, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2, 7: 3})
"""The eight brokers of the published experiments (Figure 5.2)."""


def test_a_path_leads_to_the_root() -> None:
    assert PUBLISHED.path_of(7) == [7, 3, 0]
    assert PUBLISHED.path_of(0) == [0]


def test_below_are_all_descendants_with_their_parents() -> None:
    assert PUBLISHED.below(0) == {broker: parent for broker, parent in PUBLISHED.parents.items() if broker != 0}
    assert PUBLISHED.below(1) == {4: 1, 5: 1}


def test_the_local_view_of_broker_4_holds_its_grandparent_its_sibling_and_its_uncles() -> None:
    """Annex III: 0 and 5 at two hops, 2 and 3 at three; the cousin 6 at four is not in it."""
    assert PUBLISHED.neighbourhood(4, 3, ancestors_first=False) == [0, 5, 2, 3]


def test_ancestors_first_puts_siblings_last() -> None:
    """Section 4.2.3 prefers those nearer to the root, which keeps the tree flat."""
    assert PUBLISHED.neighbourhood(4, 3, ancestors_first=True) == [0, 2, 3, 5]


def test_hops_bound_the_local_view() -> None:
    assert PUBLISHED.neighbourhood(4, 2, ancestors_first=False) == [0, 5]


def test_a_cousin_is_never_in_the_local_view() -> None:
    """Hop count and first direction cannot tell a cousin from a great-uncle; the tree can."""
    assert 6 not in PUBLISHED.neighbourhood(4, 9, ancestors_first=False)


def test_after_the_root_comes_the_child_with_most_room_and_the_lowest_number() -> None:
    """Annex VI: broker 1 has room for one, brokers 2 and 3 for two; 2 wins."""
    assert PUBLISHED.successors(3)[:4] == [0, 2, 3, 1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"total_degree": 1}, "a parent and a child"),
        ({"max_hops": 1}, "knows no other broker"),
        ({"order": "sorted"}, "not 'sorted'"),
        ({"patience_ticks": 0}, "at least one tick"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        TreeOptions(**options)  # type: ignore[arg-type]
