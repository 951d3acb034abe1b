"""Latency of the broker tree under faults: sections 5.4.2 and 5.4.3, Figures 5.4 and 5.5 of the dissertation on Ginger.

BankService on the published overlay: how long operations of each order take, by the number of brokers that crash and by
the number of accounts. The values of both figures are lost; the text states their trends, which are the verdicts here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.trace.store import MemoryTrace
from antiphon_lab.experiments.ginger.bank_service import BankRun
from antiphon_lab.experiments.ginger.model import (
    AS_PUBLISHED,
    BROKERS,
    CAUSAL,
    EVENTUAL,
    FAULTS,
    KEYS,
    MODEL,
    ORDERS,
    PLACES,
    STRICT,
    SYSTEMS,
    TOTAL,
    BankCase,
    broken_promises,
    counted,
    delays_ms,
    overtakings,
)
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
from antiphon_lab.reproduction.figures import Axis, Figure, Series
from antiphon_lab.reproduction.verdicts import Refutation

OPERATIONS = 500
KEY_COUNTS = (1, 10, 100, 1000)


@dataclass(frozen=True)
class BankLatencies:
    """The latencies of one run, in ms, by order: at other places than the publisher's, and at all of them.

    ``reach_ms`` is the path from the root to the farthest place of any bank, in the tree at the end.
    """

    mean: dict[str, float]
    mean_with_own: dict[str, float]
    reach_ms: float
    violations: int
    overtakings: int = 0
    """Violations of fifo and causal order, which are among the violations with strict sessions alone."""


Found = Results[BankCase, BankLatencies]


def measure(case: BankCase, seed: int) -> BankLatencies:
    """Let customers ask while brokers crash."""
    trace = MemoryTrace("deliveries")
    run = BankRun(case.setup(seed), seed, trace.recorder)
    run.run()
    latency = run.service.latency
    return BankLatencies(
        mean={order: latency[order].mean for order in ORDERS},
        mean_with_own={order: latency[order].mean_with_own for order in ORDERS},
        reach_ms=reach_ms(run),
        violations=broken_promises(run, trace, case.is_strict),
        overtakings=overtakings(run, trace),
    )


def reach_ms(run: BankRun) -> float:
    """From the root to the farthest place, in the tree of the last epoch."""
    broker = run.processes()[0]
    assert isinstance(broker, TreeBroker), "all are brokers"
    delays = delays_ms()
    places = {place for bank in PLACES for place in bank}
    return float(
        max(sum(delays[one][other] for one, other in pairwise(broker.view.overlay.path_of(place))) for place in places)
    )


def case_of(system: str, faults: int, keys: int) -> BankCase:
    """One cell of the figures."""
    return BankCase(system, FAULTS[faults], keys, OPERATIONS)


def fault_cases(_plan: Plan) -> list[BankCase]:
    """Figure 5.4, for every plan: the published overlay has one size."""
    return [case_of(system, faults, KEYS) for system in SYSTEMS for faults in FAULTS]


def key_cases(_plan: Plan) -> list[BankCase]:
    """Figure 5.5; strict sessions are seen without faults and with most of them."""
    return [
        case_of(system, faults, keys) for system in SYSTEMS for keys in KEY_COUNTS for faults in faults_shown(system)
    ]


def faults_shown(system: str) -> tuple[int, ...]:
    """The numbers of faults that Figure 5.5 has for a system."""
    return (min(FAULTS), max(FAULTS)) if system == STRICT else tuple(FAULTS)


class Cells:
    """The measurements, by system, faults, keys and order."""

    def __init__(self, results: Found) -> None:
        self._results = results

    def of(self, order: str, faults: int, keys: int = KEYS, system: str = AS_PUBLISHED) -> Sample:
        """The latency of one order."""
        return self._results.sample(case_of(system, faults, keys), lambda found: found.mean[order])

    def with_own(self, order: str, faults: int, keys: int = KEYS, system: str = AS_PUBLISHED) -> Sample:
        """The latency of one order if deliveries at the publisher's place count too."""
        return self._results.sample(case_of(system, faults, keys), lambda found: found.mean_with_own[order])

    def reach(self, faults: int, keys: int) -> float:
        """How far the farthest place is from the root at the end."""
        return self._results.sample(case_of(AS_PUBLISHED, faults, keys), lambda found: found.reach_ms).mean

    def faults_row(self, label: str, name: str, order: str, keys: int) -> Row:
        """The smallest growth from one number of faults to the next."""
        steps = list(pairwise(FAULTS))
        grown = [self.of(order, more, keys).over(self.of(order, fewer, keys)) for fewer, more in steps]
        falling = [step for step, sample in zip(steps, grown, strict=True) if sample.mean < 1]
        lower = all(self.reach(more, keys) < self.reach(fewer, keys) for fewer, more in falling)
        explanation = Refutation(
            "that latency grows with every further fault",
            "a repair can make the tree lower: after each fault with which latency fell, the way from the root to the "
            "farthest place is shorter than before",
            bool(falling) and lower,
            0.5,
            1.0,
        )
        return compared(label, smallest(grown), document("ginger").numbers[name], explanation)

    def waits_for_total(self, faults: int) -> Refutation:
        """The effect of strict sessions, which nodes have by default, on causal publications at this load."""
        loose, strict = (self.of(CAUSAL, faults, system=system).mean for system in SYSTEMS)
        return Refutation(
            "that causal publications are faster than total ones, if causal order also holds between the two",
            "with strict sessions a causal publication waits for the total ones that its client published before; at "
            f"this load that takes {strict:.0f} ms, where it takes {loose:.0f} ms if it may overtake them",
            strict > 5 * loose > 0,
            0.8,
            1.05,
        )

    def keys_row(self, label: str, order: str, faults: int) -> Row:
        """The smallest fall from one number of keys to the next."""
        steps = list(pairwise(KEY_COUNTS))
        fallen = [self.of(order, faults, few).over(self.of(order, faults, many)) for few, many in steps]
        rising = [step for step, sample in zip(steps, fallen, strict=True) if sample.mean < 1]
        faster = all(self.of(EVENTUAL, faults, few).mean > self.of(EVENTUAL, faults, many).mean for few, many in rising)
        explanation = Refutation(
            "that causal publications get faster with every ten times the keys",
            "a causal publication whose key is closed holds back those of its client behind it. With one key all of "
            "them wait for the same completion and go together; with ten they wait for one key after the other. "
            "Publications without order, which hold nobody back, get faster in the same step",
            order == CAUSAL and bool(rising) and faster,
            0.3,
            1.0,
        )
        return compared(label, smallest(fallen), document("ginger").numbers["fig-5.5/keys"], explanation)


