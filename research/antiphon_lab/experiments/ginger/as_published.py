"""Ginger as published beside ours: Figure 5.4 of the dissertation, and the two times in its logs.

Both carry the same load on the published overlay. As published, brokers hold publications during a repair, and lose,
repeat or reorder some of them (:mod:`antiphon_lab.protocols.tree.ginger` lists the gaps), so beside latencies stand the
deliveries that never came. The logs of annexes VII and VIII are of this protocol: a repair takes the path that they
show, with other times. The document does not say how long links take that a repair makes. **Regional** gives them the
delays of its regions, **short** draws them like links within a region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from antiphon.audit.oracle import judge
from antiphon.kernel.message import NONE, UNSPECIFIED, ProtocolMessage
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.simulator.network.delays import MatrixDelay
from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.ginger.bank_service import BankRun, BankSetup
from antiphon_lab.experiments.ginger.model import (
    AMERICA,
    AS_PUBLISHED,
    BETWEEN_MS,
    BROKERS,
    CAUSAL,
    EUROPE,
    EVENTUAL,
    FAULTS,
    KEYS,
    MAX_HOPS,
    MODEL,
    ORDERS,
    PARENTS,
    PATIENCE_MS,
    PLACES,
    TOTAL,
    TOTAL_DEGREE,
    BankCase,
    counted,
    delays_ms,
)
from antiphon_lab.protocols.tree.ginger import PublishedBroker
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, compared, promised
from antiphon_lab.reproduction.verdicts import Fitted, Refutation
from antiphon_lab.scenarios.tree import PublishedTreeOptions, published_tree_builder

AS_PRINTED = "Ginger as published"
REGIONAL, SHORT = "regional", "short"
OPERATIONS = 500
LOG_VII = (3,)
LOG_VIII = (1,)
PARENT_SIDE, ORPHAN = 0, 5
PLACES_PER_BANK = max(map(len, PLACES))
SLACK_MS = 5
"""Held publications are released within ticks of the last answer."""


@dataclass(frozen=True)
class PublishedCase(BankCase):
    """One simulation; ``links`` says how long links take that repairs make."""

    links: str = REGIONAL

    @property
    def is_strict(self) -> bool:
        """In the document a client's causal publications may overtake its own total ones."""
        return False

    def __str__(self) -> str:
        crashed = f"crash of {', '.join(map(str, self.faults))}" if self.faults else "no crash"
        return f"{self.system}, {crashed}{'' if self.links == REGIONAL else ', short links'}"

    def setup(self, seed: int) -> BankSetup:
        """The system and its load; each repetition draws the delays that the document leaves open."""
        return replace(super().setup(seed), delay=MatrixDelay(delays_ms(seed, short_repairs=self.links == SHORT)))


@dataclass(frozen=True)
class PublishedRun:
    """One run: latencies by order, deliveries that never came, and the repairs of two brokers in ms.

    ``rounds`` and ``parent`` are those of the orphan of annex VIII; a repair that did not happen, or end, has -1.
    """

    mean: dict[str, float]
    missing: int
    stuck: int
    parent_side_ms: int = -1
    orphan_ms: int = -1
    rounds: int = -1
    parent: int = -1


