"""How the cost of a live node grows with the number of nodes: memory, descriptors, idle processor, joins, failures.

The nodes of one cluster share a few processes, so that hundreds fit on a machine. The conductor runs one worker process
for each, and one process more with the node that fails: it is killed (SIGKILL: its connections end) or stopped
(SIGSTOP: they do not). All clocks are those of one machine.

``python -m antiphon_lab.bench.live_nodes`` is a worker; it takes commands on its standard input, one JSON value a line.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal

import msgspec

import antiphon
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.node.members import Foundation, Members, ProcessMaker
from antiphon.node.node import LiveNode
from antiphon.node.settings import Settings
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.logging import write_logs
from antiphon_lab.bench.live_detection import WatchingMembers
from antiphon_lab.bench.live_growth import resident_bytes
from antiphon_lab.bench.own_process import python_module

IDLE_SECONDS: Final = 8.0
PATIENCE_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.05
DESCRIPTORS: Final = Path("/proc/self/fd")
MIB: Final = 1 << 20


class NodeCosts(msgspec.Struct, frozen=True):
    """The cost of each of so many idle nodes, and how soon all of them know of a newcomer and of a failure.

    ``joins_per_second`` counts until all nodes know each other. ``lost_seconds`` is the setting. Silence counts from
    the last sign of life, so a node that was stopped may be lost a quarter of that sooner.
    """

    nodes: int
    processes: int
    joins_per_second: float
    join_cpu_ms: float
    memory_kib: float
    descriptors: float
    idle_cpu_ms_per_second: float
    killed_known_seconds: float
    stopped_known_seconds: float
    lost_seconds: float


class Command(msgspec.Struct, frozen=True):
    """What a worker is to do: start nodes, wait until they know so many others, report, or tell of a lost node."""

    kind: Literal["start", "know", "figures", "lost"]
    count: int = 0
    join: list[str] = []
    lost_seconds: float = 5.0


class WorkerFigures(msgspec.Struct, frozen=True):
    """The answer of a worker: ``values`` are identifiers of its nodes, or times in microseconds."""

    addresses: list[str] = []
    values: list[int] = []
    cpu_seconds: float = 0.0
    resident: int = 0
    descriptors: int = 0


class CountedMaker(ProcessMaker):
    """Makes nodes that remember when they have lost which others."""

    def __init__(self) -> None:
        self.lost_at: dict[int, int] = {}

    def new_members(self, node: Foundation, address: str, publish_on: Callable[[str], None]) -> Members:
        return WatchingMembers(node, address, self, publish_on, self.lost_at)


class Worker:
    """The nodes of one process."""

    def __init__(self) -> None:
        self._nodes: list[tuple[LiveNode, dict[int, int]]] = []

    async def obey(self, command: Command) -> WorkerFigures:
        """Do what the conductor wants; the answer is what it asked for."""
        if command.kind == "start":
            for _ in range(command.count):
                maker = CountedMaker()
                node = LiveNode(Settings(join=command.join, lost_seconds=command.lost_seconds), maker)
                await node.start()
                self._nodes.append((node, maker.lost_at))
            started = [node for node, _ in self._nodes]
            return WorkerFigures([node.address for node in started], [int(node.identifier) for node in started])
        if command.kind == "know":
            await until(lambda: all(len(node.cluster.links_in_use()) >= command.count for node, _ in self._nodes))
            gc.collect()
        elif command.kind == "lost":
            await until(lambda: all(command.count in lost_at for _, lost_at in self._nodes))
            return WorkerFigures(values=[lost_at[command.count] for _, lost_at in self._nodes])
        count = len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0
        return WorkerFigures([], [], time.process_time(), resident_bytes(), count)


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(LOOK_SECONDS)


# The conductor.


async def new_worker(stack: AsyncExitStack) -> Process:
    """A worker, which ends with the stack."""
    command = python_module("antiphon_lab.bench.live_nodes")
    worker = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=MIB, start_new_session=True)

    async def end() -> None:
        if worker.returncode is None:
            worker.kill()
        await worker.wait()

    stack.push_async_callback(end)
    return worker


async def ask(worker: Process, command: Command) -> WorkerFigures:
    """Let a worker do something, and wait for its answer."""
    assert worker.stdin is not None and worker.stdout is not None, "it was made with pipes"
    worker.stdin.write(msgspec.json.encode(command) + b"\n")
    line = await worker.stdout.readline()
    if not line:
        raise PeerError("a process with nodes ended early; see its output above, or try fewer nodes")
    return msgspec.json.decode(line, type=WorkerFigures)


async def ask_all(workers: Sequence[Process], command: Command) -> list[WorkerFigures]:
    """The same of all workers at the same time."""
    return list(await asyncio.gather(*(ask(worker, command) for worker in workers)))


async def measure_nodes(
    nodes: int, processes: int, lost_seconds: float, idle_seconds: float = IDLE_SECONDS
) -> NodeCosts:
    """Start so many nodes in so many processes, leave them alone for a while, and let another one fail twice."""
    processes = min(processes, nodes - 1)
    async with AsyncExitStack() as stack:
        workers = [await new_worker(stack) for _ in range(processes)]
        before = await ask_all(workers, Command("figures"))
        shares = [nodes // processes + (place < nodes % processes) for place in range(processes)]
        began = time.monotonic()
        first = await ask(workers[0], Command("start", 1, [], lost_seconds))
        shares[0] -= 1
        starts = (Command("start", share, first.addresses, lost_seconds) for share in shares)
        await asyncio.gather(*(ask(worker, one) for worker, one in zip(workers, starts, strict=True)))
        together = await ask_all(workers, Command("know", nodes - 1))
        join_seconds = time.monotonic() - began
        await asyncio.sleep(lost_seconds)
        quiet = await ask_all(workers, Command("figures"))
        quiet_at = time.monotonic()
        await asyncio.sleep(idle_seconds)
        after = await ask_all(workers, Command("figures"))
        measured_seconds = time.monotonic() - quiet_at
        killed = await until_known(stack, workers, nodes, first.addresses, lost_seconds, signal.SIGKILL)
        stopped = await until_known(stack, workers, nodes, first.addresses, lost_seconds, signal.SIGSTOP)
    return NodeCosts(
        nodes,
        processes,
        nodes / join_seconds,
        difference(together, before, "cpu_seconds") / nodes * 1e3,
        difference(after, before, "resident") / nodes / 1024,
        difference(after, before, "descriptors") / nodes,
        difference(after, quiet, "cpu_seconds") / nodes / measured_seconds * 1e3,
        killed,
        stopped,
        lost_seconds,
    )


def difference(after: Sequence[WorkerFigures], before: Sequence[WorkerFigures], name: str) -> float:
    """By how much a figure has grown in all workers together."""
    return float(sum(getattr(new, name) - getattr(old, name) for new, old in zip(after, before, strict=True)))


async def until_known(
    stack: AsyncExitStack, workers: Sequence[Process], nodes: int, join: list[str], lost_seconds: float, fault: int
) -> float:
    """Let one more node join and fail; the seconds until all others have lost it."""
    victim = await new_worker(stack)
    started = await ask(victim, Command("start", 1, join, lost_seconds))
    await ask_all([*workers], Command("know", nodes))
    await asyncio.sleep(lost_seconds)
    failed_at = monotonic_us()
    victim.send_signal(fault)
    answers = await ask_all(workers, Command("lost", started.values[0]))
    if victim.returncode is None:
        victim.kill()
    return (max(at for answer in answers for at in answer.values) - failed_at) / 1e6


def measure_all_nodes(sizes: Sequence[int], processes: int, lost_seconds: float) -> list[NodeCosts]:
    """The curve over several sizes."""
    if any(size < 2 for size in sizes) or processes < 1:
        raise UsageError("at least two nodes and one process are needed")
    return [antiphon.run(measure_nodes(size, processes, lost_seconds)) for size in sizes]


async def work() -> None:
    """Obey commands until the standard input ends."""
    worker = Worker()
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        answer = await worker.obey(msgspec.json.decode(line, type=Command))
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    write_logs("error")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    antiphon.run(work())
