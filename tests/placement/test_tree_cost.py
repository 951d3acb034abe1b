"""The price of identifiers, against trees that are walked by the definition and against simulated nodes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.fabrics.cube import PartialCube, cluster_members
from antiphon.kernel.randomness import RandomStream
from antiphon.placement.tree_cost import TreeCost
from tests.placement.delivered import delivered_after


def drawn_rows(places: int, seed: int) -> list[list[int]]:
    random = RandomStream(seed, 1)
    return [[0 if a == b else 1 + int(random.below(1000)) for b in range(places)] for a in range(places)]


def latencies_by_definition(members: list[int], dimension: int, delays: dict[tuple[int, int], int]) -> dict[str, int]:
    """Walk each tree as section 2.4 describes it: a node gives each of its clusters to the first member in it."""
    found: dict[str, int] = {}

    def serve(root: int, node: int, height: int, latency: int) -> None:
        if node != root:
            found[f"{root}>{node}"] = latency
        for s in range(1, height + 1):
            child = next((each for each in cluster_members(node, s) if each in members), None)
            if child is not None:
                serve(root, child, s - 1, latency + delays[node, child])

    for root in members:
        serve(root, root, dimension, 0)
    return found


@given(st.sets(st.integers(0, 31), min_size=2, max_size=12), st.integers(0, 1000))
def test_mean_and_largest_are_those_of_walked_trees(identifiers: set[int], seed: int) -> None:
    members = sorted(identifiers)
    count = len(members)
    rows = drawn_rows(count, seed)
    places = list(range(count))
    places = places[seed % count :] + places[: seed % count]
    delays = {
        (one, other): rows[places[a]][places[b]] for a, one in enumerate(members) for b, other in enumerate(members)
    }
    expected = latencies_by_definition(members, 5, delays)
    assert len(expected) == count * (count - 1)
    cost, place_at = TreeCost(PartialCube(5, members), rows), vec[i64](places)
    assert cost.total(place_at) == sum(expected.values())
    assert sorted(cost.latencies(place_at)) == sorted(expected.values())
    largest, publisher, receiver = cost.largest(place_at)
    assert largest == max(expected.values()) == expected[f"{members[publisher]}>{members[receiver]}"]
    way = cost.way(place_at, publisher, receiver)
    assert sum(rows[one][other] for one, other in pairwise(way)) == largest


@given(st.integers(2, 20), st.integers(0, 1000))
def test_the_change_by_an_exchange_is_the_difference_of_the_sums(count: int, seed: int) -> None:
    cost = TreeCost(PartialCube(5, range(count)), drawn_rows(count, seed))
    place_at = vec[i64](list(range(count)))
    random = RandomStream(seed, 2)
    for _ in range(10):
        before = cost.total(place_at)
        one, other = random.below(count), random.below(count)
        change = cost.change_by_exchange(place_at, one, other)
        assert cost.total(place_at) == before + change
    assert sorted(map(int, place_at)) == list(range(count))


@pytest.mark.parametrize("identifiers", [list(range(8)), list(range(6)), [0, 1, 2, 9, 11, 30]])
def test_simulated_nodes_take_as_long(identifiers: list[int]) -> None:
    rows = drawn_rows(len(identifiers), 7)
    cost = TreeCost(PartialCube(5, identifiers), rows)
    place_at = vec[i64](list(range(len(identifiers))))
    measured = delivered_after(dict(zip(identifiers, range(len(identifiers)), strict=True)), rows)
    assert sorted(measured) == sorted(cost.latencies(place_at))
