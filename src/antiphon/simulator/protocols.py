"""Which fabrics, protocols and orders a scenario can name.

A protocol that is to be simulated is one entry of ``PROTOCOLS``: the fabric it belongs to, the options that it takes
from the table ``[protocol-options]`` of a scenario, and a function that builds its process at one node. An order is
one entry of ``ORDERS``; it works with every protocol that takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.cube.topology import Cube
from antiphon.kernel.process import Environment, Process
from antiphon.orders.fifo import Fifo, Unordered
from antiphon.orders.order import Order
from antiphon.orders.vectors import CausalVectors

Flag = Annotated[bool, Meta(description="true or false", examples=[True])]
NodeNumber = Annotated[int, Meta(ge=0, lt=1 << 22, description="the number of a node, from 0 up", examples=[5])]


class BroadcastOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over trees of their own for each source."""

    acknowledge: Flag = True
    """Whether a wave of acknowledgements goes up each tree."""
    largest_first: Flag = False
    """Whether the child with the largest subtree is served first instead of last."""


class SingleTreeOptions(BroadcastOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over one tree for all sources."""

    root: NodeNumber = 0
    """The node whose tree all publications take."""


@dataclass(frozen=True)
class Protocol:
    """A protocol that scenarios can name."""

    fabric: str
    options: type[msgspec.Struct]
    build: Callable[[Environment, Cube, Order | None, Any], Process]
    """Builds the process at one node, from its environment, the cube, its order and the options."""
    node_options: tuple[str, ...] = ()
    """The options that name a node, which must exist."""


def build_broadcast(
    environment: Environment, cube: Cube, order: Order | None, options: BroadcastOptions
) -> TreeBroadcast:
    """A broadcast over per-source trees, at one node."""
    return TreeBroadcast(environment, cube, order, options.acknowledge, options.largest_first)


def build_single_tree(
    environment: Environment, cube: Cube, order: Order | None, options: SingleTreeOptions
) -> SingleTreeBroadcast:
    """A broadcast over one tree, at one node."""
    return SingleTreeBroadcast(environment, cube, options.root, order, options.acknowledge, options.largest_first)


FABRICS = ("cube",)

PROTOCOLS = {
    "broadcast": Protocol("cube", BroadcastOptions, build_broadcast),
    "single-tree": Protocol("cube", SingleTreeOptions, build_single_tree, ("root",)),
}

ORDERS: dict[str, Callable[[int], Order] | None] = {
    "best-effort": None,
    "none": Unordered,
    "fifo": Fifo,
    "causal": CausalVectors,
}
"""How the order at a node is made from its number. Best effort has none: whatever arrives is delivered."""
