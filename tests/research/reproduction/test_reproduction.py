"""Experiments as one job: the same numbers here and on Spark, each measurement once, and on where it stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.pipeline.jobs import run_here, run_on_spark
from antiphon_lab.experiments.vcube.one_publisher import FIG_5_6A, FIG_5_6B
from antiphon_lab.experiments.vcube.one_tree import FIG_2_9
from antiphon_lab.reproduction.experiment import Experiment, Note, Plan, Report, Results, Row
from antiphon_lab.reproduction.job import Failure, Reproduction, Wanted
from antiphon_lab.reproduction.measurements import MEASUREMENTS

SMALL = Plan((8, 16), repetitions=2, large_repetitions=1)


@dataclass(frozen=True)
class Toss:
    """A case whose measurement leaves a mark; ``trouble`` goes wrong."""

    nodes: int
    marks: str
    trouble: str = ""


def mark(case: Toss, seed: int) -> int:
    """One line for every time that this is called, wherever it is called."""
    with Path(case.marks).open("a", encoding="ascii") as file:
        file.write(f"{case.nodes} {seed}\n")
    if case.trouble == "raises":
        raise ZeroDivisionError("planted")
    if case.trouble == "dies once" and Path(case.marks).read_text().count(f"{case.nodes} {seed}\n") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return case.nodes * 10


def compare(plan: Plan, results: Results[Toss, int]) -> Iterator[Row | Note]:
    yield Note("compared")


def tosses(name: str, marks: Path, trouble: str = "") -> Experiment[Toss, int]:
    return Experiment(
        name=name,
        document="nowhere",
        description="tosses",
        default=SMALL,
        full=SMALL,
        parameters={},
        cases=lambda plan: [Toss(nodes, str(marks), trouble) for nodes in plan.sizes],
        measure=mark,
        compare=compare,
    )


def ignore(done: int, running: int) -> None:
    """A watcher that does not look."""


def wanted_of(*experiments: Experiment[Toss, int]) -> Wanted:
    return [(experiment, SMALL) for experiment in experiments]


def here(wanted: Wanted, out: Path) -> list[Report | Failure]:
    reproduction = Reproduction(wanted, 1, out)
    run_here(reproduction.job, ignore)
    return list(reproduction.complete())


def there(spark: SparkSession, wanted: Wanted, out: Path) -> list[Report | Failure]:
    reproduction = Reproduction(wanted, 1, out)
    run_on_spark(spark, reproduction.job, ignore, 2)
    return list(reproduction.complete())


def test_the_numbers_are_the_same_in_this_process_on_spark_and_without_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    experiments = (FIG_2_9, FIG_5_6A)
    wanted: Wanted = [(experiment, experiment.plan(False, 16, 2)) for experiment in experiments]
    direct = [experiment.run(plan, 1, lambda _: None) for experiment, plan in wanted]
    for found in (here(wanted, tmp_path / "here"), there(spark, wanted, tmp_path / "there")):
        for report, expected in zip(found, direct, strict=True):
            assert isinstance(report, Report)
            # Everything but when and where it was measured.
            assert replace(report, seconds=0.0, machine=None) == replace(expected, seconds=0.0, machine=None)


def test_experiments_that_measure_the_same_share_it(tmp_path: Path) -> None:
    alone = [len(Reproduction([(one, one.default)], 1, tmp_path).job.units) for one in (FIG_5_6A, FIG_5_6B)]
    both = Reproduction([(FIG_5_6A, FIG_5_6A.default), (FIG_5_6B, FIG_5_6B.default)], 1, tmp_path)
    assert len(both.job.units) == max(alone)


def test_what_is_shared_is_run_once(spark: SparkSession, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    found = there(spark, wanted_of(tosses("a", marks), tosses("b", marks)), tmp_path / "out")
    assert [one.name for one in found if isinstance(one, Report)] == ["a", "b"]
    assert len(marks.read_text().splitlines()) == 4
    reports = [json.loads((tmp_path / "out" / "reports" / f"{name}.json").read_bytes()) for name in ("a", "b")]
    assert reports[0]["measurements"] == reports[1]["measurements"]
    assert all((tmp_path / "out" / file).is_file() for file in reports[0]["measurements"])


def test_a_job_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    marks, out = tmp_path / "marks", tmp_path / "out"
    wanted = wanted_of(tosses("a", marks))
    first = Reproduction(wanted, 1, out)
    first.job.run(first.job.units[2], out)
    assert len(Reproduction(wanted, 1, out).job.left()) == 3
    (report,) = there(spark, wanted, out)
    assert isinstance(report, Report)
    assert len(marks.read_text().splitlines()) == 4, "the finished one is not run again"
    again = Reproduction(wanted, 1, out)
    assert (again.job.left(), len(list(again.complete()))) == ([], 1)


def test_a_changed_seed_or_size_runs_only_what_is_new(tmp_path: Path) -> None:
    marks, out = tmp_path / "marks", tmp_path / "out"
    here(wanted_of(tosses("a", marks)), out)
    wider = Reproduction([(tosses("a", marks), replace(SMALL, sizes=(8, 16, 32)))], 1, out)
    assert {unit.case.nodes for unit in wider.job.left()} == {32}
    assert len(Reproduction(wanted_of(tosses("a", marks)), 2, out).job.left()) == 4


def test_a_worker_that_dies_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    (report,) = there(spark, wanted_of(tosses("a", marks, "dies once")), tmp_path / "out")
    assert isinstance(report, Report)
    assert len(list((tmp_path / "out" / MEASUREMENTS).rglob("*.json"))) == 4


@pytest.mark.parametrize("on_spark", [False, True])
def test_a_measurement_that_fails_does_not_stop_the_others(spark: SparkSession, tmp_path: Path, on_spark: bool) -> None:
    marks, out = tmp_path / "marks", tmp_path / "out"
    wanted = wanted_of(tosses("bad", marks, "raises"), tosses("good", marks))
    failure, report = there(spark, wanted, out) if on_spark else here(wanted, out)
    assert isinstance(failure, Failure)
    assert failure.name == "bad"
    assert "ZeroDivisionError: planted (and 3 more)" in failure.reason
    assert isinstance(report, Report)
    assert report.notes == ["compared"]
    assert not (out / "reports" / "bad.json").exists()


def test_a_comparison_that_fails_is_that_experiments_failure(tmp_path: Path) -> None:
    def broken(plan: Plan, results: Results[Toss, int]) -> Iterator[Row | Note]:
        raise KeyError("planted")

    marks = tmp_path / "marks"
    wanted = wanted_of(replace(tosses("bad", marks), compare=broken), tosses("good", marks))
    failure, report = here(wanted, tmp_path / "out")
    assert failure == Failure("bad", "the measurements cannot be compared: KeyError: 'planted'")
    assert isinstance(report, Report)


def test_each_experiment_is_complete_as_soon_as_its_last_measurement_is_in(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    large = replace(tosses("large", marks), cases=lambda _: [Toss(64, str(marks))])
    reproduction = Reproduction(wanted_of(tosses("small", marks), large), 1, tmp_path / "out")
    seen: list[tuple[str, int]] = []

    def watch(done: int, running: int) -> None:
        seen.extend((one.name, done) for one in reproduction.complete())

    run_here(reproduction.job, watch)
    assert seen == [("large", 2), ("small", 6)], "the largest are begun first"
