"""Random schedules of services on real nodes in virtual time, with an auditor.

    python -m tests.services.campaign --seeds 100 --seed 1 --fabric tree

Three nodes, a replica at each, and callers at nodes and clients. Meanwhile programs are killed, also around a commit,
stores are wiped or do not work for a while, nodes crash and return, and the network falls apart and heals.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import antiphon
import antiphon.testing
from antiphon.kernel.errors import PeerError
from antiphon.services.backends.sqlite_store import SqliteStore
from antiphon.services.store import Changes
from antiphon.testing import Cluster
from tests.services.auditor import Auditor, Books, Told
from tests.services.ledger import Ledger

ACCOUNTS: Final = ("anna", "ben", "carla")
REPLICAS: Final = 3
CALLERS: Final = 4
SETTLE_SECONDS: Final = 300.0
"""So long, in virtual time, replicas have to come to the same state when there are no faults any more."""

PATIENCE_SECONDS: Final = 60.0
"""No fault lasts so long."""

HASTE_SECONDS: Final = 0.4

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "cube": {"fabric": "cube"},
    "tree": {"fabric": "tree", "tree": {"quorum_delivery": [">"]}},
}


class KilledError(Exception):
    """The program ends here."""


class FaultyStore:
    """A SQLite store that fails for a while, or whose program is killed at the next commit."""

    def __init__(self, path: Path) -> None:
        self.inner = SqliteStore(path)
        self.is_broken = False
        self.dies = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, key: bytes) -> bytes | None:
        self._check()
        return self.inner.read(key)

    def position(self) -> bytes:
        self._check()
        return self.inner.position()

    def commit(self, changes: Changes, position: bytes) -> None:
        self._check()
        if self.dies == "before":
            raise KilledError
        self.inner.commit(changes, position)
        if self.dies == "after":
            raise KilledError
        if self.dies == "unanswered":
            self.dies = ""
            raise PeerError("the answer of the store is lost")

    def _check(self) -> None:
        if self.is_broken:
            raise PeerError("the store does not answer")


class Schedule:
    """One random schedule."""

    def __init__(self, cluster: Cluster, directory: Path, seed: int, fabric: str, count: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.directory = directory
        self.fabric = fabric
        # On a cube an operation that was published out of reach may be on two sides of a total one.
        self.auditor = Auditor(keeps_sides=fabric == "tree")
        self.replicas: list[Any] = [None] * REPLICAS
        self.stores: list[FaultyStore | None] = [None] * REPLICAS
        self.faults: dict[str, int] = {}
        self.count = count
        self.all_faults = (
            self.program,
            self.commit,
            self.wipe,
            self.store,
            self.node,
            self.network,
            self.blackout,
            self.slow,
            self.unheard,
        )
        self.is_over = False
        self.repeated = 0

    async def run(self) -> list[str]:
        for place in range(REPLICAS):
            await self.serve(place)
        orders = [self.random.sample(range(REPLICAS), REPLICAS) for _ in range(CALLERS - 1)]
        clients = [await self.cluster.connect(*order, name=f"c{caller}") for caller, order in enumerate(orders)]
        peers: list[Any] = [self.cluster.nodes[0], *clients]
        calling = [asyncio.ensure_future(self.call(caller, peer)) for caller, peer in enumerate(peers)]
        await self.break_things()
        self.is_over = True
        self.cluster.heal()
        await asyncio.gather(*calling)
        for place in range(REPLICAS):
            await self.repair(place)
        return self.auditor.judge(await self.settled())

    # Replicas.

    async def serve(self, place: int) -> None:
        store = self.stores[place] = FaultyStore(self.directory / f"{place}.db")
        node = self.cluster.nodes[place]
        self.replicas[place] = await antiphon.serve(Ledger, node, store=store, compare_seconds=5)

    def kill(self, place: int) -> None:
        """End the program of a replica as SIGKILL does: nothing is committed or said any more."""
        served = self.replicas[place]
        if served is not None:
            served.abandon()
            self.replicas[place] = None

    async def repair(self, place: int) -> None:
        """A node and its replica run, with a store that works."""
        if place not in self.cluster.running:
            self.kill(place)
            await self.cluster.restart(place)
        store, served = self.stores[place], self.replicas[place]
        if store is not None:
            store.is_broken, store.dies = False, ""
        if served is None or served._live.failure is not None:
            self.kill(place)
            await self.serve(place)

    # Faults.

    async def break_things(self) -> None:
        for _ in range(self.count or self.random.randrange(3, 7)):
            await asyncio.sleep(self.random.uniform(0.2, 3.0))
            fault = self.random.choice(self.all_faults)
            self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
            await fault(self.random.randrange(REPLICAS))
            await asyncio.sleep(self.random.uniform(0.0, 2.0))

    async def program(self, place: int) -> None:
        self.kill(place)
        await asyncio.sleep(self.random.uniform(0.0, 2.0))
        await self.repair(place)

    async def commit(self, place: int) -> None:
        store = self.stores[place]
        assert store is not None
        store.dies = self.random.choice(("before", "after", "unanswered"))
        await asyncio.sleep(self.random.uniform(0.1, 2.0))
        await self.repair(place)

    async def wipe(self, place: int) -> None:
        self.kill(place)
        for path in self.directory.glob(f"{place}.db*"):
            path.unlink()
        await self.repair(place)

    async def store(self, place: int) -> None:
        store = self.stores[place]
        assert store is not None
        store.is_broken = True
        await asyncio.sleep(self.random.uniform(0.1, 4.0))
        store.is_broken = False

    async def node(self, place: int) -> None:
        if place == 0:
            # A caller works at this node, and does not survive it.
            place = 1 + self.random.randrange(REPLICAS - 1)
        self.kill(place)
        await self.cluster.crash(place)
        await asyncio.sleep(self.random.uniform(0.0, 4.0))
        await self.repair(place)

    async def blackout(self, place: int) -> None:
        """No replica is left, and one has lost its store: the history has the rest."""
        for each in range(REPLICAS):
            self.kill(each)
        for path in self.directory.glob(f"{place}.db*"):
            path.unlink()
        for each in self.random.sample(range(REPLICAS), REPLICAS):
            await asyncio.sleep(self.random.uniform(0.0, 2.0))
            await self.repair(each)

    async def unheard(self, _: int) -> None:
        """Every replica dies between its next commit and the reply."""
        for store in self.stores:
            assert store is not None
            store.dies = "after"
        await asyncio.sleep(self.random.uniform(0.5, 4.0))
        for each in self.random.sample(range(REPLICAS), REPLICAS):
            await self.repair(each)

    async def slow(self, place: int) -> None:
        """A node returns without its disk while messages between the others take long."""
        place = max(place, 1)
        one, other = (each for each in range(REPLICAS) if each != place)
        self.kill(place)
        await self.cluster.crash(place)
        for path in self.directory.glob(f"{place}.db*"):
            path.unlink()
        self.cluster.delay(one, other, self.random.uniform(0.2, 1.5))
        await asyncio.sleep(self.random.uniform(0.0, 1.0))
        await self.repair(place)
        await asyncio.sleep(self.random.uniform(0.0, 2.0))
        self.cluster.heal()

    async def network(self, place: int) -> None:
        self.cluster.partition([place])
        await asyncio.sleep(self.random.uniform(0.1, 5.0))
        self.cluster.heal()

    # Callers.

    async def call(self, caller: int, peer: Any) -> None:
        chance = random.Random(self.random.randrange(1 << 30))
        # A hasty caller makes a call again when it has no result, until it has one.
        ledger = Ledger.proxy(peer, timeout=chance.choice((PATIENCE_SECONDS, HASTE_SECONDS)))
        seen: dict[str, set[str]] = {account: set() for account in ACCOUNTS}
        number = 0
        while not self.is_over:
            number += 1
            name = f"{caller}.{number}"
            source, target = chance.sample(ACCOUNTS, 2)
            kind = chance.choice(("deposit", "deposit", "withdraw", "transfer", "fail", "read"))
            if kind == "read":
                await self.read(ledger, chance, source, set(seen[source]))
            else:
                accounts = (source, target) if kind == "transfer" else (source,)
                told = Told(name, kind, accounts, chance.randrange(1, 50))
                if await self.operate(ledger, told):
                    for account in accounts:
                        seen[account].add(name)
            await asyncio.sleep(chance.uniform(0.0, 0.3))

    async def operate(self, ledger: Any, told: Told) -> bool:
        """Make a call; whether it had a result, and an effect that others see."""
        self.auditor.begins(told)
        cents = () if told.kind == "fail" else (told.cents,)
        try:
            result = await self.insist(getattr(ledger, told.kind)(*told.accounts, told.name, *cents))
        except ValueError:
            return False
        except (antiphon.UnansweredError, antiphon.ResultGoneError):
            # No fault lasts so long, and the stores have the result.
            self.auditor.faults.append(f"unanswered: {told.name}, a {told.kind}")
            return False
        except PeerError:
            # It may have taken place, or not.
            return False
        if told.kind == "fail":
            self.auditor.faults.append(f"raises: {told.name} did not raise")
            return False
        self.auditor.answered(told.name, result)
        return True

    async def insist(self, calling: Awaitable[Any]) -> Any:
        """The result of a call, which is made again as long as a fault may last."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        unanswered: antiphon.UnansweredError | None = None
        while True:
            try:
                return await (calling if unanswered is None else unanswered.again())
            except antiphon.UnansweredError as error:
                unanswered = error
            except PeerError:
                if unanswered is None:
                    raise
                await asyncio.sleep(HASTE_SECONDS)
            if loop.time() >= until:
                raise unanswered
            self.repeated += 1

    async def read(self, ledger: Any, chance: random.Random, account: str, must_have: set[str]) -> None:
        kind = chance.choice(("entries", "entries_mine", "entries_latest"))
        query: Callable[[str], Awaitable[list[Any]]] = getattr(ledger, kind)
        if kind == "entries_latest":
            # Everything that had a result before.
            must_have = {
                call.name for call in self.auditor.calls.values() if call.is_answered and account in call.accounts
            }
        try:
            entries = await query(account)
        except PeerError:
            return
        self.auditor.reads(kind, account, entries, set() if kind == "entries" else must_have)

    # The end.

    async def settled(self) -> list[Books]:
        """What the replicas have when nothing changes any more."""
        until = asyncio.get_running_loop().time() + SETTLE_SECONDS
        books: list[Books] = []
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(2.0)
            before, books = books, [self.books(place) for place in range(REPLICAS)]
            same = all({a: sorted(map(str, e)) for a, e in each.items()} == {
                a: sorted(map(str, e)) for a, e in books[0].items()
            } for each in books)  # fmt: skip
            if same and before == books:
                break
        return books

    def books(self, place: int) -> Books:
        store = self.replicas[place]._live.replica.store.for_queries()
        return {account: list(store.get(account, [])) for account in ACCOUNTS}


