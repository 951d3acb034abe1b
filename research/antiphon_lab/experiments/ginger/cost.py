"""The cost of the broker tree's fault tolerance without faults.

The dissertation on Ginger promises this comparison in its abstract and does not make it. The rivals are the broker tree
and the same brokers without the parts that only repairs need (:func:`plain_broker`): they number nothing, keep nothing,
and do not collect which broker has what. Orders, keys and total publications work the same, so that the difference is
the price. It depends on the interval of collections by the root: a long one means few messages and long buffers. One
system also has a quorum, so that it continues through partitions: total publications then go to all brokers.

Both carry the same load at the same times. Sending takes one tick, a millisecond, per message at its sender, of any
size, so that further messages delay others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import msgspec

from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.messages import (
    Carry,
    Closed,
    CollectRequest,
    CollectResponse,
    Frontier,
    Item,
    JoinResponse,
    Known,
    Proposal,
    Stable,
)
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.stability import ItemRetention
from antiphon.fabrics.tree.topic import TreeTopic
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import Keyed, ProtocolMessage
from antiphon.kernel.process import Environment
from antiphon.simulator.engine.engine import Action, Engine
from antiphon.simulator.network.delays import ConstantDelay, Delay, MatrixDelay
from antiphon_lab.experiments.ginger.bank_service import BankRun, BankSetup
from antiphon_lab.experiments.ginger.model import (
    BROKERS,
    INTERVAL_MS,
    KEYS,
    MODEL,
    ORDERS,
    PLACES,
    counted,
    delays_ms,
    tree_options,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series

OPERATIONS = 500
TRANSMISSION_MS = 1
CENSUS_MS = 100
WORD_BYTES = 8

LARGE_FAN_OUT = 3
LARGE_LINK_MS = 50
LARGE_PLACES = 5
"""Larger trees than the published one are regular, and have one bank with as many clients as the published."""

COLLECTS_MS = (1000, 5000, 20_000)
WITHOUT = "plain brokers"


def with_tolerance(collect_ms: int) -> str:
    """The name of the system that collects so often."""
    return f"collected every {collect_ms // 1000} s"


QUORUM_MS = COLLECTS_MS[1]
WITH_QUORUM = f"{with_tolerance(QUORUM_MS)}, with a quorum"
SYSTEMS: dict[str, int | None] = {
    WITHOUT: None,
    **{with_tolerance(collect): collect for collect in COLLECTS_MS},
    WITH_QUORUM: QUORUM_MS,
}
"""How often each system collects; None for the one that does not."""


def publication_words(publication: Keyed) -> int:
    """Source, number, topic, order, time and keys."""
    return 5 + len(publication.keys)


def frontier_words(frontiers: dict[int, Frontier]) -> int:
    """Per topic its name, and per broker a number."""
    return sum(1 + 2 * len(frontier) for frontier in frontiers.values())


def size_of(message: ProtocolMessage, tolerates: bool) -> int:
    """Bytes of a message: eight per number and its payload; without fault tolerance some numbers need not be there."""
    if isinstance(message, Item):
        # The broker that put it into the stream, and its number there, serve repairs alone.
        words = publication_words(message.publication) + 1 + (2 if tolerates else 0)
        return WORD_BYTES * words + len(message.publication.payload)
    if isinstance(message, Proposal):
        words = publication_words(message.publication) + (1 if tolerates else 0)
        return WORD_BYTES * words + len(message.publication.payload)
    if isinstance(message, Closed):
        return WORD_BYTES * (3 + (1 if tolerates else 0))
    return WORD_BYTES * control_words(message)


def control_words(message: ProtocolMessage) -> int:
    """The numbers in control messages about streams: received positions, and carriers."""
    if isinstance(message, CollectRequest):
        return 3 + len(message.names)
    if isinstance(message, CollectResponse):
        return 3 + frontier_words(message.frontiers)
    if isinstance(message, Carry):
        return 2
    if isinstance(message, Known):
        items = [*message.locks, *(message.history if isinstance(message, JoinResponse) else [])]
        told = (message.frontier or {}, message.base, message.completed)
        return 3 + 2 * sum(map(len, told)) + sum(publication_words(item.publication) + 3 for item in items)
    assert isinstance(message, Stable), "brokers send each other nothing else while nothing fails"
    return frontier_words(message.frontiers)


class WeighingBroker(TreeBroker):
    """Adds up the sizes of received messages. Nothing is lost, so these are also the sent ones."""

    def __init__(
        self, environment: Environment, options: TreeOptions, overlay: Overlay, retention: ItemRetention | None = None
    ) -> None:
        super().__init__(environment, options, overlay, retention)
        self.bytes_received = 0
        self._tolerates = retention is None

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.bytes_received += size_of(message, self._tolerates)
        super().receive(sender, message)


class KeepsNothing(ItemRetention):
    """Keeps no items, so that there is nothing to find out about them."""

    def keep(self, topic: TreeTopic, item: Item) -> None:
        pass


def plain_broker(environment: Environment, options: TreeOptions, overlay: Overlay) -> WeighingBroker:
    """A broker without the parts that only repairs need."""
    return WeighingBroker(environment, options, overlay, KeepsNothing())


class Census(Action):
    """Counts now and then the entries that brokers keep, while customers send requests."""

    def __init__(self, end: int) -> None:
        self._end = end
        self.kept: list[float] = []
        self.most = 0

    def run(self, engine: Engine) -> None:
        counts = [kept_at(node.process) for node in engine.nodes if isinstance(node.process, TreeBroker)]
        self.kept.append(sum(counts) / len(counts))
        self.most = max(self.most, *counts)
        if engine.calendar.now + CENSUS_MS < self._end:
            engine.at(engine.calendar.now + CENSUS_MS, self)


def kept_at(broker: TreeBroker) -> int:
    """The number of stream entries that a broker keeps for repairs."""
    return sum(len(topic.items) for topic in broker.topics.all())


@dataclass(frozen=True)
class CostCase:
    """One simulation."""

    system: str
    nodes: int
    operations: int = OPERATIONS

    def __str__(self) -> str:
        return f"{self.system}, {self.nodes} brokers"

    def setup(self) -> BankSetup:
        """The published overlay, or a larger one that is regular."""
        collect = SYSTEMS[self.system] or COLLECTS_MS[-1]
        tree = tree_options(False, collect)
        places: tuple[tuple[int, ...], ...] = PLACES
        delay: Delay = MatrixDelay(delays_ms())
        if self.nodes != BROKERS:
            tree = TreeTableOptions(fan_out=LARGE_FAN_OUT, collect=collect, strict_session=False)
            step = max(1, self.nodes // LARGE_PLACES)
            places = (tuple(range(self.nodes - 1, 0, -step))[:LARGE_PLACES],)
            delay = ConstantDelay(LARGE_LINK_MS)
        tree = msgspec.structs.replace(tree, quorum=self.system == WITH_QUORUM)
        return BankSetup(
            nodes=self.nodes,
            tree=tree,
            places=places,
            delay=delay,
            accounts=KEYS,
            operations=self.operations,
            interval_ticks=INTERVAL_MS,
            transmission_ticks=TRANSMISSION_MS,
        )


@dataclass(frozen=True)
class BrokerCost:
    """The costs of a run, per publication; ``kept`` is the mean over brokers and time, ``kept_most`` at one broker."""

    messages: float
    bytes: float
    latency: dict[str, float]
    kept: float
    kept_most: int
    wrong: int


def measure(case: CostCase, seed: int) -> BrokerCost:
    """Run the customers' load, and add up the messages of brokers."""
    make = plain_broker if SYSTEMS[case.system] is None else WeighingBroker
    run = BankRun(case.setup(), seed, None, make)
    census = Census(case.operations * INTERVAL_MS)
    run.engine.at(CENSUS_MS, census)
    run.run()
    engine = run.engine
    received = sum(broker.bytes_received for broker in run.processes() if isinstance(broker, WeighingBroker))
    return BrokerCost(
        messages=int(engine.sent) / int(engine.published),
        bytes=received / int(engine.published),
        latency={order: run.service.latency[order].mean for order in ORDERS},
        kept=sum(census.kept) / len(census.kept),
        kept_most=census.most,
        wrong=sum(not audit.is_good for audit in run.audit()) + run.stuck(),
    )


