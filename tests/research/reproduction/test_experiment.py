"""The frame of experiments: plans, repetitions, seeds, verdicts, reports."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.reproduction.documents import Interval, Number
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Finding,
    Note,
    Plan,
    Report,
    Results,
    Row,
    Sample,
    compared,
    counted,
    promised,
    repetition_seed,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series
from antiphon_lab.reproduction.verdicts import Derived, Fitted, Refutation


@dataclass(frozen=True)
class Toss:
    """A case that measures its own seed."""

    nodes: int
    side: str

    def __str__(self) -> str:
        return f"{self.side} of {self.nodes}"


def number(value: float, interval: Interval) -> Number:
    return Number(value, "ticks", "somewhere", "a sentence", interval, key="document:a")


NEAR = Interval("a test", relative=0.1)
LATE = Refutation("the clock", "it is late", True, 5, 10)


FIGURE = Figure("tosses", "Tosses", Axis("toss"), Axis("seed"), (Series("heads", "coin", (Point(8, 1.5),)),))
NOTHING = dict.fromkeys(("interval", "because", "verdict", "reason", "where", "says", "key"))


def compare(plan: Plan, results: Results[Toss, int]) -> Iterator[Finding]:
    for nodes in plan.sizes:
        yield Row(f"heads {nodes}", "seeds", results.sample(Toss(nodes, "heads"), float))
    yield compared("wrong", Sample((7.0, 8.0, 9.0)), number(100, NEAR), LATE)
    yield FIGURE
    yield Note("a remark")


EXPERIMENT: Experiment[Toss, int] = Experiment(
    name="coin/fig-1",
    document="a document, Figure 1",
    description="tosses",
    default=Plan((8, 2048), repetitions=3, large_repetitions=1),
    full=Plan((8, 16, 2048), repetitions=4, large_repetitions=2, full=True),
    parameters={"metal": "silver"},
    cases=lambda plan: [Toss(nodes, side) for nodes in plan.sizes for side in ("heads", "tails")],
    measure=lambda _, seed: seed,
    compare=compare,
)


def test_plans_are_full_or_limited_as_asked() -> None:
    assert EXPERIMENT.plan(False, None, None) == Plan((8, 2048), 3, 1)
    assert EXPERIMENT.plan(True, None, None) == Plan((8, 16, 2048), 4, 2, full=True)
    assert EXPERIMENT.plan(True, 1000, None).sizes == (8, 16)
    limited = EXPERIMENT.plan(False, None, 7)
    assert (limited.repetitions_of(1024), limited.repetitions_of(2048)) == (7, 7)


def test_below_all_sizes_the_largest_power_of_two_is_taken() -> None:
    assert EXPERIMENT.plan(False, 7, None).sizes == (4,)
    with pytest.raises(UsageError, match="at least 2 nodes, not 1; raise --nodes"):
        EXPERIMENT.plan(False, 1, None)


def test_large_sizes_are_repeated_less_often() -> None:
    plan = EXPERIMENT.default
    assert [plan.repetitions_of(nodes) for nodes in (8, 1024, 1025, 2048)] == [3, 3, 1, 1]
    assert EXPERIMENT.steps(plan) == 2 * 3 + 2 * 1


def test_all_cases_of_a_repetition_share_a_seed_and_repetitions_do_not() -> None:
    seen: dict[str, list[int]] = {}
    steps: list[str] = []

    def measure(case: Toss, seed: int) -> int:
        seen.setdefault(str(case), []).append(seed)
        return seed

    experiment: Experiment[Toss, int] = Experiment(**{**vars(EXPERIMENT), "measure": measure})
    experiment.run(experiment.default, 5, steps.append)
    seeds = [repetition_seed(5, repetition) for repetition in range(3)]
    assert len(set(seeds)) == 3
    assert seen["heads of 8"] == seen["tails of 8"] == seeds
    assert seen["heads of 2048"] == seen["tails of 2048"] == seeds[:1]
    assert steps == ["heads of 8"] * 3 + ["tails of 8"] * 3 + ["heads of 2048", "tails of 2048"]


def test_seeds_fit_a_scenario_and_neighbours_share_none() -> None:
    seeds = [repetition_seed(seed, repetition) for seed in range(20) for repetition in range(20)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_report_says_everything_that_is_needed_to_repeat_it() -> None:
    report = EXPERIMENT.run(EXPERIMENT.default, 5, lambda _: None).as_json()
    assert list(report) == [
        "name",
        "document",
        "description",
        "meaning",
        "command",
        "parameters",
        "seconds",
        "antiphon",
        "machine",
        "rows",
        "figures",
        "notes",
    ]
    assert report["command"] == "antiphon reproduce coin/fig-1 --seed 5"
    assert report["figures"] == msgspec.to_builtins([FIGURE])
    assert report["parameters"] == {
        "seed": 5,
        "full": False,
        "repetitions_by_nodes": {"8": 3, "2048": 1},
        "metal": "silver",
    }
    assert report["rows"] == [
        {
            "label": "heads 8",
            "unit": "seeds",
            "published": None,
            "measured": pytest.approx(sum(repetition_seed(5, repetition) for repetition in range(3)) / 3),
            "spread": pytest.approx(statistics.stdev(repetition_seed(5, repetition) for repetition in range(3))),
            "confidence": pytest.approx(
                4.303 / 3**0.5 * statistics.stdev(repetition_seed(5, repetition) for repetition in range(3))
            ),
            "repetitions": 3,
            "deviation": None,
            **NOTHING,
        },
        {
            "label": "heads 2048",
            "unit": "seeds",
            "published": None,
            "measured": float(repetition_seed(5, 0)),
            "spread": None,
            "confidence": None,
            "repetitions": 1,
            "deviation": None,
            **NOTHING,
        },
        {
            "label": "wrong",
            "unit": "ticks",
            "published": 100,
            "measured": 8.0,
            "spread": pytest.approx(1.0),
            "confidence": pytest.approx(4.303 / 3**0.5),
            "repetitions": 3,
            "deviation": pytest.approx(-0.92),
            "interval": pytest.approx([90 - 4.303 / 3**0.5, 110 + 4.303 / 3**0.5]),
            "because": "±10 %: a test",
            "verdict": "refuted",
            "reason": "the clock is inconsistent: it is late (expected 5 to 10)",
            "where": "somewhere",
            "says": "a sentence",
            "key": "document:a",
        },
    ]
    notes = report["notes"]
    assert isinstance(notes, list)
    assert notes[:2] == ["wrong: the clock is inconsistent: it is late (expected 5 to 10)", "a remark"]
    assert notes[2].startswith("Standard deviations between repetitions: heads 8 ")
    assert notes[2].endswith("; wrong 1.")


@pytest.mark.parametrize(
    ("full", "nodes", "repetitions", "command"),
    [
        (False, None, None, "antiphon reproduce coin/fig-1 --seed 7"),
        (True, None, None, "antiphon reproduce coin/fig-1 --full --seed 7"),
        (False, 100, None, "antiphon reproduce coin/fig-1 --nodes 8 --seed 7"),
        (False, 5, 4, "antiphon reproduce coin/fig-1 --nodes 4 --repetitions 4 --seed 7"),
        (True, 16, 9, "antiphon reproduce coin/fig-1 --full --nodes 16 --repetitions 9 --seed 7"),
    ],
)
def test_the_command_does_the_same_again(full: bool, nodes: int | None, repetitions: int | None, command: str) -> None:
    plan = EXPERIMENT.plan(full, nodes, repetitions)
    assert EXPERIMENT.command(plan, 7) == command
    words = command.split()
    options = {word: words[words.index(word) + 1] for word in ("--nodes", "--repetitions") if word in words}
    again = EXPERIMENT.plan(
        "--full" in words,
        int(options["--nodes"]) if "--nodes" in options else None,
        int(options["--repetitions"]) if "--repetitions" in options else None,
    )
    assert again == plan


def test_a_point_has_the_spread_of_its_repetitions() -> None:
    assert Sample((3.0, 5.0, 7.0)).point(8) == Point(8, 5.0, 3.0, 7.0)
    assert Sample((4.0,)).point(8) == Sample((4.0, 4.0)).point(8) == Point(8, 4.0)


def row(measured: tuple[float, ...], interval: Interval = NEAR, refutation: Refutation | None = None) -> Row:
    return compared("x", Sample(measured), number(100, interval), refutation)


def test_a_report_differs_if_one_row_does() -> None:
    report = Report("a", "b", {})
    report.add(row((101.0,) * 3))
    report.add(row((8.0,) * 3, refutation=LATE))
    report.add(compared("x", Sample((101.0,) * 3), number(100, NEAR), basis=Fitted("a window", "the rest")))
    assert not report.differs
    assert report.notes == ["x: the clock is inconsistent: it is late (expected 5 to 10)"]
    report.add(row((150.0,) * 3))
    assert report.differs


def test_a_broken_promise_makes_a_report_differ_after_one_repetition() -> None:
    report = Report("a", "b", {})
    report.add(promised("violations", [0, 0]))
    assert (report.rows[0].verdict, report.differs) == ("derived", False)
    report.add(promised("violations", [0, 1]))
    assert (report.rows[1].verdict, report.differs) == ("differs", True)


def test_what_is_counted_is_derived_and_says_from_what() -> None:
    exact = counted("links", Sample((7.0,)), 7, "links", "a tree has one link less than nodes")
    assert exact.verdict == "derived"
    assert exact.reason == "follows from counting: a tree has one link less than nodes"
    assert counted("links", Sample((7.1,)), 7, "links", "x").verdict == "differs"
    assert counted("links", Sample((7.1,)), 7, "links", "x", within=0.2).verdict == "derived"
    assert isinstance(exact.basis, Derived)


def test_too_few_repetitions_are_said() -> None:
    assert row((100.0,)).verdict is None
    assert row((100.0,)).reason == "no verdict on 1 of at least 3 repetitions"
    assert Row("x", "ticks", Sample((1.0,))).reason is None


def test_no_relative_deviation_from_nothing() -> None:
    assert compared("x", Sample((3.0,)), number(0, Interval("a test", absolute=5))).deviation is None


def test_samples_are_combined_repetition_by_repetition() -> None:
    assert Sample((10.0, 30.0)).over(Sample((5.0, 10.0))) == Sample((2.0, 3.0))
    assert Sample((11.0, 30.0)).increase_over(Sample((10.0, 20.0))).values == pytest.approx((10.0, 50.0))
    assert Sample((4.0,)).deviation is None
    assert Sample((4.0, 6.0)).deviation == pytest.approx(2**0.5)
