"""The registry of orders: the one place that chooses the class of an order; fabrics ask it.

A new order is a class beside this module and a line here. Publications can choose it if it also has a number and a name
in :mod:`antiphon.kernel.message`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from antiphon.kernel.message import CAUSAL, FIFO
from antiphon.orders.barriers import CausalBarriers
from antiphon.orders.fifo import Fifo, Unordered
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import Order
from antiphon.orders.total import TotalOrder
from antiphon.orders.vectors import CausalVectors


def new_topic_order(me: i64, strength: i64, mixed: bool, locks: bool) -> Order:
    """The order of one topic at one node.

    ``strength`` is the order of publications that name none. With ``mixed`` each publication may choose its own; with
    ``locks`` also total order, where the fabric locks keys for total publications.
    """
    if locks:
        return TotalOrder(me, strength)
    if mixed:
        return MixedOrder(me, strength)
    if strength == CAUSAL:
        return CausalBarriers(me)
    return Fifo(me) if strength == FIFO else Unordered(me)


BROADCAST_ORDERS: Final[dict[str, Callable[[int], Order] | None]] = {
    "best-effort": None,
    "none": Unordered,
    "fifo": Fifo,
    "causal": CausalVectors,
}
"""Makes the order of a broadcast at a node, by name. Best effort has none: every copy is delivered on arrival."""
