"""EpTO with corrective deliveries beside EpTO that drops late events (thesis of M. Matos, section 5.5).

The thesis proposes corrections and measures nothing. Here rounds are far shorter than messages take, as in Figure
5.10(a), so that many events come too late. Each node keeps a log that corrections change
(:mod:`antiphon.fabrics.gossip.epto.corrections`). Measured are how many nodes end with the complete sequence, how much
they take back, and how long a delivered event goes on changing its place: what nobody can know while it happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from antiphon.fabrics.gossip.epto.analysis import published_fanout, published_ttl
from antiphon.fabrics.gossip.epto.corrections import CorrectedLog, RevisableState
from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon.fabrics.gossip.epto.options import EptoOptions
from antiphon.kernel.message import Publication
from antiphon.simulator.engine.engine import Engine
from antiphon_lab.experiments.epto.runs import (
    GLOBAL,
    LOGICAL,
    MODEL,
    PERIOD_TICKS,
    EptoCase,
    EptoRun,
    Seen,
    key_of,
    outcome_of,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, promised
from antiphon_lab.reproduction.figures import Axis, Figure, Series

RATE = 0.1
PERIODS = (10, 15, 25, 41, 62, PERIOD_TICKS)
"""As in Figure 5.10(a): from less than the fifth percentile of delays to their median."""
HORIZON = 100_000
"""More events than there are: what is beyond a horizon is another question."""


@dataclass(frozen=True)
class CorrectionCase(EptoCase):
    """A run in which late events are dropped, or corrected."""

    corrects: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()}, {'corrected' if self.corrects else 'dropped'}"

    def options(self) -> EptoOptions:
        """The configuration of all nodes."""
        return EptoOptions(
            self.nodes,
            fanout=int(published_fanout(self.nodes)),
            ttl=int(published_ttl(self.nodes)),
            period=self.period,
            drift=self.drift,
            clock=self.clock,
            persists=self.persists,
            agreement=0.0,
            corrects=self.corrects,
        )


class Sequence(RevisableState):
    """The state of one application: its events in order, and when each was applied first and last."""

    def __init__(self, seen: RevisedSeen) -> None:
        self.events: list[Stamped] = []
        self.first: dict[Stamped, int] = {}
        self.last: dict[Stamped, int] = {}
        self._seen = seen

    def apply(self, publication: Stamped) -> None:
        self.events.append(publication)
        self.first.setdefault(publication, self._seen.now())
        self.last[publication] = self._seen.now()

    def take_back(self, publication: Stamped) -> None:
        assert self.events.pop() is publication, "what came last is taken back first"


class RevisedSeen(Seen):
    """Every node has a log and a state that follows from it."""

    def open(self, nodes: int) -> None:
        """Begin the logs."""
        self.states = [Sequence(self) for _ in range(nodes)]
        self.logs = [CorrectedLog(state, HORIZON) for state in self.states]

    def delivered(self, engine: Engine, node: int, publication: Publication) -> None:
        super().delivered(engine, node, publication)
        assert isinstance(publication, Stamped), "EpTO delivers nothing else"
        self.logs[int(node)].delivered(publication)

    def corrects(self, node: int, publication: Stamped) -> None:
        self.logs[node].corrected(publication)


class CorrectedRun(EptoRun):
    """A system whose nodes keep logs."""

    def new_seen(self) -> Seen:
        self.revised = RevisedSeen(lambda: int(self.engine.calendar.now))
        self.revised.open(self.case.nodes)
        return self.revised


@dataclass(frozen=True)
class CorrectionOutcome:
    """The results of a run. Shares are of the nodes, ``unsettled_ticks`` the times from first to last application."""

    events: int
    complete: float
    """The share of nodes that end with every event, in the one order."""
    held: float
    """The share of events in the logs of all nodes."""
    disorders: int
    """Neighbours in a log at the end that are not in the one order."""
    corrections: int
    taken_back: int
    unordered_ticks: float
    first_ticks: float
    """From the publication of an event to its first application."""
    unsettled_ticks: np.ndarray


def measure(case: CorrectionCase, seed: int) -> CorrectionOutcome:
    """Run a case once."""
    run = CorrectedRun(case, seed)
    run.engine.run()
    outcome = outcome_of(run)
    states, logs = run.revised.states, run.revised.logs
    events = sorted({event for state in states for event in state.events}, key=key_of)
    ends = [[key_of(event) for event in state.events] for state in states]
    others = [(state, event) for node, state in enumerate(states) for event in state.events if event.source != node]
    return CorrectionOutcome(
        events=len(events),
        complete=sum(len(end) == len(events) for end in ends) / case.nodes,
        held=sum(map(len, ends)) / (len(events) * case.nodes),
        disorders=sum(end != sorted(end) for end in ends),
        corrections=sum(int(log.corrections) for log in logs),
        taken_back=sum(int(log.taken_back) for log in logs),
        unordered_ticks=outcome.unordered_ticks,
        first_ticks=float(np.mean([state.first[event] - int(event.timestamp) for state, event in others])),
        unsettled_ticks=np.array([state.last[event] - state.first[event] for state, event in others]),
    )


def cases(plan: Plan) -> list[CorrectionCase]:
    """Every period, with both clocks and both ways."""
    return [
        CorrectionCase(nodes, RATE, clock, period=period, corrects=corrects)
        for nodes in plan.sizes
        for clock in (GLOBAL, LOGICAL)
        for period in PERIODS
        for corrects in (False, True)
    ]


def compare(plan: Plan, results: Results[CorrectionCase, CorrectionOutcome]) -> Iterator[Finding]:
    """The gain and the cost of corrections."""
    every = cases(plan)
    yield promised("logs out of order, all runs", [found.disorders for case in every for found in results.of(case)])
    dropping = [case for case in every if not case.corrects]
    yield promised(
        "corrections where late events are dropped, all runs",
        [found.corrections for case in dropping for found in results.of(case)],
    )
    for case in every:
        complete = results.sample(case, lambda found: 100 * found.complete)
        yield Row(f"nodes with every event at the end, {case}", "% of nodes", complete)
        yield Row(f"events in logs at the end, {case}", "%", results.sample(case, lambda found: 100 * found.held))
        yield Row(f"delay of the first application, {case}", "ticks", results.sample(case, lambda one: one.first_ticks))
        if case.corrects:
            yield from price(case, results)
    yield from figures(plan, results)
    yield Note(
        "Every row is about one log per node, kept by antiphon.fabrics.gossip.epto.corrections. An event that is "
        "applied again because another came before it counts as unsettled until then. No node knows which of its "
        "events are settled: that is what unconscious eventual consistency means."
    )


def price(case: CorrectionCase, results: Results[CorrectionCase, CorrectionOutcome]) -> Iterator[Row]:
    """The cost of corrections."""
    rare = results.sample(case, lambda found: 100 * found.corrections / (found.events * case.nodes))
    yield Row(f"corrections, {case}", "per 100 deliveries", rare)
    each = results.sample(case, lambda found: found.taken_back / max(1, found.corrections))
    yield Row(f"taken back for one correction, {case}", "events", each)
    changing = results.sample(case, lambda found: float(100 * np.mean(found.unsettled_ticks > 0)))
    yield Row(f"deliveries that were applied again, {case}", "%", changing)
    longest = results.sample(case, lambda found: float(np.percentile(found.unsettled_ticks, 99)))
    yield Row(f"from the first to the last application, 99th percentile, {case}", "ticks", longest)


def figures(plan: Plan, results: Results[CorrectionCase, CorrectionOutcome]) -> Iterator[Figure]:
    """Agreement by period."""
    for nodes in plan.sizes:
        series = []
        for variant, (clock, corrects) in enumerate(
            [(GLOBAL, False), (GLOBAL, True), (LOGICAL, False), (LOGICAL, True)]
        ):
            chosen = [
                case for case in cases(plan) if (case.nodes, case.clock, case.corrects) == (nodes, clock, corrects)
            ]
            points = tuple(
                results.sample(case, lambda found: 100 * found.complete).point(case.period) for case in chosen
            )
            way = "corrected" if corrects else "dropped"
            series.append(Series(f"late events {way}, {clock} clock", "EpTO", points, variant=variant))
        yield Figure(
            "agreement",
            f"Nodes with every event at the end, {nodes} nodes",
            Axis("period", "ticks", "log10"),
            Axis("nodes", "%"),
            tuple(series),
        )


CORRECTIONS: Experiment[CorrectionCase, CorrectionOutcome] = Experiment(
    name="epto/corrections",
    document="not measured in the thesis of M. Matos: section 5.5 proposes it",
    description="EpTO: late events that are corrected afterwards instead of dropped, by the length of a period",
    default=Plan((50,), repetitions=3, large_repetitions=3),
    full=Plan((100, 200), repetitions=10, large_repetitions=10, full=True),
    parameters={**MODEL, "rate": RATE, "periods": PERIODS, "horizon": HORIZON},
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="What if a late event is put into its place afterwards? Then short periods cost no events: each node ends "
    "with everything it has heard of, in the one order, and delivers sooner. The price is that what was delivered may "
    "change its place for a while, and that no node can tell when it will not any more. An application that can take "
    "back its last steps may choose a short period; one that cannot needs a period as long as messages take.",
)
