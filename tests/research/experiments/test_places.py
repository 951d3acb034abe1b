"""Experiments on places: drawn matrices, and what runs over them must show at any size."""

from __future__ import annotations

import pytest

from antiphon.placement.cells import Area, Point
from antiphon_lab.experiments.ginger.parents import ParentsCase
from antiphon_lab.experiments.places import aggregation, brokers, cells, gossip, trees
from antiphon_lab.experiments.places.model import drawn_delays_us, simulated


def test_a_drawn_matrix_is_symmetric_and_another_for_each_seed() -> None:
    rows = drawn_delays_us(20, 3)
    assert all(rows[a][b] == rows[b][a] for a in range(20) for b in range(20))
    assert all((rows[a][b] == 0) == (a == b) for a in range(20) for b in range(20))
    assert rows == drawn_delays_us(20, 3) != drawn_delays_us(20, 4)


def test_two_nodes_take_the_delay_between_them() -> None:
    found = simulated({0: 0, 1: 1}, [[0, 30_000], [10_000, 0]])
    assert (found.mean_ms, found.largest_ms, found.deliveries) == (20, 30, 2)


def test_identifiers_by_place_are_nearer_and_each_place_has_one() -> None:
    rows = drawn_delays_us(24, 7)
    for way in trees.WAYS:
        place_of = trees.placed(trees.PlacingCase(way, 24), rows, 7)
        assert sorted(place_of.values()) == list(range(24))
    found = {way: trees.measure(trees.PlacingCase(way, 24), 7) for way in trees.WAYS}
    usual = found[trees.RANDOM].mean_ms
    assert found[trees.ANNEALED].mean_ms < 0.7 * usual
    assert found[trees.LIVE].mean_ms < 0.85 * usual


def test_aggregation_without_queues_moves_no_delivery() -> None:
    alone = aggregation.measure(aggregation.AggregationOverCities(32, False), 5)
    assert alone.saved_percent > 0
    assert (alone.moved, alone.largest_move_ticks, alone.mean_change_percent) == (0, 0, 0)
    queued = aggregation.measure(aggregation.AggregationOverCities(32, True), 5)
    assert queued.moved > 0


def test_cells_are_counted_by_hand() -> None:
    area = Area(-10, -10, 10, 10)
    assert cells.cells_meeting(area, 1) == {0, 1, 2, 3}
    assert cells.cells_meeting(Area(1, 1, 2, 2), 2) == {cells.number_of((3, 0))}
    assert cells.around(Point(0, 0)).contains(Point(9.9, -9.9))


@pytest.mark.parametrize("level", [1, 4])
def test_everybody_gets_what_its_cells_have(level: int) -> None:
    found = cells.measure(cells.CellsCase(level, 32), 2)
    assert found.missing == 0
    assert found.wanted > 0


def test_smaller_cells_bring_less_from_outside_and_change_more_often() -> None:
    large, small = (cells.measure(cells.CellsCase(level, 32), 2) for level in (1, 4))
    assert large.wanted == small.wanted
    assert small.outside < large.outside and small.changes > large.changes
    assert small.maintenance > large.maintenance


def test_gossip_delivers_over_cities_with_both_kinds_of_parents() -> None:
    for strategy in gossip.STRATEGIES:
        found = gossip.measure(gossip.GossipCase(strategy, 12), 1)
        assert found.deliveries == 11 * gossip.MESSAGES
        assert found.mean_ms > 0


def test_orphans_over_cities_find_parents() -> None:
    found = brokers.measure(ParentsCase("nearest first", 16), 1)
    assert found.wrong == 0 and found.reach_ms > 0
