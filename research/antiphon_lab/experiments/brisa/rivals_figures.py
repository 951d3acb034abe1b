"""The costs of BRISA and its rivals, and their construction times: Figures 4.17 and 4.18 of the thesis of M. Matos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.messages import Data, Deactivate
from antiphon.kernel.message import ProtocolMessage
from antiphon_lab.experiments.brisa.hops import CLUSTER, PLANETLAB
from antiphon_lab.experiments.brisa.model import Counts, Growth, numbers_of
from antiphon_lab.experiments.brisa.rivals import (
    BRISA,
    HANDSHAKES,
    PLUMTREE,
    RIVALS_MODEL,
    SIMPLE_GOSSIP,
    SIMPLE_TREE,
    SYSTEMS,
    TAG,
    Rival,
    RivalRun,
)
from antiphon_lab.experiments.brisa.rivals_hosts import COST_MS, HostCase, SharedHosts
from antiphon_lab.protocols.gossip.simple_gossip import usual_fanout
from antiphon_lab.protocols.gossip.tag_list import Adopted, Seat, Visited
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
    counted,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Refutation

LARGE, SMALL, PLANETLAB_NODES, SMALL_PLANETLAB = 512, 128, 200, 100
MESSAGES = 500
"""As published, in all plans: with a tenth of them most of what BRISA costs would be the growth of its overlay."""
PAYLOADS_KB = (0, 1, 5, 10, 20)
LARGEST_KB = max(PAYLOADS_KB)
SMALLER_KB = PAYLOADS_KB[:2]
BUILDING_MESSAGES = 20
HOP_MS = 10
"""The time of a hop on the cluster."""

# Figure 4.17.


@dataclass(frozen=True)
class ReceptionCost:
    """The average reception of a node: bytes without payload, and copies of messages after the first."""

    stabilising_bytes: float
    streaming_bytes: float
    copies: float
    counted: int
    missing: int

    def megabytes(self, payload_kb: float) -> float:
        """All that is received per node if messages are so large."""
        return (self.management_bytes + self.copies * self.counted * payload_kb * 1000) / 1e6

    @property
    def management_bytes(self) -> float:
        """All that is no payload."""
        return self.stabilising_bytes + self.streaming_bytes


def measure_cost(case: Rival, seed: int) -> ReceptionCost:
    """Let a system grow and a stream go through it."""
    run = RivalRun(case, Growth(case, seed))
    run.run()
    counted = case.messages - 1
    return ReceptionCost(
        stabilising_bytes=float(np.mean(run.costs.stabilising)),
        streaming_bytes=float(np.mean(run.costs.bytes_received)),
        copies=float(np.mean(run.costs.copies_received)) / counted,
        counted=counted,
        missing=run.missing(),
    )


Costly = Results[Rival, ReceptionCost]


def cost_case(plan: Plan, system: str) -> Rival:
    """One of the systems."""
    return Rival(max(plan.sizes), MESSAGES, system=system)


def cost_cases(plan: Plan) -> list[Rival]:
    """All systems."""
    return [cost_case(plan, system) for system in SYSTEMS]


def ratio(results: Costly, plan: Plan, one: str, other: str, payload_kb: float) -> Sample:
    """The reception of one system divided by that of another."""
    samples = [results.sample(cost_case(plan, name), lambda cost: cost.megabytes(payload_kb)) for name in (one, other)]
    return samples[0].over(samples[1])


def too_many_copies(results: Costly, plan: Plan, payload_kb: float, most: float) -> Refutation:
    """The payload that SimpleGossip sends by its own parameter, beside all that BRISA sends at a size of messages."""
    fanout = usual_fanout(max(plan.sizes))
    gossip, brisa = (cost_case(plan, system) for system in (SIMPLE_GOSSIP, BRISA))
    payload = results.sample(gossip, lambda cost: cost.copies * cost.counted * payload_kb / 1000).mean
    everything = results.sample(brisa, lambda cost: cost.megabytes(payload_kb)).mean
    copies = results.sample(gossip, lambda cost: cost.copies * plan_share(plan)).mean
    least = payload / everything if everything > 0 else 0.0
    return Refutation(
        f"that SimpleGossip costs about as much as BRISA with messages of {payload_kb:g} kB, if everybody pushes to "
        f"{fanout} others",
        f"each process then gets {copies:.1f} copies of a message, and these payloads alone are {least:.1f} times all "
        "that BRISA sends",
        least > most and abs(copies / fanout - 1) < 0.1,
        least,
        2 * least,
    )


def compare_cost(plan: Plan, results: Costly) -> Iterator[Finding]:
    """The trends of the figure, then our numbers."""
    numbers = numbers_of("fig-4.17")
    cases = cost_cases(plan)
    missing = sum(cost.missing for case in cases for cost in results.of(case))
    yield promised("deliveries missing, all runs", [missing], "deliveries")
    for system in (SIMPLE_TREE, BRISA):
        yield counted(
            f"copies of a message per process, {system}",
            results.sample(cost_case(plan, system), lambda cost: cost.copies * plan_share(plan)),
            1,
            "copies",
            "in a tree every process but the source gets one copy, and links that are made meanwhile bring some more",
            within=0.02,
        )
    fanout = usual_fanout(max(plan.sizes))
    yield counted(
        "copies of a message per process against the fanout, SimpleGossip",
        results.sample(cost_case(plan, SIMPLE_GOSSIP), lambda cost: cost.copies / fanout),
        1,
        "times",
        "everybody pushes once, to the fanout",
        within=0.05,
    )
    yield compared(f"TAG against BRISA, {LARGEST_KB} kB", ratio(results, plan, TAG, BRISA, LARGEST_KB), numbers["tag"])
    yield compared(
        f"payload in what BRISA sends, {LARGEST_KB} kB",
        results.sample(cost_case(plan, BRISA), lambda cost: payload_share(cost, LARGEST_KB)),
        numbers["data"],
    )
    yield compared(
        "management of SimpleTree against BRISA", ratio(results, plan, SIMPLE_TREE, BRISA, 0), numbers["simple-tree"]
    )
    for payload in SMALLER_KB:
        yield compared(
            f"SimpleGossip against BRISA, {payload} kB",
            ratio(results, plan, SIMPLE_GOSSIP, BRISA, payload),
            numbers["gossip-small"],
            too_many_copies(results, plan, payload, numbers["gossip-small"].interval.ends(1)[1]),
        )
    yield compared(
        f"SimpleGossip against BRISA, {LARGEST_KB} kB",
        ratio(results, plan, SIMPLE_GOSSIP, BRISA, LARGEST_KB),
        numbers["gossip-large"],
    )
    for case in cases:
        yield Row(f"stabilising, {case.system}", "kB", results.sample(case, lambda cost: cost.stabilising_bytes / 1e3))
        streaming = results.sample(case, lambda cost: cost.streaming_bytes / 1e3)
        yield Row(f"management while streaming, {case.system}", "kB", streaming)
    copies = results.sample(cost_case(plan, PLUMTREE), lambda cost: cost.copies * plan_share(plan))
    yield Row("copies of a message per process, Plumtree", "copies", copies)
    yield Row("Plumtree against BRISA, 0 kB", "times", ratio(results, plan, PLUMTREE, BRISA, 0))
    yield Row(f"Plumtree against BRISA, {LARGEST_KB} kB", "times", ratio(results, plan, PLUMTREE, BRISA, LARGEST_KB))
    yield cost_figure(plan, results)
    yield Note(
        "Bytes are those that processes receive, on average; a header has 40, an address 6, a number 8. Everything of "
        "SimpleGossip counts as dissemination in the document; here what comes before the stream is shown apart. "
        "Plumtree is not in the document: its names of messages on all links that do not carry them are what the "
        "document holds against it."
    )


def plan_share(plan: Plan) -> float:
    """The source gets no copy: the mean over all is less than that over the others."""
    nodes = max(plan.sizes)
    return nodes / (nodes - 1)


def payload_share(cost: ReceptionCost, payload_kb: float) -> float:
    """How much of all that is received is payload, in percent."""
    total = cost.megabytes(payload_kb)
    return 100 * (total - cost.megabytes(0)) / total


def cost_figure(plan: Plan, results: Costly) -> Figure:
    """Figure 4.17, whole systems as lines."""
    series = tuple(
        Series(
            case.system,
            case.system,
            tuple(
                results.sample(case, lambda cost, payload=payload: cost.megabytes(payload)).point(payload)  # type: ignore[misc]
                for payload in PAYLOADS_KB
            ),
        )
        for case in cost_cases(plan)
    )
    return Figure(
        "bandwidth",
        f"What a process receives, {max(plan.sizes)} processes, {cost_case(plan, BRISA).messages} messages",
        Axis("payload of a message", "kB"),
        Axis("received per process", "MB"),
        series,
    )


# Figure 4.18.


class Construction(Counts):
    """When the links of nodes settle, as seen where messages arrive."""

    def __init__(self, nodes: int, growth: Growth) -> None:
        super().__init__(nodes)
        self._growth = growth
        self._seen: set[tuple[int, int]] = set()
        self.begun: dict[int, int] = {}
        self.settled: dict[int, int] = {}
        self.visits = 0

    def note(self, sender: int, receiver: int, message: ProtocolMessage) -> None:
        now = int(self._growth.engine.calendar.now)
        if isinstance(message, Data):
            if (receiver, int(message.sequence)) in self._seen:
                # A copy too many: the receiver tells its sender to stop, now.
                self.begun.setdefault(receiver, now)
                self.settled[receiver] = now
            self._seen.add((receiver, int(message.sequence)))
        elif isinstance(message, Deactivate):
            self.settled[receiver] = now
        elif isinstance(message, Seat):
            self.begun.setdefault(receiver, now)
        elif isinstance(message, Adopted):
            self.settled.setdefault(receiver, now)
        elif isinstance(message, Visited):
            self.visits += 1

    def times_ms(self) -> np.ndarray:
        """How long each node took, from the first message that it sent for it; one tick at least."""
        return np.array([max(1, self.settled[node] - begun) for node, begun in sorted(self.begun.items())])


@dataclass(frozen=True)
class Built:
    """The construction times of nodes, and the answers that each got on its way along the list of TAG."""

    times_ms: np.ndarray
    steps: float


def measure_construction(case: Rival, seed: int) -> Built:
    """Let a system grow and a short stream go through it."""
    run = RivalRun(case, SharedHosts(case, seed, case.cost_ms) if isinstance(case, HostCase) else Growth(case, seed))
    construction = Construction(case.nodes, run.growth)
    run.growth.counts = construction
    run.growth.is_counting = True
    run.growth.engine.run(run.end - 1)
    times = construction.times_ms()
    return Built(times, construction.visits / max(1, len(times)))


Constructed = Results[Rival, Built]


def built_cases(plan: Plan) -> list[Rival]:
    """BRISA and TAG on both networks; the document has fewer processes on PlanetLab."""
    sizes = {CLUSTER: max(plan.sizes), PLANETLAB: min(plan.sizes)}
    return [
        Rival(nodes, BUILDING_MESSAGES, network=network, system=system)
        for network, nodes in sizes.items()
        for system in (BRISA, TAG)
    ]


def shared_cases(plan: Plan) -> list[Rival]:
    """Both on the cluster with processes that share machines, as in Table 4.3."""
    return [
        HostCase(max(plan.sizes), BUILDING_MESSAGES, network=CLUSTER, system=system, cost_ms=COST_MS)
        for system in (BRISA, TAG)
    ]


def all_built_cases(plan: Plan) -> list[Rival]:
    """On both networks, and on shared machines."""
    return [*built_cases(plan), *shared_cases(plan)]


def median_ms(built: Built) -> float:
    """The time of the median node."""
    return float(np.median(built.times_ms))


def mean_ms(built: Built) -> float:
    """The mean time."""
    return float(np.mean(built.times_ms))


def compare_construction(plan: Plan, results: Constructed) -> Iterator[Finding]:
    """The faster system by size."""
    numbers = numbers_of("fig-4.18")
    brisa, tag, far_brisa, far_tag = built_cases(plan)
    near = results.sample(tag, median_ms).over(results.sample(brisa, median_ms))
    far = results.sample(far_tag, median_ms).over(results.sample(far_brisa, median_ms))
    steps = results.sample(tag, lambda built: built.steps)
    yield compared(
        "median time, TAG against BRISA, cluster", near, numbers["cluster"], walk_and_flood(tag, brisa, results)
    )
    yield compared("median time, TAG against BRISA, PlanetLab", far, numbers["planetlab"])
    shared_brisa, shared_tag = shared_cases(plan)
    shared = results.sample(shared_tag, median_ms).over(results.sample(shared_brisa, median_ms))
    why = walk_and_flood(shared_tag, shared_brisa, results)
    yield compared("median time, TAG against BRISA, cluster, shared machines", shared, numbers["cluster"], why)
    for case in all_built_cases(plan):
        where = f"{case.system}, {case.network}{', shared machines' if isinstance(case, HostCase) else ''}"
        yield Row(f"median time, {where}", "ms", results.sample(case, median_ms))
        longest = results.sample(case, lambda built: float(built.times_ms.max()))
        yield Row(f"longest time, {where}", "ms", longest)
    yield Row("answers that a node of TAG gets on its way, cluster", "messages", steps)
    yield construction_figure(plan, results)
    yield Note(
        "BRISA: from the first copy too many, which is answered by a deactivation at once, until the last link is "
        "settled, by a copy too many or a deactivation. TAG: from the place in the list to the parent. What makes a "
        "parent suitable is not in the document."
    )


def walk_and_flood(tag: Rival, brisa: Rival, results: Constructed) -> Refutation:
    """The walk of TAG along its list against a flood of BRISA, which both networks of the cluster have."""
    steps = results.sample(tag, lambda built: built.steps).mean
    walk_ms = steps * (1 + HANDSHAKES) * HOP_MS
    flood_ms = results.sample(brisa, median_ms).mean
    found_ms = results.sample(tag, mean_ms).mean
    # Shared machines make both longer; the walk never is shorter than its hops.
    return Refutation(
        "that TAG finds a place faster than BRISA on a cluster",
        f"the copies too many of one flood come within {flood_ms:.0f} ms of each other, and the {steps:.0f} steps of "
        f"TAG along the list take {walk_ms:.0f} ms, {1 + HANDSHAKES} round trips each",
        HOP_MS < flood_ms < walk_ms / 2 and 0.5 < found_ms / walk_ms < 4,
        0.25 * walk_ms / flood_ms,
        4 * walk_ms / max(flood_ms, 1e-9),
    )


def construction_figure(plan: Plan, results: Constructed) -> Figure:
    """Figure 4.18."""
    series = []
    for variant, network in enumerate((CLUSTER, PLANETLAB)):
        for case in built_cases(plan):
            if case.network == network:
                pooled = np.concatenate([built.times_ms for built in results.of(case)])
                points = tuple(Point(float(np.percentile(pooled, share)), share) for share in range(0, 101, 5))
                series.append(Series(f"{case.system}, {network}", case.system, points, variant=variant))
    return Figure(
        "construction",
        "Construction time",
        Axis("time", "ms", scale="log10"),
        Axis("processes with no more", "%"),
        tuple(series),
    )


FIG_4_17: Experiment[Rival, ReceptionCost] = Experiment(
    name="brisa/fig-4.17",
    document="thesis of M. Matos, Figure 4.17",
    description="BRISA and its rivals: bandwidth by size of messages, 512 processes",
    default=Plan((SMALL,), repetitions=3, large_repetitions=3),
    full=Plan((LARGE,), repetitions=10, large_repetitions=10, full=True),
    parameters={**RIVALS_MODEL, "messages": MESSAGES, "payloads_kb": PAYLOADS_KB},
    cases=cost_cases,
    measure=measure_cost,
    compare=compare_cost,
    meaning="What does a stream cost? Whoever has a tree pays one copy per process, and a little for keeping it; "
    "gossip pays as many copies as its fanout. As long as messages are small nobody notices.",
)

FIG_4_18: Experiment[Rival, Built] = Experiment(
    name="brisa/fig-4.18",
    document="thesis of M. Matos, Figure 4.18",
    description="BRISA and TAG: how long it takes to find a place, 512 processes on a cluster, 200 on PlanetLab",
    default=Plan((SMALL_PLANETLAB, SMALL), repetitions=3, large_repetitions=3),
    full=Plan((PLANETLAB_NODES, LARGE), repetitions=10, large_repetitions=10, full=True),
    parameters={**RIVALS_MODEL, "messages": BUILDING_MESSAGES},
    cases=all_built_cases,
    measure=measure_construction,
    compare=compare_construction,
    meaning="How long until a process has its place? In BRISA as long as copies of one flood differ on their ways; "
    "in TAG as long as a walk along the list takes, connection by connection. Where hops are long, that is longer.",
)
