"""The frame of every published experiment: its cases, its repetitions, and its comparison with the document.

An experiment is declared, not programmed: ``cases`` lists the simulations of a plan, ``measure`` simulates
one case with one seed, and ``compare`` turns the measurements into rows, figures and notes. Repeating, seeds and
verdicts are done here, once for all; :mod:`antiphon_lab.reproduction.job` runs many experiments as one job. To add one,
write these three functions in a module of this package, put the published numbers into ``published/``, and add the
experiment to :mod:`antiphon_lab.reproduction.registry`.

Repetition ``r`` of every case of an experiment gets the same seed, so that rivals meet the same publications at the
same times and their comparison is not blurred by luck.
"""

from __future__ import annotations

import math
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import msgspec

import antiphon
from antiphon.kernel.errors import UsageError
from antiphon.kernel.randomness import GOLDEN_GAMMA, mix64
from antiphon_lab.reproduction.documents import Interval, Number
from antiphon_lab.reproduction.figures import Figure, Point
from antiphon_lab.reproduction.machine import Machine
from antiphon_lab.reproduction.verdicts import (
    DIFFERS,
    LEAST_REPETITIONS,
    REFUTED,
    Derived,
    Fitted,
    Refutation,
    accepted,
    half_width,
    verdict_on,
)

SMALL_NODES = 128
"""Up to this size runs take no time, and scatter: some plans repeat them more often."""

LARGE_NODES = 1024
"""Above this size one run takes seconds, so default plans repeat it less often."""


class Case(Protocol):
    """One simulation.

    It is plain data: hashable, and it can be pickled. Its ``str`` describes it, and its ``repr`` has everything that
    decides the measured value.
    """

    @property
    def nodes(self) -> int:
        """The number of nodes."""


CaseType = TypeVar("CaseType", bound=Case)
MeasuredType = TypeVar("MeasuredType")


@dataclass(frozen=True)
class Plan:
    """How large and how often.

    ``large_repetitions`` is for sizes above ``LARGE_NODES``, ``small_repetitions`` for those up to ``SMALL_NODES``; 0
    is as many as for others.
    """

    sizes: tuple[int, ...]
    repetitions: int
    large_repetitions: int
    full: bool = False
    small_repetitions: int = 0

    def repetitions_of(self, nodes: int) -> int:
        """How often a case of this size is run."""
        if nodes > LARGE_NODES:
            return self.large_repetitions
        return max(self.repetitions, self.small_repetitions) if nodes <= SMALL_NODES else self.repetitions

    def limited(self, node_limit: int | None, repetitions: int | None) -> Plan:
        """This plan with the limits of the caller; at least one size, a power of two, is left."""
        plan = self
        if node_limit is not None:
            if node_limit < 2:
                raise UsageError(f"an experiment needs at least 2 nodes, not {node_limit}; raise --nodes")
            sizes = tuple(size for size in self.sizes if size <= node_limit)
            plan = replace(plan, sizes=sizes or (1 << (node_limit.bit_length() - 1),))
        if repetitions is not None:
            plan = replace(plan, repetitions=repetitions, large_repetitions=repetitions, small_repetitions=0)
        return plan


