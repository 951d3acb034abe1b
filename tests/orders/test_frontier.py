"""Starting late: what counts as past at one process can be handed to another, which goes on from there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel.message import Publication, publication_key
from antiphon.orders import CausalBarriers, CausalVectors, Fifo, Order, Ordered, Unordered
from tests.orders.model import identity_of

ORDERS: list[Callable[[int], Order]] = [CausalBarriers, CausalVectors, Fifo, Unordered]
everywhere = pytest.mark.parametrize("order", ORDERS)


def of(source: int, sequence: int, *dependencies: tuple[int, int]) -> Publication:
    keys = vec[i64]([publication_key(*identity) for identity in dependencies])
    return Ordered(source, sequence, 0, b"", keys)


def feed(order: Order, *publications: Publication) -> list[tuple[int, int]]:
    return [identity_of(released) for publication in publications for released in order.arrived(publication)]


@everywhere
def test_a_frontier_names_the_last_of_each_source_sorted_by_source(order: Callable[[int], Order]) -> None:
    member = order(5)
    feed(member, of(9, 1), of(2, 1), of(2, 2))
    member.stamp(1)
    assert list(member.frontier()) == [publication_key(2, 2), publication_key(5, 1), publication_key(9, 1)]
    assert list(order(5).frontier()) == []


@everywhere
def test_a_newcomer_goes_on_from_a_frontier(order: Callable[[int], Order]) -> None:
    """What is past is not delivered to it, what follows is, without waiting for the past."""
    member, newcomer = order(0), order(1)
    feed(member, of(2, 1), of(2, 2), of(3, 1))
    newcomer.start_from(member.frontier())
    assert feed(newcomer, of(2, 1), of(2, 2), of(3, 1)) == []
    assert feed(newcomer, of(2, 3, (3, 1)), of(3, 2)) == [(2, 3), (3, 2)]
    assert newcomer.waiting() == 0


@everywhere
@given(st.lists(st.dictionaries(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=4))
def test_several_frontiers_count_as_their_union(order: Callable[[int], Order], frontiers: list[dict[int, int]]) -> None:
    newcomer = order(6)
    for frontier in frontiers:
        newcomer.start_from(vec[i64]([publication_key(*entry) for entry in frontier.items()]))
    largest = {source: max(each.get(source, 0) for each in frontiers) for source in range(6)}
    expected = [publication_key(source, sequence) for source, sequence in largest.items() if sequence > 0]
    assert list(newcomer.frontier()) == expected


@pytest.mark.parametrize("order", [CausalBarriers, CausalVectors])
def test_a_frontier_comes_before_anything_arrives(order: Callable[[int], Order]) -> None:
    late = order(1)
    feed(late, of(2, 2))
    with pytest.raises(AssertionError, match="before anything arrives"):
        late.start_from(vec[i64]([publication_key(2, 1)]))


def test_a_barrier_can_be_carried_into_the_next_membership() -> None:
    before, after = CausalBarriers(1), CausalBarriers(1)
    feed(before, of(2, 1), of(3, 1))
    after.start_from(before.frontier())
    after.adopt_barrier(before.barrier())
    assert list(after.stamp(1)) == [publication_key(2, 1), publication_key(3, 1)]


@pytest.mark.parametrize("order", [CausalVectors, Fifo, Unordered])
def test_orders_without_barriers_have_none_and_adopt_none(order: Callable[[int], Order]) -> None:
    member = order(1)
    feed(member, of(2, 1))
    member.adopt_barrier(vec[i64]([publication_key(3, 1)]))
    assert list(member.barrier()) == []


@everywhere
def test_the_state_says_all_that_decides_what_comes(order: Callable[[int], Order]) -> None:
    """Equal after equal histories; different as soon as something has arrived, be it delivered or waiting."""
    one, other = order(1), order(1)
    states = [one.state()]
    for publication in (of(2, 1), of(3, 2), of(2, 2)):
        feed(one, publication)
        feed(other, publication)
        assert one.state() == other.state()
        states.append(one.state())
    assert len(set(states)) == len(states)
