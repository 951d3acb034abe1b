"""EpTO in scenarios: its options, its processes, and checks for configurations that cannot give agreement."""

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
    """The number of receivers of a ball; by default ``2 e ln n / ln ln n``."""
    ttl: Positive | None = None
    """The number of relays of an event; by default ``log2 n``, or more where messages are lost."""
    period: Positive = 125
    """Ticks between two rounds."""
    drift: Annotated[float, Meta(ge=0, le=100, description="a share of the period", examples=[0.1])] = 0.1
    """The share of a period by which each round may come earlier or later."""
    clock: Literal["global", "logical"] = "global"
    """Whether timestamps are times or counts."""
    skew: NotNegative = 0
    """The most ticks by which clocks may be wrong, either way."""
    clock_drift: NotNegative = 0
    """The most millionths by which clocks may be too fast or too slow."""
    granularity: Positive = 1
    """Clocks show multiples of this many ticks."""
    ordering: Literal["keys", "strict", "printed-ties", "printed-barrier", "printed-comparison"] = "keys"
    """How events are compared; the last three break the order."""
    persists: Flag = True
    """Whether an event stays in balls until it was relayed often enough, even if it does not arrive again."""
    digests: Flag = False
    """Whether balls carry names of events, and payloads travel once."""
    keep: Positive = 64
    """The number of rounds for which payloads are kept for other nodes."""
    patience: Positive = 16
    """The number of rounds to wait for a payload; after so many rounds without news a node falls silent."""
    adapts: Flag = False
    """Whether period, fanout and ttl follow from measured delays and an estimated size."""
    sampling: Literal["everybody", "cyclon"] = "everybody"
    """Whether nodes draw from all others, including failed ones, or from views that they exchange."""
    view: Positive = 30
    """The size of a view of Cyclon."""
    exchanged: Positive = 8
    """The number of view entries exchanged at a time."""
    agreement: Annotated[float, Meta(ge=0, lt=1, description="a probability below 1", examples=[0.99])] = (
        LEAST_AGREEMENT
    )
    """The least probability that an event reaches all nodes; options with a smaller one are refused."""


def epto_options(chosen: EptoTableOptions, nodes: int, loss: float) -> EptoOptions:
    """The options of all processes; a UsageError if events would not reach all nodes."""
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
    """Refuse, with a UsageError, options that cannot give agreement on a network."""
    options = epto_options(chosen, nodes, network.loss)
    if chosen.sampling == "cyclon":
        CyclonOptions(chosen.view, chosen.exchanged)
    check_pace(options, network)


def check_topics(chosen: BrisaTableOptions, nodes: int, network: NetworkTable) -> None:
    """The same check for total order on topics; it does not depend on the seed."""
    check_pace(total_options(chosen, nodes, network.loss, 1).epto, network)


def check_pace(options: EptoOptions, network: NetworkTable) -> None:
    """Refuse a period that is shorter than the delays."""
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
    """A function that builds the process at one node; a process built after the start is a newcomer."""
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
    """The clock of one node; its error is the same after a restart."""
    if chosen.clock == "logical":
        return LogicalClock()
    errors = RandomStream(seed, CLOCK_STREAM, int(environment.identifier))
    offset = int(errors.between(-chosen.skew, chosen.skew))
    drift = int(errors.between(-chosen.clock_drift, chosen.clock_drift))
    # Timestamps must not be negative: all clocks are ahead of the host's by the largest error.
    return HostClock(environment, chosen.skew + offset, drift, chosen.granularity)


def sampling_of(
    chosen: EptoTableOptions, environment: Environment, nodes: int, known: KnownNodes
) -> tuple[PeerSampling, list[int]]:
    """The peer sampling service of one node, and its initial peers: a random view, as from a directory."""
    connections, listener = Connections(environment), Neighbourhood()
    everybody = Everybody(environment, 0, connections, listener, known)
    if chosen.sampling == "everybody":
        return everybody, []
    options = CyclonOptions(chosen.view, chosen.exchanged)
    first = [int(node) for node in everybody.sample(min(chosen.view, nodes - 1))]
    return Cyclon(environment, 0, connections, listener, options), first


def no_orders(process: Process) -> list[Order]:
    """No orders: EpTO holds waiting events in a component of its own."""
    assert isinstance(process, Epto), "asked about EpTO"
    return []
