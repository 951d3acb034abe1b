"""Builds the processes of broadcasts on the cube from a scenario."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.cube.assembly.settings import BroadcastOptions, SingleTreeOptions
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.protocol import Builder, Protocol, Setting
from antiphon.kernel.process import Environment, Process
from antiphon.orders.order import Order
from antiphon.orders.registry import BROADCAST_ORDERS


def prepare_broadcast(setting: Setting) -> Builder:
    """Prepare broadcasts over one tree per source."""
    options = setting.options

    def build(environment: Environment) -> TreeBroadcast:
        order = new_order(setting, environment)
        return TreeBroadcast(environment, setting.cube, order, options.acknowledge, options.largest_first)

    return build


def prepare_single_tree(setting: Setting) -> Builder:
    """Prepare broadcasts over one tree for all sources."""
    options = setting.options

    def build(environment: Environment) -> SingleTreeBroadcast:
        order = new_order(setting, environment)
        return SingleTreeBroadcast(
            environment, setting.cube, options.root, order, options.acknowledge, options.largest_first
        )

    return build


def new_order(setting: Setting, environment: Environment) -> Order | None:
    """The order of a broadcast at one node."""
    make = BROADCAST_ORDERS[setting.order]
    return None if make is None else make(environment.identifier)


def order_of_broadcast(process: Process) -> list[Order]:
    """The one order of a broadcast, if it has one."""
    assert isinstance(process, TreeBroadcast), "asked about a broadcast"
    return [] if process.order is None else [process.order]


BROADCAST: Final = Protocol(BroadcastOptions, prepare_broadcast, order_of_broadcast, tuple(BROADCAST_ORDERS))
SINGLE_TREE: Final = Protocol(
    SingleTreeOptions, prepare_single_tree, order_of_broadcast, tuple(BROADCAST_ORDERS), node_options=("root",)
)
