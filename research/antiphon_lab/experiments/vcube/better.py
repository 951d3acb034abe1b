"""Our improvements, measured beside the published protocol.

This experiment is our own: nothing was published about it, so no number is compared with a document. Instead the
published protocol, with minimal corrections, is simulated in the same trials
(:mod:`antiphon_lab.experiments.vcube.improvements`), with the same random numbers; ratios are taken pair by pair. Each
improvement is measured alone:

* serving the largest subtree first;
* several publications of a source and topic in flight, where the published protocol waits a round trip for each;
* bundling of publications that had to queue;
* a directory that newcomers ask, where the published protocol floods all nodes;
* under churn: no loss, no stuck node, and no tombstones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from antiphon_lab.experiments.vcube.improvements import (
    AS_PUBLISHED,
    BURST,
    CHANGE_GAP_TICKS,
    START_WINDOW_TICKS,
    Burst,
    ChurnTrial,
    Joining,
    Measured,
    Spreading,
    System,
    Trial,
    repaired,
)
from antiphon_lab.experiments.vcube.one_topic import MODEL, PUBLISHED
from antiphon_lab.experiments.vcube.one_topic import REPAIRED as IMPROVED
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample, promised
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series

CLUSTER_ORDER = repaired("cluster order", largest_first=False)
LARGEST_FIRST = repaired("largest first")

WINDOWS = tuple(repaired(f"window {window}", window=window, bundle=1) for window in (1, 2, 4, 16, 64))
WIDEST = WINDOWS[-1]
BUNDLES = tuple(
    repaired(f"window {window}, bundle {bundle}", window=window, bundle=bundle) for window, bundle in ((1, 64), (4, 16))
)
WHOLE_BURST = BUNDLES[0]

FLOODING = repaired("flooding")
DIRECTORY = repaired("directory", directory=True)
REPAIRED = repaired("repaired")
REPAIRED_DIRECTORY = repaired("repaired, directory", directory=True)

SOURCES = (1, 8)
MEMBER_COUNTS = (4, 64)
SMALL = 256
"""The largest size of costly cases in the default plan."""

Found = Results[Trial, Measured]


def spreadings(plan: Plan) -> list[list[Trial]]:
    """Trials of the sending order, in groups that differ in the system alone."""
    systems = (AS_PUBLISHED, CLUSTER_ORDER, LARGEST_FIRST)
    return [
        [Spreading(system, nodes, everybody) for system in systems]
        for everybody in (False, True)
        for nodes in (costly_sizes(plan) if everybody else plan.sizes)
    ]


def bursts(plan: Plan) -> list[list[Trial]]:
    """Trials of windows and bundles, in groups that differ in the system alone."""
    systems = (AS_PUBLISHED, *WINDOWS, *BUNDLES)
    return [
        [Burst(system, nodes, min(sources, nodes)) for system in systems]
        for nodes in costly_sizes(plan)
        for sources in SOURCES
    ]


def joinings(plan: Plan) -> list[list[Trial]]:
    """Trials of subscriptions, in groups that differ in the system alone."""
    return [
        [Joining(system, nodes, members) for system in (AS_PUBLISHED, FLOODING, DIRECTORY)]
        for nodes in plan.sizes
        for members in (*(count for count in MEMBER_COUNTS if count < nodes // 2), nodes // 2)
    ]


def churns(plan: Plan) -> list[list[Trial]]:
    """Trials of churn, in groups that differ in the system alone."""
    systems = (AS_PUBLISHED, REPAIRED, REPAIRED_DIRECTORY)
    return [[ChurnTrial(system, nodes) for system in systems] for nodes in costly_sizes(plan)]


def costly_sizes(plan: Plan) -> list[int]:
    """The sizes for cases whose cost grows with the square of the size."""
    largest = 4 * SMALL if plan.full else SMALL
    return [nodes for nodes in plan.sizes if nodes <= largest] or [min(plan.sizes)]


def cases(plan: Plan) -> list[Trial]:
    """Everything that is simulated."""
    return list(chain(*spreadings(plan), *bursts(plan), *joinings(plan), *churns(plan)))


def measure(trial: Trial, seed: int) -> Measured:
    """Simulate one trial."""
    return trial.measure(seed)


def quantity_of(results: Found, trial: Trial, quantity: str) -> Sample:
    """One quantity of a trial, repetition by repetition."""
    return results.sample(trial, lambda measured: measured[quantity])


def of_system(group: Sequence[Trial], system: System) -> Trial:
    """The trial of a group that has this system."""
    return next(trial for trial in group if trial.system == system)


def times_less(results: Found, group: Sequence[Trial], system: System, quantity: str) -> Sample:
    """How many times less of something a system needs than the published one, pair by pair."""
    published = quantity_of(results, of_system(group, AS_PUBLISHED), quantity)
    return published.over(quantity_of(results, of_system(group, system), quantity))


def compare(plan: Plan, results: Found) -> Iterator[Finding]:
    """One improvement after the other."""
    yield from judged(plan, results)
    yield from figures(plan, results)
    yield from compare_spreading(spreadings(plan), results)
    yield from compare_bursts(bursts(plan), results)
    yield from compare_joining(joinings(plan), results)
    yield from compare_churn(churns(plan), results)


def judged(plan: Plan, results: Found) -> Iterator[Row]:
    """The findings of the oracle in trials without changes during publication; churn has rows of its own below."""
    groups = [*spreadings(plan), *bursts(plan), *joinings(plan)]
    found = sum(measured["violations"] for trial in chain(*groups) for measured in results.of(trial))
    yield promised("violations found by the oracle, all runs without churn", [found])


def compare_spreading(groups: list[list[Trial]], results: Found) -> Iterator[Row | Note]:
    """Largest subtree first against the order of the clusters."""
    for group in groups:
        about = group[0].about()
        for quantity, what in (("mean", "mean latency"), ("longest", "longest latency")):
            for trial in group:
                yield Row(f"{what}, {trial}", "ticks", quantity_of(results, trial, quantity))
            ordered, largest = (
                quantity_of(results, of_system(group, system), quantity) for system in (CLUSTER_ORDER, LARGEST_FIRST)
            )
            yield Row(f"{what}, {about}, largest first against cluster order", "%", largest.increase_over(ordered))
    yield Note(
        "Whoever serves the largest subtree first delays the small ones by the tick that this copy takes, but these "
        "are not on the longest path, which then waits for one transmission per hop where nobody else publishes."
    )


def compare_bursts(groups: list[list[Trial]], results: Found) -> Iterator[Row | Note]:
    """How long a burst takes, and how many packets."""
    for group in groups:
        about = group[0].about()
        for trial in group:
            yield Row(f"until the last delivery, {trial}", "ticks", quantity_of(results, trial, "ticks"))
        for system in (AS_PUBLISHED, WIDEST, *BUNDLES):
            trial = of_system(group, system)
            yield Row(f"mean latency, {trial}", "ticks", quantity_of(results, trial, "mean"))
            yield Row(f"packets, {trial}", "packets", quantity_of(results, trial, "packets"))
        sooner = times_less(results, group, WIDEST, "ticks")
        yield Row(f"published / {WIDEST.name}, until the last delivery, {about}", "times", sooner)
        for quantity, what in (("ticks", "until the last delivery"), ("packets", "packets")):
            less = times_less(results, group, WHOLE_BURST, quantity)
            yield Row(f"published / {WHOLE_BURST.name}, {what}, {about}", "times", less)
    yield Note(
        "The published protocol has one publication per source and topic in flight. A wider window sends the same "
        "packets, sooner; receivers restore the order of each source from numbers without gaps."
    )
    yield Note(
        "Transmission takes one tick per packet whatever its size, as in the published experiments, which flatters "
        "bundles: they save headers, queueing and acknowledgements, but not payload. What had to queue for the window "
        "waits a round trip before it can travel in a bundle, so on idle links a wide window alone is faster."
    )


def compare_joining(groups: list[list[Trial]], results: Found) -> Iterator[Row | Note]:
    """The costs of a subscription and its end."""
    for group in groups:
        about = group[0].about()
        for quantity, what, unit in (
            ("joining", "to subscribe", "messages"),
            ("ticks", "until subscribed", "ticks"),
            ("leaving", "to unsubscribe", "messages"),
        ):
            for trial in group:
                yield Row(f"{what}, {trial}", unit, quantity_of(results, trial, quantity))
        flooding, directory = (
            quantity_of(results, of_system(group, system), "joining") for system in (FLOODING, DIRECTORY)
        )
        yield Row(f"flooding / directory, to subscribe, {about}", "times", flooding.over(directory))
    yield Note(
        "Of N nodes and m members: the published subscription costs 2(N-1) messages and leaves gaps; the repaired one "
        "floods twice, 4(N-1); with a directory it costs 4m, and two to ask the topic's home, one node on which all "
        "subscriptions of the topic depend. To unsubscribe costs 2m as published, m repaired, and one more to tell a "
        "directory."
    )


def figures(plan: Plan, results: Found) -> Iterator[Figure]:
    """One picture for each improvement."""
    yield spreading_figure(plan, results)
    yield burst_figure(plan, results)
    yield joining_figure(plan, results)
    yield churn_figure(plan, results)


def shown_as(system: System) -> str:
    """Whose colour a system has in a figure."""
    if system.options is None:
        return PUBLISHED
    return f"{IMPROVED}, directory" if ("directory", True) in system.options else IMPROVED


def spreading_figure(plan: Plan, results: Found) -> Figure:
    """The longest latency of one publication by number of nodes."""
    groups = [group for group in spreadings(plan) if isinstance(group[0], Spreading) and not group[0].everybody]
    series = [
        Series(
            system.name,
            shown_as(system),
            tuple(quantity_of(results, of_system(group, system), "longest").point(group[0].nodes) for group in groups),
        )
        for system in (AS_PUBLISHED, LARGEST_FIRST)
    ]
    return Figure(
        "first",
        "The last to get one publication, by who is served first",
        NODES,
        Axis("latency", "ticks"),
        tuple(series),
    )


def burst_figure(plan: Plan, results: Found) -> Figure:
    """How long a burst takes with every window and bundle, at the largest size."""
    nodes = max(costly_sizes(plan))
    groups = [group for group in bursts(plan) if group[0].nodes == nodes]
    names = tuple(trial.system.name for trial in groups[0])
    series = [
        Series(
            f"{sources} source{'s' if sources > 1 else ''}",
            IMPROVED,
            tuple(quantity_of(results, trial, "ticks").point(place) for place, trial in enumerate(group)),
            "points",
            variant,
        )
        for variant, (group, sources) in enumerate(zip(groups, SOURCES, strict=True))
    ]
    return Figure(
        "burst",
        f"Until the last of {BURST} messages per source is delivered, {nodes} nodes",
        Axis("window and bundle", categories=names),
        Axis("time", "ticks", "log10"),
        tuple(series),
    )


def joining_figure(plan: Plan, results: Found) -> Figure:
    """Messages for one subscription by number of members, at the largest size."""
    nodes = max(plan.sizes)
    groups = [group for group in joinings(plan) if group[0].nodes == nodes]
    names = tuple(f"{group[0].members} members" for group in groups if isinstance(group[0], Joining))
    series = [
        Series(
            system.name,
            shown_as(system),
            tuple(
                quantity_of(results, of_system(group, system), "joining").point(place)
                for place, group in enumerate(groups)
            ),
            "bars",
        )
        for system in (AS_PUBLISHED, FLOODING, DIRECTORY)
    ]
    return Figure(
        "joining",
        f"Messages that one subscription takes, {nodes} nodes",
        Axis("members of the topic", categories=names),
        Axis("messages"),
        tuple(series),
    )


def churn_figure(plan: Plan, results: Found) -> Figure:
    """The state that churn leaves behind, at the largest size."""
    group = churns(plan)[-1]
    series = [
        Series(
            trial.system.name,
            shown_as(trial.system),
            tuple(quantity_of(results, trial, key).point(place) for place, (key, _, _) in enumerate(CHURN_QUANTITIES)),
            "bars",
        )
        for trial in group
    ]
    return Figure(
        "churn",
        f"What churn leaves behind, {group[0].about()}",
        Axis("quantity", categories=tuple(key for key, _, _ in CHURN_QUANTITIES)),
        Axis("number"),
        tuple(series),
        caption="Deliveries lost, waits that never end, deliveries before a subscription was complete, other "
        "violations, copies to nodes that are no members, and entries about them; the table has the exact words.",
    )


CHURN_QUANTITIES = (
    ("lost", "lost to members", "deliveries"),
    ("stuck", "stuck at the end", "items"),
    ("early", "delivered before the subscription was complete", "deliveries"),
    ("disordered", "other violations", "violations"),
    ("false positives", "false positives", "copies"),
    ("remembered", "entries about nodes that are no members", "entries"),
)


def compare_churn(groups: list[list[Trial]], results: Found) -> Iterator[Row | Note]:
    """The effects of churn on publications, and the state that it leaves behind."""
    for group in groups:
        for quantity, what, unit in CHURN_QUANTITIES:
            for trial in group:
                yield Row(f"{what}, {trial}", unit, quantity_of(results, trial, quantity))
    yield Note(
        "Stuck are publications that wait for others, acknowledgements that are waited for, and operations that have "
        "not begun, when nothing is on its way any more. Repaired, a false positive is a copy that its receiver "
        "returned, after which the sender has forgotten it: there are no relays and no tombstones. What is left are "
        "entries that were wrong when they were learned and have not been used since; as published every node keeps an "
        "entry about everybody whom it ever knew."
    )


BETTER: Experiment[Trial, Measured] = Experiment(
    name="vcube-ps/better",
    document="nothing published: our own",
    description="improvements beside the published protocol: who is served first, windows, bundles, directory, churn",
    default=Plan((64, SMALL, 4 * SMALL), repetitions=3, large_repetitions=3),
    full=Plan((64, SMALL, 4 * SMALL, 16 * SMALL), repetitions=20, large_repetitions=5, full=True),
    parameters={
        **MODEL,
        "acknowledgements": "charged, for all systems",
        "published": "VCube-PS as published, with minimal corrections",
        "start_window_ticks": START_WINDOW_TICKS,
        "messages_per_burst": BURST,
        "mean_ticks_between_changes": CHANGE_GAP_TICKS,
        "churn": "half of the nodes are members; as many changes as nodes; two publications after each",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What do our changes to VCube-PS buy, each for itself and beside the published protocol? Serving the "
    "largest subtree first takes a few percent off the longest latency for nothing. Letting many publications be on "
    "their way delivers a burst tens of times sooner with the same packets, and bundles save most of the packets. A "
    "directory makes a subscription cost what the topic has of members, not what the system has of nodes. Under churn "
    "the published protocol loses publications and leaves waits that never end; the repaired one does neither.",
)
