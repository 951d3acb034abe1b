"""Broadcasts on the cube: how their processes are built from a scenario."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.fabrics.cube.aggregation import CausalAggregation
from antiphon.fabrics.cube.broadcast import SingleTreeBroadcast, TreeBroadcast
from antiphon.fabrics.cube.bundling import TimerBundling
from antiphon.fabrics.cube.packets import PacketBroadcast, PacketFormat
from antiphon.fabrics.cube.riding import RidingAggregation
from antiphon.kernel.process import Environment, Process
from antiphon.orders.fifo import Fifo, Unordered
from antiphon.orders.order import Order
from antiphon.orders.vectors import CausalVectors
from antiphon.simulator.scenario.protocols.options import AggregationTableOptions
from antiphon.simulator.scenario.protocols.protocol import Builder, Mistake, Setting

ORDERS: dict[str, Callable[[int], Order] | None] = {
    "best-effort": None,
    "none": Unordered,
    "fifo": Fifo,
    "causal": CausalVectors,
}
"""How a broadcast's order at a node is made from its number. Best effort has none: whatever arrives is delivered."""


def prepare_broadcast(setting: Setting) -> Builder:
    """Broadcasts over per-source trees."""
    options = setting.options

    def build(environment: Environment) -> TreeBroadcast:
        order = new_order(setting, environment)
        return TreeBroadcast(environment, setting.cube, order, options.acknowledge, options.largest_first)

    return build


def prepare_single_tree(setting: Setting) -> Builder:
    """Broadcasts over one tree."""
    options = setting.options

    def build(environment: Environment) -> SingleTreeBroadcast:
        order = new_order(setting, environment)
        return SingleTreeBroadcast(
            environment, setting.cube, options.root, order, options.acknowledge, options.largest_first
        )

    return build


def new_order(setting: Setting, environment: Environment) -> Order | None:
    """The order of a broadcast at one node."""
    make = ORDERS[setting.order]
    return None if make is None else make(environment.identifier)


def order_of_broadcast(process: Process) -> list[Order]:
    """The one order of a broadcast, if it has one."""
    assert isinstance(process, TreeBroadcast), "asked about a broadcast"
    return [] if process.order is None else [process.order]


def prepare_aggregation(setting: Setting) -> Builder:
    """Causal aggregation over per-source trees."""
    chosen: AggregationTableOptions = setting.options
    form = PacketFormat(chosen.largest_packet)
    if chosen.riders == "none":
        return lambda environment: CausalAggregation(environment, setting.cube, form)
    always = chosen.riders == "always"
    return lambda environment: RidingAggregation(
        environment, setting.cube, form, timer_ticks=chosen.timer, always=always
    )


def mistake_in_aggregation(options: AggregationTableOptions, _nodes: int) -> Mistake | None:
    """Who always waits needs a timer, and a timer is for those who wait."""
    if options.riders == "always" and options.timer == 0:
        return Mistake(("timer",), "riders that always wait need a time to wait for; for example: timer = 10")
    if options.riders == "none" and options.timer > 0:
        return Mistake(("timer",), 'a timer is for riders; choose riders = "held" or "always", or leave it out')
    return None


def prepare_bundling(setting: Setting) -> Builder:
    """Bundles that wait for a timer, over per-source trees."""
    options = setting.options
    form = PacketFormat(options.largest_packet)
    return lambda environment: TimerBundling(environment, setting.cube, form, timer_ticks=options.timer)


def order_of_packets(process: Process) -> list[Order]:
    """The one order of a broadcast in packets."""
    assert isinstance(process, PacketBroadcast), "asked about a broadcast in packets"
    return [process.order]
