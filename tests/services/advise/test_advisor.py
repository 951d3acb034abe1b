"""The whole advice about services whose needs are known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.services.advise import report
from antiphon.services.advise.advisor import Advice, AdviceOptions, Advisor
from antiphon.services.advise.search import PairSearch
from antiphon.services.description import describe
from tests.services.advise.banks import Bank, Counters, Forum, NarrowBank, SmallBank, TrustingBank, Unsteady

EXAMPLES = 25


def advice(
    service: Any, schedules: int = 0, trust_callers: bool = False, examples: int = EXAMPLES, **orders: str
) -> Advice:
    options = AdviceOptions(examples=examples, schedules=schedules, trust_callers=trust_callers, orders=orders)
    return Advisor(describe(service), options).advise()


def verdicts(found: Advice) -> dict[str, tuple[str, str]]:
    return {one.name: (one.needed, one.verdict) for one in found.operations}


def test_the_bank_is_as_it_should_be() -> None:
    found = advice(Bank, schedules=15)
    assert verdicts(found) == {
        "deposit": ("none", "fine"),
        "withdraw": ("total", "fine"),
        "transfer": ("total", "fine"),
        "apply_interest": ("total", "fine"),
    }
    assert not found.has_failed and found.problems == []
    assert found.scripts > 10 * EXAMPLES and found.schedules == 30
    said = list(report.lines(found))
    assert said[-1].startswith("no counterexample to the declared orders: ")
    assert not any("safe" in line for line in said)


@pytest.fixture(scope="module")
def pairs_of_the_bank() -> PairSearch:
    advisor = Advisor(describe(Bank), AdviceOptions(examples=EXAMPLES))
    return advisor.try_pairs(advisor.names)


@pytest.mark.parametrize("order", ["none", "fifo", "causal"])
@pytest.mark.parametrize("operation", ["withdraw", "transfer", "apply_interest"])
def test_every_wrong_order_is_found(pairs_of_the_bank: PairSearch, operation: str, order: str) -> None:
    advisor = Advisor(describe(Bank), AdviceOptions(examples=EXAMPLES, orders={operation: order}))
    found = advisor.judge(pairs_of_the_bank, advisor.names)
    assert [one.name for one in found if one.verdict == "too weak"] == [operation]


def test_a_causal_withdrawal_has_a_counterexample_that_people_can_read() -> None:
    found = advice(SmallBank, schedules=60)
    (withdrawal,) = [one for one in found.operations if one.name == "withdraw"]
    assert withdrawal.script == [
        "deposit('a', 1) and withdraw('a', 1) at the same time",
        "one replica: deposit('a', 1) returns 1, then withdraw('a', 1) returns None; leaves a = 0",
        "another: withdraw('a', 1) raises NoMoneyError, then deposit('a', 1) returns 1; leaves a = 1",
    ]
    schedule = found.problems[0]
    assert schedule.what.endswith("two replicas end with different states")
    assert schedule.script[0].endswith("of 3 nodes") and len(schedule.script) == 5


def test_withdrawals_are_found_also_where_callers_look_first() -> None:
    found = advice(SmallBank, trust_callers=True, examples=120)
    (withdrawal,) = [one for one in found.operations if one.name == "withdraw"]
    assert (withdrawal.needed, withdrawal.verdict) == ("total", "too weak")
    assert withdrawal.why == "does not commute with itself"


def test_without_trust_an_answer_needs_total_order_and_with_it_causal_is_enough() -> None:
    found = advice(Forum)
    assert verdicts(found) == {"ask": ("none", "fine"), "answer": ("total", "too weak")}
    assert [one.why for one in found.operations][1] == (
        "does not commute with ask, if it may be called where it raises"
    )
    trusting = advice(Forum, schedules=15, trust_callers=True)
    assert verdicts(trusting) == {"ask": ("none", "fine"), "answer": ("causal", "fine")}
    assert not trusting.has_failed
    weaker = advice(Forum, trust_callers=True, answer="fifo")
    assert verdicts(weaker)["answer"] == ("causal", "too weak")


def test_keys_that_are_too_few_are_named() -> None:
    found = advice(NarrowBank, examples=100)
    (problem,) = found.problems
    assert problem.what == "transfer and transfer have no key in common and do not commute: name more keys"


def test_an_invariant_that_no_order_keeps_is_told() -> None:
    (problem,) = advice(TrustingBank).problems
    assert problem.what.startswith("withdraw breaks nobody_is_overdrawn in every order; let it raise an exception")
    (problem,) = advice(TrustingBank, trust_callers=True).problems
    assert problem.what.startswith("withdraw and withdraw together break an invariant in every order")


def test_what_is_stronger_than_needed_is_told_with_its_price() -> None:
    found = advice(Counters)
    assert verdicts(found) == {"add": ("none", "stronger than needed")}
    assert not found.has_failed
    assert any("stronger than needed: add; a total message takes 9.5 hops" in line for line in report.lines(found))


def test_operations_that_depend_on_more_than_the_store_are_mistakes() -> None:
    found = advice(Unsteady, examples=20, schedules=1)
    assert {name for problem in found.problems for name in problem.operations} == {
        "stamp",
        "date",
        "roll",
        "name",
        "look",
    }
    assert found.has_failed and found.schedules == 0
    assert list(verdicts(found)) == ["steady"]


def test_the_same_seed_gives_the_same_advice() -> None:
    one, other = (advice(Forum, schedules=5, examples=10) for _ in range(2))
    assert msgspec.json.encode(one) == msgspec.json.encode(other)


@pytest.mark.parametrize(
    ("orders", "sentence"),
    [
        ({"pay": "total"}, "Bank has no operation 'pay'; it has deposit, withdraw, transfer, apply_interest"),
        ({"deposit": "strict"}, "an operation has an order of none, fifo, causal, total, not 'strict'"),
    ],
)
def test_wrong_orders_are_refused(orders: dict[str, str], sentence: str) -> None:
    with pytest.raises(antiphon.UsageError, match=sentence):
        Advisor(describe(Bank), AdviceOptions(orders=orders))


def test_a_service_without_operations_is_refused() -> None:
    class Empty(antiphon.Service):
        pass

    with pytest.raises(antiphon.UsageError, match="Empty has no operations"):
        advice(Empty)
