"""The broker tree in scenarios: the brokers that its options describe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Final
from typing import Protocol as Shape

from antiphon.fabrics.protocol import Builder, DiskKind, DiskOptions, Mistake, Protocol, Setting
from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.topology import Overlay, overlay_of_newcomer, regular_parents, wrong_parents
from antiphon.kernel.message import ORDER_NAMES
from antiphon.kernel.process import Environment, Process
from antiphon.orders.order import Order


def carriers(overlay: Overlay, members: Sequence[int]) -> dict[int, set[int]]:
    """The brokers that carry a topic, each with the children through which it reaches subscribers.

    The root carries everything.
    """
    reaches: dict[int, set[int]] = {int(overlay.root): set()}
    for member in members:
        path = overlay.path_of(member)
        reaches.setdefault(path[0], set())
        for child, parent in pairwise(path):
            reaches.setdefault(parent, set()).add(child)
    return reaches


def tree_builder(
    chosen: TreeTableOptions,
    nodes: int,
    order: str,
    topics: Sequence[Sequence[int]],
    make: Callable[[Environment, TreeOptions, Overlay], TreeBroker] | None = None,
    absent: Collection[int] = (),
) -> Callable[[Environment], Process]:
    """A function that builds the broker at one node; the subscribers at the start are known to all.

    An ``absent`` node asks its parent for a place when it joins. ``make`` serves experiments whose brokers record more.
    """
    options = chosen.process_options(order)
    overlay = chosen.overlay(nodes, absent)
    listed = chosen.parents or regular_parents(nodes, chosen.fan_out)
    carried = [carriers(overlay, [member for member in members if member not in absent]) for members in topics]

    def build(environment: Environment) -> TreeBroker:
        me = int(environment.identifier)
        if chosen.disk and environment.journal():
            return (make or TreeBroker)(environment, options, overlay)
        if me in absent:
            newcomer = (make or TreeBroker)(environment, options, overlay_of_newcomer(me, [listed[me]]))
            for topic, members in enumerate(topics):
                if me in members:
                    newcomer.subscribe(topic)
            return newcomer
        broker = (make or TreeBroker)(environment, options, overlay)
        for topic, reaches in enumerate(carried):
            if me in reaches:
                broker.begin(topic, me in topics[topic], sorted(reaches[me]))
        return broker

    return build


def no_orders(process: Process) -> list[Order]:
    """No orders: streams keep the order, and nothing waits at its receiver."""
    assert isinstance(process, TreeBroker), "asked about the broker tree"
    return []


def prepare_tree(setting: Setting) -> Builder:
    """Prepare a broker tree."""
    return tree_builder(setting.options, setting.nodes, setting.order, setting.members, absent=setting.absent)


class HasParents(Shape):
    """Options with a list of parents."""

    @property
    def parents(self) -> list[int] | None: ...


def mistake_in_tree(options: HasParents, nodes: int) -> Mistake | None:
    """Refuse parents that do not form a tree."""
    wrong = None if options.parents is None else wrong_parents(options.parents, nodes)
    return None if wrong is None else Mistake(("parents",), f"{wrong}; for example: parents = [-1, 0, 0]")


def disks_of_tree(options: TreeTableOptions) -> DiskOptions | None:
    """Disks with which brokers restart as themselves, or logs that a crash removes."""
    if options.disk:
        return DiskOptions(DiskKind.JOURNAL, options.log, options.sync)
    return DiskOptions(DiskKind.LOG, options.log) if options.log > 0 else None


BROKER_TREE: Final = Protocol(
    TreeTableOptions,
    prepare_tree,
    no_orders,
    ORDER_NAMES,
    mistake=mistake_in_tree,
    has_topics=True,
    mixes_orders=True,
    has_keys=True,
    needs_connections=True,
    outlives_publishers=True,
    recovers=True,
    needs_quorum=True,
    parents_option="parents",
    disks=disks_of_tree,
)
