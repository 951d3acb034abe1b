"""EpTO in scenarios: its options, the processes built from them, and configurations that cannot give agreement."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from antiphon.fabrics.gossip.epto.options import LEAST_AGREEMENT, EptoOptions, check_period
from antiphon.fabrics.gossip.epto.order import Clock, HostClock, LogicalClock
from antiphon.fabrics.gossip.epto.process import Epto
from antiphon.fabrics.gossip.sampling.cyclon import Cyclon, CyclonOptions
from antiphon.fabrics.gossip.sampling.known_nodes import Everybody, KnownNodes
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.orders.order import Order
from antiphon.simulator.scenario.protocols.gossip import CLOCK_STREAM, total_options
from antiphon.simulator.scenario.protocols.options import BrisaTableOptions, Flag, NotNegative, Positive
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    DelayLaw,
    LinkLaw,
    MatrixLaw,
    NetworkTable,
    NormalLaw,
    QuantileLaw,
)


class EptoTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of EpTO."""

    fanout: Positive | None = None
    """To how many others a ball is sent; without it ``2 e ln n / ln ln n``."""
    ttl: Positive | None = None
    """How often an event is relayed; without it ``log2 n``, or more where messages are lost."""
    period: Positive = 125
    """Ticks between two rounds."""
    drift: Annotated[float, Meta(ge=0, le=100, description="a share of the period", examples=[0.1])] = 0.1
    """By how much of a period each round may come earlier or later."""
    clock: Literal["global", "logical"] = "global"
    """Whether stamps are times or counts."""
    skew: NotNegative = 0
    """By how many ticks clocks may be wrong, either way."""
    clock_drift: NotNegative = 0
    """By how many millionths clocks may be too fast or too slow."""
    granularity: Positive = 1
    """Clocks show multiples of so many ticks."""
    ordering: Literal["keys", "strict", "printed-ties", "printed-barrier", "printed-comparison"] = "keys"
    """By what events are compared; the last three break the order."""
    persists: Flag = True
    """Whether an event stays in balls until it has been relayed often enough, although it does not come in again."""
    digests: Flag = False
    """Whether balls name events, and payloads travel once."""
    keep: Positive = 64
    """For how many rounds payloads are kept for others."""
    patience: Positive = 16
    """For how many rounds a payload is waited for; after so many without news a node falls silent."""
    adapts: Flag = False
    """Whether period, fanout and ttl follow from measured delays and an estimated size."""
    sampling: Literal["everybody", "cyclon"] = "everybody"
    """Whether nodes draw from all others, the failed ones too, or from views that they exchange."""
    view: Positive = 30
    """How many others a view of Cyclon holds."""
    exchanged: Positive = 8
    """How many of them change hands at a time."""
    agreement: Annotated[float, Meta(ge=0, lt=1, description="a probability below 1", examples=[0.99])] = (
        LEAST_AGREEMENT
    )
    """How likely an event must be to reach everybody; options by which it is less likely are refused."""


def epto_options(chosen: EptoTableOptions, nodes: int, loss: float) -> EptoOptions:
    """The options of all processes; a UsageError if events would not reach everybody."""
    return EptoOptions(
        nodes,
        chosen.fanout or 0,
        chosen.ttl or 0,
        chosen.period,
        chosen.drift,
        chosen.clock,
        chosen.ordering,
        chosen.persists,
        chosen.digests,
        chosen.keep,
        chosen.patience,
        chosen.adapts,
        loss,
        chosen.agreement,
    )


def check_epto(chosen: EptoTableOptions, nodes: int, network: NetworkTable) -> None:
    """Refuse, with a UsageError, what cannot give agreement on a network."""
    options = epto_options(chosen, nodes, network.loss)
    if chosen.sampling == "cyclon":
        CyclonOptions(chosen.view, chosen.exchanged)
    check_pace(options, network)


def check_topics(chosen: BrisaTableOptions, nodes: int, network: NetworkTable) -> None:
    """The same for total order on topics; a seed makes no difference to it."""
    check_pace(total_options(chosen, nodes, network.loss, 1).epto, network)


def check_pace(options: EptoOptions, network: NetworkTable) -> None:
    """Refuse a period in which nothing can have arrived."""
    if options.agreement > 0 and options.nodes > 1:
        check_period(int(options.period), int(options.ttl), int(mean_ticks(network.delay)))


def mean_ticks(law: DelayLaw) -> float:
    """The mean of a law of delays."""
    if isinstance(law, ConstantLaw):
        return law.ticks
    if isinstance(law, NormalLaw):
        return law.mean
    if isinstance(law, LinkLaw):
        return mean_ticks(law.of)
    if isinstance(law, QuantileLaw):
        return sum((to - at) * (low + high) / 2 for (at, low), (to, high) in pairwise(law.points))
    assert isinstance(law, MatrixLaw), "there is no other law"
    return max(max(row) for row in law.rows)


def epto_builder(chosen: EptoTableOptions, nodes: int, loss: float, seed: int) -> Callable[[Environment], Process]:
    """What builds the process at one node; who comes later than at the start is a newcomer."""
    options = epto_options(chosen, nodes, loss)
    known = KnownNodes()
    for node in range(nodes):
        known.add(node)

    def build(environment: Environment) -> Epto:
        is_founder = environment.now() == 0
        process = Epto(environment, options, clock_of(chosen, environment, seed), is_founder)
        process.begin(*sampling_of(chosen, environment, nodes, known))
        return process

    return build


def clock_of(chosen: EptoTableOptions, environment: Environment, seed: int) -> Clock:
    """The clock of one node; what is wrong with it is the same whenever it comes back."""
    if chosen.clock == "logical":
        return LogicalClock()
    errors = RandomStream(seed, CLOCK_STREAM, int(environment.identifier))
    offset = int(errors.between(-chosen.skew, chosen.skew))
    drift = int(errors.between(-chosen.clock_drift, chosen.clock_drift))
    # Stamps are not negative: all clocks are ahead of the host's by the largest error.
    return HostClock(environment, chosen.skew + offset, drift, chosen.granularity)


def sampling_of(
    chosen: EptoTableOptions, environment: Environment, nodes: int, known: KnownNodes
) -> tuple[PeerSampling, list[int]]:
    """The peer sampling service of one node, and whom it knows at first: a random view, as from a directory."""
    connections, listener = Connections(environment), Neighbourhood()
    everybody = Everybody(environment, 0, connections, listener, known)
    if chosen.sampling == "everybody":
        return everybody, []
    options = CyclonOptions(chosen.view, chosen.exchanged)
    first = [int(node) for node in everybody.sample(min(chosen.view, nodes - 1))]
    return Cyclon(environment, 0, connections, listener, options), first


def no_orders(process: Process) -> list[Order]:
    """What waits does so in a component of its own."""
    assert isinstance(process, Epto), "asked about EpTO"
    return []
