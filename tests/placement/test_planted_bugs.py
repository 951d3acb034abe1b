"""Tests of places find bugs that are planted in the modules that they test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import antiphon
from antiphon.placement.cells import Area
from tests.membership import test_address_book
from tests.placement import (
    test_cells,
    test_delay_matrix,
    test_measured,
    test_newcomers,
    test_tree_cost,
    test_vivaldi,
)

SOURCES = Path(__file__).parents[2] / "src" / "antiphon"


class Bug(NamedTuple):
    """A change of one place of a module, and a test that must fail then."""

    name: str
    module: str
    old: str
    new: str
    tests: ModuleType
    test: Callable[[], object]


BUGS = (
    Bug(
        "a link counts once for all pairs behind it",
        "placement/tree_cost",
        "            below[parent] += below[at]\n",
        "",
        test_tree_cost,
        lambda: example(test_tree_cost.test_mean_and_largest_are_those_of_walked_trees, {0, 1, 2, 5, 6, 19}, 3),
    ),
    Bug(
        "a link between two members that exchange their places counts twice",
        "placement/tree_cost",
        "self._around(place_at, one, -1) + self._around(place_at, other, one) - before",
        "self._around(place_at, one, -1) + self._around(place_at, other, -1) - before",
        test_tree_cost,
        lambda: example(test_tree_cost.test_the_change_by_an_exchange_is_the_difference_of_the_sums, 6, 3),
    ),
    Bug(
        "children are given the clusters of their parent",
        "placement/tree_cost",
        "heights.append(s - 1)",
        "heights.append(max(0, s - 2))",
        test_tree_cost,
        lambda: example(test_tree_cost.test_mean_and_largest_are_those_of_walked_trees, {0, 1, 2, 5, 6, 19}, 3),
    ),
    Bug(
        "a newcomer gets an identifier that is taken",
        "placement/newcomers",
        " and candidate not in taken",
        "",
        test_newcomers,
        lambda: example(
            test_newcomers.test_an_identifier_is_free_and_no_other_free_one_has_nearer_neighbours, {0: 5}, {1, 8}
        ),
    ),
    Bug(
        "a newcomer goes to the farthest nodes",
        "placement/newcomers",
        "or mean_us < least",
        "or mean_us > least",
        test_newcomers,
        test_newcomers.test_a_newcomer_becomes_a_neighbour_of_the_nearest_node,
    ),
    Bug(
        "a missing delay is estimated although nobody asked",
        "placement/delay_matrix",
        "    if missing and not estimate:\n",
        "    if False:\n",
        test_delay_matrix,
        test_delay_matrix.test_many_missing_delays_are_counted,
    ),
    Bug(
        "a round trip counts as a delay",
        "placement/delay_matrix",
        "ROUND_TRIP: 500.0",
        "ROUND_TRIP: 1000.0",
        test_delay_matrix,
        test_delay_matrix.test_pairs_are_read_in_any_order_and_halved,
    ),
    Bug(
        "a node that is sure moves as far as one that is not",
        "placement/vivaldi",
        "    weight = mine.error / max(mine.error + other.error, LEAST_ERROR)\n",
        "    weight = 0.5\n",
        test_vivaldi,
        test_vivaldi.test_a_node_that_is_sure_moves_little_for_one_that_is_not,
    ),
    Bug(
        "springs pull the wrong way",
        "placement/vivaldi",
        "(measured - expected)",
        "(expected - measured)",
        test_vivaldi,
        test_vivaldi.test_points_of_a_plane_are_found_again,
    ),
    Bug(
        "the last measurement of a pair counts and not the least",
        "placement/measured",
        "least[pair] = min(measured, least.get(pair, measured))",
        "least[pair] = max(measured, least.get(pair, measured))",
        test_measured,
        test_measured.test_a_round_trip_counts_for_both_directions_and_the_least_counts,
    ),
    Bug(
        "east and north are confused",
        "placement/cells",
        "NORTH, EAST = 2, 1",
        "NORTH, EAST = 1, 2",
        test_cells,
        test_cells.test_the_first_quarters_are_those_of_the_compass,
    ),
    Bug(
        "a cell at the border of an area is left out",
        "placement/cells",
        "self.south <= part.north and self.west <= part.east",
        "self.north <= part.north and self.west <= part.east",
        test_cells,
        lambda: example(
            test_cells.test_an_area_has_patterns_for_each_of_its_points, Area(-10, -10, 10, 10), 0.9, 0.9, 5, 20
        ),
    ),
    Bug(
        "an identifier that a newcomer wished for is given again",
        "membership/address_book",
        "            self._given_ahead.add(identifier)\n            self._end -= part\n",
        "            self._end -= part\n",
        test_address_book,
        test_address_book.test_wishes_or_not_no_two_nodes_get_the_same,
    ),
    Bug(
        "a wish may be in the part that the newcomer is to give",
        "membership/address_book",
        "min(WISHES_BELOW, self._end - part)",
        "min(WISHES_BELOW, self._end + part)",
        test_address_book,
        test_address_book.test_a_wish_is_never_in_a_part_that_somebody_else_gives,
    ),
)


def example(test: Any, *arguments: object) -> None:
    """One example of a test of properties, without the search for a smaller one."""
    test.hypothesis.inner_test(*arguments)


def planted(bug: Bug) -> ModuleType:
    """The module with the bug."""
    source = (SOURCES / f"{bug.module}.py").read_text(encoding="utf-8")
    assert source.count(bug.old) == 1, f"{bug.name!r} cannot be planted in {bug.module} any more"
    module = ModuleType(f"planted_{Path(bug.module).name}")
    exec(compile(source.replace(bug.old, bug.new), f"{bug.module}.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in vars(planted(bug)).items():
        if name in vars(bug.tests) and getattr(value, "__module__", "").startswith("planted"):
            monkeypatch.setattr(bug.tests, name, value)
    with pytest.raises((AssertionError, antiphon.AntiphonError, pytest.fail.Exception)):
        bug.test()
