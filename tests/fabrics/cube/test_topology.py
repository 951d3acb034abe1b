"""The virtual hypercube, read along sections 2.4 and 2.4.1 of the thesis, and the closed forms of the full cube."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.fabrics.cube import (
    Cube,
    FullCube,
    PartialCube,
    cluster,
    cluster_members,
    dimension_for,
    full_or_partial,
)
from antiphon.fabrics.cube.topology import MAXIMUM_DIMENSION
from antiphon.kernel import NO_NODE, UsageError
from tests.fabrics.cube.trees import partial, walked

# Figure 2.6: row s holds cluster s of the nodes 0 to 7.
FIGURE_2_6 = [
    ["1", "0", "3", "2", "5", "4", "7", "6"],
    ["2 3", "3 2", "0 1", "1 0", "6 7", "7 6", "4 5", "5 4"],
    ["4 5 6 7", "5 4 7 6", "6 7 4 5", "7 6 5 4", "0 1 2 3", "1 0 3 2", "2 3 0 1", "3 2 1 0"],
]
DIMENSIONS = st.integers(1, 6)


def recursive_cluster(i: int, s: int) -> list[int]:
    """The definition as printed in section 2.4: the head, then the head's own clusters 1 .. s - 1."""
    head = i ^ 2 ** (s - 1)
    return [head] + [node for k in range(1, s) for node in recursive_cluster(head, k)]


def test_the_table_of_figure_2_6() -> None:
    table = [[" ".join(map(str, cluster_members(i, s))) for i in range(8)] for s in (1, 2, 3)]
    assert table == FIGURE_2_6


@given(st.integers(0, 2**MAXIMUM_DIMENSION - 1), st.integers(1, 9))
def test_the_closed_form_of_a_cluster_is_its_recursive_definition(i: int, s: int) -> None:
    assert cluster_members(i, s) == recursive_cluster(i, s)


def test_the_values_of_cluster_in_section_2_4_1() -> None:
    assert [cluster(0, j) for j in range(1, 8)] == [1, 2, 2, 3, 3, 3, 3]


@given(st.integers(0, 2**20), st.integers(1, 8), st.integers(0, 127))
def test_cluster_finds_the_cluster_that_holds_a_node(i: int, s: int, k: int) -> None:
    members = cluster_members(i, s)
    assert cluster(i, members[k % len(members)]) == s


@given(st.integers(0, 2**22), st.integers(0, 2**22))
def test_cluster_is_symmetric_and_zero_only_for_oneself(i: int, j: int) -> None:
    assert cluster(i, j) == cluster(j, i) == (i ^ j).bit_length()


def test_the_values_of_first_child_in_section_2_4_1() -> None:
    cube = FullCube(3)
    assert [cube.first(0, 1), cube.first(1, 2)] == [1, 3]
    assert [cube.first(1, 3), cube.first(7, 2), cube.first(4, 1)] == [5, 5, 5]


def test_the_values_of_first_child_when_node_5_is_out() -> None:
    cube = partial(3, {0, 1, 2, 3, 4, 6, 7})
    assert [cube.first(1, 3), cube.first(7, 2), cube.first(4, 1)] == [4, 4, NO_NODE]


def test_the_values_of_children_with_all_nodes() -> None:
    """Section 5.5: children in all clusters, in the first two, and those of node 4 with two clusters."""
    cube = FullCube(3)
    assert [cube.children(0, 3), cube.children(0, 2), cube.children(4, 2)] == [[1, 2, 4], [1, 2], [5, 6]]
    assert cube.children(4, 0) == []


def test_the_values_of_children_with_three_subscribers() -> None:
    cube = partial(3, {0, 3, 4})
    assert [cube.children(0, 3), cube.children(4, 2)] == [[3, 4], []]


def test_the_tree_of_node_0_in_figure_2_8a() -> None:
    assert walked(FullCube(3), 0)[0] == {0: [1, 2, 4], 2: [3], 4: [5, 6], 6: [7]}


def test_the_tree_with_nodes_2_4_and_6_out_in_figure_2_8b() -> None:
    assert walked(partial(3, {0, 1, 3, 5, 7}), 0)[0] == {0: [1, 3, 5], 5: [7]}


def test_the_tree_of_node_2_in_figure_2_8c() -> None:
    assert walked(FullCube(3), 2)[0] == {2: [3, 0, 6], 0: [1], 6: [7, 4], 4: [5]}


def test_the_tree_of_node_2_among_five_subscribers_in_figure_5_4() -> None:
    assert walked(partial(3, {0, 2, 3, 5, 7}), 2)[0] == {2: [3, 0, 7], 7: [5]}


def test_algorithm_1_finds_the_children_of_node_4_in_the_tree_of_node_2_as_in_figure_2_7() -> None:
    assert FullCube(3).children_in_tree(4, 2) == [5]


@pytest.mark.parametrize("cube", [FullCube(3), partial(3, {0, 1, 3, 5, 7}), partial(3, {0, 2, 3, 5, 7})])
def test_algorithm_1_agrees_with_the_tree_that_a_message_draws(cube: Cube) -> None:
    for root in range(8):
        if cube.contains(root):
            tree, received = walked(cube, root)
            assert {i: cube.children_in_tree(i, root) for i in [root, *received]} == {
                i: tree.get(i, []) for i in [root, *received]
            }


# The full cube, where everything is a bit formula. In all of these x is i ^ root.


def trailing_zeros(x: int, dimension: int) -> int:
    return dimension if x == 0 else (x & -x).bit_length() - 1