def smallest(samples: Sequence[Sample]) -> Sample:
    """The sample with the smallest mean."""
    return min(samples, key=lambda sample: sample.mean)


def overtaking_rows(cases: Sequence[BankCase], results: Found) -> Iterator[Row]:
    """How often fifo or causal order was broken, by system: what the document's sessions allow, ours do not."""
    for system in SYSTEMS:
        chosen = [found.overtakings for case in cases if case.system == system for found in results.of(case)]
        label = f"deliveries against fifo or causal order, all runs, {system}"
        total = float(sum(chosen))
        yield promised(label, chosen) if SYSTEMS[system] else Row(label, "deliveries", Sample((total,)))


def judged(cases: Sequence[BankCase], results: Found) -> Row:
    """The violations in all runs."""
    found = [latencies.violations for case in cases for latencies in results.of(case)]
    return promised("broken promises found by judges and auditor in all runs", found)


def compare_faults(plan: Plan, results: Found) -> Iterator[Finding]:
    """Figure 5.4: the trends, then our numbers."""
    cells = Cells(results)
    numbers = document("ginger").numbers
    for system in SYSTEMS:
        for faults in FAULTS:
            total = cells.of(TOTAL, faults, system=system)
            for order, name in ((EVENTUAL, "fig-5.4/total-above-eventual"), (CAUSAL, "fig-5.4/total-above-causal")):
                label = f"total / {ORDERS[order]}, {counted(faults, 'fault')}, {system}"
                why = cells.waits_for_total(faults) if (system, order) == (STRICT, CAUSAL) else None
                yield compared(label, total.over(cells.of(order, faults, system=system)), numbers[name], why)
    for order, word in ORDERS.items():
        yield cells.faults_row(f"{word}, smallest growth with one more fault", "fig-5.4/faults", order, KEYS)
    yield judged(fault_cases(plan), results)
    yield from overtaking_rows(fault_cases(plan), results)
    for system in SYSTEMS:
        for faults in FAULTS:
            for order, word in ORDERS.items():
                about = f"{word}, {counted(faults, 'fault')}, {system}"
                yield Row(f"latency, {about}", "ms", cells.of(order, faults, system=system))
                yield Row(
                    f"latency with the publisher's place, {about}", "ms", cells.with_own(order, faults, system=system)
                )
    for system in SYSTEMS:
        yield faults_figure(cells, system)
    yield session_note()


