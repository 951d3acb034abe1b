"""Campaigns of services: replicas and callers with faults, the judge of both, and the bugs that they find."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.audit.services import Entry, ServicesJudge, ToldCall
from antiphon.torture.campaign import run_campaign
from antiphon.torture.services.campaign import run_service_schedule, shrink_services, write_service_failure
from antiphon.torture.services.schedules import FAULTS, ServiceSchedule, ServiceStep, draw_service_schedule
from antiphon.torture.tally import Outcome
from tests.services.service_mutants import MARKS, MUTANTS, first_finding


def small(seed: int) -> ServiceSchedule:
    """The schedule of a seed with one fault and two callers."""
    drawn = draw_service_schedule(seed)
    return msgspec.structs.replace(drawn, steps=drawn.steps[:1], callers=drawn.callers[:2])


def test_a_schedule_with_a_fault_breaks_no_promise() -> None:
    outcome = run_service_schedule(small(1))
    assert not outcome.violations, outcome.about
    assert outcome.deliveries > 5 and outcome.ticks > 1000


@pytest.mark.campaign
def test_a_campaign_finds_nothing_and_counts_what_happened() -> None:
    found = run_campaign(1, 20, fabric="services").as_json()
    assert found["failing_seeds"] == [], found
    assert set(found["fabrics"]) == {"services cube", "services tree"}
    assert found["publications"] > 500
    assert {"twice", "lost", "sides", "unanswered"} <= set(found["violations"])
    assert {"blackout", "unheard"} <= set(found["faults"])


def test_the_schedules_have_all_faults_and_a_seed_names_one() -> None:
    assert draw_service_schedule(5) == draw_service_schedule(5)
    drawn = [draw_service_schedule(seed) for seed in range(100)]
    assert {step.kind for schedule in drawn for step in schedule.steps} == set(FAULTS)
    assert {caller.timeout_ms for schedule in drawn for caller in schedule.callers} == {400, 60_000}


@pytest.mark.campaign
def test_a_failing_schedule_becomes_small() -> None:
    """A call that raises keeps its effects: no fault is needed for that, and one caller is enough."""
    with MUTANTS["an operation that raises keeps its effects"]():
        drawn = small(2)
        shrunk = shrink_services(drawn, "undone")
    assert (len(shrunk.steps), len(shrunk.callers)) == (0, 1)


def test_a_schedule_is_written_as_it_is(tmp_path: Path) -> None:
    drawn = draw_service_schedule(7)
    path = write_service_failure(Outcome(seed=7), drawn, tmp_path)
    assert path.name == "services-7.json" and msgspec.json.decode(path.read_bytes(), type=ServiceSchedule) == drawn


UNHEARD = ServiceStep(kind="unheard", after_ms=700, lasts_ms=1500)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "kind"),
    [("results are not stored", "unanswered"), ("a call that is made again takes place again", "twice")],
)
def test_what_becomes_of_results_is_found_where_nobody_heard_of_them(name: str, kind: str) -> None:
    schedule = msgspec.structs.replace(small(1), steps=[UNHEARD, UNHEARD, UNHEARD], calls_ms=200)
    assert not run_service_schedule(schedule).violations
    with MUTANTS[name]():
        assert any(kind in run_service_schedule(schedule).violations for _ in range(5))


@pytest.mark.campaign
@pytest.mark.parametrize("name", [name for name in MUTANTS if name != MARKS])
def test_every_planted_bug_is_found(name: str) -> None:
    """The one about marks needs a message that is slower than a whole join; a test of its own finds it."""
    assert first_finding(name, range(1, 60)) is not None


def test_the_judge_sees_each_kind_of_violation() -> None:
    def violations(*books: list[Entry], is_answered: bool = True, result: object = True) -> set[str]:
        judge = ServicesJudge(keeps_sides=True)
        for name, kind in (("d1", "deposit"), ("d2", "deposit"), ("w1", "withdraw"), ("f1", "fail")):
            judge.begins(ToldCall(name, kind, ("anna",), 10))
        if is_answered:
            judge.answers("w1", result)
        judge.judge([{"anna": each} for each in books])
        return set(judge.violations)

    deposit: Entry = ["d1", "deposit", 10]
    other: Entry = ["d2", "deposit", 10]
    paid: Entry = ["w1", "withdraw", -10]
    assert violations([deposit, paid], [deposit, paid]) == set()
    assert violations([deposit, other, paid], [other, deposit, paid]) == set(), "weaker ones may change places"
    assert violations([deposit, other, paid], [deposit, paid, other]) == {"sides"}
    assert violations([deposit, deposit, paid], [deposit, deposit, paid]) == {"twice"}
    assert violations([deposit], [deposit]) == {"lost"}
    assert violations([deposit], [deposit], is_answered=False) == set()
    assert violations([deposit, paid], [deposit, paid], result=False) == {"result"}
    assert violations([paid, deposit], [paid, deposit]) == {"overdrawn"}
    assert violations([deposit, paid], [deposit], is_answered=False) == {"order", "parted"}
    assert violations([deposit, paid, ["f1", "fail", 10]], [deposit, paid, ["f1", "fail", 10]]) == {"undone"}
    assert violations([deposit, paid, ["x", "deposit", 1]], [deposit, paid, ["x", "deposit", 1]]) == {"invented"}


def test_the_judge_sees_what_callers_do_not_see() -> None:
    judge = ServicesJudge(keeps_sides=False)
    judge.begins(ToldCall("d1", "deposit", ("anna",), 10))
    judge.answers("d1", 10)
    judge.reads("mine", "anna", [], judge.answered_about("anna"))
    judge.unanswered("d1")
    judge.did_not_raise("d1")
    assert judge.violations == {"mine": 1, "unanswered": 1, "result": 1} and judge.answered == 1
