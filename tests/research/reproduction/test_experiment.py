"""The frame of experiments: plans, repetitions, seeds, verdicts, reports."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.reproduction.documents import Number, Tolerance
from antiphon_lab.reproduction.experiment import (
    Experiment,
    Explanation,
    Finding,
    Note,
    Plan,
    Report,
    Results,
    Row,
    Sample,
    compared,
    repetition_seed,
)
from antiphon_lab.reproduction.figures import Axis, Figure, Point, Series


@dataclass(frozen=True)
class Toss:
    """A case that measures its own seed."""

    nodes: int
    side: str

    def __str__(self) -> str:
        return f"{self.side} of {self.nodes}"


def number(value: float, tolerance: Tolerance) -> Number:
    return Number(value, "ticks", "somewhere", "a sentence", tolerance)


FIGURE = Figure("tosses", "Tosses", Axis("toss"), Axis("seed"), (Series("heads", "coin", (Point(8, 1.5),)),))
NOTHING = dict.fromkeys(("verdict", "reason", "tolerance", "where", "says"))


def compare(plan: Plan, results: Results[Toss, int]) -> Iterator[Finding]:
    for nodes in plan.sizes:
        yield Row(f"heads {nodes}", "seeds", results.sample(Toss(nodes, "heads"), float))
    yield compared("wrong", Sample((7.0, 9.0)), number(100, Tolerance(relative=0.1)), Explanation("it is late.", True))
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
        "tolerances": {"wrong": "±10 % of the published value"},
    }
    assert report["rows"] == [
        {
            "label": "heads 8",
            "unit": "seeds",
            "published": None,
            "measured": pytest.approx(sum(repetition_seed(5, repetition) for repetition in range(3)) / 3),
            "spread": pytest.approx(statistics.stdev(repetition_seed(5, repetition) for repetition in range(3))),
            "deviation": None,
            **NOTHING,
        },
        {
            "label": "heads 2048",
            "unit": "seeds",
            "published": None,
            "measured": float(repetition_seed(5, 0)),
            "spread": None,
            "deviation": None,
            **NOTHING,
        },
        {
            "label": "wrong",
            "unit": "ticks",
            "published": 100,
            "measured": 8.0,
            "spread": pytest.approx(2**0.5),
            "deviation": pytest.approx(-0.92),
            "verdict": "explained",
            "reason": "it is late.",
            "tolerance": "±10 % of the published value",
            "where": "somewhere",
            "says": "a sentence",
        },
    ]
    notes = report["notes"]
    assert isinstance(notes, list)
    assert notes[:2] == ["wrong: it is late.", "a remark"]
    assert notes[2].startswith("Standard deviations between repetitions: heads 8 ")
    assert notes[2].endswith("; wrong 1.41.")


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


def row(measured: tuple[float, ...], tolerance: Tolerance, explanation: Explanation | None = None) -> Row:
    return compared("x", Sample(measured), number(100, tolerance), explanation)


def test_verdicts() -> None:
    near, exact, spread = Tolerance(relative=0.05), Tolerance(absolute=0), Tolerance(deviations=2.0)
    assert Row("x", "ticks", Sample((1.0,))).verdict is None
    assert row((104.0,), near).verdict == "reproduced"
    assert row((106.0,), near).verdict == "differs"
    assert row((100.0,), exact).verdict == "reproduced"
    assert row((90.0, 100.0, 110.0, 120.0), spread).verdict == "reproduced"
    assert row((150.0, 151.0, 149.0), spread).verdict == "differs"


def test_an_explanation_counts_only_where_it_is_needed_and_where_it_holds() -> None:
    near = Tolerance(relative=0.05)
    assert row((150.0,), near, Explanation("because", True)).verdict == "explained"
    assert row((150.0,), near, Explanation("because", False)).verdict == "differs"
    assert row((101.0,), near, Explanation("because", True)).verdict == "reproduced"
    report = Report("a", "b", {})
    report.add(row((101.0,), near, Explanation("because", True)))
    assert report.notes == []
    report.add(row((150.0,), near, Explanation("because", True)))
    assert report.notes == ["x: because"]


def test_a_spread_that_is_not_known_gives_no_verdict_on_the_result() -> None:
    assert row((150.0,), Tolerance(deviations=2.0)).verdict == "explained"
    assert "repeat at least 3 times" in (row((150.0,), Tolerance(deviations=2.0)).reason or "")
    assert row((150.0, 150.0, 150.0), Tolerance(deviations=2.0)).reason is None


def test_a_report_differs_if_one_row_does() -> None:
    report = Report("a", "b", {})
    report.add(row((101.0,), Tolerance(relative=0.05)))
    report.add(row((150.0,), Tolerance(relative=0.05), Explanation("because", True)))
    assert not report.differs
    report.add(row((150.0,), Tolerance(relative=0.05)))
    assert report.differs


def test_no_relative_deviation_from_nothing() -> None:
    assert compared("x", Sample((3.0,)), number(0, Tolerance(absolute=5))).deviation is None


def test_samples_are_combined_repetition_by_repetition() -> None:
    assert Sample((10.0, 30.0)).over(Sample((5.0, 10.0))) == Sample((2.0, 3.0))
    assert Sample((11.0, 30.0)).increase_over(Sample((10.0, 20.0))).values == pytest.approx((10.0, 50.0))
    assert Sample((4.0,)).deviation is None
    assert Sample((4.0, 6.0)).deviation == pytest.approx(2**0.5)
