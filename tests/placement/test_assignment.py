"""Identifiers by place: assignments are assignments, repeatable, and worth having."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel import UsageError
from antiphon.placement.assignment import STEPS, Annealing, LongestWay, at_random, cost_of, greedily
from antiphon.placement.cities import between_cities
from antiphon.placement.tree_cost import TreeCost

EFFORT = 0.02


def annealed(cost: TreeCost, seed: int) -> list[int]:
    search = Annealing(cost, greedily(cost, seed), seed, EFFORT)
    for _ in range(STEPS):
        search.step()
    assert search.mean_us() == cost.mean_us(vec[i64](search.best))
    return search.best


def mean_of(cost: TreeCost, assignment: list[int]) -> float:
    return cost.mean_us(vec[i64](assignment))


@pytest.mark.parametrize("places", [2, 3, 21, 32])
def test_every_way_gives_each_identifier_one_place_and_the_same_for_the_same_seed(places: int) -> None:
    cost = cost_of(between_cities(places).rows)
    ways: list[Callable[[int], list[int]]] = [
        lambda seed: at_random(places, seed),
        lambda seed: greedily(cost, seed),
        lambda seed: annealed(cost, seed),
    ]
    for way in ways:
        assert sorted(way(3)) == list(range(places))
        assert way(3) == way(3)


def test_annealing_finds_the_best_of_few() -> None:
    """Two near pairs: whatever is far apart must differ in the higher bit."""
    near, far = 1, 100
    rows = [[0, far, near, far], [far, 0, far, near], [near, far, 0, far], [far, near, far, 0]]
    cost = cost_of(rows)
    best = annealed(cost, 1)
    assert {frozenset(best[:2]), frozenset(best[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


def test_cities_by_place_are_thirty_percent_nearer_than_at_random() -> None:
    cost = cost_of(between_cities(48).rows)
    usual = sum(mean_of(cost, at_random(48, seed)) for seed in range(10)) / 10
    greedy = mean_of(cost, greedily(cost, 1))
    assert greedy < 0.85 * usual
    assert mean_of(cost, annealed(cost, 1)) < min(0.7 * usual, greedy)


def test_the_longest_way_gets_shorter() -> None:
    cost = cost_of(between_cities(24).rows)
    start = annealed(cost, 2)
    before, _, _ = cost.largest(vec[i64](start))
    search = LongestWay(cost, start, 2, 0.1)
    for _ in range(STEPS):
        search.step()
    assert sorted(search.best) == list(range(24))
    assert cost.largest(vec[i64](search.best))[0] == search.largest_us < before


def test_too_many_places_are_refused() -> None:
    with pytest.raises(UsageError, match="from 2 to 1024 places"):
        cost_of([[0]])
