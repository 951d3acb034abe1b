"""A bank whose accounts are replicated: every replica makes the same decisions, and no replica asks another one.

Three replicas run at three nodes. Two customers want more money than an account has, at the same moment and at
different replicas. Then a node is killed. ``antiphon advise examples/replicated_bank.py:Bank`` says which order each
operation needs.

python examples/replicated_bank.py
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import msgspec

import antiphon
import antiphon.testing

Cents = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
INTEREST_PERCENT = 1


class Bank(antiphon.Service):
    """Accounts whose balances are never below zero."""

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> None:
        store.set(account, store.get(account, 0) + cents)

    @antiphon.operation(order="total", keys=("account",))
    def withdraw(self, store: antiphon.ServiceStore, account: str, cents: Cents) -> bool:
        if store.get(account, 0) < cents:
            return False
        store.set(account, store.get(account, 0) - cents)
        return True

    @antiphon.operation(order="total", keys=("source", "target"))
    def transfer(self, store: antiphon.ServiceStore, source: str, target: str, cents: Cents) -> bool:
        is_paid = self.withdraw(store, source, cents)
        if is_paid:
            self.deposit(store, target, cents)
        return is_paid

    @antiphon.operation(order="total", keys=("account",))
    def apply_interest(self, store: antiphon.ServiceStore, account: str) -> int:
        cents: int = store.get(account, 0) * INTEREST_PERCENT // 100
        store.set(account, store.get(account, 0) + cents)
        return cents

    @antiphon.query
    def balances(self, store: antiphon.ServiceStore) -> dict[str, int]:
        return dict(store.items())

    @antiphon.invariant
    def nobody_is_overdrawn(self, store: antiphon.ServiceStore) -> bool:
        return all(balance >= 0 for _, balance in store.items())


async def business(cluster: antiphon.testing.Cluster) -> None:
    """Two customers compete for the same money. Then a node is killed, and the bank goes on."""
    async with AsyncExitStack() as stack:
        # Replica 1 is connected to node 1, and continues at node 2 or 0 if node 1 is gone.
        clients = [await cluster.connect(place, (place + 1) % 3, (place + 2) % 3) for place in range(3)]
        for client in clients:
            await stack.enter_async_context(antiphon.serve(Bank, client, store="memory"))
        banks = [Bank.proxy(client) for client in clients]

        await banks[0].deposit("anna", 100)
        paid = await asyncio.gather(banks[1].withdraw("anna", 70), banks[2].withdraw("anna", 70))
        print(f"two customers wanted 70 of 100: {sum(paid)} was paid, {2 - sum(paid)} was refused")

        await cluster.crash(1)
        assert await banks[1].transfer("anna", "ben", 20)
        await asyncio.sleep(5)  # until the others have it too
        print("after the crash of node 1:", *[await bank.balances() for bank in banks], sep="\n  ")


if __name__ == "__main__":
    antiphon.testing.run(business, nodes=3)
