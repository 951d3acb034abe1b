"""The campaign of services: a schedule with faults passes its auditor, and a planted bug does not."""

from __future__ import annotations

import pytest

from tests.services.auditor import Auditor, Told
from tests.services.campaign import run_schedule
from tests.services.ledger import Entry
from tests.services.service_mutants import MUTANTS, RARE, first_finding


def test_a_random_schedule_with_faults_leaves_nothing_to_say() -> None:
    found, schedule = run_schedule(1, "cube", count=2)
    assert found == []
    assert schedule.faults and sum(each.is_answered for each in schedule.auditor.calls.values()) > 20


@pytest.mark.campaign
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in RARE])
def test_every_planted_bug_is_found(name: str) -> None:
    assert first_finding(name, range(1, 40), "cube") is not None


@pytest.mark.campaign
@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_many_schedules(fabric: str) -> None:
    for seed in range(1, 100):
        assert run_schedule(seed, fabric)[0] == [], seed


def test_the_auditor_sees_each_kind_of_fault() -> None:
    def faults(*books: list[Entry], is_answered: bool = True, result: object = True) -> set[str]:
        auditor = Auditor(keeps_sides=True)
        for name, kind in (("d1", "deposit"), ("d2", "deposit"), ("w1", "withdraw"), ("f1", "fail")):
            auditor.begins(Told(name, kind, ("anna",), 10))
        if is_answered:
            auditor.answered("w1", result)
        return {fault.partition(":")[0] for fault in auditor.judge([{"anna": each} for each in books])}

    deposit: Entry = ["d1", "deposit", 10]
    other: Entry = ["d2", "deposit", 10]
    paid: Entry = ["w1", "withdraw", -10]
    assert faults([deposit, paid], [deposit, paid]) == set()
    assert faults([deposit, other, paid], [other, deposit, paid]) == set(), "weaker ones may change places"
    assert faults([deposit, other, paid], [deposit, paid, other]) == {"sides"}
    assert faults([deposit, deposit, paid], [deposit, deposit, paid]) == {"twice"}
    assert faults([deposit], [deposit]) == {"lost"}
    assert faults([deposit], [deposit], is_answered=False) == set()
    assert faults([deposit, paid], [deposit, paid], result=False) == {"result"}
    assert faults([paid, deposit], [paid, deposit]) == {"overdrawn"}
    assert faults([deposit, paid], [deposit], is_answered=False) == {"order", "parted"}
    assert faults([deposit, paid, ["f1", "fail", 10]], [deposit, paid, ["f1", "fail", 10]]) == {"undone"}
    assert faults([deposit, paid, ["x", "deposit", 1]], [deposit, paid, ["x", "deposit", 1]]) == {"invented"}
