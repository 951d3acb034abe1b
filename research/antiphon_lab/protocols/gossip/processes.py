"""Which process belongs to which options: BRISA and its rivals, for experiments that compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.process import Brisa
from antiphon.kernel.process import Environment
from antiphon_lab.protocols.gossip.plumtree import Plumtree, PlumtreeOptions
from antiphon_lab.protocols.gossip.simple_gossip import SimpleGossip, SimpleGossipOptions
from antiphon_lab.protocols.gossip.simple_tree import SimpleTree, SimpleTreeOptions
from antiphon_lab.protocols.gossip.splitstream import SplitStream, SplitStreamOptions
from antiphon_lab.protocols.gossip.tag import Tag, TagOptions
from antiphon_lab.protocols.gossip.thicket import ThicketOptions

PROCESSES: dict[type[BrisaOptions], Callable[[Environment, Any], Brisa]] = {
    BrisaOptions: Brisa,
    PlumtreeOptions: Plumtree,
    SimpleGossipOptions: SimpleGossip,
    SimpleTreeOptions: SimpleTree,
    SplitStreamOptions: SplitStream,
    TagOptions: Tag,
    ThicketOptions: Plumtree,
}
