"""Table II: who leaves and joins, what each reading of the documents does with them, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from antiphon_lab.experiments.vcube.changing_members import (
    CHURN_PERCENTS,
    FORGETFUL,
    OWN,
    PUBLICATIONS,
    READINGS,
    REPAIRED,
    REPAIRED_FAST,
    TABLE_II,
    WHOLE,
    MemberChangeCase,
    MemberChangeOutcome,
    cases,
    compare,
    draw_changes,
    measure,
    published,
    spread_of_relays,
)
from antiphon_lab.experiments.vcube.one_topic import draw_group
from antiphon_lab.reproduction.experiment import Plan, Results, Row


@pytest.mark.parametrize(
    ("nodes", "percent", "leavers"), [(512, 12.5, 48), (512, 25, 96), (1024, 12.5, 96), (1024, 25, 192)]
)
def test_as_many_join_as_leave_and_the_publisher_stays(nodes: int, percent: float, leavers: int) -> None:
    case = MemberChangeCase(OWN, nodes, percent)
    for seed in range(3):
        group = draw_group(nodes, case.members, seed)
        leaving, joining = draw_changes(case, group, seed)
        assert len(set(leaving)) == len(set(joining)) == leavers
        assert set(leaving) < set(group.members) - {group.publisher}
        assert set(joining) < set(group.outsiders)


def test_the_expected_deliveries_are_those_of_the_paper() -> None:
    """SBAC-PAD paper, section IV: with 1024 nodes 196608 messages should be delivered."""
    assert MemberChangeCase(OWN, 1024, 25).members * PUBLICATIONS == 196_608


@pytest.mark.parametrize("percent", CHURN_PERCENTS)
@pytest.mark.parametrize("reading", [REPAIRED, REPAIRED_FAST])
def test_repaired_nothing_is_lost_and_nobody_relays_for_long(reading: str, percent: float) -> None:
    case = MemberChangeCase(reading, 64, percent)
    for seed in range(3):
        outcome = measure(case, seed)
        assert (outcome.lost, outcome.early, outcome.disordered) == (0, 0, 0)
        stayed = case.members - case.leavers
        assert stayed * PUBLICATIONS <= outcome.deliveries <= case.members * PUBLICATIONS
        assert outcome.receivers <= case.leavers
        assert outcome.until < 50


def test_who_vouches_for_himself_alone_cannot_bring_back_leavers() -> None:
    outcome = measure(MemberChangeCase(OWN, 128, 25), 1)
    assert outcome.false_positives < 2 * MemberChangeCase(OWN, 128, 25).leavers
    assert outcome.until < 1


def test_whole_views_bring_back_leavers_for_good() -> None:
    whole, forgetful = (measure(MemberChangeCase(reading, 128, 25), 1) for reading in (WHOLE, FORGETFUL))
    assert whole.until > 99
    assert whole.false_positives > PUBLICATIONS
    assert forgetful.until > 99
    assert forgetful.receivers == MemberChangeCase(FORGETFUL, 128, 25).leavers
    assert forgetful.false_positives > whole.false_positives
    assert forgetful.lost > whole.lost


def test_the_published_spread_is_that_of_relays_that_relay_everything_or_nothing() -> None:
    text = spread_of_relays()
    assert "707 (764.4), 1241 (1207.1), 874 (899.9), 1621 (1717.8)" in text


# What is compared.

FULL_PLAN = Plan((512, 1024), repetitions=1, large_repetitions=1)


def outcome_of(false_positives: float, deliveries: float) -> MemberChangeOutcome:
    return MemberChangeOutcome(
        false_positives=round(false_positives),
        receivers=10,
        until=99.0,
        deliveries=round(deliveries),
        ticks=400_000,
        lost=0,
        early=0,
        disordered=0,
    )


def as_in_the_table(case: MemberChangeCase) -> MemberChangeOutcome:
    cells = [published(case, column) for column in ("false-positives", "deliveries")]
    values = [cell.value for cell in cells if cell is not None]
    return outcome_of(*values)


def verdicts(found: dict[MemberChangeCase, MemberChangeOutcome]) -> list[str | None]:
    results: Results[MemberChangeCase, MemberChangeOutcome] = Results()
    for case in cases(FULL_PLAN):
        for _ in range(3):
            results.add(case, found[case])
    rows = [row for row in compare(FULL_PLAN, results) if isinstance(row, Row) and row.published is not None]
    return [row.verdict for row in rows if row.verdict != "derived"]


def test_numbers_as_published_are_reproduced() -> None:
    assert verdicts({case: as_in_the_table(case) for case in cases(FULL_PLAN)}) == ["reproduced"] * 8


def test_numbers_that_the_reading_does_not_give_differ() -> None:
    found = {case: as_in_the_table(case) for case in cases(FULL_PLAN)}
    for case, outcome in found.items():
        if case.reading == WHOLE:
            found[case] = replace(outcome, false_positives=outcome.false_positives * 3)
    assert verdicts(found) == ["differs", "reproduced"] * 4


def test_a_default_run_leaves_the_larger_size_to_a_full_one() -> None:
    assert {case.nodes for case in cases(TABLE_II.default)} == {512}
    assert {case.nodes for case in cases(TABLE_II.full)} == {512, 1024}
    assert {case.reading for case in cases(TABLE_II.default)} == set(READINGS)


def test_other_sizes_are_not_compared() -> None:
    report = TABLE_II.run(TABLE_II.plan(False, 32, 1), 1, lambda _: None)
    assert {row.verdict for row in report.rows} == {None, "derived"}
    assert report.notes[1].endswith("and so not compared: 512, 1024 nodes.")
    found = {row.label: row.measured.mean for row in report.rows if "all runs repaired" in row.label}
    assert len(found) == 3
    assert set(found.values()) == {0.0}
