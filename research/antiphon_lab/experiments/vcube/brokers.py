"""Brokers: Figure 5.12 of the thesis.

All 4096 nodes are members of one topic. VCube-PS and SRPT-S are compared with SRPT-B, where the tree of the single root
consists of 32, 256 or 2048 brokers and each of the other nodes hangs on one of them. The latency of SRPT-B has two
parts: the time to the brokers (*Tree*) and the time from a broker to its subscribers (*B-S*).

The text gives one number, some orderings, and a load that it leaves open: publishers "send a new message on average
every 500 u.t., up to a limit of 128 messages". How many publishers there are decides everything, so it is scanned.
Latencies count from the start of a publication. The wait of a publisher before it may start the next one has rows of
its own: the published protocol completes one wave of acknowledgements before it begins another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.scenario.subscriptions import draw_nodes
from antiphon.simulator.scenario.workload import WORD_BITS, draw_exponential
from antiphon_lab.experiments.vcube.broadcasts import TRANSMISSION_TICKS
from antiphon_lab.experiments.vcube.one_topic import (
    MODEL,
    PUBLISHED,
    REPAIRED,
    TOPIC,
    Build,
    Group,
    TopicRun,
    as_published,
    as_repaired,
    draw_group,
    with_one_root,
)
from antiphon_lab.protocols.cube.srpt import SingleRootPerTopic, SrptOptions, brokers
from antiphon_lab.reproduction.documents import document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    Sample,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.verdicts import Fitted, Refutation

NODES = 4096
SUBSCRIBERS_PER_BROKER = (1, 15, 127)
MESSAGES = 128
MEAN_GAP_TICKS = 500

FEW_PUBLISHERS = 1
FITTING_PUBLISHERS = 30
"""With this many the published difference to 256 brokers results; no other evidence supports this number."""
OTHER_PUBLISHERS = (16, 32)

SUBSCRIBERS = "SRPT-S"
BROKERS = "SRPT-B"

PUBLISHER_STREAM = 105
GAP_STREAM = 106


@dataclass(frozen=True)
class Load:
    """One simulation. ``brokers`` is 0 in the systems that have none."""

    system: str
    nodes: int
    publishers: int
    brokers: int = 0

    def __str__(self) -> str:
        brokers = f" with {self.brokers} brokers" if self.brokers else ""
        return f"{self.system}{brokers}, {self.publishers} publisher{'s' if self.publishers > 1 else ''}"


@dataclass(frozen=True)
class BrokerLatency:
    """The measurements, in ticks. ``start_delay`` comes before ``total``; ``tree`` and ``served`` are its parts."""

    total: float
    start_delay: float
    tree: float = 0.0
    served: float = 0.0
    violations: int = 0


def measure(case: Load, seed: int) -> BrokerLatency:
    """Run one case; acknowledgements are charged to the repaired VCube-PS only."""
    group = draw_group(case.nodes, case.nodes, seed)
    run = TopicRun(group, build_of(case, group), seed, charged=case.system == REPAIRED, level="deliveries")
    for at, publisher in schedule(case, seed):
        run.engine.at(at, PublishAction(publisher))
    run.finish()
    start_delay = run.start_delay()
    if case.system in (PUBLISHED, REPAIRED):
        # The published latency is that of receptions; ours is that of deliveries, which applications see.
        latency = run.reception_latency() if case.system == PUBLISHED else run.latency()
        violations = sum(run.judgement().counts.values()) if case.publishers == FITTING_PUBLISHERS else 0
        return BrokerLatency(latency - start_delay, start_delay, violations=violations)
    tree, served = parts(run.trace.table(), case.brokers) if case.brokers else (0.0, 0.0)
    return BrokerLatency(run.latency(), start_delay, tree, served)


def build_of(case: Load, group: Group) -> Build:
    """The processes of a case."""
    if case.system == PUBLISHED:
        return as_published(group)
    if case.system == REPAIRED:
        return as_repaired(group)
    return with_brokers(group, case.brokers) if case.brokers else with_one_root(group)


def with_brokers(group: Group, count: int) -> Build:
    """SRPT-B: a tree of the first ``count`` nodes, one of which is the root."""
    view = group.view()
    options = SrptOptions(brokers(count), group.nodes, [group.root % count])

    def build(environment: Environment) -> Process:
        process = SingleRootPerTopic(environment, options)
        process.begin_as_member(TOPIC, view)
        return process

    return build


def schedule(case: Load, seed: int) -> list[tuple[int, int]]:
    """The publications by time: messages are divided evenly, and each publisher leaves exponential gaps."""
    publishers = draw_nodes(min(case.publishers, case.nodes), case.nodes, RandomStream(seed, PUBLISHER_STREAM))
    planned = []
    for number, publisher in enumerate(publishers):
        random = RandomStream(seed, GAP_STREAM, number)
        elapsed = 0
        for _ in range(len(range(number, MESSAGES, len(publishers)))):
            elapsed += draw_exponential(random) * MEAN_GAP_TICKS
            planned.append((elapsed >> WORD_BITS, publisher))
    return planned


def parts(trace: pa.Table, broker_count: int) -> tuple[float, float]:
    """The mean latency at brokers, and how much later than its broker a subscriber has a publication, on average.

    A publisher's own deliveries do not count, nor do the subscribers of a broker that is the publisher.
    """
    rows = trace.filter(pc.and_(pc.equal(trace["event"], "deliver"), pc.not_equal(trace["node"], trace["source"])))
    node = rows["node"].to_numpy().astype(np.int64)
    latency = rows["value"].to_numpy()
    publication = rows["sequence"].to_numpy() * (1 << 32) + rows["source"].to_numpy()
    number = np.unique(publication, return_inverse=True)[1]
    at_broker = np.full((int(number.max()) + 1, broker_count), -1, np.int64)
    is_broker = node < broker_count
    at_broker[number[is_broker], node[is_broker]] = latency[is_broker]
    before = at_broker[number, node % broker_count]
    served = ~is_broker & (before >= 0)
    return float(latency[is_broker].mean()), float((latency - before)[served].mean()) if served.any() else 0.0


def broker_counts(nodes: int) -> list[int]:
    """As many brokers as leave each the published numbers of subscribers; at least one."""
    return sorted({max(1, nodes // (1 + each)) for each in SUBSCRIBERS_PER_BROKER})


def cases(plan: Plan) -> list[Load]:
    """All systems under a small load and under the one that fits; the broker system that has a number also between."""
    nodes = plan.sizes[0]
    found = []
    for publishers in (FEW_PUBLISHERS, FITTING_PUBLISHERS):
        found += [Load(system, nodes, publishers) for system in (PUBLISHED, REPAIRED, SUBSCRIBERS)]
        found += [Load(BROKERS, nodes, publishers, count) for count in broker_counts(nodes)]
    return found + [Load(BROKERS, nodes, publishers, medium_brokers(nodes)) for publishers in OTHER_PUBLISHERS]


def medium_brokers(nodes: int) -> int:
    """The number of brokers for which the text has a number: 256 of 4096 nodes."""
    return max(1, nodes // (1 + SUBSCRIBERS_PER_BROKER[1]))


class Loads:
    """The measurements, by system and number of publishers."""

    def __init__(self, nodes: int, results: Results[Load, BrokerLatency]) -> None:
        self.nodes = nodes
        self._results = results

    def of(self, system: str, publishers: int, brokers: int = 0, part: str = "total") -> Sample:
        """One quantity of one case."""
        quantity: Callable[[BrokerLatency], float] = operator.attrgetter(part)
        return self._results.sample(Load(system, self.nodes, publishers, brokers), quantity)

    def saving(self, publishers: int) -> Sample:
        """By how much VCube-PS is faster than the broker system that has a number, in percent."""
        ratio = self.of(PUBLISHED, publishers).over(self.of(BROKERS, publishers, medium_brokers(self.nodes)))
        return Sample(tuple(100 * (1 - value) for value in ratio.values))

    def over_best(self, publishers: int) -> Sample:
        """VCube-PS over the fastest broker system."""
        rivals = [self.of(BROKERS, publishers, count) for count in broker_counts(self.nodes)]
        best = rivals[0]
        for rival in rivals[1:]:
            best = best.with_other(min, rival)
        return self.of(PUBLISHED, publishers).over(best)

    def steps(self, publishers: int, part: str) -> list[Sample]:
        """A part of the latency with fewer brokers over the same part with more, for each step of the numbers."""
        counts = broker_counts(self.nodes)
        found = [self.of(BROKERS, publishers, count, part) for count in counts]
        return [fewer.over(more) for fewer, more in pairwise(found)]


def compare(plan: Plan, results: Results[Load, BrokerLatency]) -> Iterator[Finding]:
    """The number and the orderings of the text under both loads, then all latencies."""
    loads = Loads(plan.sizes[0], results)
    if loads.nodes == NODES:
        for publishers in (FITTING_PUBLISHERS, FEW_PUBLISHERS):
            yield from compare_text(loads, publishers)
    else:
        yield Note(f"Published for {NODES} nodes; nothing is compared at {loads.nodes}.")
    judged = [Load(system, loads.nodes, FITTING_PUBLISHERS) for system in (PUBLISHED, REPAIRED)]
    found = [latency.violations for case in judged for latency in results.of(case)]
    label = f"violations found by the oracle, VCube-PS, {FITTING_PUBLISHERS} publishers"
    yield promised(label, found)
    for publishers in (FITTING_PUBLISHERS, FEW_PUBLISHERS):
        yield picture(loads, publishers)
    yield from figure(plan, results)
    yield from remarks(loads)


def compare_text(loads: Loads, publishers: int) -> Iterator[Row | Note]:
    """The statements of the text, under one load; only the load that was fitted is held to them."""
    numbers = document("thesis").numbers
    load = f"{publishers} publisher{'s' if publishers > 1 else ''}"
    is_fitting = publishers == FITTING_PUBLISHERS
    chosen = Fitted(f"{FITTING_PUBLISHERS} publishers", "the orderings of the other systems and parts")

    def row(label: str, measured: Sample, name: str, refutation: Refutation | None = None) -> Row:
        number = numbers[f"fig-5.12/{name}"]
        basis = chosen if name == "saving-256" else None
        return Row(f"{label}, {load}", number.unit, measured, number if is_fitting else None, refutation, basis)

    saving = loads.saving(publishers)
    yield row(f"VCube-PS below SRPT-B with {medium_brokers(loads.nodes)} brokers", saving, "saving-256")
    yield row("VCube-PS / fastest SRPT-B", loads.over_best(publishers), "vcube-ps-over-best")
    most = broker_counts(loads.nodes)[-1]
    over = loads.of(BROKERS, publishers, most).over(loads.of(SUBSCRIBERS, publishers))
    yield row(f"SRPT-B with {most} brokers / SRPT-S", over, "2048-over-srpt-s")
    tree, served = loads.steps(publishers, "tree"), loads.steps(publishers, "served")
    falls = tree[0].with_other(max, tree[1])
    yield row("Tree part, fewer / more brokers", falls, "tree-falls", root_is_late(loads, publishers))
    yield row("B-S part, fewer / more brokers", served[0].with_other(min, served[1]), "served-grows")
    if not is_fitting:
        yield too_little(loads)


def too_little(loads: Loads) -> Note:
    """Why a single publisher cannot have been the published load."""
    busiest = 1 + SUBSCRIBERS_PER_BROKER[-1] + broker_counts(loads.nodes)[0].bit_length() - 2
    return Note(
        f"One publication every {MEAN_GAP_TICKS} ticks in the whole system cannot be the published load: no broker has "
        f"more than {busiest} copies to send before the next one comes, nothing contends, and few brokers with their "
        "short trees are fastest. The text speaks of contention, but not of how many publish."
    )


def root_is_late(loads: Loads, publishers: int) -> Refutation:
    """Why the tree part cannot fall with fewer brokers where these have one output and are overloaded."""
    fewest = broker_counts(loads.nodes)[0]
    copies = SUBSCRIBERS_PER_BROKER[-1] + fewest.bit_length() - 1
    offered = publishers / MEAN_GAP_TICKS * copies * TRANSMISSION_TICKS
    return Refutation(
        "a Tree latency that falls with fewer brokers, at a load that makes VCube-PS 22 % faster than 256 brokers",
        f"the root serves its own subscribers through the same output: with {fewest} brokers it has {copies} copies to "
        f"send per publication, {offered:.2f} times what its output can send, so publications wait for the tree",
        offered > 1,
        1,
        1000,
    )


def figure(plan: Plan, results: Results[Load, BrokerLatency]) -> Iterator[Row]:
    """All latencies, with their parts where there are brokers, and the wait of publishers before they may start."""
    for case in cases(plan):
        yield Row(f"latency, {case}", "ticks", results.sample(case, operator.attrgetter("total")))
        if case.brokers:
            yield Row(f"Tree part, {case}", "ticks", results.sample(case, operator.attrgetter("tree")))
            yield Row(f"B-S part, {case}", "ticks", results.sample(case, operator.attrgetter("served")))
        elif case.system != SUBSCRIBERS:
            label = f"wait before the start, {case}"
            yield Row(label, "ticks", results.sample(case, operator.attrgetter("start_delay")))


def picture(loads: Loads, publishers: int) -> Figure:
    """Figure 5.12: all systems under one load, with the two parts where there are brokers."""
    counts = broker_counts(loads.nodes)[::-1]
    systems = (PUBLISHED, REPAIRED, SUBSCRIBERS)
    names = (*systems, *(f"{BROKERS}, {count}" for count in counts))
    places = {name: place for place, name in enumerate(names)}
    alone = [
        Series(system, system, (loads.of(system, publishers).point(places[system]),), "bars") for system in systems
    ]
    parts_shown = [
        Series(
            f"{BROKERS}, {name}",
            BROKERS,
            tuple(loads.of(BROKERS, publishers, count, part).point(places[f"{BROKERS}, {count}"]) for count in counts),
            "bars",
            variant,
        )
        for variant, (name, part) in enumerate((("all", "total"), ("Tree", "tree"), ("B-S", "served")))
    ]
    load = f"{publishers} publisher{'s' if publishers > 1 else ''}"
    return Figure(
        f"latency-{publishers}",
        f"Reception latency with brokers, {load}",
        Axis("system, number of brokers", categories=names),
        Axis("reception latency", "ticks", "log10" if publishers > FEW_PUBLISHERS else "linear"),
        (*alone, *parts_shown),
        caption="The published bars have no readable values. The text gives orderings, and one difference, which is in "
        "the table. Parts are means over their own receivers, so they do not add up exactly.",
    )


def remarks(loads: Loads) -> Iterator[Note]:
    """The effect of the number of publishers, and the wait of a publisher in the published protocol."""
    medium = medium_brokers(loads.nodes)
    scanned = sorted((FEW_PUBLISHERS, *OTHER_PUBLISHERS, FITTING_PUBLISHERS))
    values = [f"{loads.of(BROKERS, publishers, medium).mean:.0f} with {publishers}" for publishers in scanned]
    height = loads.nodes.bit_length() - 1
    yield Note(
        f"BrokerLatency of SRPT-B with {medium} brokers by number of publishers: {', '.join(values)}. Its root sends "
        f"{medium.bit_length() - 1 + SUBSCRIBERS_PER_BROKER[1]} copies per publication. Also tried: gaps that are "
        "constant, uniform or Poisson, publishers that start together, and a publisher drawn anew for every message; "
        "the number of publishers that fits is then between 16 and 31."
    )
    yield Note(
        f"The published protocol lets a publisher start its next publication when the last acknowledgement has come "
        f"back, {2 * height} hops later. Who publishes every {MEAN_GAP_TICKS} ticks falls behind, and the rows 'wait "
        "before the start' say how far; the published latencies cannot include that wait. VCube-PS repaired has up to "
        "64 publications on their way and does not wait. It is charged for acknowledgements and serves the largest "
        "subtree first; its latency is that of delivery in causal order."
    )


FIG_5_12: Experiment[Load, BrokerLatency] = Experiment(
    name="vcube-ps/fig-5.12",
    document="thesis, Figure 5.12 and section 5.6.7",
    description="brokers: VCube-PS against a single root per topic with subscribers or with brokers as the tree",
    default=Plan((NODES,), repetitions=3, large_repetitions=3),
    full=Plan((NODES,), repetitions=40, large_repetitions=40, full=True),
    parameters={
        **MODEL,
        "messages": MESSAGES,
        "gaps": f"exponential, mean {MEAN_GAP_TICKS} ticks for each publisher; messages shared out evenly",
        "publishers": f"drawn among all nodes; {FEW_PUBLISHERS} and {FITTING_PUBLISHERS}, some cases also "
        + " and ".join(map(str, OTHER_PUBLISHERS)),
        "latency": "from the start of a publication, mean over receivers, without the publisher",
        "acknowledgements": "free of charge; VCube-PS repaired: charged",
        "children": "in ascending order of cluster, brokers before subscribers; VCube-PS repaired: in descending order",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Is a core of brokers better than a tree of everybody? Few brokers make a short tree and many subscribers "
    "to serve for each; many brokers the opposite. Which of the two wins depends on load: with one publisher 32 "
    "brokers are fastest, with thirty they are by far the slowest, and VCube-PS, which spreads the work over all "
    "nodes, is the best. The text does not say how many publish; thirty fit its one number. Choose brokers by the "
    "load you expect at the busiest of them, or choose a topology that has no such node.",
)
