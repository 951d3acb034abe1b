"""Ginger as published in scenarios: its options, and the brokers built from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import msgspec

from antiphon.fabrics.options import Flag, Positive
from antiphon.fabrics.protocol import Builder, Setting
from antiphon.fabrics.tree.assembly.scenario import BROKER_TREE
from antiphon.fabrics.tree.assembly.settings import Parents, TreeTableOptions
from antiphon.fabrics.tree.fabric import TREE
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.orders.order import Order
from antiphon_lab.protocols.tree.ginger import PublishedBroker
from antiphon_lab.protocols.tree.ginger_messages import PathEntry, PublishedGingerOptions


class PublishedTreeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Ginger as published: the overlay, its parameters, and a switch for each defect that shows."""

    parents: Parents | None = None
    """The parent of each node, -1 for the root; without it each node has ``fan_out`` children."""
    fan_out: Positive = 2
    """How many children each node has where no parents are named."""
    total_degree: Positive = 3
    """How many neighbours a broker has room for, each topic that its own application subscribes to included."""
    max_hops: Positive = 3
    """How far a broker looks for a new parent."""
    patience: Positive = 2000
    """Ticks after which a broker that does not answer counts as failed."""
    buffer: Positive = 150
    """How many publications of a topic a broker keeps."""
    blocking: Literal["single", "direct", "barrier"] = "barrier"
    """The reading of a lock: it stops everything, publications from the same direction, or those that have not begun.
    """
    totals_overtake: Flag = False
    counts_upward_moves: Flag = False
    ancestors_first: Flag = False
    expects_most: Flag = False
    ends_all_synchronisations: Flag = False
    drops_duplicates: Flag = True
    pushes_unknown: Flag = True
    tells_completed: Flag = True
    counts_acknowledgements: Flag = False
    acknowledges_blocked: Flag = False
    announces_forced_topics: Flag = False
    guards_cycles: Flag = False
    answers_for_completed: Flag = False


NOT_SWITCHES = frozenset({"parents", "fan_out", "total_degree", "max_hops", "patience", "buffer"})


def published_options(chosen: PublishedTreeOptions, order: str) -> PublishedGingerOptions:
    """The options of all brokers."""
    switches = {field: value for field, value in msgspec.structs.asdict(chosen).items() if field not in NOT_SWITCHES}
    return PublishedGingerOptions(
        order,
        total_degree=chosen.total_degree,
        max_hops=chosen.max_hops,
        patience_ticks=chosen.patience,
        buffer_size=chosen.buffer,
        **switches,
    )


def views_of(overlay: Overlay, broker: int, max_hops: int) -> tuple[list[PathEntry], list[PathEntry]]:
    """The ancestors and the siblings that a broker knows when every subscription has gone through the tree."""
    ancestors: list[PathEntry] = []
    siblings: list[PathEntry] = []
    path = overlay.path_of(broker)
    for ups, (below, above) in enumerate(pairwise(path), 1):
        if 1 < ups <= max_hops:
            ancestors.append(PathEntry(above, ups, True, 0))
        if ups < max_hops:
            others = [PathEntry(one, ups + 1, False, 1) for one in overlay.children_of(above) if one != below]
            (siblings if ups == 1 else ancestors).extend(others)
    return ancestors, siblings


def prepare_published_tree(setting: Setting) -> Builder:
    """Brokers of Ginger as published."""
    return published_tree_builder(setting.options, setting.nodes, setting.order, setting.members)


def published_tree_builder(
    chosen: PublishedTreeOptions, nodes: int, order: str, topics: Sequence[Sequence[int]]
) -> Builder:
    """A function that builds the broker at one node; the subscribers at the start are known to all."""
    options = published_options(chosen, order)
    overlay = TreeTableOptions(parents=chosen.parents, fan_out=chosen.fan_out).overlay(nodes)
    below = {broker: {broker, *overlay.below(broker)} for broker in range(nodes)}

    def build(environment: Environment) -> PublishedBroker:
        broker = PublishedBroker(environment, options)
        me = int(environment.identifier)
        children = {child: len(overlay.children_of(child)) for child in overlay.children_of(me)}
        broker.begin(overlay.parents[me], children, *views_of(overlay, me, chosen.max_hops))
        for topic, members in enumerate(topics):
            has_parent = overlay.parents[me] != NO_NODE and not below[me].issuperset(members)
            subscribing = [child for child in children if not below[child].isdisjoint(members)]
            broker.begin_topic(topic, me in members, has_parent, subscribing)
        return broker

    return build


def no_orders(process: Process) -> list[Order]:
    """Streams keep the order; nothing waits at its receiver."""
    assert isinstance(process, PublishedBroker), "asked about Ginger as published"
    return []


PROTOCOLS = {
    "ginger-published": replace(
        BROKER_TREE,
        options=PublishedTreeOptions,
        prepare=prepare_published_tree,
        orders_of=no_orders,
        needs_quorum=False,
        disks=None,
        fabric=TREE.name,
    ),
}
