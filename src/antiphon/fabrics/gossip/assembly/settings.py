"""The options of the gossip fabric: ``[protocol-options]`` of a scenario, and the table ``[gossip]`` of live nodes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from antiphon.fabrics.gossip.epto.options import LEAST_AGREEMENT, EptoOptions
from antiphon.fabrics.gossip.epto.topic import TotalOptions
from antiphon.fabrics.gossip.options import BrisaOptions, Rules, published_rules
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions
from antiphon.fabrics.options import (
    TICKS_PER_SECOND,
    Flag,
    Live,
    NodeNumber,
    NotNegative,
    Positive,
    Seconds,
    from_live,
    live_table,
)

Nodes = Annotated[list[NodeNumber], Meta(description="a list of nodes", examples=[[0, 1]])]
Numbers = Annotated[list[Positive], Meta(description="a list of numbers", examples=[[1, 10]])]
Factor = Annotated[float, Meta(ge=0, le=100, description="a factor, 1 or more", examples=[2])]
Share = Annotated[float, Meta(ge=0, le=100, description="a share of the period", examples=[0.1])]
Probability = Annotated[float, Meta(ge=0, lt=1, description="a probability below 1", examples=[0.99])]

DEFAULT: Final = BrisaOptions()
VIEW: Final = HyParViewOptions()

EVERYBODY: Final = 1 << 62
"""The overlay of all live nodes, which is no topic of applications: these have smaller numbers."""

ASSUMED_LOSS: Final = 0.1
"""Connections of live nodes lose nothing, but messages to nodes that have failed are lost."""


class GroupTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of all protocols of the gossip fabric."""

    contacts: Annotated[Nodes | None, "Nodes through which others join."] = None
    period: Annotated[
        Positive, "How often neighbours tell each other what they have, while there is news.", Seconds(0.1, most=60)
    ] = int(DEFAULT.period)
    patience: Annotated[
        Positive, "After so many periods without news a node compares with a contact and falls silent.", Live()
    ] = int(DEFAULT.patience)
    keep: Annotated[Positive, "How many publications of each source a node always keeps for others.", Live()] = int(
        DEFAULT.keep
    )
    buffer: Annotated[
        Positive,
        "How many it keeps while a neighbour lacks them, and for a minute after a link to a neighbour has broken.",
        Live(),
    ] = int(DEFAULT.buffer)
    join_window: Annotated[NotNegative, "The joins at the start are spread over this time."] = int(DEFAULT.join_window)


