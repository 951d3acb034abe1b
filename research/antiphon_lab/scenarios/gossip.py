"""The rivals of BRISA in scenarios: their options, and the processes built from them."""

from __future__ import annotations

from functools import partial
from typing import Any

from antiphon.fabrics.gossip.assembly.scenario import contacts_of, gossip_protocol
from antiphon.fabrics.gossip.assembly.settings import FloodingOptions, GroupTableOptions
from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.fabrics.gossip.sampling.cyclon import CyclonOptions
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.fabrics.options import Flag, NotNegative, Positive
from antiphon.fabrics.protocol import Setting
from antiphon.kernel.errors import UsageError
from antiphon_lab.protocols.gossip.plumtree import Plumtree, PlumtreeOptions
from antiphon_lab.protocols.gossip.simple_gossip import SimpleGossip, SimpleGossipOptions, needed_view, usual_fanout
from antiphon_lab.protocols.gossip.simple_tree import SimpleTree, SimpleTreeOptions
from antiphon_lab.protocols.gossip.tag import Tag, TagOptions, room_in_tree
from antiphon_lab.protocols.gossip.thicket import ThicketOptions


class PlumtreeTableOptions(FloodingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Plumtree."""

    graft_after: NotNegative = 500
    """Ticks after which an announced publication that has not arrived is requested."""
    per_source: Flag = False
    """Whether each publisher has a tree of its own."""


class ThicketTableOptions(FloodingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Thicket."""

    graft_after: NotNegative = 500
    trees: Positive = 5
    """How many trees a publisher has; it uses them in turn."""
    fanout: NotNegative = 5
    """The number of links over which a publisher begins a tree; other nodes use one less."""
    max_load: NotNegative = 7
    """How many children a node has at most before it refuses another."""


class SimpleGossipTableOptions(GroupTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of rumours with anti-entropy."""

    period: Positive = 100
    """Ticks between two questions of a node for missing publications."""
    patience: Positive = 40
    keep: Positive = 256
    fanout: NotNegative | None = None
    """The number of nodes to which a node pushes a new publication; by default the logarithm of the number of nodes."""
    view: NotNegative = 30
    """How many others a node knows."""
    exchanged: NotNegative = 8
    """How many of them change hands at a time."""
    exchange_periods: NotNegative = 10
    """The number of periods between two exchanges."""
    batch: NotNegative = 16
    """How many publications an answer brings at most."""


class SimpleTreeTableOptions(GroupTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a random tree that one node arranges, the first contact."""


class TagTableOptions(SimpleTreeTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of TAG."""

    period: Positive = 400
    """Ticks between two questions of a node for missing publications."""
    patience: Positive = 20
    keep: Positive = 512
    batch: NotNegative = 1
    """How many publications an answer brings at most."""
    capacity: NotNegative = 8
    """How many children a node has at most."""
    deepest: NotNegative = 4
    """How far from the root a node may be."""
    peers: NotNegative = 4
    """How many nodes of those that it passes a newcomer remembers."""
    handshakes: NotNegative = 0
    """How many round trips it takes to connect to a node, for newcomers that go along the list."""


def shared_options(setting: Setting, chosen: GroupTableOptions) -> dict[str, Any]:
    """The options that all rivals of BRISA have."""
    return {
        "order": setting.order,
        "mixed": setting.mixed,
        "period": chosen.period,
        "patience": chosen.patience,
        "keep": chosen.keep,
        "buffer": chosen.buffer,
        "join_window": chosen.join_window,
    }


def plumtree_options(setting: Setting) -> PlumtreeOptions:
    """Plumtree."""
    chosen: PlumtreeTableOptions = setting.options
    return PlumtreeOptions(
        HyParViewOptions(chosen.active, chosen.passive, chosen.expansion),
        chosen.graft_after,
        chosen.per_source,
        contacts_of(chosen, setting.nodes),
        **shared_options(setting, chosen),
    )


def thicket_options(setting: Setting) -> ThicketOptions:
    """Thicket."""
    chosen: ThicketTableOptions = setting.options
    return ThicketOptions(
        HyParViewOptions(chosen.active, chosen.passive, chosen.expansion),
        chosen.trees,
        chosen.fanout,
        chosen.max_load,
        chosen.graft_after,
        contacts_of(chosen, setting.nodes),
        **shared_options(setting, chosen),
    )


def simple_gossip_options(setting: Setting) -> SimpleGossipOptions:
    """Rumours and anti-entropy; views must be large enough for an overlay of this size."""
    chosen: SimpleGossipTableOptions = setting.options
    nodes = setting.nodes
    needed = needed_view(nodes)
    if chosen.view < needed:
        raise UsageError(
            f"{nodes} nodes that know {chosen.view} others each are likely to fall apart; choose a view of at least "
            f"{needed} (the logarithm of {nodes} and 4.6)"
        )
    return SimpleGossipOptions(
        CyclonOptions(chosen.view, chosen.exchanged, chosen.exchange_periods),
        usual_fanout(nodes) if chosen.fanout is None else chosen.fanout,
        chosen.batch,
        contacts_of(chosen, nodes),
        **shared_options(setting, chosen),
    )


def simple_tree_options(setting: Setting) -> SimpleTreeOptions:
    """A random tree that the first contact arranges."""
    chosen: SimpleTreeTableOptions = setting.options
    contacts = [0] if chosen.contacts is None else chosen.contacts
    return SimpleTreeOptions(contacts, **shared_options(setting, chosen))


def tag_options(setting: Setting) -> TagOptions:
    """TAG; its tree must have room for all nodes."""
    chosen: TagTableOptions = setting.options
    nodes = setting.nodes
    options = TagOptions(
        [0] if chosen.contacts is None else chosen.contacts,
        batch=chosen.batch,
        capacity=chosen.capacity,
        deepest=chosen.deepest,
        peers=chosen.peers,
        handshakes=chosen.handshakes,
        **shared_options(setting, chosen),
    )
    room = room_in_tree(chosen.capacity, chosen.deepest)
    if room < nodes:
        raise UsageError(
            f"a tree {chosen.deepest} deep with {chosen.capacity} children each has room for {room} nodes, not for "
            f"{nodes}; raise deepest or capacity"
        )
    return options


rival = partial(gossip_protocol, fabric=GOSSIP.name)

PROTOCOLS = {
    "plumtree": rival(PlumtreeTableOptions, plumtree_options, Plumtree),
    "simple-gossip": rival(SimpleGossipTableOptions, simple_gossip_options, SimpleGossip),
    "simple-tree": rival(
        SimpleTreeTableOptions, simple_tree_options, SimpleTree, tolerates_faults=False, recovers=False
    ),
    "tag": rival(TagTableOptions, tag_options, Tag, recovers=False),
    "thicket": rival(ThicketTableOptions, thicket_options, Plumtree),
}
