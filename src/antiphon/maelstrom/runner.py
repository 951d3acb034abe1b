"""Runs a workload against node processes, and measures what Maelstrom measures.

Operations begin at random times, ``rate`` a second in all, at clients without an operation in progress. Partitions
start and end at random times, ``nemesis_interval`` seconds apart on average. When the time is over the network is
healed, nodes get some time to recover, and final reads show what every node has. *Messages per operation* are all
messages between nodes, from the first to the last, divided by all operations, including reads and final reads, as in
Maelstrom.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.maelstrom.clients import Workload, WorkloadClient, workload_for
from antiphon.maelstrom.history import History, PartitionSpan
from antiphon.maelstrom.nemesis import PARTITIONS
from antiphon.maelstrom.network import MaelstromNetwork, RpcError
from antiphon.maelstrom.services import WORKLOADS

INIT_SECONDS: Final = 60.0
PROGRESS_SECONDS: Final = 1.0


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a run; names and defaults are Maelstrom's, where it has them."""

    workload: str = "broadcast"
    node_count: int = 5
    concurrency: int | None = None
    """The number of clients; by default one per node."""
    latency_ms: float = 0.0
    latency_dist: str = "constant"
    rate: float = 5.0
    time_limit_seconds: float = 20.0
    nemesis: list[str] = []
    nemesis_interval_seconds: float = 10.0
    partitions: tuple[str, ...] = tuple(PARTITIONS)
    recovery_seconds: float = 10.0
    seed: int = 1

    def checked(self) -> RunPlan:
        """The plan itself, after checks."""
        if self.workload not in WORKLOADS:
            raise UsageError(f"there is no workload {self.workload!r} here; choose one of {', '.join(WORKLOADS)}")
        if self.node_count < 1 or (self.concurrency is not None and self.concurrency < 1):
            raise UsageError("a run needs at least one node and one client; correct --node-count or --concurrency")
        if self.rate <= 0 or self.nemesis_interval_seconds <= 0 or self.latency_ms < 0:
            raise UsageError(
                "rates and intervals must be greater than 0, and latencies at least 0; correct the options"
            )
        for fault in self.nemesis:
            if fault != "partition":
                raise UsageError(f"there is no nemesis {fault!r}; the only one is partition")
        for kind in self.partitions:
            if kind not in PARTITIONS:
                raise UsageError(f"there is no kind of partition {kind!r}; choose from {', '.join(PARTITIONS)}")
        return self