class FloodingOptions(GroupTableOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of flooding on HyParView: every publication travels over every link."""

    active: Annotated[NotNegative, "How many neighbours a node maintains in each topic.", Live()] = int(VIEW.active)
    passive: Annotated[NotNegative, "How many other nodes it remembers, to replace neighbours from.", Live()] = int(
        VIEW.passive
    )
    expansion: Annotated[
        Factor, "By which factor neighbours may outnumber `active` before one is dropped for a newcomer.", Live()
    ] = 2.0


class BrisaTableOptions(FloodingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of BRISA."""

    parents: Annotated[
        Positive, "From how many neighbours a node gets each publication: 1 for trees, more for graphs.", Live()
    ] = int(DEFAULT.parents)
    strategy: Annotated[
        Literal["first-come", "delay", "age", "load", "bandwidth"],
        "Which neighbours are preferred as parents: `first-come`, `delay` (the shortest round trip), `age`, `load`, "
        "`bandwidth`.",
        Live(),
    ] = "first-come"
    trees: Annotated[Positive, "How many trees a publisher uses in turn.", Live()] = int(DEFAULT.trees)
    reuse_depth: Annotated[
        NotNegative,
        "A publisher that is at most this far from the root of another publisher's tree uses that tree instead of its "
        "own; 0 for never.",
    ] = int(DEFAULT.reuse_depth)
    bandwidths: Annotated[Numbers, "The bandwidths of nodes 0, 1 and so on, cyclically."] = []
    deepest: Annotated[Positive, "No node is deeper in a graph."] = int(DEFAULT.deepest)
    window: Annotated[
        NotNegative,
        "How far publishers may be ahead of what their neighbours are ready for, as live nodes limit it; 0 for any "
        "distance.",
    ] = int(DEFAULT.window)
    published: Annotated[Flag, "Run the rules of the thesis, for networks that lose nothing."] = False
    log: Annotated[
        NotNegative,
        "How many publications of a topic the log of a node holds for nodes that lack them; 0 for no logs.",
    ] = 0
    log_nodes: Annotated[Nodes, "Which nodes have logs."] = []
    round_period: Annotated[
        Positive,
        "The length of a round of total order, until delays have been measured.",
        Seconds(0.05, most=60, name="round_seconds"),
    ] = 125
    round_drift: Annotated[Share, "By how much of its period each round may be early or late."] = 0.1
    fanout: Annotated[Positive | None, "To how many others a ball of names is sent; `n` are all nodes."] = None
    ttl: Annotated[
        Positive | None, "How often a name is relayed, and above which age it is delivered; twice that by counts."
    ] = None
    total_wait: Annotated[
        NotNegative,
        "A node that reaches no more than half of the nodes it knows delays total order, with its publishers, for at "
        "most this time; 0 for never.",
        Seconds(10.0, most=600, least=0),
    ] = 10_000
    clock: Annotated[
        Literal["logical", "global"],
        'Total order by counts; `"global"`: by the clocks of machines, which halves the time until delivery, but '
        "messages are missed where clocks differ by more than that time.",
        Live(),
    ] = "logical"
    skew: Annotated[NotNegative, "By how much clocks may be wrong, either way."] = 0
    granularity: Annotated[Positive, "Clocks show multiples of it."] = 1
    adapts: Annotated[
        Flag, "Period, fanout and ttl of rounds follow from measured delays and the estimated size of the topic."
    ] = False
    total_patience: Annotated[
        Positive,
        "For how many rounds a node waits for a total publication of which only the name has arrived, before it "
        "becomes a hole.",
        Live(default=100),
    ] = 16
    agreement: Annotated[
        Probability, "Refuse options with which a name reaches all nodes with a smaller probability; 0 refuses nothing."
    ] = LEAST_AGREEMENT

    def epto_options(self, nodes: int, loss: float, least_period: int = 1) -> EptoOptions:
        """The options of total order, as if so many nodes took part in each topic."""
        return EptoOptions(
            nodes,
            self.fanout or 0,
            self.ttl or 0,
            self.round_period,
            self.round_drift,
            self.clock,
            patience=self.total_patience,
            adapts=self.adapts,
            loss=loss,
            agreement=self.agreement,
            carried=True,
            least_period=least_period,
        )


def brisa_options(
    chosen: FloodingOptions, contacts: list[int], order: str, mixed: bool, total: TotalOptions | None
) -> BrisaOptions:
    """The options of every process of BRISA, or of flooding on the same overlay."""
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
        window=own.window,
        total=total,
        longest_wait=own.total_wait,
    )


class GossipTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[gossip]`` of live nodes. A subclass has the options of :class:`BrisaTableOptions` as well."""

    contacts: Annotated[Positive, "How many nodes take part in every topic, so that others can join through them."] = 3
    least_round_seconds: Annotated[float, Meta(gt=0, le=60), "No round is shorter."] = 0.02
    assumed_nodes: Annotated[
        Positive,
        "The number of nodes on a topic that total order assumes until it is estimated, after some thirty rounds.",
    ] = 64

    def process_options(self, order: str, window: int, contacts: list[int]) -> BrisaOptions:
        """The options of the process of each node."""
        behaviour = from_live(BrisaTableOptions, self)
        behaviour = msgspec.structs.replace(behaviour, window=window, join_window=0, adapts=True)
        least_period = int(self.least_round_seconds * TICKS_PER_SECOND)
        total = TotalOptions(behaviour.epto_options(self.assumed_nodes, ASSUMED_LOSS, least_period), [])
        return brisa_options(behaviour, contacts, order, True, total)


GOSSIP_TABLE: Final = live_table(BrisaTableOptions, GossipTable)
"""The table ``[gossip]`` with all its options."""
