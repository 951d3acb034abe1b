"""Many topics: Figure 5.10 of the thesis, Figure 7 of the SBAC-PAD paper.

256 nodes are members of all of 128 topics. Each publishes on average every 500 ticks on a topic drawn at random, either
uniformly or by Zipf's law with exponent 0.825, until there are 2^7 to 2^14 messages in all. VCube-PS has the trees of
its publishers whatever the topic; SRPT has a root per topic, and by Zipf's law some roots have much to do.

The text has two numbers, the increases of latency by Zipf's law. Neither follows from the model as described. The
notes list the variants that were tried, and our conclusions.
"""

from __future__ import annotations

import gc
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from antiphon.audit.oracle import judge
from antiphon.fabrics.cube.topology import full_or_partial
from antiphon.fabrics.cube.vcube_ps import Options, VCubePs
from antiphon.fabrics.cube.view import View
from antiphon.kernel.process import Environment
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.simulator.scenario.subscriptions import draw_nodes
from antiphon.simulator.scenario.workload import WORD_BITS, draw_exponential
from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.vcube.one_topic import (
    MODEL,
    ONE_ROOT,
    PROCESSING_TICKS,
    PROPAGATION_TICKS,
    PUBLISHED,
    REPAIRED,
    TRANSMISSION_TICKS,
    Build,
)
from antiphon_lab.protocols.cube.srpt import SingleRootPerTopic, SrptOptions
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubeOptions, PublishedVCubePs
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    compared,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series, published_point, published_series

NODES = 256
NODES_PER_TOPIC = 2
MEAN_GAP_TICKS = 500
EXPONENT = 0.825
SHARES = tuple(2.0**power for power in range(-1, 7))
"""Messages per node: 2^7 to 2^14 messages of 256 nodes."""
VARIANT_SHARE = 4.0
JUDGED_SHARE = 1.0
"""Up to this many messages per node the oracle judges VCube-PS; it takes longer than the run."""

UNIFORM = "uniform"
ZIPF = "Zipf"

DRAWN = "drawn"
APART = "apart"
SHARED = "shared"

ROOT_STREAM = 107
PUBLISHER_STREAM = 108
MESSAGE_STREAM = 109


