"""A bank, as an application would declare it: the service that tests of services share."""

from __future__ import annotations

import antiphon


class NoMoneyError(Exception):
    """The balance is too low."""


class Bank(antiphon.Service):
    """Accounts with balances that are never below zero."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, cents: int) -> int:
        balance: int = store.get(account, 0) + cents
        store.set(account, balance)
        return balance

    @antiphon.operation(order="total", keys=("account",), raises=(NoMoneyError,))
    def withdraw(self, store: antiphon.ServiceStore, account: str, cents: int) -> int:
        balance: int = store.get(account, 0)
        if balance < cents:
            raise NoMoneyError(account, balance)
        store.set(account, balance - cents)
        return balance - cents

    @antiphon.operation(order="total", keys=("source", "target"))
    def transfer(self, store: antiphon.ServiceStore, source: str, target: str, cents: int = 1) -> bool:
        if store.get(source, 0) < cents:
            return False
        store.set(source, store.get(source, 0) - cents)
        store.set(target, store.get(target, 0) + cents)
        return True

    @antiphon.query
    def balance(self, store: antiphon.ServiceStore, account: str) -> int:
        found: int = store.get(account, 0)
        return found

    @antiphon.invariant
    def nobody_is_overdrawn(self, store: antiphon.ServiceStore) -> bool:
        return all(balance >= 0 for _, balance in store.items())
