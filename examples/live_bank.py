"""A bank with replicas on real brokers, some of which are killed: clients find others, and nothing is lost.

Eight broker processes form a tree. Customers are clients, one crowd of them at each broker; three replicas of the
bank are clients too. While customers call, brokers are killed with SIGKILL: the root, an inner one, and one with a
replica. Each client whose broker is gone goes on at another one. At the end an auditor, who has written down what
customers asked for, looks at the replicas. To that end the bank writes down what it has done.

Run it: .venv/bin/python examples/live_bank.py
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import antiphon
from antiphon.node.local_cluster import Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.runtime.logging import write_logs
from antiphon_lab.experiments.ginger.bank import INTEREST_PERCENT, OPENING_CENTS, BankOperation, Customers
from antiphon_lab.experiments.ginger.bank_audit import Audit, Name, Replica, audit_replicas

ACCOUNTS = 20
SEED = 7
KILLED = (0, 4, 1)  # the root, a broker with a replica, and the root's child: the majority lives
REPLICAS_AT = (4, 6, 7)
AT_ONCE = 4  # how many operations of one crowd are under way
PATIENCE_SECONDS = 60.0


class Bank(antiphon.Service):
    """Accounts, and for each operation of a customer, by its ``name``, what came of it: None if it was refused."""

    @antiphon.operation(order="none", keys=("account",))
    def show(self, store: antiphon.ServiceStore, name: str, account: int) -> int | None:
        return self._done(store, name, store.get(f"balance/{account}", OPENING_CENTS))

    @antiphon.operation(order="causal", keys=("account",))
    def deposit(self, store: antiphon.ServiceStore, name: str, account: int, cents: int) -> int | None:
        self._add(store, account, cents)
        return self._done(store, name, cents)

    @antiphon.operation(order="total", keys=("account",))
    def withdraw(self, store: antiphon.ServiceStore, name: str, account: int, cents: int) -> int | None:
        return self._done(store, name, cents if self._add(store, account, -cents) else None)

    @antiphon.operation(order="total", keys=("account", "target"))
    def transfer(self, store: antiphon.ServiceStore, name: str, account: int, cents: int, target: int) -> int | None:
        is_paid = self._add(store, account, -cents) and self._add(store, target, cents)
        return self._done(store, name, cents if is_paid else None)

    @antiphon.operation(order="total", keys=("account",))
    def apply_interest(self, store: antiphon.ServiceStore, name: str, account: int) -> int | None:
        cents = store.get(f"balance/{account}", OPENING_CENTS) * INTEREST_PERCENT // 100
        self._add(store, account, cents)
        return self._done(store, name, cents)

    @antiphon.query
    def books(self, store: antiphon.ServiceStore) -> dict[str, int | None]:
        return dict(store.items())

    def _add(self, store: antiphon.ServiceStore, account: int, cents: int) -> bool:
        balance = store.get(f"balance/{account}", OPENING_CENTS) + cents
        if balance >= 0:
            store.set(f"balance/{account}", balance)
            store.set(f"lowest/{account}", min(balance, store.get(f"lowest/{account}", OPENING_CENTS)))
        return balance >= 0

    def _done(self, store: antiphon.ServiceStore, name: str, answer: int | None) -> int | None:
        if f"done/{name}" in store:
            store.set("repeated", store.get("repeated", 0) + 1)
        # A balance that is shown is that of this replica, which may be another one elsewhere: its order is none.
        store.set(f"done/{name}", answer)
        return answer


class LiveBank:
    """The bank, its customers, and those who disturb them."""

    def __init__(self, cluster: ProcessCluster, operations: int, kills: int) -> None:
        self.cluster = cluster
        self.operations = operations
        self.kills = kills
        self.asked: dict[Name, BankOperation] = {}
        self.answered: list[Name] = []
        self.moves = 0

    async def connect(self, stack: AsyncExitStack, first: int) -> antiphon.Client:
        """Connect to a broker, and to the others if that one cannot be reached."""
        addresses = [member.address for member in self.cluster.members]
        client = antiphon.connect(addresses[first:] + addresses[:first], on_reconnect=self._moved)
        return await stack.enter_async_context(client)

    async def run(self) -> Audit:
        """Open the bank, let customers call while brokers are killed, and audit."""
        async with AsyncExitStack() as stack:
            places = [place for place in REPLICAS_AT if place < len(self.cluster.members)]
            keeping = [await self.connect(stack, place) for place in places]
            for client in keeping:
                await stack.enter_async_context(antiphon.serve(Bank, client))
            crowds = [self._ask(await self.connect(stack, place), place) for place in range(len(self.cluster.members))]
            await asyncio.gather(self._kill_brokers(), *crowds)
            replicas = [await self._books(Bank.proxy(client)) for client in keeping]
        return audit_replicas(0, replicas, self.asked, self.answered)

    async def _books(self, bank: Any) -> Replica:
        """What a replica has, when it has everything."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                books = await bank.books()
                done = {key.removeprefix("done/"): value for key, value in books.items() if key.startswith("done/")}
                if len(done) >= len(self.answered):
                    break
                await asyncio.sleep(0.1)
        replica = Replica(ACCOUNTS)
        replica.bank.balances = [books.get(f"balance/{account}", OPENING_CENTS) for account in range(ACCOUNTS)]
        replica.bank.lowest_cents = min(books.get(f"lowest/{account}", OPENING_CENTS) for account in range(ACCOUNTS))
        replica.repeated = books.get("repeated", 0)
        replica.done = {(int(name.split(".")[0]), int(name.split(".")[1])): answer for name, answer in done.items()}
        return replica

    async def _ask(self, client: antiphon.Client, place: int) -> None:
        """The customers at one broker, some of them at the same time."""
        customers = Customers(ACCOUNTS, SEED, place)
        bank = Bank.proxy(client, timeout=PATIENCE_SECONDS)
        for first in range(0, self.operations, AT_ONCE):
            names = [(place, number) for number in range(first, min(first + AT_ONCE, self.operations))]
            self.asked |= {name: customers.ask() for name in names}
            await asyncio.gather(*[call(bank, f"{name[0]}.{name[1]}", self.asked[name]) for name in names])
            self.answered += names

    async def _kill_brokers(self) -> None:
        """Kill one broker after the other, evenly over the time that the customers take."""
        everything = self.operations * len(self.cluster.members)
        victims = [place for place in KILLED if place < len(self.cluster.members)][: self.kills]
        for count, place in enumerate(victims, 1):
            while len(self.answered) < everything * count // (len(victims) + 1):
                await asyncio.sleep(0.005)
            member = self.cluster.members[place]
            member.is_expected_to_end = True
            member.process.kill()
            print(f"after {len(self.answered):,} operations: killed broker {place}")

    def _moved(self, address: str) -> None:
        self.moves += 1