def run_schedule(seed: int, fabric: str, count: int = 0) -> tuple[list[str], Schedule]:
    """One schedule, with so many faults or 3 to 6; what the auditor found."""
    made: list[Schedule] = []

    async def scenario(cluster: Cluster) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            schedule = Schedule(cluster, Path(directory), seed, fabric, count)
            made.append(schedule)
            try:
                return await schedule.run()
            finally:
                for place in range(REPLICAS):
                    schedule.kill(place)

    # Replicas that remember only a few operations give snapshots.
    remembered = seed % 2 * 8 + 8 if seed % 3 else 65_536
    with mock.patch("antiphon.services.recent.OPERATIONS_AT_MOST", remembered):
        try:
            found = antiphon.testing.run(scenario, nodes=REPLICAS, durable=True, timeout=2000, **SETTINGS[fabric])
        except TimeoutError:
            found = ["stuck: the schedule did not end"]
    return found, made[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fabric", choices=sorted(SETTINGS), default="tree")
    chosen = parser.parse_args()
    logging.getLogger("antiphon").setLevel(logging.CRITICAL)
    failing, begun, calls, answered, repeated = [], time.monotonic(), 0, 0, 0
    faults: dict[str, int] = {}
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        found, schedule = run_schedule(seed, chosen.fabric)
        calls += len(schedule.auditor.calls)
        answered += sum(each.is_answered for each in schedule.auditor.calls.values())
        repeated += schedule.repeated
        for fault, count in schedule.faults.items():
            faults[fault] = faults.get(fault, 0) + count
        if found:
            failing.append(seed)
            print(f"seed {seed}: {len(found)} faults, for example {found[0]}", flush=True)
    seconds = time.monotonic() - begun
    print(
        f"{chosen.seeds} schedules, {calls} calls, {answered} answered, {repeated} made again, "
        f"faults {faults}, {seconds:.0f} s"
    )
    print(f"failing seeds: {failing}" if failing else "nothing found")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