Found = Results[CostCase, BrokerCost]


def cases(plan: Plan) -> list[CostCase]:
    """All systems at all sizes."""
    return [CostCase(system, nodes) for nodes in plan.sizes for system in SYSTEMS]


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """Each quantity of each system, and the difference that fault tolerance makes."""
    wrong = sum(cost.wrong for case in cases(plan) for cost in results.of(case))
    yield promised("banks in disorder and brokers stuck, all runs", [wrong])
    for nodes in plan.sizes:
        yield from compare_size(nodes, results)
    yield trade_figure(plan, results)
    yield Note(
        "A round of collecting takes three messages per link: the question, the answer and the result. Entries of "
        "streams carry the broker that put them there and a number, 16 bytes each, and what is agreed on in an epoch "
        "its number, 8 bytes. Nothing else is sent for the sake of repairs while nothing fails. With a quorum a topic "
        "with total publications goes to all brokers, also those without subscribers, because whoever orders after a "
        "partition must know of them; that is all it adds. Bytes are 8 per "
        "number and the payload, without what a transport adds to each message."
    )
    yield Note(
        "Kept entries bound what a broker that was cut off can still be sent. The document keeps the last 150 messages "
        "of each topic, whether anybody needs them or not, and loses what is older."
    )


def latency_of(order: str, cost: BrokerCost) -> float:
    """The latency of one order."""
    return cost.latency[order]


