"""Measures systems that keep messages on disk: publishing with receipts, consuming, a group of four, reading all.

Every job is a process of its own, and every system begins with empty files. The processor time of clients and servers
is the steadier figure where the machine has other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon_lab.bench.durable.stores import DurableStore
from antiphon_lab.bench.own_process import python_module
from antiphon_lab.bench.peers import crew

GROUP: Final = 4
JOB_SECONDS: Final = 600.0
START_SECONDS: Final = 60.0


class JobFigures(msgspec.Struct, frozen=True):
    """One job: how many messages a second, and the processor time of each at clients and servers together."""

    messages: int
    seconds: float
    messages_per_second: float
    processor_microseconds: float


class DurableFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """One system."""

    store: str
    title: str
    settings: str
    payload_bytes: int
    publish: JobFigures | None = None
    consume: JobFigures | None = None
    group: JobFigures | None = None
    read: JobFigures | None = None
    error: str = ""


class DurableRun:
    """The servers of one system while it is measured."""

    def __init__(self, store: DurableStore, servers: list[crew.Server], directory: Path, size: int) -> None:
        self._store = store
        self._servers = servers
        self._directory = directory
        self._size = size

    async def job(self, job: str, messages: int, processes: int = 1) -> JobFigures:
        """Let some processes do a job."""
        before = self._server_seconds()
        spent = [self._one(job, messages // processes, number) for number in range(processes)]
        found = await asyncio.gather(*spent)
        done = sum(each["messages"] for each in found)
        seconds = max(each["seconds"] for each in found)
        processor = sum(each["processor_seconds"] for each in found) + self._server_seconds() - before
        if done < messages - processes + 1 and job != "create":
            raise PeerError(f"{self._store.title}: {job} ended with {done} of {messages} messages")
        return JobFigures(done, seconds, done / max(seconds, 1e-9), processor * 1e6 / max(1, done))

    def _server_seconds(self) -> float:
        return sum(server.processor_seconds() for server in self._servers)

    async def _one(self, job: str, messages: int, number: int) -> dict[str, Any]:
        port = self._servers[number % len(self._servers)].port
        arguments = (self._store.name, str(port), job, str(messages), str(self._size))
        command = python_module("antiphon_lab.bench.durable.worker", *arguments)
        complaints = self._directory / f"{job}{number}.log"
        async with crew.running(command, complaints, piped=True) as process:
            assert process.stdout is not None, "it is piped"
            async with asyncio.timeout(JOB_SECONDS):
                line = await process.stdout.readline()
            if not line:
                raise PeerError(f"{self._store.title}: {job} ended: {crew.last_words(complaints)}")
            found: dict[str, Any] = json.loads(line)
            return found


async def perform(store: DurableStore, messages: int, size: int) -> DurableFigures:
    """All jobs of one system, one after the other."""
    with tempfile.TemporaryDirectory(prefix="antiphon-durable-") as place:
        directory = Path(place)
        async with contextlib.AsyncExitStack() as stack:
            servers = []
            ports = crew.free_ports(store.replicas)
            for number, command in enumerate(store.commands(ports, directory)):
                complaints = directory / f"server{number}.log"
                process = await stack.enter_async_context(crew.running(command, complaints, piped=False))
                async with asyncio.timeout(START_SECONDS):
                    await crew.until_it_listens(process, ports[number])
                servers.append(crew.Server(ports[number], process))
            run = DurableRun(store, servers, directory, size)
            await run.job("create", 0)
            return DurableFigures(
                store.name,
                store.title,
                store.settings,
                size,
                publish=await run.job("publish", messages),
                consume=await run.job("one", messages),
                group=await run.job("four", messages, GROUP),
                read=await run.job("read", messages),
            )


def measure(store: DurableStore, messages: int, size: int) -> DurableFigures:
    """The figures of one system; its error if it could not be measured."""
    try:
        return asyncio.run(perform(store, messages, size))
    except (PeerError, OSError, TimeoutError) as error:
        return DurableFigures(store.name, store.title, store.settings, size, error=f"{type(error).__name__}: {error}")
