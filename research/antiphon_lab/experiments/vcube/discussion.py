"""A discussion: Figure 5.9 of the thesis, Figure 6 of the SBAC-PAD paper.

All 256 nodes are members of one topic. At the start ``p`` of them, drawn at random, publish; each of the others answers
once, a random time after it has received all of these. The experiment measures how many publications an answer names
(the size of its causal barrier) and how long publications wait for others between reception and delivery.

The documents do not say how the time before an answer is drawn. Here it is uniform from 0 to a longest wait, which is
scanned. And they may have measured a fault: CHECKCB, as printed in the SBAC-PAD paper, empties the barrier that it is
given. Where that is the stored one nothing is pruned, and barriers hold all that was delivered since the own last
publication. Both are simulated; deliveries, and so delays, are the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.kernel.message import Publication
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine, SimulatedApplication
from antiphon.simulator.scenario.subscriptions import draw_nodes
from antiphon_lab.experiments.vcube.one_topic import (
    MODEL,
    PUBLISHED,
    REPAIRED,
    TopicRun,
    as_published,
    as_repaired,
    draw_group,
)
from antiphon_lab.protocols.cube.published_messages import Pub
from antiphon_lab.reproduction.documents import Number, document
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Results,
    Row,
    compared,
    promised,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series, published_point, published_series
from antiphon_lab.reproduction.metrics import delivery_delays
from antiphon_lab.reproduction.verdicts import Fitted, agrees

NODES = 256
LONGEST_WAITS = (20, 50, 120, 300)
BOUNDS = {1: 5, 10: 15}
"""By number of starters: the size of barrier below which the text counts answers."""

SIZES_FIT = {1: (300, True), 10: (120, False)}
"""By number of starters: the longest wait, and whether barriers are pruned, with which the published sizes come out."""
DELAYS_FIT = {1: 50, 10: 20}
"""By number of starters: the longest wait with which most delays are near the published ones."""

CLASS = 5
CLASSES = 18
"""The published figure has sizes up to 90 in classes of five."""
DELAYED = (0, 5, 10, 20, 30, 40, 50, 75, 100, 125, 150, 175, 200)

STARTER_STREAM = 103
WAIT_STREAM = 104


@dataclass(frozen=True)
class Discussion:
    """One simulation."""

    system: str
    nodes: int
    starters: int
    longest_wait: int
    prunes: bool = True

    def __str__(self) -> str:
        variant = "repaired" if self.system == REPAIRED else "pruned" if self.prunes else "not pruned"
        return f"p = {self.starters}, wait {self.longest_wait}, {variant}"


@dataclass(frozen=True)
class Talk:
    """The results of a discussion: barriers of all publications, delays of all receptions; shares in percent.

    ``size_classes``: shares of ``CLASS`` sizes each; ``delay_classes``: those of delays up to each of ``DELAYED``.
    """

    fewer: float
    exact: float
    below: float
    mean_size: float
    largest_size: float
    at_once: float
    soon: float
    late: float
    longest_delay: float
    violations: int
    size_classes: tuple[float, ...]
    delay_classes: tuple[float, ...]


class Answering(SimulatedApplication):
    """Lets every node answer once, some time after it has received the publications of all starters."""

    def __init__(self, starters: list[int], longest_wait: int, seed: int) -> None:
        self._starters = frozenset(starters)
        self._longest_wait = longest_wait
        self._seed = seed
        self._missing: dict[int, int] = {}
        self.sizes: list[int] = []

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        if publication.source == node:
            self.sizes.append(barrier_size(publication))
        elif publication.source in self._starters and node not in self._starters:
            missing = self._missing.get(node, len(self._starters)) - 1
            self._missing[node] = missing
            if missing == 0:
                wait = RandomStream(self._seed, WAIT_STREAM, node).between(0, self._longest_wait)
                engine.at(engine.calendar.now + wait, PublishAction(node))


def barrier_size(publication: Publication) -> int:
    """How many publications a publication names."""
    if isinstance(publication, Pub):
        return len(publication.barrier)
    assert isinstance(publication, Publication), "VCube-PS has these two kinds of publications"
    return len(publication.dependencies)


def measure(case: Discussion, seed: int) -> Talk:
    """Hold a discussion; the repaired system is charged for acknowledgements."""
    group = draw_group(case.nodes, case.nodes, seed)
    starters = draw_nodes(case.starters, case.nodes, RandomStream(seed, STARTER_STREAM))
    answering = Answering(starters, case.longest_wait, seed)
    repaired = case.system == REPAIRED
    build = as_repaired(group) if repaired else as_published(group, {"prunes_barriers": case.prunes})
    run = TopicRun(group, build, seed, charged=repaired, application=answering)
    for starter in starters:
        run.engine.at(0, PublishAction(starter))
    run.finish()
    sizes, delays = np.array(answering.sizes), delivery_delays(run.trace.table())
    return Talk(
        fewer=percent(sizes < case.starters),
        exact=percent(sizes == case.starters),
        below=percent(sizes < BOUNDS[case.starters]),
        mean_size=float(sizes.mean()),
        largest_size=float(sizes.max()),
        at_once=percent(delays == 0),
        soon=percent(delays < 10),
        late=float(np.count_nonzero(delays > 50)),
        longest_delay=float(delays.max()),
        violations=sum(run.judgement().counts.values()),
        size_classes=tuple(percent(sizes // CLASS == number) for number in range(CLASSES)),
        delay_classes=tuple(percent(delays <= longest) for longest in DELAYED),
    )


def percent(chosen: np.ndarray) -> float:
    """The share of chosen elements."""
    return float(100 * chosen.mean())


def cases(plan: Plan) -> list[Discussion]:
    """Both systems for all waits; as published, with and without the fault."""
    nodes = plan.sizes[0]
    return [
        Discussion(system, nodes, starters, longest_wait, prunes)
        for starters in BOUNDS
        if starters < nodes
        for system, prunes in ((PUBLISHED, True), (PUBLISHED, False), (REPAIRED, True))
        for longest_wait in LONGEST_WAITS
    ]


@dataclass(frozen=True)
class Quantity:
    """Something that is measured; the text gives numbers for some, by number of starters."""

    key: str
    label: str
    unit: str
    of: Callable[[Talk], float]

    def name(self, case: Discussion) -> str:
        """How a row is called."""
        return f"{case}: {self.label.format(exact=case.starters, below=BOUNDS[case.starters])}"


EXACT = Quantity("exact", "exactly {exact} named", "%", operator.attrgetter("exact"))
BELOW = Quantity("below", "below {below} named", "%", operator.attrgetter("below"))
AT_ONCE = Quantity("at-once", "delivered at once", "%", operator.attrgetter("at_once"))
SOON = Quantity("soon", "delayed below 10", "%", operator.attrgetter("soon"))
LATE = Quantity("late", "delayed above 50", "receptions", operator.attrgetter("late"))
LONGEST = Quantity("longest", "longest delay", "ticks", operator.attrgetter("longest_delay"))
MEAN = Quantity("mean", "mean size", "publications", operator.attrgetter("mean_size"))
LARGEST = Quantity("largest", "largest size", "publications", operator.attrgetter("largest_size"))

SIZES = (EXACT, BELOW)
DELAYS = (AT_ONCE, SOON, LATE, LONGEST)


class Talks:
    """The measurements beside the published numbers, for one number of starters."""

    def __init__(self, nodes: int, starters: int, results: Results[Discussion, Talk]) -> None:
        self.nodes = nodes
        self.starters = starters
        self._results = results

    def case(self, longest_wait: int, prunes: bool = True) -> Discussion:
        """The published system."""
        return Discussion(PUBLISHED, self.nodes, self.starters, longest_wait, prunes)

    def published(self, quantity: Quantity) -> Number | None:
        """The number of the text; it is incomplete for ten starters."""
        return document("thesis").numbers.get(f"fig-5.9/{quantity.key}-{self.starters}")

    def agrees(self, case: Discussion, quantity: Quantity) -> bool:
        """Whether a quantity comes out as published."""
        number = self.published(quantity)
        measured = self._results.sample(case, quantity.of)
        return number is None or agrees(number, measured.values)

    def fitting(self) -> list[Discussion]:
        """The cases in which everything comes out as published."""
        candidates = [self.case(wait, prunes) for wait in LONGEST_WAITS for prunes in (True, False)]
        return [case for case in candidates if all(self.agrees(case, quantity) for quantity in SIZES + DELAYS)]

    def compared_rows(self) -> Iterator[Row | Note]:
        """Each published number beside the reading that comes nearest."""
        longest_wait, prunes = SIZES_FIT[self.starters]
        readings = [(quantity, self.case(longest_wait, prunes)) for quantity in SIZES]
        readings += [(quantity, self.case(DELAYS_FIT[self.starters])) for quantity in DELAYS]
        for quantity, case in readings:
            number = self.published(quantity)
            if number is not None and self.nodes == NODES:
                measured = self._results.sample(case, quantity.of)
                yield compared(quantity.name(case), measured, number, basis=chosen_wait(case))


def chosen_wait(case: Discussion) -> Fitted:
    """The documents do not say how long nodes wait: the wait that comes nearest was taken for each kind of number."""
    return Fitted(
        f"waits of up to {case.longest_wait} ticks, barriers {'pruned' if case.prunes else 'not pruned'}",
        "the other numbers of the scan; no wait gives all of them",
    )


def compare(plan: Plan, results: Results[Discussion, Talk]) -> Iterator[Finding]:
    """The numbers of the text, then the whole scan."""
    nodes = plan.sizes[0]
    for starters in BOUNDS:
        if starters < nodes:
            yield from Talks(nodes, starters, results).compared_rows()
    if nodes != NODES:
        yield Note(f"Published for {NODES} nodes; nothing is compared at {nodes}.")
    found = [talk.violations for case in cases(plan) for talk in results.of(case)]
    yield promised("violations found by the oracle in all runs", found)
    yield from figures(nodes, results)
    yield from scan(plan, results)
    yield from beliefs(nodes, results)


def size_class(number: int) -> Callable[[Talk], float]:
    """The share of one class of sizes."""
    return lambda talk: talk.size_classes[number]


def delay_class(number: int) -> Callable[[Talk], float]:
    """The share of all delays up to one of ``DELAYED``."""
    return lambda talk: talk.delay_classes[number]


def figures(nodes: int, results: Results[Discussion, Talk]) -> Iterator[Figure]:
    """For each number of starters the sizes of barriers, in the classes of Figure 5.9, and the delays."""
    classes = tuple(f"{CLASS * number}-{CLASS * (number + 1) - 1}" for number in range(CLASSES))
    for starters in BOUNDS:
        if starters >= nodes:
            continue
        wait, _ = SIZES_FIT[starters]
        shown = [
            ("VCube-PS, pruned", PUBLISHED, 0, Discussion(PUBLISHED, nodes, starters, wait)),
            ("VCube-PS, not pruned", PUBLISHED, 1, Discussion(PUBLISHED, nodes, starters, wait, prunes=False)),
            (REPAIRED, REPAIRED, 0, Discussion(REPAIRED, nodes, starters, wait)),
        ]
        series = [
            Series(
                name,
                system,
                tuple(results.sample(case, size_class(number)).point(number) for number in range(CLASSES)),
                "bars",
                variant,
            )
            for name, system, variant, case in shown
        ]
        yield Figure(
            f"sizes-{starters}",
            f"Publications that a message names, p = {starters}, waits up to {wait} ticks",
            Axis("publications named", categories=classes),
            Axis("share of the messages", "%"),
            tuple(series),
            caption="The text gives shares of single sizes and of all below a bound, which are in the table; the "
            "values of the classes are in the published plot only. What lies above the last class is not shown.",
        )
        yield delay_figure(nodes, starters, results)


def delay_figure(nodes: int, starters: int, results: Results[Discussion, Talk]) -> Figure:
    """How long publications wait between reception and delivery."""
    wait = DELAYS_FIT[starters]
    series = [
        Series(
            system,
            system,
            tuple(
                results.sample(Discussion(system, nodes, starters, wait), delay_class(number)).point(longest)
                for number, longest in enumerate(DELAYED)
            ),
            "steps",
        )
        for system in (PUBLISHED, REPAIRED)
    ]
    talks = Talks(nodes, starters, results)
    published = []
    for quantity, longest in ((AT_ONCE, 0), (SOON, 10)):
        number = talks.published(quantity)
        if number is not None and nodes == NODES:
            published.append(published_point(longest, number))
    return Figure(
        f"delays-{starters}",
        f"Receptions delivered after at most so long, p = {starters}, waits up to {wait} ticks",
        Axis("delay", "ticks"),
        Axis("share of the receptions", "%"),
        (*series, *published_series(PUBLISHED, PUBLISHED, published)),
    )


def scan(plan: Plan, results: Results[Discussion, Talk]) -> Iterator[Row]:
    """The quantities for all waits; delays do not depend on whether barriers are pruned."""
    for case in cases(plan):
        for quantity in (EXACT, BELOW, MEAN, LARGEST, *(DELAYS if case.prunes else ())):
            yield Row(quantity.name(case), quantity.unit, results.sample(case, quantity.of))


def beliefs(nodes: int, results: Results[Discussion, Talk]) -> Iterator[Note]:
    """Variants that were tried, and our conclusions."""
    yield Note(
        "The documents do not say how long nodes wait before they answer. Tried: uniform up to 0, 10, 20, 50, 100, "
        "120, 160, 200, 300, 500 and 1000 ticks, exponential with means from 10 to 300, normal around 100, 500 and "
        "1000; acknowledgements free and charged; children in both orders. While waits are longer than the queues and "
        "shorter than two hops, sizes depend on the order of the answers alone, so no other law of that length can "
        "change them."
    )
    if nodes != NODES:
        return
    most = max(BOUNDS)
    pruned, full = (
        results.sample(Discussion(PUBLISHED, nodes, most, SIZES_FIT[most][0], prunes), lambda talk: talk.fewer).mean
        for prunes in (True, False)
    )
    yield Note(
        f"With p = {most} every answer names all {most} starters or what follows them, so whoever delivers one answer "
        f"has pruned them all: {pruned:.0f} % of the publications name fewer than {most}. The text has sizes stay at "
        f"{most} or close above, which is what happens where nothing is pruned ({full:.0f} %, the starters). So we "
        f"believe that the published sizes for p = {most} are those of the fault. Those for p = 1 fit pruned barriers "
        "and waits up to 300, while the published delays need waits of 20 to 120. Deliveries are right either way."
    )


FIG_5_9: Experiment[Discussion, Talk] = Experiment(
    name="vcube-ps/fig-5.9",
    document="thesis, Figure 5.9 and section 5.6.4 (SBAC-PAD paper, Figure 6)",
    description="a discussion: how many publications an answer names, and how long publications wait for others",
    default=Plan((NODES,), repetitions=3, large_repetitions=3),
    full=Plan((NODES,), repetitions=40, large_repetitions=40, full=True),
    parameters={
        **MODEL,
        "longest_waits": list(LONGEST_WAITS),
        "wait": "uniform from 0 to the longest, from the delivery of the last starter's publication",
        "switches": {"pruned": "prunes_barriers", "not pruned": "not prunes_barriers"},
        "acknowledgements": "free of charge; VCube-PS repaired: charged",
        "children": "in ascending order of cluster; VCube-PS repaired: in descending order",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What does causal order cost where everybody answers at once, the worst case for it? Around nine of ten "
    "messages are delivered the moment they arrive, and an answer names a handful of predecessors, not all. How many "
    "depends on how long people wait before they answer, which the documents do not say: no single wait gives all the "
    "published numbers, and the published sizes for ten starters look like those of a fault in pruning. For a user the "
    "conclusion holds in every variant: causal delivery hardly ever makes anybody wait, and nothing came out of order.",
)
