"""The options of protocols, as scenarios give them in ``[protocol-options]``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from antiphon.fabrics.cube.topic import DEFAULT_BUNDLE, DEFAULT_WINDOW
from antiphon.fabrics.gossip.epto.options import LEAST_AGREEMENT

Flag = Annotated[bool, Meta(description="true or false", examples=[True])]
NodeNumber = Annotated[int, Meta(ge=0, lt=1 << 22, description="the number of a node, from 0 up", examples=[5])]


class BroadcastOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over one tree per source."""

    acknowledge: Flag = True
    """Whether a wave of acknowledgements goes up each tree."""
    largest_first: Flag = False
    """Whether the child with the largest subtree is served first instead of last."""


class SingleTreeOptions(BroadcastOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over one tree for all sources."""

    root: NodeNumber = 0
    """The node whose tree all publications take."""


class WindowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of protocols whose publishers may have several publications in transit."""

    window: Annotated[
        int, Meta(ge=1, le=1 << 31, description="a number of publications, 1 or more", examples=[DEFAULT_WINDOW])
    ] = DEFAULT_WINDOW
    """The most own publications that a node may have in transit at a time, per topic."""
    bundle: Annotated[
        int, Meta(ge=1, le=1 << 31, description="a number of publications, 1 or more", examples=[DEFAULT_BUNDLE])
    ] = DEFAULT_BUNDLE
    """The most queued publications that may travel together."""


class VCubePsOptions(WindowOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of topics over trees of subscribers."""

    largest_first: Flag = True
    """Whether the child with the largest subtree is served first instead of last."""
    directory: Flag = False
    """Whether newcomers ask the topic's home node for the members instead of asking all nodes."""
    aggregate: Flag = False
    """Whether forwarders delay a publication whose causal predecessors are still missing below them, and send them in
    one packet.
    """


class LastingOptions(WindowOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of topics over trees of subscribers where nodes fail and restart."""

    keep: Annotated[int, Meta(ge=2, le=1 << 31, description="a number of publications", examples=[256])] = 256
    """The number of publications of each source that a member keeps in memory for other members."""
    compare: Annotated[int, Meta(ge=1, le=1 << 31, description="a number of ticks", examples=[1000])] = 1000
    """Ticks between two comparisons of received publications among members, while a fault is active."""
    forget: Annotated[int, Meta(ge=1, le=1 << 40, description="a number of ticks", examples=[1_000_000])] = 1_000_000
    """Ticks after which a disconnected member is not expected back."""
    exclude: Annotated[int, Meta(ge=1, le=1 << 40, description="a number of ticks", examples=[2000])] = 2000
    """Ticks after which total order continues without an unreachable node, where there is a majority."""
    log: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of publications", examples=[1000])] = 0
    """The number of publications of a topic in the log of each node, which survives crashes; 0: no log."""
    sync: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of ticks", examples=[50])] = 0
    """Ticks until a record of a node's process for its next incarnation is on its disk."""


Positive = Annotated[int, Meta(ge=1, le=1 << 31, description="a number, 1 or more", examples=[4])]
NotNegative = Annotated[int, Meta(ge=0, le=1 << 31, description="a number, 0 or more", examples=[0])]


class GroupTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of all protocols of the gossip fabric."""

    contacts: Annotated[list[NodeNumber], Meta(description="a list of nodes", examples=[[0, 1]])] | None = None
    """Nodes through which others join; by default the first three."""
    period: Positive = 1000
    """Ticks between two messages that list the available publications."""
    patience: Positive = 8
    """The number of periods without news after which a node falls silent."""
    keep: Positive = 64
    """The number of publications of each source that are always kept for other nodes."""
    buffer: Positive = 1024
    """The most of them to keep while a neighbour misses them."""
    join_window: NotNegative = 2000
    """Ticks over which the joins at the start are spread."""


class FloodingOptions(GroupTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of flooding on HyParView: every publication travels over every link."""

    active: NotNegative = 4
    """The number of links that a node maintains."""
    passive: NotNegative = 30
    """The number of other nodes that it remembers, to replace failed links."""
    expansion: Annotated[float, Meta(ge=0, le=100, description="a factor, 1 or more", examples=[2])] = 2.0
    """The factor by which the links may outnumber ``active`` before one is dropped for a newcomer."""


class BrisaTableOptions(FloodingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of BRISA."""

    parents: Positive = 1
    """The number of nodes from which a node receives: 1 for trees, more for graphs."""
    strategy: Literal["first-come", "delay", "age", "load", "bandwidth"] = "first-come"
    """The rule by which parents are chosen."""
    trees: Positive = 1
    """The number of trees that a publisher uses in turn."""
    reuse_depth: NotNegative = 0
    """The largest distance from the root of another publisher's tree at which a publisher uses it instead of its own; 0
    for never.
    """
    bandwidths: Annotated[list[Positive], Meta(description="a list of numbers", examples=[[1, 10]])] = []
    """The bandwidths of the nodes in turn, repeated from the beginning."""
    deepest: Positive = 64
    """The largest depth of a node in a graph."""
    window: NotNegative = 0
    """How far a publisher may be ahead of what its neighbours are ready for; 0 for any distance."""
    published: Flag = False
    """Whether the rules are those of the thesis, with their races, for networks that lose nothing."""
    log: NotNegative = 0
    """The number of publications of a topic in the log of a node, for nodes that miss them; 0 for no logs."""
    log_nodes: Annotated[list[NodeNumber], Meta(description="a list of nodes", examples=[[0, 1]])] = []
    """The nodes with logs; all if the list is empty."""
    round_period: Positive = 125
    """Ticks between two rounds of total order, while there is something to order."""
    round_drift: Annotated[float, Meta(ge=0, le=100, description="a share of the period", examples=[0.1])] = 0.1
    """The share of its period by which each round may come earlier or later."""
    fanout: Positive | None = None
    """The number of receivers of a ball of names; by default ``2 e ln n / ln ln n``, for all ``n`` nodes."""
    ttl: Positive | None = None
    """The number of relays of a name; by default ``log2 n``, or more where messages are lost."""
    total_wait: NotNegative = 10_000
    """The most ticks for which a node delays total order while it reaches at most half of the nodes it knows."""
    clock: Literal["logical", "global"] = "logical"
    """Whether total order follows counts or times."""
    skew: NotNegative = 0
    """The most ticks by which clocks may be wrong, either way."""
    granularity: Positive = 1
    """Clocks show multiples of this many ticks."""
    adapts: Flag = False
    """Whether period, fanout and ttl of rounds follow from measured delays and the estimated size of the topic."""
    total_patience: Positive = 16
    """The number of rounds to wait for a total publication of which only the name has arrived."""
    agreement: Annotated[float, Meta(ge=0, lt=1, description="a probability below 1", examples=[0.99])] = (
        LEAST_AGREEMENT
    )
    """The least probability that a name reaches all nodes; options with a smaller one are refused."""
