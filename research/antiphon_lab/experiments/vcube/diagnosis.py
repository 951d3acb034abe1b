"""VCube's diagnosis: how soon all nodes know of a failure, and the cost of tests.

The thesis (section 2.4) states bounds and measures nothing: every node is tested at most once per round, and a failure
is known to all after ``log2 N`` rounds on average and ``log2 N`` squared at worst. Here one node crashes at a random
moment. The rivals are news that are sent at once, down the tree of the detecting node, and all nodes testing all others
in every round, which detects soonest and costs most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from antiphon.fabrics.cube.diagnosis import Diagnosis, DiagnosisOptions
from antiphon.kernel.process import Environment, Process
from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.engine.actions import CrashAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
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
from antiphon_lab.reproduction.figures import NODES, Axis, Figure, Series

QUIET_ROUNDS = 6
"""The number of rounds without a fault, to measure the cost of tests."""

MOMENT_STREAM = 31
BY_TESTS = "news by tests"
AT_ONCE = "news at once"
EVERYBODY = "everybody tests everybody"
SYSTEMS = (BY_TESTS, AT_ONCE, EVERYBODY)


@dataclass(frozen=True)
class Timings:
    """The length of a round, the limit for an answer, and the time of a message."""

    round_ticks: int
    patience_ticks: int
    delay_ticks: int


OUR_TIMINGS = Timings(1000, 400, 100)


class NotingDiagnosis(Diagnosis):
    """Notes when it learns of a failure; with ``everybody`` it tests all others in every round."""

    def __init__(self, environment: Environment, options: DiagnosisOptions, everybody: bool) -> None:
        super().__init__(environment, options)
        self.learned_at = -1
        self._everybody = everybody

    def changed(self, node: int, is_present: bool) -> None:
        self.learned_at = int(self.environment.now())

    def tested(self, s: int) -> list[int]:
        if self._everybody:
            return [node for node in range(self.options.node_count) if node != self.me]
        return super().tested(s)


@dataclass(frozen=True)
class DiagnosisCase:
    """One simulation."""

    system: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.system}, {self.nodes} nodes"


@dataclass(frozen=True)
class DiagnosisTimes:
    """Messages of a node per round while nothing happens; rounds until the first, half and all knew; false alarms."""

    messages: float
    first: float
    half: float
    last: float
    false_alarms: int


def measure(case: DiagnosisCase, seed: int) -> DiagnosisTimes:
    """One simulation with the timings of the experiment."""
    return simulate(case, OUR_TIMINGS, seed)


def simulate(case: DiagnosisCase, timings: Timings, seed: int) -> DiagnosisTimes:
    """Let a node crash, and see when the others know."""
    random = RandomStream(seed, MOMENT_STREAM)
    round_ticks = timings.round_ticks
    moment = QUIET_ROUNDS * round_ticks + int(random.below(round_ticks))
    victim = int(random.below(case.nodes))
    options = DiagnosisOptions(case.nodes, round_ticks, timings.patience_ticks, case.system == AT_ONCE)

    def build(environment: Environment) -> Process:
        return NotingDiagnosis(environment, options, case.system == EVERYBODY)

    network = NetworkModel(ConstantDelay(timings.delay_ticks), transmission=0, processing=0)
    engine = Engine(case.nodes, network, build, seed, can_fail=True)
    engine.run(QUIET_ROUNDS * round_ticks, 1 << 40)
    sent = int(engine.sent)
    false_alarms = sum(process.learned_at >= 0 for process in processes(engine))
    engine.at(moment, CrashAction(victim))
    end = moment
    while any(process.learned_at < 0 for process in processes(engine)):
        end += round_ticks
        engine.run(end, 1 << 40)
    times = sorted((process.learned_at - moment) / round_ticks for process in processes(engine))
    return DiagnosisTimes(sent / case.nodes / QUIET_ROUNDS, times[0], times[len(times) // 2], times[-1], false_alarms)


def processes(engine: Engine) -> list[NotingDiagnosis]:
    """Those that are up."""
    return [node.process for node in engine.nodes if isinstance(node.process, NotingDiagnosis)]


def cases(plan: Plan) -> list[DiagnosisCase]:
    """All systems at all sizes."""
    return [DiagnosisCase(system, nodes) for nodes in plan.sizes for system in SYSTEMS]


def compare(plan: Plan, results: Results[DiagnosisCase, DiagnosisTimes]) -> Iterator[Finding]:
    """Cost and delay, and the bounds of the text."""
    wrong = [found.false_alarms for case in cases(plan) for found in results.of(case)]
    yield promised("nodes that thought somebody had failed too early, all runs", wrong, "nodes")
    for nodes in plan.sizes:
        dimension = (nodes - 1).bit_length()
        for system in SYSTEMS:
            case = DiagnosisCase(system, nodes)
            yield Row(f"messages of a node per round, {case}", "messages", results.sample(case, attrgetter("messages")))
            yield Row(f"until the first knows, {case}", "rounds", results.sample(case, attrgetter("first")))
            yield Row(f"until half know, {case}", "rounds", results.sample(case, attrgetter("half")))
            last = results.sample(case, attrgetter("last"))
            yield Row(f"until all know, {case}", "rounds", last)
            if system == BY_TESTS:
                yield from compare_bounds(case, dimension, last)
    yield delay_figure(plan, results)
    yield Note(
        "Where nothing happens a node makes one test and gives one answer per round, however many nodes there are. "
        "Everybody is tested once in a round, so the first to notice needs half a round on average, and the patience "
        "for an answer. By tests alone news then wait for tests on their way; told at once they need log2 N hops."
    )


def compare_bounds(case: DiagnosisCase, dimension: int, last: Sample) -> Iterator[Row]:
    """The rounds until all know, against the average and the bound of the text."""
    numbers = document("thesis").numbers
    average = Sample(tuple(rounds / dimension for rounds in last.values))
    yield compared(f"until all know / log2 N, {case}", average, numbers["section-2.4/diagnosis-average"])
    worst = Sample(tuple(rounds / dimension**2 for rounds in last.values))
    yield compared(f"until all know / log2 N squared, {case}", worst, numbers["section-2.4/diagnosis-worst"])


def delay_figure(plan: Plan, results: Results[DiagnosisCase, DiagnosisTimes]) -> Figure:
    """How long it takes until all know."""
    series = [
        Series(
            system,
            system,
            tuple(
                results.sample(DiagnosisCase(system, nodes), attrgetter("last")).point(nodes) for nodes in plan.sizes
            ),
        )
        for system in SYSTEMS
    ]
    return Figure(
        "delay", "Until all know of a failure", NODES, Axis("rounds after the crash"), tuple(series), caption=DETAILS
    )


DETAILS = (
    f"A round is {OUR_TIMINGS.round_ticks} ms, an answer is awaited for {OUR_TIMINGS.patience_ticks} ms, a hop takes "
    f"{OUR_TIMINGS.delay_ticks} ms."
)

DIAGNOSIS: Experiment[DiagnosisCase, DiagnosisTimes] = Experiment(
    name="vcube/diagnosis",
    document="section 2.4 of the thesis states bounds and measures nothing: our own",
    description="who has failed: how soon all know, and what looking costs",
    default=Plan((8, 32, 128), repetitions=10, large_repetitions=10),
    full=Plan((8, 32, 128, 512, 1024), repetitions=50, large_repetitions=10, full=True),
    parameters={
        "round_ms": OUR_TIMINGS.round_ticks,
        "patience_ms": OUR_TIMINGS.patience_ticks,
        "delay_ms": OUR_TIMINGS.delay_ticks,
        "faults": "one node crashes at a random moment",
    },
    cases=cases,
    measure=measure,
    compare=compare,
    meaning="Before trees can lead around those who have failed, somebody must notice. VCube tests along the cube: one "
    "test per node and round, however many nodes there are, and yet all know soon.",
)
