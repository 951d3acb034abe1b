"""A bank whose accounts are replicated: every replica makes the same decisions, and no replica asks another one.

Three replicas run at three nodes. Each of them applies the operations in the order in which they are delivered. Two
customers want more money than the account has, at the same moment and at different replicas. Then a node is killed.

python examples/replicated_bank.py
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from uuid import uuid4

import antiphon
import antiphon.testing

TOPIC = "bank"
ORDERS = {"deposit": "causal", "withdraw": "total", "transfer": "total"}
"""Deposits commute. Whether a withdrawal is paid depends on what came before it, so it needs total order."""


class Replica:
    """The accounts at one place. They change when an operation is delivered, and at no other time."""

    def __init__(self, client: antiphon.Client) -> None:
        self.balances: dict[str, int] = defaultdict(int)
        self.done = 0
        self._client = client
        self._asked: dict[str, asyncio.Future[bool]] = {}

    async def follow(self, operations: antiphon.Subscription) -> None:
        """Apply what is delivered, and answer the customers of this replica."""
        async for message in operations:
            operation = json.loads(message.value)
            is_paid = self._apply(operation)
            self.done += 1
            customer = self._asked.pop(operation["identity"], None)
            if customer is not None:
                customer.set_result(is_paid)

    def _apply(self, operation: dict[str, str | int]) -> bool:
        """Change the accounts. All replicas have the same balance here, so they decide alike."""
        account, amount = str(operation["account"]), int(operation["amount"])
        if operation["kind"] == "deposit":
            self.balances[account] += amount
            return True
        if self.balances[account] < amount:
            return False
        self.balances[account] -= amount
        if operation["kind"] == "transfer":
            self.balances[str(operation["to"])] += amount
        return True

    async def ask(self, kind: str, account: str, amount: int, to: str = "") -> bool:
        """Carry out an operation at all replicas; the answer says whether it was paid."""
        identity = str(uuid4())
        answer = self._asked[identity] = asyncio.get_running_loop().create_future()
        operation = {"identity": identity, "kind": kind, "account": account, "amount": amount, "to": to}
        keys = [account, to] if to else [account]
        await self._client.publish(TOPIC, json.dumps(operation).encode(), order=ORDERS[kind], keys=keys)
        return await answer


async def until_done(replicas: list[Replica], count: int) -> None:
    """Wait until each replica has applied so many operations."""
    while any(replica.done < count for replica in replicas):
        await asyncio.sleep(0.01)


async def business(cluster: antiphon.testing.Cluster) -> None:
    """Two customers compete for the same money. Then a node is killed, and the bank goes on."""
    # Replica 1 is connected to node 1, and continues at node 2 or 0 if node 1 is gone.
    clients = [await cluster.connect(place, (place + 1) % 3, (place + 2) % 3) for place in range(3)]
    replicas = [Replica(client) for client in clients]
    subscriptions = [await client.subscribe(TOPIC).ready() for client in clients]
    following = [asyncio.create_task(r.follow(s)) for r, s in zip(replicas, subscriptions, strict=True)]

    await replicas[0].ask("deposit", "anna", 100)
    await until_done(replicas, 1)
    paid = await asyncio.gather(replicas[1].ask("withdraw", "anna", 70), replicas[2].ask("withdraw", "anna", 70))
    print(f"two customers wanted 70 of 100: {sum(paid)} was paid, {2 - sum(paid)} was refused")

    await cluster.crash(1)
    assert await replicas[1].ask("transfer", "anna", 20, to="ben")
    await until_done(replicas, 4)
    print("after the crash of node 1:", *(dict(replica.balances) for replica in replicas), sep="\n  ")
    for task in following:
        task.cancel()


if __name__ == "__main__":
    antiphon.testing.run(business, nodes=3)
