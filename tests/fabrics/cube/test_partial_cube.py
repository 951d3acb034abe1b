"""Cubes in which some identifiers are not members, against naive lists, and the two facts that make trees safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.cube import Cube, FullCube, PartialCube, cluster, cluster_members, full_or_partial
from antiphon.kernel import NO_NODE, UsageError
from tests.fabrics.cube.trees import partial, walked
from tests.support import lists_up_to

DIMENSION = 5
SIZE = 2**DIMENSION


def members_of(flags: list[bool]) -> set[int]:
    return {i for i, is_member in enumerate(flags) if is_member}


# One flag per identifier: sets of integers would be drawn nearly empty most of the time.
MEMBERS = st.lists(st.booleans(), min_size=SIZE, max_size=SIZE).map(members_of)


@pytest.mark.parametrize("dimension", range(6))
def test_a_partial_cube_with_all_members_is_the_full_cube(dimension: int) -> None:
    full, all_members = FullCube(dimension), partial(dimension, range(2**dimension))
    for i in range(2**dimension):
        assert full.children(i, dimension) == all_members.children(i, dimension)
        for root in range(2**dimension):
            assert full.children_in_tree(i, root) == all_members.children_in_tree(i, root)
            assert full.parent_in_tree(i, root) == all_members.parent_in_tree(i, root)


@given(MEMBERS)
def test_the_first_of_a_cluster_is_the_first_member_in_its_list(members: set[int]) -> None:
    cube = partial(DIMENSION, members)
    for i in range(SIZE):
        for s in range(1, DIMENSION + 1):
            naive = next((node for node in cluster_members(i, s) if node in members), NO_NODE)
            assert cube.first(i, s) == naive


@given(lists_up_to(60, st.tuples(st.booleans(), st.integers(0, 15))))
def test_adding_and_removing_do_what_they_do_to_a_set(changes: list[tuple[bool, int]]) -> None:
    """Both are idempotent, and say whether they changed anything."""
    cube = PartialCube(4)
    members: set[int] = set()
    for adds, i in changes:
        if adds:
            assert cube.add(i) == (i not in members)
            members.add(i)
        else:
            assert cube.remove(i) == (i in members)
            members.discard(i)
        assert cube.count() == len(members)
        assert {i for i in range(-1, 18) if cube.contains(i)} == members
        assert cube.members() == sorted(members)
    assert [cube.first(i, s) for i in range(16) for s in range(1, 5)] == [
        PartialCube(4, members).first(i, s) for i in range(16) for s in range(1, 5)
    ]


def test_a_copy_goes_its_own_way() -> None:
    original = PartialCube(3, [1, 2, 5])
    twin = original.copy()
    twin.add(7)
    original.remove(2)
    assert (original.members(), twin.members()) == ([1, 5], [1, 2, 5, 7])
    assert (original.count(), twin.count()) == (2, 4)
    assert (original.first(0, 2), twin.first(0, 2)) == (NO_NODE, 2)


@pytest.mark.parametrize("identifier", [-1, 8, 1 << 40])
def test_an_identifier_that_does_not_fit_is_refused(identifier: int) -> None:
    cube = PartialCube(3)
    with pytest.raises(
        UsageError, match=f"identifier {identifier} does not fit a cube of dimension 3; choose one below 8"
    ):
        cube.add(identifier)
    assert cube.remove(identifier) is False
    assert cube.count() == 0


@given(MEMBERS, st.integers(0, SIZE - 1))
def test_a_message_reaches_every_member_exactly_once(members: set[int], root: int) -> None:
    """And nobody else, whoever sends it."""
    _, received = walked(partial(DIMENSION, members), root)
    assert sorted(received) == sorted(members - {root})


@pytest.mark.parametrize("nodes", range(1, 40))
def test_the_number_of_nodes_need_not_be_a_power_of_two(nodes: int) -> None:
    cube = full_or_partial(nodes)
    for root in range(nodes):
        assert sorted(walked(cube, root)[1]) == [node for node in range(nodes) if node != root]


@given(MEMBERS, st.integers(0, SIZE - 1))
def test_a_tree_is_no_higher_and_no_wider_than_the_dimension(members: set[int], root: int) -> None:
    """Section 2.4.1: at most log2 N levels and log2 N children per node."""
    tree, _ = walked(partial(DIMENSION, members), root)
    depth = {root: 0}
    for parent, children in tree.items():
        depth.update(dict.fromkeys(children, depth[parent] + 1))
    assert max(depth.values()) <= DIMENSION
    assert max(map(len, tree.values()), default=0) <= DIMENSION


@given(MEMBERS, st.integers(0, SIZE - 1))
def test_parents_and_children_of_any_tree_agree(members: set[int], root: int) -> None:
    cube = partial(DIMENSION, members)
    tree, received = walked(cube, root)
    parent_of = {child: parent for parent, children in tree.items() for child in children}
    for i in range(SIZE):
        assert cube.parent_in_tree(i, root) == parent_of.get(i, NO_NODE)
        in_tree = i == root or i in received
        assert cube.children_in_tree(i, root) == (tree.get(i, []) if in_tree else [])


@given(st.lists(MEMBERS, min_size=SIZE, max_size=SIZE), st.integers(0, SIZE - 1))
def test_nobody_receives_twice_even_when_the_views_disagree(views: list[set[int]], root: int) -> None:
    """Fact (a): whoever hands on only addresses the subcube it was given, and those subcubes are disjoint."""
    cubes: list[Cube] = [partial(DIMENSION, view) for view in views]
    received: list[int] = []
    todo = [(root, DIMENSION)]
    while todo:
        node, height = todo.pop()
        children = cubes[node].children(node, height)
        received += children
        todo += [(child, int(cluster(child, node)) - 1) for child in children]
    assert len(received) == len(set(received))
    assert root not in received


@given(MEMBERS)
def test_whom_a_node_serves_depends_on_the_cluster_of_its_parent_alone(members: set[int]) -> None:
    """Fact (b): the same children for all messages that came from the same cluster, whatever their roots."""
    cube = partial(DIMENSION, members)
    served: dict[tuple[int, int], list[int]] = {}
    for root in range(SIZE):
        for i in members - {root}:
            s = int(cluster(i, cube.parent_in_tree(i, root)))
            children = cube.children_in_tree(i, root)
            assert served.setdefault((i, s), children) == children
