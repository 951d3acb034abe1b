"""The bank of bank.py on real brokers, some of which are killed: clients find others, and nothing is lost.

Eight broker processes form a tree. Customers are clients, one crowd of them at each broker; three replicas of the
bank are clients too. While customers ask, brokers are killed with SIGKILL: the root, an inner one, and one with a
replica. Each client whose broker is gone goes on at another one. At the end an auditor, who has written down what
customers asked for, looks at the replicas.

Run it: .venv/bin/python examples/live_bank.py
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

import antiphon
from antiphon.kernel.message import ORDER_NAMES
from antiphon.node.local_cluster import Member, Plan, ProcessCluster, any_ports, founders_file
from antiphon.runtime.logging import write_logs
from antiphon_lab.experiments.ginger.bank import ORDERS, BankOperation, Customers
from antiphon_lab.experiments.ginger.bank_audit import Audit, Name, Replica, audit_replicas

TOPIC = "bank"
ACCOUNTS = 20
SEED = 7
KILLED = (0, 4, 1)  # the root, a broker with a replica, and the root's child: the majority lives
REPLICAS_AT = (4, 6, 7)
AT_ONCE = 4  # how many operations of one crowd are under way
QUIET_SECONDS = 20.0

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(tuple[Name, BankOperation]).decode


class LiveBank:
    """The bank, its customers, and those who disturb them."""

    def __init__(self, cluster: ProcessCluster, operations: int, kills: int) -> None:
        self.cluster = cluster
        self.operations = operations
        self.kills = kills
        self.asked: dict[Name, BankOperation] = {}
        self.accepted: list[Name] = []
        self.moves = 0

    def addresses(self, first: int) -> list[str]:
        """Where to connect: at one broker, and at the others if that one cannot be reached."""
        addresses = [member.address for member in self.cluster.members]
        return addresses[first:] + addresses[:first]

    async def run(self) -> Audit:
        """Open the bank, let customers ask while brokers are killed, close, and audit."""
        places = [place for place in REPLICAS_AT if place < len(self.cluster.members)]
        keeping = [await antiphon.connect(self.addresses(place), on_reconnect=self._moved) for place in places]
        replicas = [Replica(ACCOUNTS) for _ in places]
        subscriptions = [await client.subscribe(TOPIC).ready() for client in keeping]
        working = [
            asyncio.ensure_future(self._keep_books(subscription, replica))
            for subscription, replica in zip(subscriptions, replicas, strict=True)
        ]
        crowds = [self._ask(place) for place in range(len(self.cluster.members))]
        await asyncio.gather(self._kill_brokers(), *crowds)
        async with asyncio.timeout(QUIET_SECONDS):
            await asyncio.gather(*working)
        for client in keeping:
            await client.close()
        return audit_replicas(0, replicas, self.asked, self.accepted)

    async def _keep_books(self, subscription: antiphon.Subscription, replica: Replica) -> None:
        """A replica does what is delivered, in that order, and nothing else."""
        everything = self.operations * len(self.cluster.members)
        async for message in subscription:
            replica.take(*decode(message.value))
            if len(replica.done) == everything:
                return

    async def _ask(self, place: int) -> None:
        """The customers at one broker: each operation has the order that it needs, and is about its accounts."""
        customers = Customers(ACCOUNTS, SEED, place)
        async with antiphon.connect(self.addresses(place), on_reconnect=self._moved) as client:
            for first in range(0, self.operations, AT_ONCE):
                receipts = []
                for number in range(first, min(first + AT_ONCE, self.operations)):
                    name, operation = (place, number), customers.ask()
                    self.asked[name] = operation
                    order, keys = ORDER_NAMES[ORDERS[operation.kind]], operation.keys()
                    receipts.append((name, client.publish(TOPIC, encode((name, operation)), order=order, keys=keys)))
                for name, receipt in receipts:
                    await receipt
                    self.accepted.append(name)

    async def _kill_brokers(self) -> None:
        """Kill one broker after the other, evenly over the time that the customers take."""
        everything = self.operations * len(self.cluster.members)
        victims = [place for place in KILLED if place < len(self.cluster.members)][: self.kills]
        for count, place in enumerate(victims, 1):
            while len(self.accepted) < everything * count // (len(victims) + 1):
                await asyncio.sleep(0.005)
            member = self.cluster.members[place]
            member.is_expected_to_end = True
            member.process.kill()
            print(f"after {len(self.accepted):,} operations: killed broker {place}")

    def _moved(self, address: str) -> None:
        self.moves += 1


async def open_bank(brokers: int, operations: int, kills: int) -> tuple[LiveBank, Audit]:
    """Start the brokers, run the bank on them, and stop what is left of them."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bank-") as directory:
        port = any_ports(brokers)
        table = founders_file(Path(directory), "tree", brokers, port)
        # All brokers keep the topic, so that a replica finds at any of them what it lacks.
        settings = ["--keep", TOPIC, "--log-level", "error"]
        cluster = ProcessCluster(Plan(brokers, port, settings=settings, table=table, fabric="tree"), complain, ended)
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
    parser.add_argument("--operations", type=int, default=200, help="how many operations at each; 200")
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