class WorkloadRun:
    """One run."""

    def __init__(self, plan: RunPlan, network: MaelstromNetwork, step: Callable[[str], None]) -> None:
        self.history: Final = History()
        self.workload: Final[Workload] = workload_for(plan.workload)
        self._plan = plan
        self._network = network
        self._step = step
        self._begun_ns = time.monotonic_ns()
        self._random = Random(f"operations {plan.seed}")
        count = plan.concurrency or plan.node_count
        nodes = network.nodes
        self._clients = [
            WorkloadClient(number, nodes[number % len(nodes)], network, self.clock) for number in range(count)
        ]
        self._free = list(self._clients)
        self._is_free = asyncio.Event()

    def clock(self) -> int:
        """Microseconds since the run began."""
        return (time.monotonic_ns() - self._begun_ns) // 1000

    async def all(self) -> None:
        """Run everything from start to end."""
        await asyncio.gather(*(self._initialise(node) for node in self._network.nodes))
        await asyncio.gather(*(self._prepare(node) for node in self._network.nodes))
        self._begun_ns = time.monotonic_ns()
        nemesis = asyncio.create_task(self._disturb())
        try:
            await self._operate()
        finally:
            nemesis.cancel()
            await asyncio.gather(nemesis, return_exceptions=True)
            self._network.cut({})
        self._step("recovery")
        await asyncio.sleep(self._plan.recovery_seconds)
        await asyncio.gather(*(self.workload.conclude(client, self.history) for client in self._clients))

    async def _initialise(self, node: str) -> None:
        init = {"type": "init", "node_id": node, "node_ids": self._network.nodes}
        try:
            await self._network.call(f"s{node}", node, init, INIT_SECONDS)
        except RpcError as error:
            raise PeerError(f"{node} does not start: {error}") from error

    async def _prepare(self, node: str) -> None:
        client = WorkloadClient(-1, node, self._network, self.clock)
        try:
            await self.workload.prepare(client, self._network.nodes)
        except RpcError as error:
            raise PeerError(f"{node} does not accept a topology: {error}") from error

    async def _operate(self) -> None:
        """Begin operations at random times until the time is over, and wait for the last ones."""
        until_us = int(self._plan.time_limit_seconds * 1_000_000)
        due_us = 0.0
        told_us = 0.0
        running: set[asyncio.Task[None]] = set()
        while True:
            due_us += self._random.random() * 2_000_000 / self._plan.rate
            if due_us >= until_us:
                break
            await asyncio.sleep(max(0.0, due_us - self.clock()) / 1_000_000)
            while not self._free:
                self._is_free.clear()
                await self._is_free.wait()
                # An operation that could not begin is skipped.
                due_us = max(due_us, self.clock())
            if self.clock() >= until_us:
                break
            client = self._free.pop(self._random.randrange(len(self._free)))
            task = asyncio.create_task(self._one(client))
            running.add(task)
            task.add_done_callback(running.discard)
            if self._network.failed.done():
                break
            if due_us - told_us >= PROGRESS_SECONDS * 1_000_000:
                told_us = due_us
                self._step(f"{self.history.operations()} operations")
        await asyncio.gather(*running)
        if self._network.failed.done():
            self._network.failed.result()

    async def _one(self, client: WorkloadClient) -> None:
        try:
            name, value = self.workload.draw(client, self._random)
            await self.workload.do(client, self.history, name, value)
        finally:
            self._free.append(client)
            self._is_free.set()

    async def _disturb(self) -> None:
        """Start and end partitions at random times."""
        if "partition" not in self._plan.nemesis:
            return
        random = Random(f"nemesis {self._plan.seed}")
        begin_us, kind = -1, ""
        try:
            while True:
                await asyncio.sleep(random.random() * 2 * self._plan.nemesis_interval_seconds)
                kind = random.choice(self._plan.partitions)
                self._network.cut(PARTITIONS[kind](self._network.nodes, random))
                begin_us = self.clock()
                self._step(f"partition: {kind}")
                await asyncio.sleep(random.random() * 2 * self._plan.nemesis_interval_seconds)
                self._network.cut({})
                self.history.cuts.append(PartitionSpan(kind=kind, begin_us=begin_us, end_us=self.clock()))
                begin_us = -1
                self._step("partition: over")
        finally:
            if begin_us >= 0:
                self.history.cuts.append(PartitionSpan(kind=kind, begin_us=begin_us, end_us=self.clock()))


async def run_plan(
    plan: RunPlan, command: Sequence[str], out: Path | None = None, step: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Run nodes and clients, and judge the history; ``out`` gets the history and the logs of nodes."""
    plan.checked()
    nodes = [f"n{number}" for number in range(plan.node_count)]
    network = MaelstromNetwork(nodes, plan.latency_ms, plan.latency_dist, Random(f"network {plan.seed}"))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    try:
        await network.start(command, out)
        run = WorkloadRun(plan, network, step)
        await run.all()
    finally:
        await network.stop()
    if out is not None:
        run.history.write(out / "history.jsonl")
    return result(plan, network, run)


def result(plan: RunPlan, network: MaelstromNetwork, run: WorkloadRun) -> dict[str, Any]:
    """The measurements."""
    counts = network.counts
    operations = max(1, run.history.operations())
    verdict = run.workload.check(run.history)
    return {
        "plan": msgspec.to_builtins(plan),
        "valid": verdict.is_valid,
        "operations": run.history.counts(),
        "messages": {
            "servers": counts.servers,
            "servers_lost": counts.lost,
            "clients": counts.clients,
            "servers_per_operation": round(counts.servers / operations, 3),
        },
        "partitions": [
            {"kind": cut.kind, "begin_s": cut.begin_us / 1_000_000, "end_s": cut.end_us / 1_000_000}
            for cut in run.history.cuts
        ],
        "workload": msgspec.to_builtins(verdict),
    }
