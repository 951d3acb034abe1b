"""Our extensions of EpTO beside the published algorithm: payloads that travel once, measured periods, early use.

Pairs of cases have the same publications. Payloads have 1,000 bytes. **Early use**: one node in ten records its
tentative order in every round. Afterwards each statement is checked: whether all nodes knew the event at that moment,
and whether an earlier event arrived later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from antiphon.fabrics.gossip.epto.messages import Stamped
from antiphon_lab.experiments.epto.figures import in_same_order
from antiphon_lab.experiments.epto.runs import (
    GLOBAL,
    LOGICAL,
    MODEL,
    PERIOD_TICKS,
    EptoCase,
    EptoOutcome,
    EptoRun,
    key_of,
)
from antiphon_lab.reproduction.experiment import Experiment, Finding, Note, Plan, Results, Row, Sample

RATE = 0.1
PAYLOAD_BYTES = 1000
QUICK, SLOW = 15, 500
"""Periods that are wrong: the fifth percentile of the delays, and four times their median."""
LISTENERS = 10
BANDS = ((0.0, 0.5), (0.5, 0.9), (0.9, 0.99), (0.99, 1.01))


@dataclass(frozen=True)
class Forecast:
    """A statement of a node about an event in one round, and the truth."""

    stable: float
    was_stable: bool
    deliverable: float
    was_deliverable: bool


@dataclass(frozen=True)
class Improved:
    """The results of a run."""

    outcome: EptoOutcome
    forecasts: tuple[Forecast, ...]


class WatchedRun(EptoRun):
    """A run in which some nodes are asked for their tentative in every round."""

    def __init__(self, case: EptoCase, seed: int) -> None:
        super().__init__(case, seed)
        self._before: dict[int, dict[Stamped, int]] = {}
        self._said: list[tuple[int, int, Stamped, float, float]] = []
        for process in self.processes[::LISTENERS]:
            process.watch = self._note

    def _note(self, node: int) -> None:
        for one in self.processes[node].tentative():
            self._said.append((int(self.engine.calendar.now), node, one.publication, one.stable, one.deliverable))

    def forecasts(self) -> tuple[Forecast, ...]:
        """All statements, with the truth."""
        heard = self.seen.heard_at
        known_to_all = {
            event: max(heard[node, event] for node in range(self.case.nodes))
            for event in self.seen.heard.get(0, {})
            if all((node, event) in heard for node in range(self.case.nodes))
        }
        found = []
        for now, node, event, stable, deliverable in self._said:
            latest_before = self._latest_before(node, event)
            found.append(Forecast(stable, known_to_all.get(event, now + 1) <= now, deliverable, latest_before <= now))
        return tuple(found)

    def _latest_before(self, node: int, event: Stamped) -> int:
        """The time at which a node received the last event that precedes another."""
        if node not in self._before:
            latest = 0
            self._before[node] = {}
            for one in sorted(self.seen.heard[node], key=key_of):
                self._before[node][one] = latest
                latest = max(latest, self.seen.heard_at[node, one])
        return self._before[node][event]


def measure(case: EptoCase, seed: int) -> Improved:
    """Run a case once."""
    run = WatchedRun(case, seed)
    outcome = run.run()
    return Improved(outcome, run.forecasts())


def published(nodes: int) -> EptoCase:
    """The case that the others are compared with."""
    return EptoCase(nodes, RATE, payload_bytes=PAYLOAD_BYTES)


def better_cases(plan: Plan) -> list[EptoCase]:
    """The published algorithm and each change to it."""
    found = []
    for nodes in plan.sizes:
        usual = published(nodes)
        found += [usual, replace(usual, clock=LOGICAL), replace(usual, persists=True), replace(usual, digests=True)]
        found += [replace(usual, period=period, adapts=adapts) for period in (QUICK, SLOW) for adapts in (False, True)]
    return found


def compare_better(plan: Plan, results: Results[EptoCase, Improved]) -> Iterator[Finding]:
    """Each change beside the published algorithm."""
    for nodes in plan.sizes:
        usual = published(nodes)
        digests, persists = replace(usual, digests=True), replace(usual, persists=True)
        for label, case in (("published", usual), ("persists", persists), ("digests", digests)):
            about = f"{label}, {nodes} nodes"
            yield Row(f"bytes per node and round, {about}", "bytes", of(results, case, "bytes_per_node_and_round"))
            copies = of(results, case, "payload_copies_per_delivery")
            yield Row(f"copies of a payload per delivery, {about}", "copies", copies)
            yield Row(f"delay, {about}", "ticks", of(results, case, "ordered_ticks"))
            yield Row(f"without holes, {about}", "% of nodes", results.sample(case, hole_free))
        saved = of(results, usual, "bytes_per_node_and_round").over(of(results, digests, "bytes_per_node_and_round"))
        yield Row(f"bytes, published / digests, {nodes} nodes", "times", saved)
        for period in (QUICK, SLOW):
            for adapts in (False, True):
                case = replace(usual, period=period, adapts=adapts)
                about = f"period {period}{', adapts' if adapts else ''}, {nodes} nodes"
                yield Row(f"without holes, {about}", "% of nodes", results.sample(case, hole_free))
                yield Row(f"delay, {about}", "ticks", of(results, case, "ordered_ticks"))
                if adapts:
                    yield Row(f"period at the end, {about}", "ticks", of(results, case, "mean_period"))
        for clock in (GLOBAL, LOGICAL):
            yield from forecasts(results, replace(usual, clock=clock))
    yield Note(
        f"The median delay is {PERIOD_TICKS} ticks. A probe and its answer take two delays, and half of their sum is "
        "taken for one: its median is nearer to the mean of the delays, 157 ticks."
    )
    yield Note(
        "What is said of early use is cautious by design: where it says that an event is known to all with some "
        "probability, it was so at least as often."
    )


def of(results: Results[EptoCase, Improved], case: EptoCase, name: str) -> Sample:
    """A quantity of the outcome."""
    return results.sample(case, lambda improved: float(getattr(improved.outcome, name)))


def hole_free(improved: Improved) -> float:
    """The share of nodes that delivered everything in order, in percent."""
    return in_same_order(improved.outcome)


def forecasts(results: Results[EptoCase, Improved], case: EptoCase) -> Iterator[Row]:
    """The share of true statements among those with a probability in some band."""
    made = [one for improved in results.of(case) for one in improved.forecasts]
    for low, high in BANDS:
        band = f"{low:g} to {min(high, 1):g}, {case.clock} clock, {case.nodes} nodes"
        stable = [one.was_stable for one in made if low <= one.stable < high]
        deliverable = [one.was_deliverable for one in made if low <= one.deliverable < high]
        for label, true in (("known to all", stable), ("nothing before it", deliverable)):
            if true:
                share = Sample((sum(true) / len(true),))
                yield Row(f"{label}, said with probability {band}", "share that was so", share)


BETTER: Experiment[EptoCase, Improved] = Experiment(
    name="epto/better",
    document="ours, beside the thesis of M. Matos, chapter 5",
    description="EpTO: payloads that travel once, periods that are measured, forecasts for early use",
    default=Plan((100,), repetitions=1, large_repetitions=1),
    full=Plan((100, 200, 500), repetitions=10, large_repetitions=10, full=True),
    parameters={**MODEL, "rate": RATE, "payload_bytes": PAYLOAD_BYTES, "wrong_periods": (QUICK, SLOW)},
    cases=better_cases,
    measure=measure,
    compare=compare_better,
    meaning="In the published algorithm every payload comes to every node about two hundred times. Where balls only "
    "name events it comes once, or little more often, and delivery takes somewhat longer. A node that measures how "
    "long messages take needs no period to be configured: one that is far too short makes holes, one that is far too "
    "long makes everything late, and both are corrected. And an application that can take something back need not "
    "wait for the delivery.",
)
