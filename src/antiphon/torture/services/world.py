"""Runs one schedule of services: real nodes and replicas in virtual time, callers, faults, and the judge.

Nodes and clients talk over the loopback interface of this machine, so the same schedule runs nearly alike each time,
and not exactly.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import antiphon
from antiphon.audit.services import LATEST, MINE, Books, ServicesJudge, ToldCall
from antiphon.kernel.errors import PeerError
from antiphon.testing import Cluster
from antiphon.torture.services.faulty_store import FaultyStore
from antiphon.torture.services.ledger import AccountBook
from antiphon.torture.services.schedules import HASTE_MS, PATIENCE_MS, REPLICAS, ServiceSchedule, ServiceStep

ACCOUNTS: Final = ("anna", "ben", "carla")
CALLS: Final = ("deposit", "deposit", "withdraw", "transfer", "fail", "read")
SETTLE_SECONDS: Final = 300.0
"""So long, in virtual time, replicas have to come to the same state when there are no faults any more."""

LOOK_SECONDS: Final = 2.0
COMPARE_SECONDS: Final = 5.0


class ServiceWorld:
    """One run of a schedule in a cluster; stores are in ``directory``."""

    def __init__(self, schedule: ServiceSchedule, cluster: Cluster, directory: Path, judge: ServicesJudge) -> None:
        self.schedule = schedule
        self.judge = judge
        self._cluster = cluster
        self._directory = directory
        self._replicas: list[Any] = [None] * REPLICAS
        self._stores: list[FaultyStore | None] = [None] * REPLICAS
        self._is_over = False

    async def run(self) -> None:
        """Let the schedule happen to its end, and judge it."""
        for place in range(REPLICAS):
            await self._serve(place)
        plans = self.schedule.callers
        peers: list[Any] = [
            await self._cluster.connect(*plan.nodes, name=f"c{number}") if plan.nodes else self._cluster.nodes[0]
            for number, plan in enumerate(plans)
        ]
        callers = [
            ServiceCalls(number, AccountBook.proxy(peer, timeout=plan.timeout_ms / 1000), plan.seed, self.judge)
            for number, (plan, peer) in enumerate(zip(plans, peers, strict=True))
        ]
        calling = [asyncio.ensure_future(self._call(each)) for each in callers]
        for step in self.schedule.steps:
            await asyncio.sleep(step.after_ms / 1000)
            await getattr(self, f"_{step.kind}")(step)
        await asyncio.sleep(1.0)
        self._is_over = True
        self._cluster.heal()
        await asyncio.gather(*calling)
        for place in range(REPLICAS):
            await self._repair(place)
        self.judge.judge(await self._settled())

    async def _call(self, caller: ServiceCalls) -> None:
        while not self._is_over:
            await caller.call_once()
            await asyncio.sleep(caller.chance.uniform(0.0, self.schedule.calls_ms / 1000))

    # Replicas.

    async def _serve(self, place: int) -> None:
        store = self._stores[place] = FaultyStore(self._directory / f"{place}.db")
        node = self._cluster.nodes[place]
        served = await antiphon.serve(AccountBook, node, store=store, compare_seconds=COMPARE_SECONDS)
        served._live.replica.operations.most = self.schedule.remembered
        self._replicas[place] = served

    def kill(self, place: int) -> None:
        """End the program of a replica as SIGKILL does: nothing is committed or said any more."""
        served = self._replicas[place]
        if served is not None:
            served.abandon()
            self._replicas[place] = None

    def _lose_store(self, place: int) -> None:
        for path in self._directory.glob(f"{place}.db*"):
            path.unlink()

    async def _repair(self, place: int) -> None:
        """A node and its replica run, with a store that works."""
        if place not in self._cluster.running:
            self.kill(place)
            await self._cluster.restart(place)
        store, served = self._stores[place], self._replicas[place]
        if store is not None:
            store.is_broken, store.dies = False, ""
        if served is None or served._live.failure is not None:
            self.kill(place)
            await self._serve(place)

    def _store_at(self, place: int) -> FaultyStore:
        store = self._stores[place]
        assert store is not None, "every node has a replica from the beginning"
        return store

    # Faults; each ends before the next one begins.

    async def _program(self, step: ServiceStep) -> None:
        self.kill(step.node)
        await asyncio.sleep(step.lasts_ms / 1000)
        await self._repair(step.node)

    async def _commit(self, step: ServiceStep) -> None:
        self._store_at(step.node).dies = step.commit
        await asyncio.sleep(step.lasts_ms / 1000)
        await self._repair(step.node)

    async def _wipe(self, step: ServiceStep) -> None:
        self.kill(step.node)
        self._lose_store(step.node)
        await self._repair(step.node)

    async def _store(self, step: ServiceStep) -> None:
        store = self._store_at(step.node)
        store.is_broken = True
        await asyncio.sleep(step.lasts_ms / 1000)
        store.is_broken = False

    async def _node(self, step: ServiceStep) -> None:
        self.kill(step.node)
        await self._cluster.crash(step.node)
        await asyncio.sleep(step.lasts_ms / 1000)
        await self._repair(step.node)

    async def _network(self, step: ServiceStep) -> None:
        self._cluster.partition([step.node])
        await asyncio.sleep(step.lasts_ms / 1000)
        self._cluster.heal()

    async def _blackout(self, step: ServiceStep) -> None:
        for each in range(REPLICAS):
            self.kill(each)
        self._lose_store(step.node)
        await self._return(step)

    async def _unheard(self, step: ServiceStep) -> None:
        for each in range(REPLICAS):
            self._store_at(each).dies = "after"
        await asyncio.sleep(step.lasts_ms / 1000)
        await self._return(step)

    async def _return(self, step: ServiceStep) -> None:
        for each, again_ms in zip(step.order, step.again_ms, strict=True):
            await asyncio.sleep(again_ms / 1000)
            await self._repair(each)

    async def _slow(self, step: ServiceStep) -> None:
        one, other = (each for each in range(REPLICAS) if each != step.node)
        self.kill(step.node)
        await self._cluster.crash(step.node)
        self._lose_store(step.node)
        self._cluster.delay(one, other, step.delay_ms / 1000)
        await asyncio.sleep(step.lasts_ms / 4000)
        await self._repair(step.node)
        await asyncio.sleep(step.lasts_ms / 2000)
        self._cluster.heal()

    # The end.

    async def _settled(self) -> list[Books]:
        """The accounts of the replicas when nothing changes any more."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SETTLE_SECONDS
        books: list[Books] = []
        while loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
            before, books = books, [self._books(place) for place in range(REPLICAS)]
            sets = [{account: sorted(map(str, entries)) for account, entries in each.items()} for each in books]
            if before == books and all(each == sets[0] for each in sets):
                break
        return books

    def _books(self, place: int) -> Books:
        store = self._replicas[place]._live.replica.store.for_queries()
        return {account: list(store.get(account, [])) for account in ACCOUNTS}

    def close(self) -> None:
        """Nothing follows."""
        for place in range(REPLICAS):
            self.kill(place)