class NotingPublishedBroker(Process):
    """A broker as published, with the times at which its first repair begins and ends."""

    def __init__(self, broker: PublishedBroker) -> None:
        super().__init__(broker.environment)
        self.broker = broker
        self.begun = -1
        self.ended = -1

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        return self.broker.publish(payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        return self.broker.publish_about(keys, payload, topic, order)

    def start(self) -> None:
        self.broker.start()

    def unfinished(self) -> int:
        return self.broker.unfinished()

    def peer_lost(self, peer: int) -> None:
        self.broker.peer_lost(peer)
        if self.begun < 0 and self.broker.is_reconfiguring():
            self.begun = int(self.environment.now())

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.broker.receive(sender, message)
        self._look()

    def expire(self, name: int) -> None:
        self.broker.expire(name)
        self._look()

    def _look(self) -> None:
        if self.begun >= 0 and self.ended < 0 and not self.broker.is_reconfiguring():
            self.ended = int(self.environment.now())

    @property
    def repair_ms(self) -> int:
        """How long it took, -1 if it did not happen or has no end."""
        return self.ended - self.begun if self.ended >= 0 else -1


def measure(case: PublishedCase, seed: int) -> PublishedRun:
    """Let customers ask while brokers crash."""
    trace = MemoryTrace("deliveries")
    options = PublishedTreeOptions(
        parents=list(PARENTS), total_degree=TOTAL_DEGREE, max_hops=MAX_HOPS, patience=PATIENCE_MS
    )
    broker = published_tree_builder(options, BROKERS, "total", PLACES)

    def build(environment: Environment) -> Process:
        process = broker(environment)
        assert isinstance(process, PublishedBroker), "the builder builds brokers as published"
        return NotingPublishedBroker(process)

    run = BankRun(case.setup(seed), seed, trace.recorder, build=build if case.system == AS_PRINTED else None)
    run.run()
    found = PublishedRun(
        mean={order: run.service.latency[order].mean for order in ORDERS},
        missing=int(judge(trace.table(), BROKERS, default=NONE).counts.get("completeness", 0)),
        stuck=run.stuck(),
    )
    brokers = {int(process.me): process for process in run.processes() if isinstance(process, NotingPublishedBroker)}
    if not brokers or PARENT_SIDE not in brokers or ORPHAN not in brokers:
        return found
    orphan = brokers[ORPHAN]
    return replace(
        found,
        parent_side_ms=brokers[PARENT_SIDE].repair_ms,
        orphan_ms=orphan.repair_ms,
        rounds=int(orphan.broker.rounds),
        parent=int(orphan.broker.parent) if orphan.broker.parent != NO_NODE else -1,
    )


Found = Results[PublishedCase, PublishedRun]


def case_of(system: str, faults: tuple[int, ...], links: str = REGIONAL) -> PublishedCase:
    """One simulation."""
    return PublishedCase(system, faults, KEYS, OPERATIONS, links=links)


def cases(_plan: Plan) -> list[PublishedCase]:
    """Both systems by number of faults, then the crashes of the logs with both readings of links."""
    found = [case_of(system, faults) for system in (AS_PRINTED, AS_PUBLISHED) for faults in FAULTS.values()]
    logs = [case_of(AS_PRINTED, faults, links) for faults in (LOG_VII, LOG_VIII) for links in (REGIONAL, SHORT)]
    return list(dict.fromkeys(found + logs))


def mean_of(order: str, found: PublishedRun) -> float:
    """The mean latency of an order."""
    return found.mean[order]


def compare(_plan: Plan, results: Found) -> Iterator[Finding]:
    """The statements of the text about orders, checked on the protocol as published; then the logs and the losses."""
    numbers = document("ginger").numbers
    for count, faults in FAULTS.items():
        total = results.sample(case_of(AS_PRINTED, faults), partial(mean_of, TOTAL))
        for order, name in ((EVENTUAL, "fig-5.4/total-above-eventual"), (CAUSAL, "fig-5.4/total-above-causal")):
            other = results.sample(case_of(AS_PRINTED, faults), partial(mean_of, order))
            label = f"total / {ORDERS[order]}, {counted(count, 'fault')}, {AS_PRINTED}"
            yield compared(label, total.over(other), numbers[name])
    for order, word in ORDERS.items():
        most, none = (results.sample(case_of(AS_PRINTED, FAULTS[count]), partial(mean_of, order)) for count in (3, 0))
        yield compared(f"{word}, 3 faults / none, {AS_PRINTED}", most.over(none), numbers["fig-5.4/faults"])
    yield from compare_logs(results)
    yield from compare_losses(results)
    for system in (AS_PRINTED, AS_PUBLISHED):
        for count, faults in FAULTS.items():
            about = f"{counted(count, 'fault')}, {system}"
            for order, word in ORDERS.items():
                yield Row(
                    f"latency, {word}, {about}", "ms", results.sample(case_of(system, faults), partial(mean_of, order))
                )
            yield Row(f"work that never ended, {about}", "pieces", results.sample(case_of(system, faults), stuck))
    yield Note(
        "As published, a client's publications overtake its own total ones, and a crash loses publications or leaves "
        "total ones open for ever. Ours loses none: its brokers compare everything that both have, not the last number "
        "of each source."
    )


def compare_losses(results: Found) -> Iterator[Row]:
    """The messages that never arrived, in both systems."""
    number = document("ginger").numbers["section-6/no-loss"]
    for count, faults in FAULTS.items():
        lost, ours = (results.sample(case_of(system, faults), missing) for system in (AS_PRINTED, AS_PUBLISHED))
        why = Refutation(
            "that failures lose no message",
            f"the judge of deliveries, which knows no protocol, finds {lost.mean:.3g} that never came in the protocol "
            f"as printed, and {ours.mean:g} in ours with the same load and the same crashes",
            lost.mean > 0 and max(ours.values) == 0,
            1,
            PLACES_PER_BANK * OPERATIONS,
        )
        label = f"deliveries that never came, {counted(count, 'fault')}"
        yield compared(f"{label}, {AS_PRINTED}", lost, number, why)
        yield promised(f"{label}, {AS_PUBLISHED}", ours.values, "deliveries")


def missing(found: PublishedRun) -> float:
    """Deliveries that never came."""
    return float(found.missing)


def stuck(found: PublishedRun) -> float:
    """Work that never ended."""
    return float(found.stuck)


def compare_logs(results: Found) -> Iterator[Row]:
    """The two times, on links with both delays, and the path of the second."""
    numbers = document("ginger").numbers
    far, near = (results.sample(case_of(AS_PRINTED, LOG_VII, links), parent_side_ms) for links in (REGIONAL, SHORT))
    label = f"broker {PARENT_SIDE} after the crash of 3"
    number = numbers["annex-vii/parent-side"]
    link_ms = delays_ms()[PARENT_SIDE][7]
    yield compared(
        f"{label}, regional links",
        far,
        number,
        Refutation(
            f"a reconfiguration of {number.value:g} ms between Europe and Asia",
            f"request, answer and lost messages go over one link, {link_ms} ms each by the document's delays: "
            f"{3 * link_ms} ms, and in {number.value:g} ms not even one can have arrived",
            link_ms > number.value,
            3 * link_ms,
            3 * link_ms + SLACK_MS,
        ),
    )
    basis = Fitted("the delays of links that repairs make, drawn like those within a region", "nothing else here")
    yield compared(f"{label}, short links", near, number, basis=basis)
    slow = results.sample(case_of(AS_PRINTED, LOG_VIII), orphan_ms)
    number = numbers["annex-viii/three-rounds"]
    trip_ms = 2 * BETWEEN_MS[frozenset((EUROPE, AMERICA))]
    label = f"broker {ORPHAN} after the crash of 1"
    yield compared(
        f"{label}, regional links",
        slow,
        number,
        Refutation(
            f"a reconfiguration of {number.value:g} ms with two of three rounds between America and Europe",
            f"each round is a round trip of {trip_ms} ms, and the missed messages take a third: {3 * trip_ms} ms "
            "without the round within America",
            3 * trip_ms > number.value,
            3 * trip_ms,
            3 * trip_ms + 2 * 70 + SLACK_MS,
        ),
    )
    fast = results.sample(case_of(AS_PRINTED, LOG_VIII, SHORT), orphan_ms)
    yield Row(f"{label}, short links", "ms", fast)
    path: tuple[tuple[str, str, Callable[[PublishedRun], float]], ...] = (
        ("rounds", "annex-viii/rounds", lambda found: float(found.rounds)),
        ("the new parent", "annex-viii/parent", lambda found: float(found.parent)),
    )
    for what, name, quantity in path:
        yield compared(f"{label}, {what}", results.sample(case_of(AS_PRINTED, LOG_VIII), quantity), numbers[name])


def parent_side_ms(found: PublishedRun) -> float:
    """The repair at the broker that lost a child."""
    return float(found.parent_side_ms)


def orphan_ms(found: PublishedRun) -> float:
    """The repair at the broker that lost its parent."""
    return float(found.orphan_ms)


GINGER_AS_PUBLISHED: Experiment[PublishedCase, PublishedRun] = Experiment(
    name="ginger/as-published",
    document="dissertation on Ginger, section 5.4.2, Figure 5.4, annexes VII and VIII",
    description="the broker tree as published beside ours: latency by order and faults, lost deliveries, two repairs",
    default=Plan((BROKERS,), repetitions=5, large_repetitions=5),
    full=Plan((BROKERS,), repetitions=20, large_repetitions=20, full=True),
    parameters={**MODEL, "operations_per_client": OPERATIONS, "delays_ms": "drawn anew for each repetition"},
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What did the document measure? The protocol as printed gives the orders in the order of the text, and a "
    "repair takes the path of its log: three rounds, refused twice, and broker 2 as the new parent. The times of the "
    "logs are shorter than the delays of the regions allow; links that a repair made must have been faster. And every "
    "crash costs deliveries, which the document does not count.",
)
