"""EpTO in scenarios: its options, its processes, and checks for configurations that cannot give agreement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec

from antiphon.fabrics.gossip.assembly.scenario import CLOCK_STREAM, total_options
from antiphon.fabrics.gossip.assembly.settings import BrisaTableOptions, Probability, Share
from antiphon.fabrics.gossip.epto.options import LEAST_AGREEMENT, EptoOptions, check_period
from antiphon.fabrics.gossip.epto.order import EptoClock, HostClock, LogicalClock
from antiphon.fabrics.gossip.epto.process import Epto
from antiphon.fabrics.gossip.sampling.cyclon import Cyclon, CyclonOptions
from antiphon.fabrics.gossip.sampling.known_nodes import Everybody, KnownNodes
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling
from antiphon.fabrics.options import Flag, NotNegative, Positive
from antiphon.fabrics.protocol import Builder, Mistake, NetworkFigures, Protocol, Setting
from antiphon.kernel.errors import UsageError
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.orders.order import Order


class EptoTableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of EpTO."""

    fanout: Annotated[Positive | None, "To how many others a ball is sent."] = None
    ttl: Annotated[
        Positive | None,
        "How often an event is relayed, and above which age it is delivered; twice that with a logical clock.",
    ] = None
    period: Annotated[Positive, "The time between two rounds."] = 125
    drift: Annotated[Share, "By how much of a period each round may be early or late."] = 0.1
    clock: Annotated[Literal["global", "logical"], "Stamps are times or counts."] = "global"
    skew: Annotated[NotNegative, "By how much clocks may be wrong, either way."] = 0
    clock_drift: Annotated[NotNegative, "By how many millionths clocks may be too fast or too slow."] = 0
    granularity: Annotated[Positive, "Clocks show multiples of it; stamps are equal more often."] = 1
    ordering: Annotated[
        Literal["keys", "strict", "printed-ties", "printed-barrier", "printed-comparison"],
        "How events are compared. The last three are the published comparisons, which break the order.",
    ] = "keys"
    persists: Annotated[
        Flag,
        "An event stays in balls until it was relayed `ttl` times; as published it leaves them when it does not come "
        "in again.",
    ] = True
    digests: Annotated[Flag, "Balls name events, and payloads travel once."] = False
    keep: Annotated[Positive, "For how many rounds a node keeps payloads for others."] = 64
    patience: Annotated[
        Positive,
        "For how many rounds a node waits for a payload before it becomes a hole; after so many rounds "
        "without news a node falls silent.",
    ] = 16
    adapts: Annotated[Flag, "Period, fanout and ttl follow from measured delays and an estimated size."] = False
    sampling: Annotated[
        Literal["everybody", "cyclon"],
        "Nodes draw from all others, the failed ones too, or from views that they exchange.",
    ] = "everybody"
    view: Annotated[Positive, "How many others a view of Cyclon holds."] = 30
    exchanged: Annotated[Positive, "How many entries an exchange of views moves."] = 8
    agreement: Annotated[
        Probability,
        "Refuse options with which an event reaches all nodes with a smaller probability; 0 refuses nothing.",
    ] = LEAST_AGREEMENT


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


def misfit_of_epto(chosen: EptoTableOptions, nodes: int, network: NetworkFigures) -> Mistake | None:
    """Refuse options with which events do not reach all nodes, or reach them after they were considered stable."""

    def check() -> None:
        options = epto_options(chosen, nodes, network.loss)
        if chosen.sampling == "cyclon":
            CyclonOptions(chosen.view, chosen.exchanged)
        check_pace(options, network)

    return complaint_of(check)


def misfit_of_topics(chosen: BrisaTableOptions, nodes: int, network: NetworkFigures) -> Mistake | None:
    """The same for total order on topics; it does not depend on the seed."""
    return complaint_of(lambda: check_pace(total_options(chosen, nodes, network.loss, 1).epto, network))


def complaint_of(check: Callable[[], None]) -> Mistake | None:
    """The complaint of a check, as a mistake in the whole table."""
    try:
        check()
    except UsageError as error:
        return Mistake((), str(error))
    return None


def check_pace(options: EptoOptions, network: NetworkFigures) -> None:
    """Refuse a period that is shorter than the delays."""
    if options.agreement > 0 and options.nodes > 1:
        check_period(int(options.period), int(options.ttl), int(network.mean_delay_ticks))


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


def clock_of(chosen: EptoTableOptions, environment: Environment, seed: int) -> EptoClock:
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


def prepare_epto(setting: Setting) -> Builder:
    """Prepare EpTO."""
    return epto_builder(setting.options, setting.nodes, setting.loss, setting.seed)


EPTO: Final = Protocol(
    EptoTableOptions, prepare_epto, no_orders, ("total",), misfit=misfit_of_epto, agrees_probably=True
)
