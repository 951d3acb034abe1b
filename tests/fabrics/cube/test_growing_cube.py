"""Cubes and views that grow while they are used, and homes of topics whose numbers are hashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.cube import FullCube, PartialCube, cluster
from antiphon.fabrics.cube.directory import Directory
from antiphon.fabrics.cube.topology import MAXIMUM_DIMENSION
from antiphon.fabrics.cube.view import View
from antiphon.kernel import NO_NODE, UsageError
from tests.support import lists_up_to

IDENTIFIERS = lists_up_to(20, st.integers(0, 300))


@given(IDENTIFIERS)
def test_a_cube_that_grew_is_the_cube_that_was_large_from_the_start(identifiers: list[int]) -> None:
    grown = PartialCube(0)
    known: set[int] = set()
    for identifier in identifiers:
        assert grown.include(identifier) == (identifier not in known)
        known.add(identifier)
    large = PartialCube(grown.dimension, identifiers)
    assert grown.members() == large.members() == sorted(set(identifiers))
    assert grown.count() == large.count()
    for i in grown.members():
        assert grown.children(i, grown.dimension) == large.children(i, grown.dimension)


@pytest.mark.parametrize("dimension", range(4))
def test_a_cluster_that_only_a_larger_cube_knows_is_empty(dimension: int) -> None:
    cube = PartialCube(dimension, range(1 << dimension))
    for i in range(1 << dimension):
        assert cube.first(i, dimension + 1) == NO_NODE
        assert cube.children(i, dimension + 3) == cube.children(i, dimension)


@given(IDENTIFIERS, st.data())
def test_nodes_that_know_different_parts_reach_nobody_twice_and_miss_nobody_all_know(
    identifiers: list[int], data: Any
) -> None:
    """Each has learned of some newcomers and not of others, so their dimensions differ; all know the old nodes."""
    old = {0, 1, 2}
    everybody = old | set(identifiers)
    cubes = {node: PartialCube(0) for node in sorted(everybody)}
    for node, cube in cubes.items():
        for other in old | {node} | {i for i in identifiers if data.draw(st.booleans())}:
            cube.include(other)
    root = data.draw(st.sampled_from(sorted(everybody)))
    reached: list[int] = []
    waiting = [(root, int(cubes[root].dimension))]
    while waiting:
        node, height = waiting.pop()
        reached.append(node)
        waiting += [(child, int(cluster(node, child)) - 1) for child in cubes[node].children(node, height)]
    assert len(reached) == len(set(reached))
    assert old <= set(reached)


def test_a_cube_does_not_grow_beyond_what_a_key_has_room_for() -> None:
    with pytest.raises(UsageError, match="a cube holds from 1 to"):
        PartialCube(0).include(1 << MAXIMUM_DIMENSION)


def test_a_full_cube_changes_as_a_partial_one() -> None:
    cube = FullCube(2).to_change()
    cube.remove(1)
    cube.include(6)
    assert cube.members() == [0, 2, 3, 6]
    assert FullCube(2).members() == [0, 1, 2, 3]


def test_a_view_grows_with_its_members_and_its_twin_does_not() -> None:
    view = View(1, [0, 1])
    twin = view.copy()
    view.add(9, 1, True)
    view.add(40, 2, False)
    view.add(40, 2, True)
    assert view.active_members() == [0, 1, 9, 40]
    assert view.first(0, 4) == 9
    assert twin.active_members() == [0, 1]
    assert twin.first(0, 4) == NO_NODE


def test_a_view_forgets_who_has_left_whatever_was_heard_of_it() -> None:
    view = View(2, [0, 1])
    view.add(2, 7, False)
    view.forget(1)
    view.forget(2)
    view.forget(3)
    assert view.active_members() == [0]
    assert not view.has_passive()


@given(st.integers(0, (1 << 62) - 1))
def test_the_home_of_a_topic_is_a_node_whatever_the_topic(topic: int) -> None:
    cube = PartialCube(4, [0, 3, 9, 14])
    assert Directory(cube).home_of(topic) in (0, 3, 9, 14)


def test_topics_are_spread_over_the_nodes() -> None:
    directory = Directory(FullCube(3))
    assert {directory.home_of(topic) for topic in range(64)} == set(range(8))
    assert {directory.home_of((1 << 61) + topic * 1_000_003) for topic in range(200)} == set(range(8))
