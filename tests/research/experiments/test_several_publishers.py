"""Figure 5.8: the numbers of the text that small systems show, and what is said about the one that cannot be."""

from __future__ import annotations

import pytest

from antiphon_lab.experiments.vcube.broadcasts import MANY_TREES, SRPT, VCUBE_PS, BroadcastCase
from antiphon_lab.experiments.vcube.several_publishers import FIG_5_8A, FIG_5_8B, cases, compare_short
from antiphon_lab.reproduction.experiment import Experiment, Plan, Results, Row


def test_figure_a_up_to_256_nodes() -> None:
    report = FIG_5_8A.run(FIG_5_8A.plan(False, 256, 3), 1, lambda _: None)
    compared = [row for row in report.rows if row.published is not None]
    assert [(row.label, row.verdict) for row in compared] == [
        ("SRPT above VCube-PS, 8 to 128 nodes", "reproduced"),
        ("SRPT / VCube-PS, 256 nodes", "reproduced"),
        ("VCube-PS against its trees alone, 256 nodes", "derived"),
    ]
    assert compared[1].measured.mean == pytest.approx(2.48, rel=0.03)
    assert report.notes[0].endswith("and so not compared: 1024, 4096 nodes.")


def test_figure_b_up_to_256_nodes() -> None:
    report = FIG_5_8B.run(FIG_5_8B.plan(False, 256, 3), 1, lambda _: None)
    row, plain = (row for row in report.rows if row.published is not None)
    assert (row.label, row.verdict) == ("SRPT above VCube-PS, 256 nodes", "reproduced")
    assert (plain.label, plain.verdict) == ("VCube-PS against its trees alone, 256 nodes", "derived")
    assert row.measured.mean == pytest.approx(37, abs=1)


@pytest.mark.parametrize("experiment", [FIG_5_8A, FIG_5_8B])
def test_the_figure_and_the_variants_are_reported_without_a_verdict(
    experiment: Experiment[BroadcastCase, float],
) -> None:
    report = experiment.run(experiment.plan(False, 16, 1), 1, lambda _: None)
    assert [row.label for row in report.rows if row.published is None] == [
        f"latency, {trees}, {nodes} nodes, {percent} % publish"
        for nodes in (8, 16)
        for trees in ("VCube-PS", "SRPT")
        for percent in (25, 100)
    ] + [
        f"latency, {trees}, 16 nodes, 100 % publish{variant}"
        for trees, variant in (
            ("a tree per publisher", ""),
            ("a tree per publisher", ", largest first"),
            ("one tree", ", largest first"),
            ("VCube-PS", ", acknowledged"),
            ("one tree", ", acknowledged"),
        )
    ]


def test_a_default_plan_runs_at_large_sizes_only_what_is_compared() -> None:
    default, full = FIG_5_8A.default, FIG_5_8A.full
    assert {case.trees for case in cases(100, default) if case.nodes > 1024} == {MANY_TREES}
    assert {case.trees for case in cases(100, full) if case.nodes > 1024} == {VCUBE_PS, SRPT}
    assert all(not case.acknowledged and not case.largest_first for case in cases(100, full) if case.nodes > 1024)


@pytest.mark.parametrize(
    ("few", "many", "verdict"),
    [
        (650.0, 1950.0, "refuted"),  # what is measured: far above the bound
        (650.0, 902.0, "reproduced"),  # what is published, if it could be
        (650.0, 1500.0, "differs"),  # below what counting copies allows, so the simulation would be wrong
        (1500.0, 2900.0, "differs"),  # the bound would not exclude the published increase, so it explains nothing
    ],
)
def test_the_impossible_increase_is_refuted_only_by_what_counting_gives(few: float, many: float, verdict: str) -> None:
    plan = Plan((4096,), repetitions=1, large_repetitions=1)
    results: Results[BroadcastCase, float] = Results()
    for case in cases(100, plan):
        for _ in range(3):
            results.add(case, few if case.publisher_percent == 25 else many)
    first = next(compare_short(plan, results))
    assert isinstance(first, Row)
    assert (first.label, first.verdict) == ("VCube-PS, 25 % to 100 % publish, 4096 nodes", verdict)
    if verdict == "refuted":
        assert first.reason is not None
        assert "at least 1649 ticks, 154 % above the 650" in first.reason