def faults_figure(cells: Cells, system: str) -> Figure:
    """Figure 5.4 for one system."""
    series = [
        Series(
            word,
            f"{word} order",
            tuple(cells.of(order, faults, system=system).point(faults) for faults in FAULTS),
            "bars",
        )
        for order, word in ORDERS.items()
    ]
    return Figure(
        "strict" if system == STRICT else "faults",
        f"Latency by number of faults, {KEYS} keys: {system}",
        Axis("faults", categories=tuple(str(faults) for faults in FAULTS)),
        Axis("latency", "ms"),
        tuple(series),
        caption="The published figure has no readable values.",
    )


def compare_keys(plan: Plan, results: Found) -> Iterator[Finding]:
    """Figure 5.5: the trends, then our numbers."""
    cells = Cells(results)
    for faults in FAULTS:
        for order, word in ORDERS.items():
            label = f"{word}, {counted(faults, 'fault')}, smallest fall with ten times the keys"
            yield cells.keys_row(label, order, faults)
    for keys in KEY_COUNTS:
        for order, word in ORDERS.items():
            label = f"{word}, {counted(keys, 'key')}, smallest growth with one more fault"
            yield cells.faults_row(label, "fig-5.5/faults", order, keys)
    yield judged(key_cases(plan), results)
    yield from overtaking_rows(key_cases(plan), results)
    for system in SYSTEMS:
        for keys in KEY_COUNTS:
            for faults in faults_shown(system):
                for order, word in ORDERS.items():
                    label = f"latency, {word}, {counted(keys, 'key')}, {counted(faults, 'fault')}, {system}"
                    yield Row(label, "ms", cells.of(order, faults, keys, system))
    for system in SYSTEMS:
        yield keys_figure(cells, system)
    yield Note(
        "Total publications about one key follow one another, each after two ways to the farthest place and back. Bank "
        "1 asks for 18 of them per second. With one key, and nearly so with ten, that is more than can be done: queues "
        "grow until customers stop asking, and the mean says how long they asked and no steady state."
    )
    yield session_note()


def keys_figure(cells: Cells, system: str) -> Figure:
    """Figure 5.5 for one system, without faults and with most of them."""
    series = [
        Series(
            f"{word}, {counted(faults, 'fault')}",
            f"{word} order",
            tuple(cells.of(order, faults, keys, system).point(keys) for keys in KEY_COUNTS),
            variant=variant,
        )
        for variant, faults in enumerate(faults_shown(STRICT))
        for order, word in ORDERS.items()
    ]
    return Figure(
        "strict" if system == STRICT else "keys",
        f"Latency by number of keys: {system}",
        Axis("keys", scale="log10"),
        Axis("latency", "ms", "log10"),
        tuple(series),
        caption="The published figure has no readable values.",
    )


def session_note() -> Note:
    """The cost of strict sessions."""
    return Note(
        "With strict sessions a causal publication waits for the total ones that its client published before, and "
        "holds back the next. The document lets it overtake, which breaks causal order between the two. At 20 "
        "operations per second, 6 of them total, a client asks for more than can be done one after the other over such "
        "distances: those means too say how long customers asked."
    )


PARAMETERS = {**MODEL, "operations_per_client": OPERATIONS}


def experiment(
    name: str,
    place: str,
    description: str,
    cases: Callable[[Plan], list[BankCase]],
    compare: Callable[[Plan, Found], Iterator[Finding]],
    keys: object,
    meaning: str,
) -> Experiment[BankCase, BankLatencies]:
    """One of the two."""
    return Experiment(
        name=name,
        document=f"dissertation on Ginger, {place}",
        description=description,
        default=Plan((BROKERS,), repetitions=10, large_repetitions=10),
        full=Plan((BROKERS,), repetitions=20, large_repetitions=20, full=True),
        parameters={**PARAMETERS, "keys": keys},
        cases=cases,
        measure=measure,
        compare=compare,
        meaning=meaning,
    )


FAULTS_AND_LATENCY = experiment(
    "ginger/faults",
    "section 5.4.2, Figure 5.4",
    "the broker tree: latency by order and number of crashed brokers",
    fault_cases,
    compare_faults,
    KEYS,
    "What do crashes cost those who use the bank? Operations without order and in causal order go on in their part of "
    "the tree at once and reach the others after the first exchange with a new parent, so their mean over a run grows "
    "a little. Total ones wait until all living brokers are in one tree again and grow most. Every order gets slower "
    "with every further crash, and total ones are slower than others throughout, as the document says.",
)

KEYS_AND_LATENCY = experiment(
    "ginger/keys",
    "section 5.4.3, Figure 5.5",
    "the broker tree: latency by order, number of keys and number of crashed brokers",
    key_cases,
    compare_keys,
    KEY_COUNTS,
    "Total operations close their keys, and whatever else is about these keys waits. Who spreads the load over more "
    "keys waits less: with a thousand accounts a total operation takes what its messages take, with one account the "
    "bank is overloaded. Operations without order wait for one completion at most.",
)
