"""BankService: replicas agree, no balance goes below zero, nothing is lost, through crashes (section 1.2.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from antiphon.fabrics.tree.assembly.settings import TreeTableOptions
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, NONE
from antiphon.simulator.network.delays import MatrixDelay, NormalDelay
from antiphon_lab.experiments.ginger.bank import (
    APPLY_INTEREST,
    DEPOSIT,
    GET_BALANCE,
    ORDERS,
    TRANSFER,
    WITHDRAW,
    Bank,
    BankOperation,
    Customers,
    Kind,
    decode,
    encode,
)
from antiphon_lab.experiments.ginger.bank_service import BankRun, BankSetup

PARENTS = [-1, 0, 0, 0, 1, 1, 2, 3]
PLACES = ((4, 6, 7), (5, 6))


def run_of(seed: int, *crashes: tuple[int, int], orders: Mapping[Kind, int] = ORDERS, accounts: int = 5) -> BankRun:
    """Two banks on eight brokers, busy for six seconds, with little on many of the accounts."""
    setup = BankSetup(
        nodes=len(PARENTS),
        tree=TreeTableOptions(parents=PARENTS, total_degree=3, patience=500, collect=1000),
        places=PLACES,
        delay=NormalDelay(40.0, 20.0),
        accounts=accounts,
        operations=60,
        interval_ticks=100,
        crashes=crashes,
        orders=orders,
    )
    run = BankRun(setup, seed)
    run.run()
    return run


# The state machine.


def test_a_bank_does_what_is_asked() -> None:
    bank = Bank(2, opening_cents=1000)
    assert bank.apply(BankOperation(GET_BALANCE, 0)) == 1000
    assert bank.apply(BankOperation(DEPOSIT, 0, 250)) == 250
    assert bank.apply(BankOperation(WITHDRAW, 0, 50)) == 50
    assert bank.apply(BankOperation(TRANSFER, 0, 1200, 1)) == 1200
    assert bank.apply(BankOperation(APPLY_INTEREST, 1)) == 22
    assert bank.balances == [0, 2222]
    assert bank.lowest_cents == 0


@pytest.mark.parametrize("kind", [WITHDRAW, TRANSFER])
def test_what_would_go_below_zero_is_refused(kind: Kind) -> None:
    bank = Bank(2, opening_cents=100)
    assert bank.apply(BankOperation(kind, 0, 101, 1)) is None
    assert bank.balances == [100, 100]


def test_a_transfer_to_the_same_account_changes_nothing() -> None:
    bank = Bank(1, opening_cents=100)
    assert bank.apply(BankOperation(TRANSFER, 0, 60, 0)) == 60
    assert bank.balances == [100]


def test_operations_are_about_their_accounts() -> None:
    assert BankOperation(TRANSFER, 7, 1, 3).keys() == [3, 7]
    assert BankOperation(TRANSFER, 7, 1, 7).keys() == [7]
    assert BankOperation(DEPOSIT, 7, 1).keys() == [7]
    for operation in (BankOperation(TRANSFER, 7, 1, 3), BankOperation(GET_BALANCE, 2)):
        assert decode(encode(operation)) == operation


def test_customers_are_the_same_for_the_same_seed_and_ask_for_the_published_mix() -> None:
    """Section 5.4: 40 % eventual, 30 % causal, 30 % total."""
    one, same, other = (Customers(100, seed, 4) for seed in (1, 1, 2))
    asked = [one.ask() for _ in range(20_000)]
    assert asked[:100] == [same.ask() for _ in range(100)] != [other.ask() for _ in range(100)]
    shares = {kind: count / len(asked) for kind, count in Counter(operation.kind for operation in asked).items()}
    wanted = {GET_BALANCE: 0.4, DEPOSIT: 0.3, WITHDRAW: 0.1, TRANSFER: 0.1, APPLY_INTEREST: 0.1}
    assert shares == pytest.approx(wanted, abs=0.015)
    assert all(len(operation.keys()) == 2 for operation in asked if operation.kind == TRANSFER)


# The replicated service.


@pytest.mark.parametrize(
    "crashes",
    [
        (),
        ((2000, 1),),
        ((2000, 0),),
        ((2000, 1), (2000, 2), (2000, 3)),
        ((1000, 0), (2500, 4), (2600, 2)),
        ((2000, 4), (2000, 6)),
    ],
    ids=["none", "inner", "root", "three at once", "root, a place and another", "two places"],
)
def test_replicas_agree_and_nothing_is_lost_through_crashes(crashes: tuple[tuple[int, int], ...]) -> None:
    for seed in range(3):
        run = run_of(seed, *crashes)
        crashed = {node for _, node in crashes}
        for audit, places in zip(run.audit(), PLACES, strict=True):
            assert audit.is_good, (seed, audit)
            assert audit.replicas == len(set(places) - crashed)
            assert audit.asked >= 60 * audit.replicas
        assert run.stuck() == 0


def test_some_withdrawals_are_refused() -> None:
    assert all(audit.refused > 0 for audit in run_of(1, accounts=40).audit())


@pytest.mark.parametrize("order", [NONE, CAUSAL])
def test_with_a_weaker_order_of_withdrawals_replicas_diverge(order: int) -> None:
    """One replica refuses what another pays, because a deposit came before it here and after it there."""
    weak = {**ORDERS, WITHDRAW: order}
    differing = [audit.differing for seed in range(4) for audit in run_of(seed, orders=weak, accounts=40).audit()]
    assert sum(differing) > 0


def test_with_a_weaker_order_of_interest_replicas_diverge() -> None:
    """A share of the balance depends on what was there."""
    weak = {**ORDERS, APPLY_INTEREST: CAUSAL}
    assert sum(audit.differing for seed in range(4) for audit in run_of(seed, orders=weak).audit()) > 0


def test_deposits_need_no_order_among_each_other() -> None:
    """They commute, and a total operation has the same ones before it everywhere, whatever their own order."""
    for seed in range(4):
        assert all(audit.is_good for audit in run_of(seed, (2000, 1), orders={**ORDERS, DEPOSIT: NONE}).audit())


# The auditor.


def test_the_auditor_notices_what_a_replica_lost_and_did_twice() -> None:
    run = run_of(1)
    replica = run.service.replicas[4, 0]
    name, _ = replica.done.popitem()
    assert run.audit()[0].lost == 1
    replica.done[name] = None
    replica.repeated += 1
    assert run.audit()[0].repeated == 1
    assert not run.audit()[0].is_good
    assert run.audit()[1].is_good


def test_the_auditor_notices_money_from_nowhere_and_balances_that_differ() -> None:
    run = run_of(1)
    run.service.replicas[6, 0].bank.balances[3] += 5
    audit = run.audit()[0]
    assert (audit.unexplained_cents, audit.differing, audit.is_good) == (5, 1, False)


def test_a_bank_without_replicas_cannot_be_audited() -> None:
    run = run_of(1, (1000, 5), (2000, 6))
    with pytest.raises(UsageError, match="no replica of bank 1 is left"):
        run.audit()


def test_latency_is_told_apart_by_order_and_place() -> None:
    """Without order and alone on the way, a publication takes the sum of the delays of its path."""
    delays = [[10 * (one + other) for other in range(8)] for one in range(8)]
    setup = BankSetup(
        nodes=8,
        tree=TreeTableOptions(parents=PARENTS),
        places=((4, 7),),
        delay=MatrixDelay(delays),
        accounts=1,
        operations=3,
        orders=dict.fromkeys(ORDERS, NONE),
    )
    run = BankRun(setup, 1)
    run.run()
    path = delays[4][1] + delays[1][0] + delays[0][3] + delays[3][7]
    latency = run.service.latency["none"]
    assert (latency.mean, latency.elsewhere, latency.own, latency.own_ticks) == (path, 6, 6, 0)
    assert latency.mean_with_own == path / 2
