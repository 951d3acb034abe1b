"""From few members to many: Figure 5.7 of the thesis.

One member publishes one message in a system of 4096 nodes, of which 10 % to 100 % are members. Figure (a) shows that
the latency of VCube-PS follows the number of members, while that of SRPT hardly changes; (b) shows why: the tree of a
single root has paths of the same length for any members, and non-members, the relays, have to be in it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from statistics import fmean

from antiphon_lab.experiments.vcube.one_publisher import (
    LARGEST,
    PARAMETERS,
    SYSTEMS,
    OnePublication,
    Reach,
    Reaches,
    cases,
    extra_hop,
    latency,
    measure,
    tree_size,
)
from antiphon_lab.experiments.vcube.one_topic import ONE_ROOT, PUBLISHED, REPAIRED
from antiphon_lab.reproduction.documents import Number, document
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, compared
from antiphon_lab.reproduction.figures import Axis, Figure, Mark, published_point, published_series

PERCENTS = tuple(range(10, 101, 10))
MEMBERS = Axis("nodes that are members", "%")
TREE_PERCENT = 30
"""The share of members for which the text gives the size of the tree."""


def compare_latency(plan: Plan, results: Results[OnePublication, Reach]) -> Iterator[Finding]:
    """Figure 5.7(a): how latency grows with the share of members."""
    reaches = Reaches(PERCENTS, plan, results)
    numbers = document("thesis").numbers
    nodes = plan.sizes[0]
    growth = f"10 % to 100 % members, {nodes} nodes"
    yield at_size(nodes, f"VCube-PS, {growth}", increase(reaches, PUBLISHED, nodes), numbers["fig-5.7a/increase"])
    variation = leave_one_out(reaches, nodes)
    yield at_size(
        nodes, f"SRPT, largest above smallest mean, {nodes} nodes", variation, numbers["fig-5.7a/srpt-variation"]
    )
    label = f"SRPT above VCube-PS, {nodes} nodes, all members"
    yield at_size(nodes, label, extra_hop(reaches, nodes), numbers["fig-5.7a/extra-hop"])
    ratios = [reaches.ratio(latency, nodes, percent) for percent in PERCENTS]
    lowest = min(ratios, key=lambda sample: sample.mean)
    label = f"SRPT / VCube-PS, {nodes} nodes, lowest of all shares of members"
    yield at_size(nodes, label, lowest, numbers["fig-5.7a/srpt-always-higher"])
    yield Row(f"VCube-PS repaired, {growth}", "%", increase(reaches, REPAIRED, nodes))
    yield from reaches.judged()
    yield Figure(
        "latency",
        f"Latency of one publication by share of members, {nodes} nodes",
        MEMBERS,
        Axis("latency", "ticks"),
        reaches.by_percent(latency, SYSTEMS),
        caption="The text gives increases and differences, no values; they are in the table.",
    )
    yield from reaches.figure("latency", "ticks", latency)
    yield caption()


def leave_one_out(reaches: Reaches, nodes: int) -> Sample:
    """How much the mean latency of SRPT varies with the share of members, each time without one of the repetitions.

    Single repetitions scatter more than the means differ, so each value is one of means over nearly all of them.
    """
    samples = [reaches.of(latency, ONE_ROOT, nodes, percent).values for percent in PERCENTS]
    found = []
    for left_out in range(len(samples[0])):
        means = [fmean((*values[:left_out], *values[left_out + 1 :]) or values) for values in samples]
        found.append(100 * (max(means) / min(means) - 1))
    return Sample(tuple(found))


def increase(reaches: Reaches, system: str, nodes: int) -> Sample:
    """The cost of ten times the members, in percent."""
    return reaches.of(latency, system, nodes, 100).increase_over(reaches.of(latency, system, nodes, 10))


def compare_relays(plan: Plan, results: Results[OnePublication, Reach]) -> Iterator[Finding]:
    """Figure 5.7(b): the relays in the single tree, and the length of its paths."""
    reaches = Reaches(PERCENTS, plan, results)
    numbers = document("thesis").numbers
    relays, hops = operator.attrgetter("relays"), operator.attrgetter("hops")
    nodes = plan.sizes[0]
    where = f"{nodes} nodes, {TREE_PERCENT} % members"
    helpers = reaches.of(relays, ONE_ROOT, nodes, TREE_PERCENT)
    yield at_size(nodes, f"SRPT, relays, {where}", helpers, numbers["fig-5.7b/relays-30"])
    share = Sample(tuple(100 * count / nodes + TREE_PERCENT for count in helpers.values))
    yield at_size(nodes, f"SRPT, share of the nodes in the tree, {where}", share, numbers["fig-5.7b/tree-30"])
    for percent in PERCENTS:
        path = reaches.of(hops, ONE_ROOT, nodes, percent)
        label = f"SRPT, mean path, {nodes} nodes, {percent} % members"
        yield at_size(nodes, label, path, numbers["fig-5.7b/path"])
    yield from reaches.judged()
    yield from relay_figures(reaches)
    yield from reaches.figure("relays", "nodes", relays)
    yield caption()


def relay_figures(reaches: Reaches) -> Iterator[Figure]:
    """Figure 5.7(b) in two parts: relays, and the mean path to a member."""
    nodes = reaches.plan.sizes[0]
    numbers = document("thesis").numbers
    at_published_size = nodes == LARGEST
    points = [published_point(TREE_PERCENT, numbers["fig-5.7b/relays-30"])] if at_published_size else []
    yield Figure(
        "relays",
        f"Nodes that forward without being members, {nodes} nodes",
        MEMBERS,
        Axis("relays", "nodes"),
        (
            *reaches.by_percent(operator.attrgetter("relays"), (ONE_ROOT, PUBLISHED)),
            *published_series(ONE_ROOT, ONE_ROOT, points),
        ),
        caption="VCube-PS has no relays at any share of members. The text gives one value of SRPT.",
    )
    path = numbers["fig-5.7b/path"]
    marks = (Mark("y", path.value, f"published: SRPT around {path.value:g} hops"),) if at_published_size else ()
    yield Figure(
        "path",
        f"Hops from the publisher to a member, {nodes} nodes",
        MEMBERS,
        Axis("hops, mean"),
        reaches.by_percent(operator.attrgetter("hops"), (ONE_ROOT, PUBLISHED)),
        marks,
    )


def caption() -> Note:
    """On the caption of the figure."""
    here, twice = (
        tree_size(nodes, TREE_PERCENT / 100) - nodes * TREE_PERCENT / 100 for nodes in (LARGEST, 2 * LARGEST)
    )
    return Note(
        f"The caption of Figure 5.7 names {2 * LARGEST} nodes and the text {LARGEST}. The text is right: by counting "
        f"subtrees that hold a member, about {here:.0f} relays are to be expected among {LARGEST} nodes and "
        f"{twice:.0f} among {2 * LARGEST}."
    )


def at_size(nodes: int, label: str, measured: Sample, published: Number) -> Row:
    """A row that is compared only at the size that the text speaks of."""
    return compared(label, measured, published) if nodes == LARGEST else Row(label, published.unit, measured)


DEFAULT = Plan((LARGEST,), repetitions=6, large_repetitions=6)
FULL = Plan((LARGEST,), repetitions=40, large_repetitions=40, full=True)

FIG_5_7A: Experiment[OnePublication, Reach] = Experiment(
    name="vcube-ps/fig-5.7a",
    document="thesis, Figure 5.7(a)",
    description="one publisher: latency by share of members, VCube-PS against a single root per topic",
    default=DEFAULT,
    full=FULL,
    parameters=PARAMETERS,
    cases=partial(cases, PERCENTS),
    measure=measure,
    compare=compare_latency,
    meaning="What do ten times the members cost? The latency of VCube-PS follows the number of members and grows by "
    "about a third from 10 % to 100 % of 4096 nodes; that of a single root hardly changes, because its tree is as "
    "high with few members as with many. VCube-PS is below it everywhere, at the right end by the hop to the root. "
    "Latency that fits the size of the topic is what a tree of members buys.",
)

FIG_5_7B: Experiment[OnePublication, Reach] = Experiment(
    name="vcube-ps/fig-5.7b",
    document="thesis, Figure 5.7(b)",
    description="one publisher: relays and paths of a single tree by share of members",
    default=DEFAULT,
    full=FULL,
    parameters=PARAMETERS,
    cases=partial(cases, PERCENTS),
    measure=measure,
    compare=compare_relays,
    meaning="Why is a single root slow for small topics? Its tree has paths of about seven hops whoever the members "
    "are, and it has to lead through nodes that are none: with 30 % of 4096 nodes as members almost 800 relays, so "
    "that half of the system works for the topic. VCube-PS has none. Whoever runs many small topics pays for relays "
    "on every publication.",
)
