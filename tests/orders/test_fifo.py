"""Per-source order and mere suppression of duplicates, against their naive models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.kernel.message import Publication
from antiphon.orders import Fifo, Order, Ordered, Unordered
from tests.orders.model import FifoModel, Model, Step, World, identity_of, schedules

PROCESSES = 3
BOTH: list[tuple[Callable[[int], Order], Callable[[], Model]]] = [(Fifo, FifoModel), (Unordered, Model)]


@pytest.mark.parametrize(("order", "model"), BOTH)
@given(schedule=schedules(PROCESSES))
def test_the_order_does_what_its_model_does(
    order: Callable[[int], Order], model: Callable[[], Model], schedule: list[Step]
) -> None:
    """Same deliveries at every arrival, same number waiting; in the end everything exactly once, everywhere."""
    system = World(PROCESSES, order, model)
    system.run(schedule)
    system.drain()
    for rule, delivered in zip(system.orders, system.delivered, strict=True):
        assert sorted(delivered) == sorted(system.sent)
        assert rule.waiting() == 0


@given(schedules(PROCESSES))
def test_fifo_delivers_each_source_in_its_order(schedule: list[Step]) -> None:
    system = World(PROCESSES, Fifo, FifoModel)
    system.run(schedule)
    for delivered in system.delivered:
        for source in range(PROCESSES):
            sequences = [sequence for who, sequence in delivered if who == source]
            assert sequences == list(range(1, len(sequences) + 1))


@given(schedules(PROCESSES))
def test_fifo_holds_nothing_for_the_sake_of_another_source(schedule: list[Step]) -> None:
    """What waits at the end is exactly what lies beyond a gap of its own source."""
    system = World(PROCESSES, Fifo, FifoModel)
    system.run(schedule)
    for model, delivered in zip(system.models, system.delivered, strict=True):
        for waiting in model.pending:
            source, sequence = waiting.identity
            assert (source, sequence - 1) not in delivered


def of(source: int, sequence: int) -> Publication:
    return Ordered(source, sequence, 0, b"", Fifo(source).stamp(sequence))


def identities(publications: list[Publication]) -> list[tuple[int, int]]:
    return [identity_of(publication) for publication in publications]


def test_a_gap_is_waited_for_and_then_all_beyond_it_follows() -> None:
    order = Fifo(0)
    assert identities(order.arrived(of(1, 3))) == []
    assert identities(order.arrived(of(1, 2))) == []
    assert identities(order.arrived(of(2, 1))) == [(2, 1)]
    assert (order.waiting(), order.held_total, order.held_peak) == (2, 2, 2)
    assert identities(order.arrived(of(1, 1))) == [(1, 1), (1, 2), (1, 3)]
    assert (order.waiting(), order.held_total, order.held_peak) == (0, 2, 2)


@given(st.permutations(range(1, 9)))
def test_unordered_delivers_at_once_in_the_order_of_arrival(arrivals: list[int]) -> None:
    order = Unordered(0)
    assert [identities(order.arrived(of(1, sequence))) for sequence in arrivals] == [[(1, each)] for each in arrivals]
    assert [identities(order.arrived(of(1, sequence))) for sequence in arrivals] == [[] for _ in arrivals]
    assert (order.waiting(), order.held_total, order.held_peak) == (0, 0, 0)


@pytest.mark.parametrize("order", [Fifo, Unordered])
def test_own_publications_count_as_delivered_and_carry_no_dependencies(order: Callable[[int], Order]) -> None:
    rule = order(4)
    assert [list(rule.stamp(sequence)) for sequence in (1, 2)] == [[], []]
    assert rule.arrived(of(4, 1)) == rule.arrived(of(4, 2)) == []
    assert identities(rule.arrived(of(4, 3))) == [(4, 3)]
