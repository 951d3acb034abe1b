"""StaN while messages are lost, processes come and go, and the universe grows.

Figures 3.11 to 3.13 of the thesis of M. Matos (section 3.3.6), all on a universe like W8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from antiphon.simulator.engine.node import ABSENT
from antiphon_lab.experiments.stan.churn_traces import overnet_like
from antiphon_lab.experiments.stan.figures import LEAST_COMPARED, W8
from antiphon_lab.experiments.stan.runs import (
    HOPS,
    LOST_DATA,
    MODEL,
    PERIOD_TICKS,
    WIKIPEDIA,
    StanCase,
    StanOutcome,
    StanWorld,
    key_of,
    measure,
    universe_named,
)
from antiphon_lab.protocols.gossip.scamp import ScampOptions
from antiphon_lab.protocols.gossip.stan_options import NOTHING, SOURCES, StanOptions
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
    compared_from,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Series

DOCUMENT = "thesis of M. Matos, section 3.3.6"
PUBLISHED_RUNS = 10
NUMBERS = document("stan").numbers
SMALL = W8 // 8


# Figure 3.11.

LOSSES = (0.0, 0.05, 0.10, 0.15, 0.20, 0.30)
LOSS_ROUNDS = 10
COMPARED_ROUND = 9


def loss_cases(plan: Plan) -> list[StanCase]:
    """The published protocol at every rate, and the corrected one at those the text speaks of."""
    published = [StanCase(WIKIPEDIA, size, LOSS_ROUNDS, loss, NOTHING) for size in plan.sizes for loss in LOSSES]
    return published + [StanCase(WIKIPEDIA, size, LOSS_ROUNDS, loss) for size in plan.sizes for loss in (0.0, 0.10)]


def links_at(at: int) -> Callable[[StanOutcome], float]:
    """Mean physical links after a round."""
    return lambda outcome: outcome.physical[at]


def compare_loss(plan: Plan, results: Results[StanCase, StanOutcome]) -> Iterator[Finding]:
    """Links at round 9 against those without loss."""
    for size in plan.sizes:
        without = results.sample(StanCase(WIKIPEDIA, size, LOSS_ROUNDS, 0.0, NOTHING), links_at(COMPARED_ROUND))
        for loss in LOSSES[1:]:
            case = StanCase(WIKIPEDIA, size, LOSS_ROUNDS, loss, NOTHING)
            more = results.sample(case, links_at(COMPARED_ROUND)).over(without)
            label = f"physical links at round {COMPARED_ROUND}, {100 * loss:g} % lost / none, {size} processes"
            if loss == 0.10:
                yield compared_from(LEAST_COMPARED, size, label, more, NUMBERS["fig-3.11/ten-percent"])
            elif loss > 0.15:
                yield compared_from(LEAST_COMPARED, size, label, more, NUMBERS["fig-3.11/slower-above-fifteen"])
            else:
                yield Row(label, "times", more)
        corrected = results.sample(StanCase(WIKIPEDIA, size, LOSS_ROUNDS, 0.10), links_at(COMPARED_ROUND)).over(
            results.sample(StanCase(WIKIPEDIA, size, LOSS_ROUNDS), links_at(COMPARED_ROUND))
        )
        yield Row(f"the same, 10 % lost, with learning, {size} processes", "times", corrected)
        yield loss_figure(size, results)
    arrives = 100 * (1 - 0.1) ** (HOPS + 2)
    yield Note(
        f"A walk is {HOPS + 2} messages and lost with any of them: with 10 % loss {arrives:.0f} % of the walks come "
        "back. The thesis says 'too slow' of more than 15 % and gives no number; here it is a tenth more links."
    )
    yield Note(LOST_DATA)


def loss_figure(size: int, results: Results[StanCase, StanOutcome]) -> Figure:
    """Figure 3.11."""
    series = []
    for variant, loss in enumerate(LOSSES):
        case = StanCase(WIKIPEDIA, size, LOSS_ROUNDS, loss, NOTHING)
        points = tuple(results.sample(case, links_at(at)).point(at) for at in range(LOSS_ROUNDS + 1))
        series.append(Series(f"{100 * loss:g} % lost", "StaN", points, variant=variant))
    return Figure(
        "loss",
        f"Physical links by round, {size} processes like wikipedia",
        Axis("round"),
        Axis("mean physical links"),
        tuple(series),
        caption="The published figure has no readable values.",
    )


FIG_3_11: Experiment[StanCase, StanOutcome] = Experiment(
    name="stan/fig-3.11",
    document=f"{DOCUMENT}, Figure 3.11",
    description="StaN: how fast links fall while messages are lost",
    default=Plan((SMALL,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=PUBLISHED_RUNS, full=True),
    parameters={**MODEL, "learning": (NOTHING, SOURCES), "losses": LOSSES, "rounds_run": LOSS_ROUNDS},
    cases=loss_cases,
    measure=measure,
    compare=compare_loss,
    meaning="A walk that is lost teaches nothing, and the next one does. With a tenth of all messages lost StaN is "
    "within a tenth of its links after nine rounds; with a third lost it hardly moves.",
)


# Figure 3.12.

SECONDS_PER_CYCLE = 60
SPEEDUPS = (1, 4, 16)
REFILL = 5


@dataclass(frozen=True)
class StanChurnCase:
    """A universe whose processes come and go; ``speedup`` times faster than in the trace."""

    nodes: int
    cycles: int
    speedup: int
    refill: int = 0

    def __str__(self) -> str:
        text = f"StaN, {self.nodes} processes, churn x {self.speedup}, {self.cycles} cycles"
        return f"{text}, refilled" if self.refill else text


@dataclass(frozen=True)
class ChurnOutcome:
    """By cycle: the present processes and the mean links; and the processes that lost the last entry of a view."""

    present: tuple[float, ...]
    logical: tuple[float, ...]
    physical: tuple[float, ...]
    isolated: int
    """Processes of the first cycle that had an empty view in a topic with others in it, at any time."""
    isolated_newcomers: int
    """The same of processes that came later, each time with one entry for each topic."""
    changes: int


def options_under_churn(refill: int, key: int) -> StanOptions:
    """The configuration of all processes.

    Scamp without additional copies makes views grow with the logarithm of the members, as those that are drawn do.
    """
    return StanOptions(period=PERIOD_TICKS, refill=refill, patience=0, in_step=True, key=key, scamp=ScampOptions(0))


def measure_churn(case: StanChurnCase, seed: int) -> ChurnOutcome:
    """Replay a trace."""
    universe = universe_named(WIKIPEDIA, case.nodes)
    seconds = SECONDS_PER_CYCLE * case.speedup
    trace = overnet_like(case.nodes, (case.cycles + 1) * seconds / 3600, seed)
    absent = set(range(case.nodes)) - set(trace.up_at(0.0))
    options = options_under_churn(case.refill, key_of(seed))
    world = StanWorld(universe, options, seed, can_fail=True, absent=absent)
    engine = world.engine
    present, logical, physical = [], [], []
    isolated: set[int] = set()
    newcomers: set[int] = set()
    changed = 0
    for gone, come in trace.changes(seconds, case.cycles):
        for node in gone:
            engine.crash(node)
            for topic in universe.topics_of(node).tolist():
                world.rendezvous.leave(topic, node)
        for node in come:
            if engine.nodes[node].state == ABSENT:
                engine.join(node)
            else:
                engine.restart(node)
        newcomers.update(come)
        changed += len(gone) + len(come)
        world.run_round()
        there = world.present()
        isolated.update(int(process.me) for process in there if process.isolations > 0)
        links, neighbours = world.links()
        present.append(float(len(there)))
        logical.append(float(links.mean()))
        physical.append(float(neighbours.mean()))
    late = len(isolated & newcomers)
    return ChurnOutcome(tuple(present), tuple(logical), tuple(physical), len(isolated) - late, late, changed)


def churn_cases(plan: Plan) -> list[StanChurnCase]:
    """Every speed, with and without refilling."""
    cycles = 60 if plan.full else 12
    return [
        StanChurnCase(size, cycles, speedup, refill)
        for size in plan.sizes
        for speedup in SPEEDUPS
        for refill in (0, REFILL)
    ]


def swing(outcome: ChurnOutcome) -> float:
    """By how much the population varies."""
    return float(np.std(outcome.present))


def compare_churn(plan: Plan, results: Results[StanChurnCase, ChurnOutcome]) -> Iterator[Finding]:
    """How links follow the population, and which processes are isolated."""
    for size in plan.sizes:
        cases = [case for case in churn_cases(plan) if case.nodes == size]
        published = [case for case in cases if case.refill == 0]
        wider = results.sample(published[-1], swing).over(results.sample(published[0], swing))
        label = f"variation of the population, churn x {SPEEDUPS[-1]} / x {SPEEDUPS[0]}, {size} processes"
        yield compared(label, wider, NUMBERS["fig-3.12/oscillation"])
        for case in cases:
            number = NUMBERS["fig-3.12/refilled" if case.refill else "fig-3.12/isolated"]
            yield compared(f"cut off at some time, {case}", isolated_in(results, case), number)
        yield Note(CUT_OFF)
        for case in cases:
            late = results.sample(case, lambda outcome: float(outcome.isolated_newcomers))
            yield Row(f"newcomers cut off at some time, {case}", "processes", late)
            yield Row(f"changes, {case}", "processes", results.sample(case, lambda outcome: float(outcome.changes)))
            links = results.sample(case, lambda outcome: outcome.logical[-1])
            yield Row(f"logical links at the end, {case}", "links", links)
            neighbours = results.sample(case, lambda outcome: outcome.physical[-1])
            yield Row(f"physical links at the end, {case}", "links", neighbours)
        yield churn_figure(size, published, results)
    yield Note(
        "The thesis replays a trace of Overnet that it does not include. The stand-in has about six changes a day per "
        "host, of which two fifths are up; antiphon_lab.experiments.stan.churn_traces reads a real trace."
    )
    yield Note(LOST_DATA)


def isolated_in(results: Results[StanChurnCase, ChurnOutcome], case: StanChurnCase) -> Sample:
    """The processes that were there from the start, and had an empty view."""
    return results.sample(case, lambda outcome: float(outcome.isolated))


CUT_OFF = (
    "A process counts as cut off if any one of its views was empty for a moment, in any of its topics. The thesis says "
    "why processes are: failures depopulate a view that joins do not fill again. So its number is compared with "
    "the processes that had full views once, those of the first cycle. Newcomers have rows of their own: which peer "
    "sampling service gives them their first view is not said. Here it is Scamp, which gives one entry for each topic, "
    "and they may lose it before their first walk has come back. A process that is cut off enters the topic again."
)


def churn_figure(size: int, cases: list[StanChurnCase], results: Results[StanChurnCase, ChurnOutcome]) -> Figure:
    """Figure 3.12(b)."""
    series = []
    for variant, case in enumerate(cases):
        points = tuple(
            results.sample(case, lambda outcome, at=at: outcome.physical[at]).point(at + 1)  # type: ignore[misc]
            for at in range(case.cycles)
        )
        series.append(Series(f"physical links, churn x {case.speedup}", "StaN", points, variant=variant))
    return Figure(
        "churn",
        f"Physical links under churn, {size} processes like wikipedia",
        Axis("cycle"),
        Axis("mean physical links"),
        tuple(series),
        caption="The published figure has no readable values.",
    )


FIG_3_12: Experiment[StanChurnCase, ChurnOutcome] = Experiment(
    name="stan/fig-3.12",
    document=f"{DOCUMENT}, Figure 3.12 (the text names 5.11)",
    description="StaN: links while processes come and go as in Overnet, and faster",
    default=Plan((SMALL,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=3, full=True),
    parameters={**MODEL, "seconds_per_cycle": SECONDS_PER_CYCLE, "speedups": SPEEDUPS, "refill": REFILL},
    cases=churn_cases,
    measure=measure_churn,
    compare=compare_churn,
    meaning="Views shrink when neighbours fail and grow when others come, so links follow the population. StaN goes on "
    "aligning what there is. Views that have become small are refilled by walks.",
)


# Figure 3.13.

FIRST_SHARE, STEP_SHARE = 0.5, 0.1
STEP_ROUNDS = 10


@dataclass(frozen=True)
class GrowthCase:
    """A universe that begins with a share of its processes, and gets more every ten rounds."""

    nodes: int
    first: float
    rounds: int
    refill: int = 0

    def __str__(self) -> str:
        text = f"StaN, {self.nodes} processes, {100 * self.first:g} % at first, {self.rounds} rounds"
        return f"{text}, refilled" if self.refill else text


@dataclass(frozen=True)
class GrowthOutcome:
    """Mean links by round, the start included."""

    logical: tuple[float, ...]
    physical: tuple[float, ...]


def measure_growth(case: GrowthCase, seed: int) -> GrowthOutcome:
    """Let a universe grow."""
    universe = universe_named(WIKIPEDIA, case.nodes)
    order = np.random.default_rng([153, seed]).permutation(case.nodes).tolist()
    there = round(case.first * case.nodes)
    options = options_under_churn(case.refill, key_of(seed))
    world = StanWorld(universe, options, seed, can_fail=True, absent=order[there:])
    logical, physical = [], []
    for number in range(case.rounds + 1):
        if number:
            if (number - 1) % STEP_ROUNDS == 0 and number > 1:
                more = min(case.nodes, there + round(STEP_SHARE * case.nodes))
                for node in order[there:more]:
                    world.engine.join(node)
                there = more
            world.run_round()
        links, neighbours = world.links()
        logical.append(float(links.mean()))
        physical.append(float(neighbours.mean()))
    return GrowthOutcome(tuple(logical), tuple(physical))


def growth_cases(plan: Plan) -> list[GrowthCase]:
    """All cases of all sizes."""
    return [case for size in plan.sizes for case in growth_cases_of(size)]


def growth_cases_of(size: int) -> tuple[GrowthCase, GrowthCase, GrowthCase]:
    """A universe that grows, one that is complete from the start, and one that grows with views that are refilled."""
    grown = GrowthCase(size, FIRST_SHARE, 60)
    return grown, replace(grown, first=1.0), replace(grown, refill=REFILL)


def compare_growth(plan: Plan, results: Results[GrowthCase, GrowthOutcome]) -> Iterator[Finding]:
    """The end of both, and what a step does."""
    number = NUMBERS["fig-3.13/as-from-scratch"]
    for size in plan.sizes:
        grown, scratch, refilled = growth_cases_of(size)
        for which in ("logical", "physical"):
            complete = results.sample(scratch, at_end(which))
            label = f"{which} links, grown / from scratch, {size} processes"
            ratio = results.sample(grown, at_end(which)).over(complete)
            yield compared_from(LEAST_COMPARED, size, label, ratio, number)
            yield Row(f"{label}, refilled", number.unit, results.sample(refilled, at_end(which)).over(complete))
        jump = results.sample(grown, lambda outcome: outcome.physical[51] / outcome.physical[60])
        yield compared(
            f"physical links, round after the last step / at the end, {size}", jump, NUMBERS["fig-3.13/jumps"]
        )
        yield growth_figure(size, grown, scratch, results)
    yield Note(
        "A tenth of all processes is added at a time, so that the universe is complete after round 50. The text says a "
        "tenth of the remaining, which never ends."
    )
    yield Note(
        "How views grow when others come is the affair of the peer sampling service, and the thesis does not say which "
        "one ran: here it is Scamp. Nobody fails in this experiment, so the published rows are without refilling, of "
        "which the text speaks under churn only. With it each newcomer, which Scamp gives one entry, takes up to five "
        "from its first walk, beside what others have taken of it: views are then larger than drawn ones."
    )
    yield Note(LOST_DATA)


def at_end(which: str) -> Callable[[GrowthOutcome], float]:
    """Links after the last round."""
    return lambda outcome: float(getattr(outcome, which)[-1])


def growth_figure(
    size: int, grown: GrowthCase, scratch: GrowthCase, results: Results[GrowthCase, GrowthOutcome]
) -> Figure:
    """Figure 3.13."""
    series = []
    for variant, (name, case, which) in enumerate(
        (
            ("logical links, growing", grown, "logical"),
            ("logical links, from scratch", scratch, "logical"),
            ("physical links, growing", grown, "physical"),
            ("physical links, from scratch", scratch, "physical"),
        )
    ):
        points = tuple(
            results.sample(case, lambda outcome, at=at, which=which: float(getattr(outcome, which)[at])).point(at)  # type: ignore[misc]
            for at in range(case.rounds + 1)
        )
        series.append(Series(name, "StaN", points, variant=variant))
    return Figure(
        "growth",
        f"Links of a growing universe, {size} processes like wikipedia",
        Axis("round"),
        Axis("mean number of links"),
        tuple(series),
        caption="The published figure has no readable values.",
    )


FIG_3_13: Experiment[GrowthCase, GrowthOutcome] = Experiment(
    name="stan/fig-3.13",
    document=f"{DOCUMENT}, Figure 3.13",
    description="StaN: links of a universe that grows from half to whole",
    default=Plan((W8 // 12,), repetitions=3, large_repetitions=3),
    full=Plan((W8,), repetitions=PUBLISHED_RUNS, large_repetitions=3, full=True),
    parameters={
        **MODEL,
        "first": FIRST_SHARE,
        "step": STEP_SHARE,
        "rounds_per_step": STEP_ROUNDS,
        "refill": (0, REFILL),
    },
    cases=growth_cases,
    measure=measure_growth,
    compare=compare_growth,
    meaning="Newcomers enter by Scamp and bring new links, which StaN aligns within a few rounds. In the end the "
    "universe has about the links of one that was complete from the start.",
)
