"""A service whose store keeps everything that was ever done to an account, for the judge of campaigns."""

from __future__ import annotations

import antiphon

Entry = list[str | int]
"""The name of a call, what it was, and by how much it changed the balance."""


class AccountBook(antiphon.Service):
    """Accounts as lists of entries; the balance is their sum."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, name: str, cents: int) -> int:
        return write(store, account, name, "deposit", cents)

    @antiphon.operation(order="total", keys=("account",))
    def withdraw(self, store: antiphon.ServiceStore, account: str, name: str, cents: int) -> bool:
        is_paid = balance_of(store, account) >= cents
        write(store, account, name, "withdraw", -cents if is_paid else 0)
        return is_paid

    @antiphon.operation(order="total", keys=("source", "target"))
    def transfer(self, store: antiphon.ServiceStore, source: str, target: str, name: str, cents: int) -> bool:
        is_paid = source != target and balance_of(store, source) >= cents
        write(store, source, name, "transfer", -cents if is_paid else 0)
        if source != target:
            write(store, target, name, "transfer", cents if is_paid else 0)
        return is_paid

    @antiphon.operation(order="total", keys=("account",), raises=(ValueError,))
    def fail(self, store: antiphon.ServiceStore, account: str, name: str) -> None:
        write(store, account, name, "fail", 1_000_000)
        raise ValueError(name)

    @antiphon.query
    def entries(self, store: antiphon.ServiceStore, account: str) -> list[Entry]:
        found: list[Entry] = store.get(account, [])
        return found

    @antiphon.query(read="mine")
    def entries_mine(self, store: antiphon.ServiceStore, account: str) -> list[Entry]:
        found: list[Entry] = store.get(account, [])
        return found

    @antiphon.query(read="latest", keys=("account",))
    def entries_latest(self, store: antiphon.ServiceStore, account: str) -> list[Entry]:
        found: list[Entry] = store.get(account, [])
        return found


def write(store: antiphon.ServiceStore, account: str, name: str, kind: str, cents: int) -> int:
    """Add an entry; the balance after it."""
    store.set(account, [*store.get(account, []), [name, kind, cents]])
    return balance_of(store, account)


def balance_of(store: antiphon.ServiceStore, account: str) -> int:
    """The sum of all entries."""
    return sum(entry[2] for entry in store.get(account, []))
