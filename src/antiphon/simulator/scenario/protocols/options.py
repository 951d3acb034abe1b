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
    """Options of a broadcast over trees of their own for each source."""

    acknowledge: Flag = True
    """Whether a wave of acknowledgements goes up each tree."""
    largest_first: Flag = False
    """Whether the child with the largest subtree is served first instead of last."""


class SingleTreeOptions(BroadcastOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a broadcast over one tree for all sources."""

    root: NodeNumber = 0
    """The node whose tree all publications take."""


class WindowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of protocols whose publishers have several publications on their way."""

    window: Annotated[
        int, Meta(ge=1, le=1 << 31, description="a number of publications, 1 or more", examples=[DEFAULT_WINDOW])
    ] = DEFAULT_WINDOW
    """How many of its own publications a node may have on their way at a time, per topic."""
    bundle: Annotated[
        int, Meta(ge=1, le=1 << 31, description="a number of publications, 1 or more", examples=[DEFAULT_BUNDLE])
    ] = DEFAULT_BUNDLE
    """How many publications that had to queue may travel together."""


class VCubePsOptions(WindowOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of topics over trees of subscribers."""

    largest_first: Flag = True
    """Whether the child with the largest subtree is served first instead of last."""
    directory: Flag = False
    """Whether newcomers ask the topic's home node for the members instead of asking everybody."""
    aggregate: Flag = False
    """Whether forwarders hold back what nobody below them could deliver yet, to send it together with what it lacks."""


class LastingOptions(WindowOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of topics over trees of subscribers where nodes fail and come back."""

    keep: Annotated[int, Meta(ge=2, le=1 << 31, description="a number of publications", examples=[256])] = 256
    """How many publications of each source a member keeps in memory for whoever lacks them."""
    compare: Annotated[int, Meta(ge=1, le=1 << 31, description="a number of ticks", examples=[1000])] = 1000
    """Ticks between two times that members compare what they have, while something is wrong."""
    forget: Annotated[int, Meta(ge=1, le=1 << 40, description="a number of ticks", examples=[1_000_000])] = 1_000_000
    """Ticks after which a member that is away is not expected back."""
    exclude: Annotated[int, Meta(ge=1, le=1 << 40, description="a number of ticks", examples=[2000])] = 2000
    """Ticks after which total order goes on without a node that cannot be reached, where there is a majority."""
    log: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of publications", examples=[1000])] = 0
    """How many publications of a topic the log of each node holds, which outlives crashes; 0: no log."""
    sync: Annotated[int, Meta(ge=0, le=1 << 31, description="a number of ticks", examples=[50])] = 0
    """Ticks until the disk of a node has what its process has written down for its next life."""


Positive = Annotated[int, Meta(ge=1, le=1 << 31, description="a number, 1 or more", examples=[4])]
NotNegative = Annotated[int, Meta(ge=0, le=1 << 31, description="a number, 0 or more", examples=[0])]


class GroupTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of all protocols of the gossip fabric."""

    contacts: Annotated[list[NodeNumber], Meta(description="a list of nodes", examples=[[0, 1]])] | None = None
    """Nodes through which others join; without it the first three."""
    period: Positive = 1000
    """Ticks between two messages about what there is."""
    patience: Positive = 8
    """After so many periods without news a node falls silent."""
    keep: Positive = 64
    """How many publications of each source are kept for others in any case."""
    buffer: Positive = 1024
    """How many of them are kept at most, while a neighbour lacks them."""
    join_window: NotNegative = 2000
    """Ticks over which the joins at the start are spread."""


class FloodingOptions(GroupTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of flooding on HyParView: every link is used for everything."""

    active: NotNegative = 4
    """How many links a node keeps up."""
    passive: NotNegative = 30
    """How many other nodes it remembers, to replace links that fail."""
    expansion: Annotated[float, Meta(ge=0, le=100, description="a factor, 1 or more", examples=[2])] = 2.0
    """By which factor the links may outnumber ``active`` before one is dropped for a newcomer."""


class BrisaTableOptions(FloodingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of BRISA."""

    parents: Positive = 1
    """From how many others a node receives: 1 for trees, more for graphs."""
    strategy: Literal["first-come", "delay", "age", "load", "bandwidth"] = "first-come"
    """By what parents are chosen."""
    trees: Positive = 1
    """How many trees a publisher uses in turn."""
    reuse_depth: NotNegative = 0
    """How far from the root of somebody else's tree a publisher may be to use it instead of its own; 0 for never."""
    bandwidths: Annotated[list[Positive], Meta(description="a list of numbers", examples=[[1, 10]])] = []
    """The bandwidths of the nodes, one after the other and from the beginning again."""
    deepest: Positive = 64
    """No node is deeper in a graph."""
    published: Flag = False
    """Whether the rules are those of the thesis, with their races, for networks that lose nothing."""
    log: NotNegative = 0
    """How many publications of a topic the log of a node holds, for others that lack them; 0 for no logs."""
    log_nodes: Annotated[list[NodeNumber], Meta(description="a list of nodes", examples=[[0, 1]])] = []
    """Which nodes have logs; all if none are named."""
    round_period: Positive = 125
    """Ticks between two rounds of total order, while there is something to order."""
    round_drift: Annotated[float, Meta(ge=0, le=100, description="a share of the period", examples=[0.1])] = 0.1
    """By how much of its period each round may come earlier or later."""
    fanout: Positive | None = None
    """To how many others a ball of names is sent; without it ``2 e ln n / ln ln n``, for all ``n`` nodes."""
    ttl: Positive | None = None
    """How often a name is relayed; without it ``log2 n``, or more where messages are lost."""
    total_wait: NotNegative = 10_000
    """For how many ticks at most a node that reaches no more than half of those whom it knows lets total order wait."""
    clock: Literal["logical", "global"] = "logical"
    """Whether total order is by counts or by times."""
    skew: NotNegative = 0
    """By how many ticks clocks may be wrong, either way."""
    granularity: Positive = 1
    """Clocks show multiples of so many ticks."""
    adapts: Flag = False
    """Whether period, fanout and ttl of rounds follow from measured delays and the estimated size of the topic."""
    total_patience: Positive = 16
    """For how many rounds a total publication is waited for whose name alone has come."""
    agreement: Annotated[float, Meta(ge=0, lt=1, description="a probability below 1", examples=[0.99])] = (
        LEAST_AGREEMENT
    )
    """How likely a name must be to reach everybody; options by which it is less likely are refused."""
