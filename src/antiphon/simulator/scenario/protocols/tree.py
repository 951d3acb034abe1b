"""The broker tree in scenarios: its options, the tree that they describe, and the brokers built from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import NOBODY, Council
from antiphon.fabrics.tree.topology import Overlay, overlay_of_newcomer, regular_parents
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.order import Order
from antiphon.simulator.scenario.protocols.options import Flag

Positive = Annotated[int, Meta(ge=1, le=1 << 31, description="a number, 1 or more", examples=[3])]
Parent = Annotated[int, Meta(ge=-1, lt=1 << 22, description="the number of a node, or -1", examples=[0])]
Parents = Annotated[list[Parent], Meta(description="a parent for each node", examples=[[-1, 0, 0]])]


class TreeTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the broker tree."""

    parents: Parents | None = None
    """The parent of each node, -1 for the root; by default each node has ``fan_out`` children."""
    fan_out: Positive = 2
    """The number of children of each node where no parents are given."""
    total_degree: Annotated[int, Meta(ge=2, le=1 << 31, description="a number, 2 or more", examples=[8])] = 8
    """The number of neighbours from which on a broker refuses orphans, until no other broker accepts them either."""
    max_hops: Annotated[int, Meta(ge=2, le=1 << 31, description="a number, 2 or more", examples=[3])] = 3
    """How many hops away a broker knows candidates for a new parent."""
    ancestors_first: Flag = False
    """Whether brokers nearer to the root are asked before siblings, instead of the nearest first."""
    nearest_first: Flag = False
    """Whether brokers with the shortest measured round trips are asked first."""
    patience: Positive = 2000
    """Ticks after which a broker that does not answer counts as refusing."""
    collect: Positive = 5000
    """Ticks between two collections, in which the root learns which publications all brokers have."""
    strict_session: Flag = True
    """Whether ordered publications of a publisher wait for its earlier total publications."""
    quorum: Flag = False
    """Whether a lost broker may come back, so that total order needs a majority; otherwise failures are crashes."""
    council: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of ticks", examples=[20_000])] = 20_000
    """Ticks after a change of the tree until the connected brokers become the council, which votes; 0: never."""
    absence: Positive = 1_000_000
    """Ticks for which missed publications are kept for lost brokers."""
    quorum_delivery: Flag = False
    """Whether publications of every order wait for a majority, so that each total one follows the same past at all
    brokers.
    """
    log: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of publications", examples=[1000])] = 0
    """The number of publications of a topic in the log of each broker, for brokers that were disconnected for longer;
    0: no log.
    """
    disk: Flag = False
    """Whether brokers have disks with which they restart as themselves; only with a quorum."""
    sync: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of ticks", examples=[50])] = 0
    """Ticks until a broker's write is on its disk."""


def overlay_of(options: TreeTableOptions, nodes: int, absent: Collection[int] = ()) -> Overlay:
    """The tree that options describe, without nodes that join later."""
    listed = options.parents or regular_parents(nodes, options.fan_out)
    parents = {node: parent for node, parent in enumerate(listed) if node not in absent}
    council = Council(1, [sorted(parents)]) if options.quorum else NOBODY
    return Overlay(1, listed.index(int(NO_NODE)), parents, [], council)


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
    options = TreeOptions(
        order,
        chosen.total_degree,
        chosen.max_hops,
        chosen.ancestors_first,
        chosen.patience,
        chosen.collect,
        chosen.strict_session,
        quorum=chosen.quorum,
        council_ticks=chosen.council,
        absence_ticks=chosen.absence,
        nearest_first=chosen.nearest_first,
        quorum_delivery=chosen.quorum_delivery,
    )
    overlay = overlay_of(chosen, nodes, absent)
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