def call(bank: Any, name: str, operation: BankOperation) -> Any:
    """Call what a customer asks for."""
    match operation.kind:
        case "getBalance":
            return bank.show(name, operation.account)
        case "applyInterest":
            return bank.apply_interest(name, operation.account)
        case "transfer":
            return bank.transfer(name, operation.account, operation.cents, operation.to_account)
        case "withdraw":
            return bank.withdraw(name, operation.account, operation.cents)
        case "deposit":
            return bank.deposit(name, operation.account, operation.cents)


async def open_bank(brokers: int, operations: int, kills: int) -> tuple[LiveBank, Audit]:
    """Start the brokers, run the bank on them, and stop what is left of them."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bank-") as directory:
        data, port = Path(directory), any_ports(brokers)
        table = founders_file(data, "tree", brokers, port)
        # All brokers keep the topic, so that a replica finds at any of them what it lacks.
        settings = ["--keep", "bank", "--log-level", "error"]
        cluster = ProcessCluster(
            Plan(brokers, port, settings=settings, table=table, fabric="tree", data=data), complain, ended
        )
        await cluster.start()
        try:
            bank = LiveBank(cluster, operations, kills)
            return bank, await bank.run()
        finally:
            await cluster.stop()


def complain(index: int, line: str) -> None:
    """What a broker logs."""
    print(f"broker {index}: {line}", file=sys.stderr)


def ended(member: Member) -> None:
    """A broker ended that nobody killed."""
    print(f"broker {member.index} ended by itself", file=sys.stderr)


def main() -> None:
    """Run the bank and show what the auditor found."""
    parser = argparse.ArgumentParser(description="A replicated bank on a live tree of brokers that are killed.")
    parser.add_argument("--brokers", type=int, default=8, help="how many brokers; 8")
    parser.add_argument("--operations", type=int, default=100, help="how many operations at each; 100")
    parser.add_argument("--kills", type=int, default=len(KILLED), help=f"how many are killed; {len(KILLED)}")
    chosen = parser.parse_args()
    write_logs("error")
    bank, audit = antiphon.run(open_bank(chosen.brokers, chosen.operations, chosen.kills))
    print(f"{audit.replicas} replicas, {audit.asked:,} operations, {audit.refused:,} refused for lack of money")
    print(f"clients changed their broker {bank.moves} times")
    print(f"lost {audit.lost}, done twice {audit.repeated}, accounts that differ {audit.differing}")
    print(f"lowest balance {audit.lowest_cents / 100:.2f}, cents from nowhere {audit.unexplained_cents}")
    print("all is well" if audit.is_good else "something is wrong")
    sys.exit(0 if audit.is_good else 1)


if __name__ == "__main__":
    main()