@dataclass(frozen=True)
class TopicsCase:
    """One simulation. ``roots`` places the roots of SRPT; ``charged``: whether acknowledgements cost anything."""

    system: str
    nodes: int
    messages: int
    law: str
    roots: str = DRAWN
    charged: bool = False

    @property
    def topics(self) -> int:
        """How many topics there are."""
        return max(1, self.nodes // NODES_PER_TOPIC)

    def __str__(self) -> str:
        roots = {DRAWN: "", APART: ", no two roots at one node", SHARED: ", one node is root of the two hottest"}
        charged = ", acknowledgements charged" if self.charged else ""
        return f"{self.system}, {self.messages} messages, {self.law}{roots[self.roots]}{charged}"


@dataclass(frozen=True)
class TopicLatency:
    """Mean latencies in ticks: from the application's call, and from when the publisher could start."""

    from_call: float
    from_start: float
    violations: int


@cache
def borders(law: str, topics: int) -> list[int]:
    """Where the topics end among the 2**32 random words; topic 0 is the hottest."""
    weights = [1.0 if law == UNIFORM else (rank + 1) ** -EXPONENT for rank in range(topics)]
    total = sum(weights)
    return [round((1 << WORD_BITS) * reached / total) for reached in accumulate(weights)]


def schedule(case: TopicsCase, seed: int) -> Iterator[tuple[int, int, int]]:
    """Time, node and topic of all publications: shared out evenly, exponential gaps, the same times for both laws."""
    borders_of_topics = borders(case.law, case.topics)
    random = RandomStream(seed, PUBLISHER_STREAM)
    publishers = draw_nodes(min(case.messages, case.nodes), case.nodes, random)
    for number, publisher in enumerate(publishers):
        random = RandomStream(seed, MESSAGE_STREAM, publisher)
        elapsed = 0
        for _ in range(number, case.messages, len(publishers)):
            elapsed += draw_exponential(random) * MEAN_GAP_TICKS
            yield elapsed >> WORD_BITS, publisher, bisect_right(borders_of_topics, random.word())


def roots_of(case: TopicsCase, seed: int) -> list[int]:
    """The roots of all topics."""
    random = RandomStream(seed, ROOT_STREAM)
    if case.roots == DRAWN:
        return [int(random.below(case.nodes)) for _ in range(case.topics)]
    chosen = draw_nodes(case.topics, case.nodes, random)
    # They come in ascending order, but the hottest topics should not have the lowest nodes.
    for position in range(len(chosen) - 1, 0, -1):
        other = random.below(position + 1)
        chosen[position], chosen[other] = chosen[other], chosen[position]
    if case.roots == SHARED and len(chosen) > 1:
        chosen[1] = chosen[0]
    return chosen


def build_of(case: TopicsCase, seed: int) -> Build:
    """The processes of a case, all of them members of everything."""
    cube = full_or_partial(case.nodes)
    view = View(cube.dimension, range(case.nodes))
    published, repaired = PublishedVCubeOptions.minimal(), Options()
    single = SrptOptions(cube, case.nodes, roots_of(case, seed))

    def build(environment: Environment) -> PublishedVCubePs | VCubePs | SingleRootPerTopic:
        process: PublishedVCubePs | VCubePs | SingleRootPerTopic
        if case.system == PUBLISHED:
            process = PublishedVCubePs(environment, cube, published)
        elif case.system == REPAIRED:
            process = VCubePs(environment, cube, repaired)
        else:
            process = SingleRootPerTopic(environment, single)
        for topic in range(case.topics):
            process.begin_as_member(topic, view)
        return process

    return build


def measure(case: TopicsCase, seed: int) -> TopicLatency:
    """Run one case; of VCube-PS as published receptions are measured, of ours deliveries."""
    judged = case.system != ONE_ROOT and case.messages <= JUDGED_SHARE * case.nodes
    trace = MemoryTrace("deliveries") if judged else None
    network = NetworkModel(
        ConstantDelay(PROPAGATION_TICKS), TRANSMISSION_TICKS, PROCESSING_TICKS, charge_control=case.charged
    )
    collecting = gc.isenabled()
    # Nothing of the system is garbage before it has run, and the collector would look through it again and again.
    gc.disable()
    try:
        engine = Engine(case.nodes, network, build_of(case, seed), seed, None if trace is None else trace.recorder)
        for at, node, topic in schedule(case, seed):
            engine.at(at, PublishAction(node, b"", topic))
        engine.run()
    finally:
        if collecting:
            gc.enable()
    latency = int(engine.reception_ticks) / int(engine.receptions)
    if case.system != PUBLISHED:
        latency = int(engine.latency_sum) / int(engine.deliveries - engine.own_deliveries)
    violations = 0 if trace is None else sum(judge(trace.table(), case.nodes).counts.values())
    return TopicLatency(latency, latency - int(engine.start_ticks) / int(engine.own_deliveries), violations)


def message_counts(nodes: int) -> list[int]:
    """How many messages the points of the figure have."""
    return [max(1, int(share * nodes)) for share in SHARES]


def counts_of(plan: Plan) -> list[int]:
    """How many messages are simulated: all points of the figure, or every third one up to the last."""
    counts = message_counts(plan.sizes[0])
    return counts if plan.full else counts[1::3]


def cases(plan: Plan) -> list[TopicsCase]:
    """The four curves, possible places of the hottest topics' roots, and cases that the documents do not show."""
    nodes = plan.sizes[0]
    found = [
        TopicsCase(system, nodes, messages, law)
        for messages in counts_of(plan)
        for system in (PUBLISHED, ONE_ROOT)
        for law in (UNIFORM, ZIPF)
    ]
    most = counts_of(plan)[-1]
    found += [TopicsCase(ONE_ROOT, nodes, most, ZIPF, roots) for roots in (APART, SHARED)]
    return found + variants(nodes) if plan.full else found


def variants(nodes: int) -> list[TopicsCase]:
    """Acknowledgements at their full cost, for the published protocol and for ours."""
    messages = int(VARIANT_SHARE * nodes)
    return [TopicsCase(REPAIRED, nodes, messages, law) for law in (UNIFORM, ZIPF)] + [
        TopicsCase(system, nodes, messages, law, charged=True)
        for system in (PUBLISHED, REPAIRED)
        for law in (UNIFORM, ZIPF)
    ]


from_call: Callable[[TopicLatency], float] = operator.attrgetter("from_call")
from_start: Callable[[TopicLatency], float] = operator.attrgetter("from_start")


class TopicCurves:
    """The measurements, by system, law and number of messages."""

    def __init__(self, plan: Plan, results: Results[TopicsCase, TopicLatency]) -> None:
        self.plan = plan
        self.nodes = plan.sizes[0]
        self.counts = counts_of(plan)
        self._results = results

    def of(self, case: TopicsCase, quantity: Callable[[TopicLatency], float] = from_call) -> Sample:
        """One point."""
        return self._results.sample(case, quantity)

    def increase(
        self, system: str, messages: int, quantity: Callable[[TopicLatency], float] = from_call, roots: str = DRAWN
    ) -> Sample:
        """By how much Zipf's law is slower, in percent."""
        zipf = self.of(TopicsCase(system, self.nodes, messages, ZIPF, roots), quantity)
        return zipf.increase_over(self.of(TopicsCase(system, self.nodes, messages, UNIFORM), quantity))

    def mean_increase(self, system: str) -> Sample:
        """The same, averaged over the points of the curve."""
        found = [self.increase(system, messages).values for messages in self.counts]
        return Sample(tuple(sum(values) / len(values) for values in zip(*found, strict=True)))

    def extra_hop(self) -> Sample:
        """The cost of the hop to the root, where there are fewest messages."""
        single, many = (
            self.of(TopicsCase(system, self.nodes, self.counts[0], UNIFORM)) for system in (ONE_ROOT, PUBLISHED)
        )
        return single.with_other(operator.sub, many)


def compare(plan: Plan, results: Results[TopicsCase, TopicLatency]) -> Iterator[Finding]:
    """The numbers of the text, then the figure and the variants."""
    curves = TopicCurves(plan, results)
    if curves.nodes == NODES:
        yield from compare_text(curves)
    else:
        yield Note(f"Published for {NODES} nodes; nothing is compared at {curves.nodes}.")
    found = [latency.violations for case in cases(plan) for latency in results.of(case)]
    label = f"violations found by the oracle, VCube-PS, up to {int(JUDGED_SHARE * curves.nodes)} messages"
    yield promised(label, found)
    yield from figures(curves)
    for case in cases(plan):
        yield Row(f"latency, {case}", "ticks", curves.of(case))
    for law in (UNIFORM, ZIPF):
        case = TopicsCase(PUBLISHED, curves.nodes, curves.counts[-1], law)
        yield Row(f"latency from the start, {case}", "ticks", curves.of(case, from_start))
    yield from beliefs(curves)


def figures(curves: TopicCurves) -> Iterator[Figure]:
    """The four curves, and the cost of Zipf's law, which the text mentions."""
    series = [
        Series(
            f"{system}, {law}",
            system,
            tuple(curves.of(TopicsCase(system, curves.nodes, count, law)).point(count) for count in curves.counts),
            variant=variant,
        )
        for system in (PUBLISHED, ONE_ROOT)
        for variant, law in enumerate((UNIFORM, ZIPF))
    ]
    messages = Axis("number of messages", scale="log2")
    yield Figure(
        "latency",
        f"Reception latency over {curves.nodes // NODES_PER_TOPIC} topics",
        messages,
        Axis("reception latency", "ticks"),
        tuple(series),
        caption="Latency counts from the application's call, with the wait for the acknowledgements of the publication "
        "before. The published plot has no readable values.",
    )
    numbers, most = document("thesis").numbers, message_counts(NODES)[-1]
    increases = [
        Series(
            f"{system}, Zipf above uniform",
            system,
            tuple(curves.increase(system, count).point(count) for count in curves.counts),
        )
        for system in (PUBLISHED, ONE_ROOT)
    ]
    if curves.nodes == NODES:
        for system, key in ((PUBLISHED, "vcube-ps"), (ONE_ROOT, "srpt")):
            point = published_point(most, numbers[f"fig-5.10/{key}-zipf"])
            increases += published_series(system, system, [point])
    yield Figure("increase", "What Zipf's law costs", messages, Axis("more latency", "%"), tuple(increases))


def compare_text(curves: TopicCurves) -> Iterator[Row | Note]:
    """The published increases at the most messages, and the reading that comes nearest to one of them."""
    thesis, most = document("thesis").numbers, curves.counts[-1]
    label = f"SRPT above VCube-PS, {curves.counts[0]} messages"
    yield compared(label, curves.extra_hop(), document("sbac-pad").numbers["fig-7/extra-hop"])
    label = f"SRPT, Zipf above uniform, {most} messages"
    yield compared(label, curves.increase(ONE_ROOT, most), thesis["fig-5.10/srpt-zipf"])
    yield Note(luck_of_roots(curves))
    number = thesis["fig-5.10/vcube-ps-zipf"]
    # The text says "on average" of VCube-PS: what is compared is the mean over the points of the curve.
    label = f"VCube-PS, Zipf above uniform, {most} messages"
    yield Row(label, "%", curves.increase(PUBLISHED, most))
    yield Note(waiting_at_publishers(curves))
    label = "VCube-PS, Zipf above uniform, mean over all numbers of messages"
    yield compared(label, curves.mean_increase(PUBLISHED), number)


def luck_of_roots(curves: TopicCurves) -> str:
    """Why the increase of SRPT depends on which topics share a root more than on anything else."""
    most = curves.counts[-1]
    apart, shared = (curves.increase(ONE_ROOT, most, roots=roots).mean for roots in (APART, SHARED))
    share, load = hottest_root(curves.nodes)
    return (
        "The increase of SRPT depends on where the roots of hot topics happen to be. The hottest topic has "
        f"{100 * share:.0f} % of the "
        f"messages, and its root is busy for {100 * load:.0f} % of the time, so it has no room for another hot topic. "
        f"If no node is root of two topics Zipf's law costs {apart:.1f} %; if one is root of the two hottest, "
        f"{shared:.0f} %. Where roots were drawn 40 times the increase was between 0 and 61 %, and 9 % on average. The "
        "authors may have drawn them once for all repetitions."
    )


def hottest_root(nodes: int) -> tuple[float, float]:
    """The share of messages on the hottest topic, and the share of time that its root spends sending.

    All nodes publish at the given rate; a root sends a copy to each of its children, and for other topics a node sends
    as many copies as it receives.
    """
    share = borders(ZIPF, max(1, nodes // NODES_PER_TOPIC))[0] / (1 << WORD_BITS)
    rate = nodes / MEAN_GAP_TICKS
    height = nodes.bit_length() - 1
    return share, rate * TRANSMISSION_TICKS * (share * height + (1 - share) * (nodes - 1) / nodes)


def waiting_at_publishers(curves: TopicCurves) -> str:
    """Why the topic matters to VCube-PS at all."""
    most = curves.counts[-1]
    started, called = (curves.increase(PUBLISHED, most, quantity).mean for quantity in (from_start, from_call))
    started = round(started, 1) + 0.0
    return (
        "The trees of VCube-PS do not depend on the topic. The law of topics acts only through the wait of a publisher "
        "for the acknowledgements of its previous publication on the same topic: counted from the start of a "
        f"publication Zipf's law costs {started:g} %, counted from the application's call {called:.0f} % at this many "
        "messages, and less at fewer, because the first publication on a topic waits for none. The text says 'on "
        "average': the mean over the points of the curve is in the next row."
    )


def beliefs(curves: TopicCurves) -> Iterator[Note]:
    """Variants that were tried, and the cost of acknowledgements."""
    if not curves.plan.full:
        yield Note("Every other number of messages was simulated, so means are over these; a full run has all of them.")
    yield Note(
        "Tried for both laws: gaps that are exponential, constant, uniform and Poisson, publishers in step and not, "
        "messages shared out evenly and drawn, roots drawn with and without repetition, acknowledgements free and "
        "charged, latency from the call and from the start. Nothing but the choice of roots moves SRPT beyond 17 %."
    )
    share = (curves.nodes - 1) / MEAN_GAP_TICKS
    messages = int(VARIANT_SHARE * curves.nodes)
    yield Note(
        f"At this rate every node sends {share:.2f} copies per tick; with acknowledgements charged it would be "
        f"{2 * share:.2f}, so that nodes saturate and latency grows with the number of messages. The variants are "
        f"therefore shown for {messages} messages. VCube-PS repaired lets 64 publications per source and topic be on "
        "their way, so it does not depend on the law of topics, and serves the largest subtree first."
    )


FIG_5_10: Experiment[TopicsCase, TopicLatency] = Experiment(
    name="vcube-ps/fig-5.10",
    document="thesis, Figure 5.10 and section 5.6.5 (SBAC-PAD paper, Figure 7)",
    description="many topics: VCube-PS against a root per topic, topics drawn uniformly or by Zipf's law",
    default=Plan((NODES,), repetitions=3, large_repetitions=3),
    full=Plan((NODES,), repetitions=40, large_repetitions=40, full=True),
    parameters={
        **MODEL,
        "topics": NODES // NODES_PER_TOPIC,
        "members": "all nodes of all topics",
        "gaps": f"exponential, mean {MEAN_GAP_TICKS} ticks for each node; messages shared out evenly",
        "zipf_exponent": EXPONENT,
        "roots": "drawn for each topic, with repetition, except in rows that say otherwise",
        "latency": "of receptions, from the application's call, except in rows that say otherwise; mean over "
        "receivers; VCube-PS repaired: of deliveries",
        "acknowledgements": "free of charge, except in rows that say otherwise",
        "children": "in ascending order of cluster; VCube-PS repaired: in descending order",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Do popular topics hurt? Trees of publishers do not know topics, so VCube-PS feels Zipf's law only where "
    "a publisher waits for the acknowledgements of its last publication on the same topic, which the repaired "
    "protocol does not do. A root per topic spreads load while topics are alike; by Zipf's law the node with the "
    "hottest topic is nearly saturated, and how much that costs is the luck of where the roots of hot topics fall. "
    "The published increase of SRPT lies between no sharing and the two hottest topics at one node.",
)
