"""The registry chooses the weakest class that keeps the promises of a topic."""

from __future__ import annotations

import pytest

from antiphon.kernel.message import CAUSAL, FIFO, NONE, TOTAL
from antiphon.orders import CausalBarriers, CausalVectors, Fifo, MixedOrder, Order, TotalOrder, Unordered
from antiphon.orders.registry import BROADCAST_ORDERS, new_topic_order


@pytest.mark.parametrize(
    ("strength", "mixed", "locks", "kind"),
    [
        (NONE, False, False, Unordered),
        (FIFO, False, False, Fifo),
        (CAUSAL, False, False, CausalBarriers),
        (FIFO, True, False, MixedOrder),
        (TOTAL, True, True, TotalOrder),
    ],
)
def test_the_order_of_a_topic(strength: int, mixed: bool, locks: bool, kind: type[Order]) -> None:
    order = new_topic_order(3, strength, mixed, locks)
    assert type(order) is kind and order.strength == strength


def test_the_order_of_a_broadcast() -> None:
    assert [None if make is None else type(make(3)) for make in BROADCAST_ORDERS.values()] == [
        None,
        Unordered,
        Fifo,
        CausalVectors,
    ]