class ServiceCalls:
    """The calls of one program, one after the other, told to the judge."""

    def __init__(self, number: int, ledger: Any, seed: int, judge: ServicesJudge) -> None:
        self.chance = random.Random(seed)
        self._number = number
        self._ledger = ledger
        self._judge = judge
        self._count = 0
        self._seen: dict[str, set[str]] = {account: set() for account in ACCOUNTS}

    async def call_once(self) -> None:
        """Make a call, and wait for its result."""
        chance = self.chance
        self._count += 1
        source, target = chance.sample(ACCOUNTS, 2)
        kind = chance.choice(CALLS)
        if kind == "read":
            await self._read(source, set(self._seen[source]))
            return
        accounts = (source, target) if kind == "transfer" else (source,)
        told = ToldCall(f"{self._number}.{self._count}", kind, accounts, chance.randrange(1, 50))
        if await self._operate(told):
            for account in accounts:
                self._seen[account].add(told.name)

    async def _operate(self, told: ToldCall) -> bool:
        """Make a call; whether it had a result, and an effect that others see."""
        judge = self._judge
        judge.begins(told)
        cents = () if told.kind == "fail" else (told.cents,)
        try:
            result = await self._insist(getattr(self._ledger, told.kind)(*told.accounts, told.name, *cents))
        except ValueError:
            return False
        except (antiphon.UnansweredError, antiphon.ResultGoneError):
            # No fault lasts so long, and the stores have the result.
            judge.unanswered(told.name)
            return False
        except PeerError:
            # It may have taken place, or not.
            return False
        if told.kind == "fail":
            judge.did_not_raise(told.name)
            return False
        judge.answers(told.name, result)
        return True

    async def _insist(self, calling: Awaitable[Any]) -> Any:
        """The result of a call, which is made again as long as a fault may last."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_MS / 1000
        unanswered: antiphon.UnansweredError | None = None
        while True:
            try:
                return await (calling if unanswered is None else unanswered.again())
            except antiphon.UnansweredError as error:
                unanswered = error
            except PeerError:
                if unanswered is None:
                    raise
                await asyncio.sleep(HASTE_MS / 1000)
            if loop.time() >= until:
                raise unanswered

    async def _read(self, account: str, must_have: set[str]) -> None:
        kind = self.chance.choice(("", MINE, LATEST))
        query: Callable[[str], Awaitable[list[Any]]] = getattr(self._ledger, f"entries_{kind}" if kind else "entries")
        if kind == LATEST:
            # Everything that had a result before.
            must_have = self._judge.answered_about(account)
        try:
            entries = await query(account)
        except PeerError:
            return
        if kind:
            self._judge.reads(kind, account, entries, must_have)
