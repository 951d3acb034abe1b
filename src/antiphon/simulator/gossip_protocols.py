"""The protocols of the gossip fabric for scenarios: BRISA and its rivals, their options and processes."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.fabrics.gossip.cyclon import CyclonOptions
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.topic import TotalOptions
from antiphon.fabrics.gossip.hyparview import HyParViewOptions
from antiphon.fabrics.gossip.options import BrisaOptions, Rules, published_rules
from antiphon.fabrics.gossip.plumtree import Plumtree, PlumtreeOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.simple_gossip import SimpleGossip, SimpleGossipOptions, needed_view, usual_fanout
from antiphon.fabrics.gossip.simple_tree import SimpleTree, SimpleTreeOptions
from antiphon.fabrics.gossip.tag import Tag, TagOptions, room_in_tree
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.protocol_options import (
    BrisaTableOptions,
    FloodingOptions,
    GroupTableOptions,
    PlumtreeTableOptions,
    SimpleGossipTableOptions,
    SimpleTreeTableOptions,
    TagTableOptions,
)

DEFAULT_CONTACTS = 3


CLOCK_STREAM = 10
"""Names the stream from which the errors of clocks are drawn."""


def gossip_options(
    chosen: GroupTableOptions, nodes: int, order: str, mixed: bool, loss: float = 0.0, seed: int = 1
) -> BrisaOptions:
    """The options of all processes; a UsageError if they cannot work."""
    if isinstance(chosen, TagTableOptions):
        return tag_options(chosen, nodes, order, mixed)
    if isinstance(chosen, SimpleTreeTableOptions):
        return SimpleTreeOptions(
            [0] if chosen.contacts is None else chosen.contacts,
            order,
            mixed,
            chosen.period,
            chosen.patience,
            chosen.keep,
            chosen.buffer,
            chosen.join_window,
        )
    contacts = list(range(min(DEFAULT_CONTACTS, nodes))) if chosen.contacts is None else chosen.contacts
    if isinstance(chosen, SimpleGossipTableOptions):
        return simple_gossip_options(chosen, contacts, nodes, order, mixed)
    assert isinstance(chosen, FloodingOptions), "all others are on HyParView"
    if isinstance(chosen, PlumtreeTableOptions):
        return plumtree_options(chosen, contacts, order, mixed)
    total = None
    if isinstance(chosen, BrisaTableOptions) and (mixed or order == "total"):
        total = total_options(chosen, nodes, loss, seed)
    return brisa_options(chosen, contacts, order, mixed, total)


def total_options(chosen: BrisaTableOptions, nodes: int, loss: float, seed: int) -> TotalOptions:
    """Total order on topics, as if all nodes took part in each."""
    options = EptoOptions(
        nodes,
        chosen.fanout or 0,
        chosen.ttl or 0,
        chosen.round_period,
        chosen.round_drift,
        chosen.clock,
        patience=chosen.total_patience,
        adapts=chosen.adapts,
        loss=loss,
        agreement=chosen.agreement,
        carried=True,
    )
    errors = (RandomStream(seed, CLOCK_STREAM, node) for node in range(nodes))
    # Stamps are not negative: all clocks are ahead of the host's by the largest error.
    skews = [chosen.skew + int(each.between(-chosen.skew, chosen.skew)) for each in errors] if chosen.skew else []
    return TotalOptions(options, skews, chosen.granularity)


def brisa_options(
    chosen: FloodingOptions, contacts: list[int], order: str, mixed: bool, total: TotalOptions | None
) -> BrisaOptions:
    """BRISA, or flooding on the same overlay."""
    own = chosen if isinstance(chosen, BrisaTableOptions) else BrisaTableOptions()
    return BrisaOptions(
        HyParViewOptions(chosen.active, chosen.passive, chosen.expansion),
        contacts,
        order,
        mixed,
        own.parents,
        own.strategy,
        own.trees,
        own.reuse_depth,
        chosen.period,
        chosen.patience,
        chosen.keep,
        chosen.buffer,
        chosen.join_window,
        floods=own is not chosen,
        bandwidths=own.bandwidths,
        deepest=own.deepest,
        rules=published_rules() if own.published else Rules(),
        total=total,
        longest_wait=own.total_wait,
    )


def plumtree_options(chosen: PlumtreeTableOptions, contacts: list[int], order: str, mixed: bool) -> PlumtreeOptions:
    """Plumtree."""
    return PlumtreeOptions(
        HyParViewOptions(chosen.active, chosen.passive, chosen.expansion),
        chosen.graft_after,
        chosen.per_source,
        contacts,
        order,
        mixed,
        chosen.period,
        chosen.patience,
        chosen.keep,
        chosen.buffer,
        chosen.join_window,
    )


def simple_gossip_options(
    chosen: SimpleGossipTableOptions, contacts: list[int], nodes: int, order: str, mixed: bool
) -> SimpleGossipOptions:
    """Rumours and anti-entropy; views must be large enough for an overlay of so many nodes."""
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
        contacts,
        order,
        mixed,
        chosen.period,
        chosen.patience,
        chosen.keep,
        chosen.buffer,
        chosen.join_window,
    )


def tag_options(chosen: TagTableOptions, nodes: int, order: str, mixed: bool) -> TagOptions:
    """TAG; its tree must have room for everybody."""
    options = TagOptions(
        [0] if chosen.contacts is None else chosen.contacts,
        order,
        mixed,
        chosen.batch,
        chosen.capacity,
        chosen.deepest,
        chosen.peers,
        chosen.handshakes,
        chosen.period,
        chosen.patience,
        chosen.keep,
        chosen.buffer,
        chosen.join_window,
    )
    room = room_in_tree(chosen.capacity, chosen.deepest)
    if room < nodes:
        raise UsageError(
            f"a tree {chosen.deepest} deep with {chosen.capacity} children each has room for {room} nodes, not for "
            f"{nodes}; raise deepest or capacity"
        )
    return options


PROCESSES: dict[type[BrisaOptions], Callable[[Environment, BrisaOptions], Brisa]] = {
    BrisaOptions: Brisa,
    PlumtreeOptions: Plumtree,
    SimpleGossipOptions: SimpleGossip,
    SimpleTreeOptions: SimpleTree,
    TagOptions: Tag,
}
"""Whose options are whose."""
