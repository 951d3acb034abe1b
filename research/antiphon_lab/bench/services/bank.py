"""The bank that is measured: a deposit in causal order, a withdrawal in total order, a balance."""

from __future__ import annotations

import antiphon


class BenchBank(antiphon.Service):
    """Accounts that are never below zero."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, cents: int) -> int:
        """Add to an account; the new balance."""
        balance: int = store.get(account, 0) + cents
        store.set(account, balance)
        return balance

    @antiphon.operation(order="total", keys=("account",))
    def withdraw(self, store: antiphon.ServiceStore, account: str, cents: int) -> bool:
        """Take from an account, if it has so much."""
        balance: int = store.get(account, 0)
        if balance < cents:
            return False
        store.set(account, balance - cents)
        return True

    @antiphon.query
    def balance(self, store: antiphon.ServiceStore, account: str) -> int:
        """What an account has, as far as this replica knows."""
        found: int = store.get(account, 0)
        return found


JOBS = ("deposit", "withdraw", "balance")
