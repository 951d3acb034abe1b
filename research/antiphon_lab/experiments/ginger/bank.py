"""BankService: a bank whose accounts are kept at several places, as an application of the broker tree.

The example of the dissertation on fault tolerance in Ginger (P. Matos, sections 1.2.1 and 5.2). Every place has a
**replica** of the bank and publishes the requests of its customers, as operations about one account or two; a replica
applies delivered operations, in that order, and nothing else. Each operation has the weakest order that keeps replicas
equal:

=================  ========  =====================================================================================
operation          order     why
=================  ========  =====================================================================================
``getBalance``     none      changes nothing; the answer is that of the place that asked, at its delivery
``deposit``        causal    deposits commute with each other, and never fail
``withdraw``       total     is refused if the balance would go below zero, so the order decides
``transfer``       total     the same, about two accounts at once
``applyInterest``  total     a share of the balance, rounded: does not commute with anything
=================  ========  =====================================================================================

A total publication is a synchronisation point for its accounts: the set of deposits before it is the same at all
replicas, whatever their order, and so are all total operations before it, in one order. So every replica finds the same
balance when a withdrawal is delivered and decides the same without asking anybody. Were withdrawals less than total,
one replica could refuse what another pays (the tests show it).

Nothing here knows who hands over the operations: the simulator (:mod:`antiphon_lab.experiments.ginger.bank_service`) or
anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from antiphon.kernel.message import CAUSAL, NONE, TOTAL
from antiphon.kernel.randomness import RandomStream

Kind = Literal["getBalance", "deposit", "withdraw", "transfer", "applyInterest"]

GET_BALANCE: Kind = "getBalance"
DEPOSIT: Kind = "deposit"
WITHDRAW: Kind = "withdraw"
TRANSFER: Kind = "transfer"
APPLY_INTEREST: Kind = "applyInterest"

ORDERS: Mapping[Kind, int] = {
    GET_BALANCE: NONE,
    DEPOSIT: CAUSAL,
    WITHDRAW: TOTAL,
    TRANSFER: TOTAL,
    APPLY_INTEREST: TOTAL,
}
"""How strongly each kind of operation is ordered."""

GET_BALANCE_PERCENT = 40
DEPOSIT_PERCENT = 30
TOTAL_KINDS = (WITHDRAW, TRANSFER, APPLY_INTEREST)
"""The rest of the load, a third each."""

INTEREST_PERCENT = 1
OPENING_CENTS = 10_000
LARGEST_DEPOSIT_CENTS = 5_000
LARGEST_WITHDRAWAL_CENTS = 12_000
"""Above the opening balance, so that some withdrawals are refused."""

CUSTOMER_STREAM = 130


class BankOperation(msgspec.Struct, frozen=True, array_like=True):
    """A request of a customer. ``to_account`` is the target of a transfer; ``cents`` is 0 where there is no amount."""

    kind: Kind
    account: int
    cents: int = 0
    to_account: int | None = None

    def keys(self) -> list[int]:
        """The accounts that it is about: the keys of its publication."""
        if self.to_account is None or self.to_account == self.account:
            return [self.account]
        return sorted((self.account, self.to_account))


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(BankOperation)


def decode(payload: bytes) -> BankOperation:
    """The operation in a publication."""
    return _decoder.decode(payload)


class Bank:
    """The accounts at one place: a state machine that does the same wherever it is given the same."""

    def __init__(self, accounts: int, opening_cents: int = OPENING_CENTS) -> None:
        self.balances = [opening_cents] * accounts
        self.lowest_cents = opening_cents
        """The lowest balance that any account ever had."""

    def apply(self, operation: BankOperation) -> int | None:
        """Apply an operation; returns the balance, or the amount that was moved. None: refused."""
        account = operation.account
        if operation.kind == GET_BALANCE:
            return self.balances[account]
        if operation.kind == APPLY_INTEREST:
            interest = self.balances[account] * INTEREST_PERCENT // 100
            self._add(account, interest)
            return interest
        if operation.kind == DEPOSIT:
            self._add(account, operation.cents)
            return operation.cents
        if self.balances[account] < operation.cents:
            return None
        self._add(account, -operation.cents)
        if operation.kind == TRANSFER:
            assert operation.to_account is not None, "a transfer goes somewhere"
            self._add(operation.to_account, operation.cents)
        return operation.cents

    def _add(self, account: int, cents: int) -> None:
        balance = self.balances[account] + cents
        self.balances[account] = balance
        self.lowest_cents = min(self.lowest_cents, balance)

    def total_cents(self) -> int:
        """All the money there is."""
        return sum(self.balances)


class Customers:
    """The customers of one place: an endless load, the same for the same seed.

    Accounts are drawn uniformly. Where there is only one, a transfer is from it to itself.
    """

    def __init__(self, accounts: int, seed: int, place: int, bank: int = 0) -> None:
        self._accounts = accounts
        self._random = RandomStream(seed, CUSTOMER_STREAM, place, bank)

    def ask(self) -> BankOperation:
        """The next operation."""
        random = self._random
        account = int(random.below(self._accounts))
        percent = random.below(100)
        if percent < GET_BALANCE_PERCENT:
            return BankOperation(GET_BALANCE, account)
        if percent < GET_BALANCE_PERCENT + DEPOSIT_PERCENT:
            return BankOperation(DEPOSIT, account, int(random.between(1, LARGEST_DEPOSIT_CENTS)))
        kind = TOTAL_KINDS[random.below(len(TOTAL_KINDS))]
        if kind == APPLY_INTEREST:
            return BankOperation(kind, account)
        cents = int(random.between(1, LARGEST_WITHDRAWAL_CENTS))
        if kind == WITHDRAW:
            return BankOperation(kind, account, cents)
        other = account
        if self._accounts > 1:
            other = (account + 1 + int(random.below(self._accounts - 1))) % self._accounts
        return BankOperation(kind, account, cents, other)