@dataclass(frozen=True)
class Sample:
    """One quantity, measured once per repetition."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the repetitions."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The standard deviation between repetitions; None after only one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def point(self, x: float, label: str = "") -> Point:
        """This quantity in a figure; its spread is one standard deviation to either side."""
        spread = self.deviation
        if not spread:
            return Point(x, self.mean, label=label)
        return Point(x, self.mean, self.mean - spread, self.mean + spread, label=label)

    def with_other(self, operation: Callable[[float, float], float], other: Sample) -> Sample:
        """Combine two quantities repetition by repetition."""
        return Sample(tuple(map(operation, self.values, other.values)))

    def over(self, other: Sample) -> Sample:
        """The ratio to another quantity."""
        return self.with_other(operator.truediv, other)

    def increase_over(self, other: Sample) -> Sample:
        """The increase relative to another quantity, in percent."""
        return self.with_other(lambda mine, theirs: 100 * (mine / theirs - 1), other)


@dataclass(frozen=True)
class Row:
    """One line of a result. Without a published number there is no verdict.

    ``basis`` is there if the number is no evidence, ``refutation`` if a check can show that the document errs.
    """

    label: str
    unit: str
    measured: Sample
    published: Number | None = None
    refutation: Refutation | None = None
    basis: Fitted | Derived | None = None

    @property
    def deviation(self) -> float | None:
        """Measured against published, relative; None where the published value is missing or zero."""
        if self.published is None or self.published.value == 0:
            return None
        return self.measured.mean / self.published.value - 1

    @property
    def confidence(self) -> float | None:
        """Half of the 95 % confidence interval of the mean; None after only one repetition."""
        return half_width(self.measured.values)

    @property
    def verdict(self) -> str | None:
        """One of the five verdicts; None without a published number, and after too few repetitions."""
        if self.published is None:
            return None
        return verdict_on(self.published, self.measured.values, self.basis, self.refutation)

    @property
    def reason(self) -> str | None:
        """The reason of the verdict, beside the interval."""
        verdict = self.verdict
        if self.published is not None and verdict is None:
            return f"no verdict on {len(self.measured.values)} of at least {LEAST_REPETITIONS} repetitions"
        if verdict == REFUTED:
            return str(self.refutation)
        if self.basis is not None and verdict is not None:
            return str(self.basis)
        return None

    def as_json(self) -> dict[str, object]:
        """The row as machines get it; an end of the interval that is not bounded is null."""
        number = self.published
        ends = None if number is None else accepted(number, self.measured.values)
        return {
            "label": self.label,
            "unit": self.unit,
            "published": None if number is None else number.value,
            "measured": self.measured.mean,
            "spread": self.measured.deviation,
            "confidence": self.confidence,
            "repetitions": len(self.measured.values),
            "deviation": self.deviation,
            "interval": None if ends is None else [end if math.isfinite(end) else None for end in ends],
            "because": None if number is None else str(number.interval),
            "verdict": self.verdict,
            "reason": self.reason,
            "where": None if number is None else number.where,
            "says": None if number is None else number.says,
            "key": None if number is None else number.key,
        }


def compared(
    label: str,
    measured: Sample,
    published: Number,
    refutation: Refutation | None = None,
    basis: Fitted | Derived | None = None,
) -> Row:
    """A row with a published number beside the measured one."""
    return Row(label, published.unit, measured, published, refutation, basis)


def compared_from(least: int, size: int, label: str, measured: Sample, published: Number) -> Row:
    """A row with a published number beside it, unless the system is too small to say anything about that."""
    return compared(label, measured, published) if size >= least else Row(label, published.unit, measured)


def counted(label: str, measured: Sample, value: float, unit: str, says: str, within: float = 0.0) -> Row:
    """A row whose value follows by counting and not from a publication: off by more than ``within``, it differs."""
    interval = Interval("follows by counting", absolute=within)
    return compared(label, measured, Number(value, unit, COUNTED, says, interval), basis=Derived(f"counting: {says}"))


def promised(label: str, violations: Iterable[float], unit: str = "violations") -> Row:
    """A row about promises that every run must keep: one violation in any of the runs makes the result differ."""
    total = Sample((float(sum(violations)),))
    return counted(label, total, 0, unit, "a promise that every run has to keep")


COUNTED = "follows by counting, not published"


@dataclass(frozen=True)
class Note:
    """A remark on the result as a whole."""

    text: str


Finding = Row | Note | Figure


class Results(Generic[CaseType, MeasuredType]):
    """The measurements, by case, one value per repetition."""

    def __init__(self) -> None:
        self._measured: dict[CaseType, list[MeasuredType]] = {}

    def add(self, case: CaseType, measured: MeasuredType) -> None:
        """Note one repetition."""
        self._measured.setdefault(case, []).append(measured)

    def has(self, case: CaseType) -> bool:
        """Whether a case was measured."""
        return case in self._measured

    def of(self, case: CaseType) -> list[MeasuredType]:
        """All repetitions of a case."""
        return self._measured[case]

    def sample(self, case: CaseType, quantity: Callable[[MeasuredType], float]) -> Sample:
        """One quantity of a case."""
        return Sample(tuple(quantity(measured) for measured in self._measured[case]))


@dataclass(frozen=True)
class Experiment(Generic[CaseType, MeasuredType]):
    """A published experiment. ``document`` is its place; ``parameters`` are the same in all plans.

    ``meaning`` is a paragraph for people: the question, the result, and the conclusion.
    """

    name: str
    document: str
    description: str
    default: Plan
    full: Plan
    parameters: Mapping[str, object]
    cases: Callable[[Plan], list[CaseType]]
    measure: Callable[[CaseType, int], MeasuredType]
    compare: Callable[[Plan, Results[CaseType, MeasuredType]], Iterator[Finding]]
    meaning: str = ""

    def plan(self, full: bool, node_limit: int | None, repetitions: int | None) -> Plan:
        """The plan that the caller asks for."""
        return (self.full if full else self.default).limited(node_limit, repetitions)

    def runs(self, plan: Plan, seed: int) -> Iterator[tuple[CaseType, int]]:
        """Everything that a plan measures: each case with the seed of each repetition."""
        for case in self.cases(plan):
            for repetition in range(plan.repetitions_of(case.nodes)):
                yield case, repetition_seed(seed, repetition)

    def steps(self, plan: Plan) -> int:
        """How many simulations a plan takes."""
        return sum(plan.repetitions_of(case.nodes) for case in self.cases(plan))

    def run(self, plan: Plan, seed: int, step: Callable[[str], None]) -> Report:
        """Simulate everything in this process, and compare; ``step`` is called after every simulation."""
        started = time.perf_counter()
        results: Results[CaseType, MeasuredType] = Results()
        for case, own_seed in self.runs(plan, seed):
            results.add(case, self.measure(case, own_seed))
            step(str(case))
        return self.report(plan, seed, results, time.perf_counter() - started)

    def report(self, plan: Plan, seed: int, results: Results[CaseType, MeasuredType], seconds: float) -> Report:
        """Compare the measurements; ``seconds`` is the time of measuring."""
        report = Report(self.name, self.document, {}, self.description, self.meaning, self.command(plan, seed))
        for finding in self.compare(plan, results):
            report.add(finding)
        report.finish(self.stated_parameters(plan, seed), seconds)
        return report

    def command(self, plan: Plan, seed: int) -> str:
        """The command line that does the same again."""
        usual = self.full if plan.full else self.default
        words = ["antiphon reproduce", self.name, *(["--full"] if plan.full else [])]
        if plan.sizes != usual.sizes:
            words.append(f"--nodes {max(plan.sizes)}")
        if (plan.repetitions, plan.large_repetitions) != (usual.repetitions, usual.large_repetitions):
            words.append(f"--repetitions {plan.repetitions}")
        return " ".join([*words, f"--seed {seed}"])

    def stated_parameters(self, plan: Plan, seed: int) -> dict[str, object]:
        """Everything that is needed to repeat the run."""
        repetitions = {str(size): plan.repetitions_of(size) for size in plan.sizes}
        return {"seed": seed, "full": plan.full, "repetitions_by_nodes": repetitions, **self.parameters}


@dataclass
class Report:
    """The result of one experiment."""

    name: str
    document: str
    parameters: dict[str, object]
    description: str = ""
    meaning: str = ""
    command: str = ""
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    seconds: float = 0.0
    machine: Machine | None = None

    def add(self, finding: Finding) -> None:
        """Add a row, figure or note; a refutation becomes a note where the row needs it."""
        if isinstance(finding, Note):
            self.notes.append(finding.text)
            return
        if isinstance(finding, Figure):
            self.figures.append(finding)
            return
        self.rows.append(finding)
        if finding.verdict == REFUTED:
            self.notes.append(f"{finding.label}: {finding.reason}")

    def finish(self, parameters: dict[str, object], seconds: float) -> None:
        """Add facts that are known only at the end."""
        self.parameters = parameters
        self.seconds = seconds
        self.machine = Machine.here()

    @property
    def differs(self) -> bool:
        """Whether any row disagrees with the document for no known reason, or a promise was broken."""
        return any(row.verdict == DIFFERS for row in self.rows)

    def as_json(self) -> dict[str, object]:
        """The report as machines get it."""
        return {
            "name": self.name,
            "document": self.document,
            "description": self.description,
            "meaning": self.meaning,
            "command": self.command,
            "parameters": self.parameters,
            "seconds": self.seconds,
            "antiphon": antiphon.__version__,
            "machine": msgspec.to_builtins(self.machine),
            "rows": [row.as_json() for row in self.rows],
            "figures": msgspec.to_builtins(self.figures),
            "notes": [*self.notes, self.spreads()],
        }

    def spreads(self) -> str:
        """The standard deviations, which tables show beside the means."""
        spreads = [f"{row.label} {row.measured.deviation:.3g}" for row in self.rows if row.measured.deviation]
        return "Standard deviations between repetitions: " + ("; ".join(spreads) or "none") + "."


def repetition_seed(seed: int, repetition: int) -> int:
    """The seed of one repetition, of 63 bits: scattered, so that neighbouring seeds share no run."""
    return mix64(seed + (repetition + 1) * GOLDEN_GAMMA) >> 1


def shown(value: float) -> str:
    """A number with about four digits, and never in powers of ten."""
    if value == round(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
