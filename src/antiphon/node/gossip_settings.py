"""How the nodes of a gossip cluster behave: the table ``[gossip]`` of a TOML file, the same for all of them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.fabrics.gossip.epto.topic import TotalOptions
from antiphon.fabrics.gossip.options import BrisaOptions
from antiphon.fabrics.gossip.sampling.hyparview import HyParViewOptions

ASSUMED_LOSS: Final = 0.1
"""Connections lose nothing, but what is sent to nodes that have gone is lost."""

Positive = Annotated[int, msgspec.Meta(ge=1, lt=1 << 20)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=60)]


class GossipTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[gossip]``; everything has a default."""

    active: Positive = 4
    """How many neighbours a node keeps up in each topic."""

    passive: Positive = 30
    """How many others it remembers, to replace neighbours from."""

    expansion: float = 2.0
    """By how much more neighbours a node may have before it lets one go for a newcomer."""

    contacts: Positive = 3
    """How many nodes take part in every topic, so that others can enter through them."""

    parents: Positive = 1
    """From how many others a node gets each message: 1 for trees, more for graphs."""

    strategy: str = "delay"
    """Which neighbours are preferred as parents: first-come, delay, age, load or bandwidth."""

    trees: Positive = 1
    """How many trees a publisher uses in turn."""

    period_seconds: Seconds = 0.1
    """How often neighbours tell each other what they have, while there is news."""

    patience: Positive = 8
    """After so many periods without news a node compares with a contact and falls silent."""

    keep: Positive = 64
    """How many batches of a publisher are kept for others in any case."""

    buffer: Positive = 1024
    """How many are kept while a neighbour lacks them."""

    clock: Literal["logical", "global"] = "logical"
    """Whether total order is by counts, or by the clocks of machines: quicker, where these are right."""

    round_seconds: Seconds = 0.05
    """How long a round of total order takes until delays have been measured."""

    least_round_seconds: Seconds = 0.02
    """No round is shorter, however quick messages are."""

    assumed_nodes: Positive = 64
    """For how many nodes on a topic total order is made until they have been estimated."""

    total_patience: Positive = 100
    """For how many rounds a total message is waited for of which only the name has come."""

    total_wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=600)] = 10.0
    """For how long at most a node that reaches no more than half of those whom it knows lets total order wait; 0 for
    never. A cut that is shorter makes nearly no holes."""

    def total_options(self) -> TotalOptions:
        """Total order; what is measured takes the place of what is assumed."""
        options = EptoOptions(
            self.assumed_nodes,
            period=int(self.round_seconds * 1_000_000),
            clock=self.clock,
            patience=self.total_patience,
            adapts=True,
            loss=ASSUMED_LOSS,
            carried=True,
            least_period=int(self.least_round_seconds * 1_000_000),
        )
        return TotalOptions(options, [])

    def options(self, order: str, window: int, contacts: list[int]) -> BrisaOptions:
        """How nodes behave, in ticks of live nodes, which are microseconds."""
        return BrisaOptions(
            HyParViewOptions(self.active, self.passive, self.expansion),
            contacts,
            order,
            True,
            self.parents,
            self.strategy,
            self.trees,
            0,
            int(self.period_seconds * 1_000_000),
            self.patience,
            self.keep,
            self.buffer,
            0,
            window=window,
            total=self.total_options(),
            longest_wait=int(self.total_wait_seconds * 1_000_000),
        )
