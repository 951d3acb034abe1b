"""Figure 5.11: what is simulated, and what is said about the numbers of the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from antiphon_lab.experiments.vcube.churn import (
    CALL,
    EFFECTIVE,
    PUBLISHED_SECONDS,
    RULES,
    SUCCESSOR,
    ChurnRunCase,
    Endured,
    median_ticks,
)
from antiphon_lab.experiments.vcube.churn_figures import FIG_5_11A, cases_of_sizes, compare_sizes
from antiphon_lab.experiments.vcube.churn_rates import FIG_5_11B, cases_of_rates, compare_rates, longest_queue
from antiphon_lab.experiments.vcube.churn_runs import (
    DEFAULT_BUDGET_A,
    FULL_BUDGET,
    MEDIANS,
    PERCENTS,
    Budget,
    members_of,
)
from antiphon_lab.experiments.vcube.one_topic import ONE_ROOT, PUBLISHED, REPAIRED
from antiphon_lab.reproduction.experiment import Note, Plan, Results, Row
from antiphon_lab.reproduction.verdicts import DERIVED, DIFFERS, FITTED, REFUTED, REPRODUCED

CALM = Endured(
    latency=600.0,
    start_wait=0.0,
    queue_wait=1.0,
    root_wait=1.0,
    false_positives=1.0,
    changes_per_second=80.0,
    stuck=0,
    violations=0,
)


def test_members_are_as_many_as_published_and_nodes_the_next_power_of_two() -> None:
    assert [members_of(nodes) for nodes in (512, 1024, 2048, 4096)] == [500, 1000, 2000, 4000]
    assert [ChurnRunCase(PUBLISHED, members, None, 1).nodes for members in (500, 1000, 2000, 4000)] == [
        512,
        1024,
        2048,
        4096,
    ]


def test_cheap_runs_are_as_long_as_published_and_dear_ones_fit_the_budget() -> None:
    assert FULL_BUDGET.case(PUBLISHED, 512, None).seconds == PUBLISHED_SECONDS == 7200
    short, long = Budget(10e6).case(PUBLISHED, 4096, 60_000), Budget(20e6).case(PUBLISHED, 4096, 60_000)
    assert short.seconds < long.seconds < 7200
    assert DEFAULT_BUDGET_A.case(PUBLISHED, 512, None).seconds == DEFAULT_BUDGET_A.seconds


def test_acknowledgements_cost_something_where_nothing_else_is_said_only_in_the_repaired_system() -> None:
    assert not FULL_BUDGET.case(PUBLISHED, 512, None).charged
    assert FULL_BUDGET.case(REPAIRED, 512, None).charged
    assert FULL_BUDGET.case(PUBLISHED, 512, None, charged=True).charged


def test_a_full_run_has_all_points_of_the_figures() -> None:
    points = {(case.system, case.members, case.median_ticks) for case in cases_of_sizes(FIG_5_11A.full)}
    for system in (PUBLISHED, ONE_ROOT):
        assert {(system, members, median) for members in (500, 1000, 2000, 4000) for median in MEDIANS} <= points
    rates = {(case.system, case.median_ticks) for case in cases_of_rates(FIG_5_11B.full)}
    for system in (PUBLISHED, ONE_ROOT):
        assert {(system, median_ticks(percent)) for percent in PERCENTS} <= rates
    for cases in (cases_of_sizes(FIG_5_11A.full), cases_of_rates(FIG_5_11B.full)):
        assert len(set(cases)) == len(cases)


def findings(
    compare: Callable[[Plan, Results[ChurnRunCase, Endured]], object],
    cases: list[ChurnRunCase],
    plan: Plan,
    found: dict[ChurnRunCase, Endured],
) -> tuple[dict[str, str | None], list[str]]:
    """The verdicts of the rows that have one, by label, and all notes."""
    results: Results[ChurnRunCase, Endured] = Results()
    for case in cases:
        for _ in range(3):
            results.add(case, found[case])
    everything = list(compare(plan, results))  # type: ignore[call-overload]
    rows = [row for row in everything if isinstance(row, Row) and row.published is not None]
    judged = {row.label: row.verdict for row in rows if row.verdict != DERIVED}
    return judged, [note.text for note in everything if isinstance(note, Note)]


def as_in_figure_a(case: ChurnRunCase) -> Endured:
    """Everything as the text has it, with the rule that comes nearest."""
    latency = 740.0 if case.system == ONE_ROOT else 640.0
    if case.median_ticks is not None:
        latency *= 1.01 if case.system == ONE_ROOT else 1.09
    if case.system == ONE_ROOT and case.members == 4000 and case.median_ticks == 60_000:
        latency = 740 * {SUCCESSOR: 3.56, EFFECTIVE: 11.0, CALL: 20.0}[case.rule]
        return replace(CALM, latency=latency, false_positives=2.74)
    return replace(CALM, latency=latency)


def verdicts_a(change: Callable[[ChurnRunCase, Endured], Endured]) -> list[str | None]:
    plan = FIG_5_11A.full
    cases = cases_of_sizes(plan)
    found = {case: change(case, as_in_figure_a(case)) for case in cases}
    return list(findings(compare_sizes, cases, plan, found)[0].values())


def overloaded(case: ChurnRunCase) -> bool:
    return case.system == ONE_ROOT and case.members == 4000 and case.median_ticks == 60_000


def test_figure_a_as_published_is_reproduced() -> None:
    assert verdicts_a(lambda _, endured: endured) == [REPRODUCED, REPRODUCED, REPRODUCED, FITTED, REPRODUCED]


def test_a_point_where_vcube_ps_is_the_slower_one_is_told() -> None:
    verdicts = verdicts_a(
        lambda case, endured: (
            replace(endured, latency=690.0)
            if (case.system, case.members, case.median_ticks) == (ONE_ROOT, 2000, 60_000)
            else endured
        )
    )
    assert verdicts == [REPRODUCED, REPRODUCED, DIFFERS, FITTED, REPRODUCED]


def test_an_overloaded_root_is_held_to_its_number() -> None:
    def scaled(factor: float) -> Callable[[ChurnRunCase, Endured], Endured]:
        return lambda case, endured: replace(endured, latency=endured.latency * factor) if overloaded(case) else endured

    assert verdicts_a(scaled(0.95))[3] == FITTED
    assert verdicts_a(scaled(0.7))[3] == DIFFERS
    assert verdicts_a(scaled(1.5))[3] == DIFFERS
    assert verdicts_a(scaled(0.1))[3] == DIFFERS


def as_in_figure_b(case: ChurnRunCase) -> Endured:
    """Everything as the text has it, with the rule that comes nearest."""
    if case.system == ONE_ROOT:
        waits = {
            median_ticks(5): {SUCCESSOR: 20.0, EFFECTIVE: 468.0, CALL: 3000.0},
            median_ticks(10): {SUCCESSOR: 20.0, EFFECTIVE: 4500.0, CALL: 10_000.0},
        }
        wait = 0.0 if case.median_ticks not in waits else waits[case.median_ticks][case.rule]
        return replace(CALM, latency=640 + wait, root_wait=wait)
    if case.median_ticks == median_ticks(10):
        return replace(CALM, latency=600 * 2.55, start_wait=900.0, false_positives=2.2, queue_wait=28.0)
    return CALM


def verdicts_b(change: Callable[[ChurnRunCase, Endured], Endured]) -> dict[str, str | None]:
    plan = FIG_5_11B.full
    cases = cases_of_rates(plan)
    return findings(compare_rates, cases, plan, {case: change(case, as_in_figure_b(case)) for case in cases})[0]


def test_figure_b_as_published_is_reproduced() -> None:
    verdicts = verdicts_b(lambda _, endured: endured)
    assert len(verdicts) == 8
    assert set(verdicts.values()) == {REPRODUCED, FITTED}
    assert {label for label, verdict in verdicts.items() if verdict == FITTED} == {
        f"SRPT, wait at the root, 5 %, {EFFECTIVE}",
        f"SRPT, wait at the root, 10 %, {CALL}",
    }


def test_a_wait_that_idle_outputs_cannot_cause_is_refuted_and_no_wait_at_all_differs() -> None:
    def waiting(ticks: float) -> str | None:
        return verdicts_b(lambda _, endured: replace(endured, queue_wait=ticks))["VCube-PS, mean wait in queues, 10 %"]

    assert (waiting(1.2), waiting(0.0), waiting(14.0), waiting(60.0)) == (REFUTED, DIFFERS, DIFFERS, DIFFERS)


def test_contention_at_half_the_churn_would_be_told() -> None:
    verdicts = verdicts_b(
        lambda case, endured: (
            replace(endured, latency=1000.0)
            if case.system == ONE_ROOT and case.median_ticks == median_ticks(2)
            else endured
        )
    )
    assert verdicts["SRPT, least churn with latency 1.1 times that of 1 %"] == DIFFERS


def test_a_wait_at_the_root_is_held_to_its_number() -> None:
    assert longest_queue(1024) == 10_240
    label = f"SRPT, wait at the root, 10 %, {CALL}"

    def scaled(factor: float) -> str | None:
        return verdicts_b(
            lambda case, endured: (
                replace(endured, root_wait=endured.root_wait * factor)
                if case.system == ONE_ROOT and case.rule in RULES
                else endured
            )
        )[label]

    assert scaled(1.0) == FITTED
    assert scaled(0.8) == DIFFERS
    assert scaled(1000) == DIFFERS


@pytest.mark.parametrize("experiment", [FIG_5_11A, FIG_5_11B], ids=lambda experiment: experiment.name)
def test_small_systems_run_through_and_are_not_compared(experiment: object) -> None:
    assert experiment in (FIG_5_11A, FIG_5_11B)
    chosen = FIG_5_11A if experiment is FIG_5_11A else FIG_5_11B
    report = chosen.run(chosen.plan(False, 16, 1), 1, lambda _: None)
    assert {row.verdict for row in report.rows} == {None, DERIVED}
    assert any("not compared" in note or "nothing is compared" in note for note in report.notes)
    stuck = {row.label: row.measured.mean for row in report.rows if row.label.startswith("never finished")}
    assert {label: count for label, count in stuck.items() if "repaired" in label and count > 0} == {}
    assert any(count > 0 for label, count in stuck.items() if "repaired" not in label)
    oracle = [row for row in report.rows if row.label.startswith("violations found")]
    assert [row.measured.mean > 0 for row in oracle] == [True, False]