@given(DIMENSIONS, st.data())
def test_depth_is_the_number_of_differing_bits(dimension: int, data: st.DataObject) -> None:
    cube = FullCube(dimension)
    root = data.draw(st.integers(0, 2**dimension - 1))
    for i in range(2**dimension):
        depth, at = 0, i
        while at != root:
            at = int(cube.parent_in_tree(at, root))
            depth += 1
        assert depth == (i ^ root).bit_count()


@given(DIMENSIONS, st.data())
def test_the_parent_differs_in_the_lowest_set_bit(dimension: int, data: st.DataObject) -> None:
    cube = FullCube(dimension)
    root = data.draw(st.integers(0, 2**dimension - 1))
    for i in range(2**dimension):
        x = i ^ root
        assert cube.parent_in_tree(i, root) == (NO_NODE if x == 0 else i ^ (x & -x))


@given(DIMENSIONS, st.data())
def test_the_children_differ_in_the_bits_below_the_lowest_set_bit(dimension: int, data: st.DataObject) -> None:
    cube = FullCube(dimension)
    root = data.draw(st.integers(0, 2**dimension - 1))
    for i in range(2**dimension):
        expected = [i ^ 2**bit for bit in range(trailing_zeros(i ^ root, dimension))]
        assert cube.children_in_tree(i, root) == expected


@pytest.mark.parametrize("dimension", [1, 3, 5])
def test_a_neighbour_is_a_child_where_root_and_node_agree_in_the_low_bits(dimension: int) -> None:
    """i ^ 2**b is a child of i in the tree of r exactly if r = i modulo 2**(b + 1)."""
    cube = FullCube(dimension)
    size = 2**dimension
    for root in range(size):
        for i in range(size):
            children = set(cube.children_in_tree(i, root))
            expected = {i ^ 2**bit for bit in range(dimension) if root % 2 ** (bit + 1) == i % 2 ** (bit + 1)}
            assert children == expected


@pytest.mark.parametrize("dimension", [1, 3, 5])
def test_an_edge_carries_the_traffic_of_its_share_of_sources(dimension: int) -> None:
    """The edge from i to i ^ 2**b is in the trees of exactly N / 2**(b + 1) sources."""
    cube = FullCube(dimension)
    size = 2**dimension
    trees = [walked(cube, root)[0] for root in range(size)]
    for i in range(size):
        for bit in range(dimension):
            assert sum(i ^ 2**bit in tree.get(i, []) for tree in trees) == size // 2 ** (bit + 1)


@pytest.mark.parametrize("dimension", [1, 3, 6])
def test_every_node_transmits_one_copy_less_than_there_are_nodes_over_all_trees(dimension: int) -> None:
    """N - 1; the SBAC-PAD paper says 1024 for 1024 nodes, but it is 1023."""
    cube = FullCube(dimension)
    size = 2**dimension
    transmitted = [sum(len(cube.children_in_tree(i, root)) for root in range(size)) for i in range(size)]
    assert transmitted == [size - 1] * size


@pytest.mark.parametrize("dimension", range(1, 9))
def test_the_mean_depth_of_the_others(dimension: int) -> None:
    """d / 2 * N / (N - 1)."""
    size = 2**dimension
    tree, _ = walked(FullCube(dimension), 5 % size)
    depth = {5 % size: 0}
    for parent, children in tree.items():
        depth.update(dict.fromkeys(children, depth[parent] + 1))
    assert len(depth) == size
    assert 2 * sum(depth.values()) == dimension * size
    assert max(depth.values()) == dimension


def test_a_full_cube_contains_its_identifiers_and_no_others() -> None:
    cube = FullCube(3)
    assert [i for i in range(-2, 12) if cube.contains(i)] == list(range(8))


# Sizes.


@pytest.mark.parametrize(
    ("nodes", "dimension"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11), (1 << 22, 22)]
)
def test_the_smallest_cube_with_room(nodes: int, dimension: int) -> None:
    assert dimension_for(nodes) == dimension


@pytest.mark.parametrize("nodes", [0, -1, (1 << MAXIMUM_DIMENSION) + 1])
def test_a_cube_for_too_few_or_too_many_is_refused(nodes: int) -> None:
    with pytest.raises(UsageError, match=f"a cube holds from 1 to 4194304 nodes, not {nodes}; choose"):
        dimension_for(nodes)


@pytest.mark.parametrize("nodes", range(1, 18))
def test_a_cube_is_full_where_the_number_of_nodes_is_a_power_of_two(nodes: int) -> None:
    cube = full_or_partial(nodes)
    assert isinstance(cube, FullCube) == (nodes.bit_count() == 1)
    assert isinstance(cube, PartialCube) == (nodes.bit_count() != 1)
    assert [i for i in range(2**cube.dimension + 3) if cube.contains(i)] == list(range(nodes))


def test_a_cube_must_say_who_is_a_member() -> None:
    with pytest.raises(NotImplementedError):
        Cube(3).first(0, 1)
    with pytest.raises(NotImplementedError):
        Cube(3).contains(0)


@given(DIMENSIONS, st.data())
def test_the_height_in_a_tree_says_which_children_a_node_has_there(dimension: int, data: st.DataObject) -> None:
    members = data.draw(st.sets(st.integers(0, 2**dimension - 1), min_size=1))
    for cube in (FullCube(dimension), partial(dimension, members)):
        for root in cube.members():
            for node in cube.members():
                children = cube.children(node, cube.height_in_tree(node, root))
                assert children == cube.children_in_tree(node, root)