def compare_size(nodes: int, results: Found) -> Iterator[Row]:
    """One size."""
    quantities: list[tuple[str, str, Callable[[BrokerCost], float]]] = [
        ("messages per publication", "messages", attrgetter("messages")),
        ("bytes per publication", "bytes", attrgetter("bytes")),
        *((f"latency, {word}", "ms", partial(latency_of, order)) for order, word in ORDERS.items()),
    ]
    for name, unit, quantity in quantities:
        without = results.sample(CostCase(WITHOUT, nodes), quantity)
        for system, collect in SYSTEMS.items():
            measured = results.sample(CostCase(system, nodes), quantity)
            yield Row(f"{name}, {CostCase(system, nodes)}", unit, measured)
            if collect is not None:
                label = f"{name}, {CostCase(system, nodes)}, more than {WITHOUT}"
                yield Row(label, "%", measured.increase_over(without))
    for system, collect in SYSTEMS.items():
        if collect is not None:
            case = CostCase(system, nodes)
            yield Row(f"kept entries per broker, {case}", "entries", results.sample(case, lambda cost: cost.kept))
            most = results.sample(case, lambda cost: float(cost.kept_most))
            yield Row(f"most kept entries at one broker, {case}", "entries", most)


def trade_figure(plan: Plan, results: Found) -> Figure:
    """Messages against memory, by how often is collected."""
    series = []
    for variant, nodes in enumerate(plan.sizes):
        without = results.sample(CostCase(WITHOUT, nodes), lambda cost: cost.messages)
        points = []
        for collect in COLLECTS_MS:
            case = CostCase(with_tolerance(collect), nodes)
            kept = results.sample(case, lambda cost: cost.kept).mean
            more = results.sample(case, lambda cost: cost.messages).increase_over(without)
            points.append(more.point(kept))
        series.append(Series(counted(nodes, "broker"), "fault tolerance", tuple(points), variant=variant))
    return Figure(
        "trade",
        "What collecting costs and saves",
        Axis("kept entries per broker", scale="log10"),
        Axis("more messages than plain brokers", "%"),
        tuple(series),
        caption="From left to right: what all have got is found out every 1, 5 and 20 s.",
    )


COST: Experiment[CostCase, BrokerCost] = Experiment(
    name="ginger/cost",
    document="promised in the abstract of the dissertation on Ginger, not published: our own",
    description="the broker tree: what fault tolerance costs while nothing fails",
    default=Plan((BROKERS, 64), repetitions=5, large_repetitions=5),
    full=Plan((BROKERS, 64, 256), repetitions=20, large_repetitions=20, full=True),
    parameters={
        **MODEL,
        "operations_per_client": OPERATIONS,
        "keys": KEYS,
        "transmission_ms": TRANSMISSION_MS,
        "larger_trees": f"{LARGE_FAN_OUT} children per broker, {LARGE_LINK_MS} ms per link, one bank at {LARGE_PLACES} "
        "brokers",
        "collect_ms": COLLECTS_MS,
        "faults": "none",
        "sessions": "not strict",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Who never meets a crash pays for it nevertheless: how much? Brokers that can be repaired number what they "
    "hand on, keep it until all have it, and the root asks now and then who has got what. While a bank is busy that is "
    "a few messages among thousands, some bytes in each message, and nothing that customers could notice. The buffers "
    "are as long as the load between two rounds of asking.",
)
