"""Orders: when a publication may be delivered. They stand above any fabric; see :mod:`antiphon.orders.order`."""

from antiphon.orders.barriers import CausalBarriers
from antiphon.orders.causal import CausalOrder
from antiphon.orders.fifo import Fifo, Unordered
from antiphon.orders.mixed import MixedOrder
from antiphon.orders.order import KeyedOrdered, Order, Ordered
from antiphon.orders.total import TotalOrder
from antiphon.orders.vectors import CausalVectors

__all__ = [
    "CausalBarriers",
    "CausalOrder",
    "CausalVectors",
    "Fifo",
    "KeyedOrdered",
    "MixedOrder",
    "Order",
    "Ordered",
    "TotalOrder",
    "Unordered",
]
