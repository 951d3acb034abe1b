"""The network between node processes: latency, partitions, and message counts.

Node processes are any programs that speak Maelstrom's protocol. As in Maelstrom, messages between nodes take some time
and are lost if a partition separates the two on arrival; messages from and to clients are immediate and never lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import log
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.maelstrom.nemesis import Cuts
from antiphon.maelstrom.protocol import DEFINITE, TIMEOUT, Envelope, read_body, read_line, write_line

LINE_BYTES_AT_MOST: Final = 64 << 20
STOP_SECONDS: Final = 5.0

DISTRIBUTIONS: Final[dict[str, Callable[[Random], float]]] = {
    "constant": lambda random: 1.0,  # noqa: ARG005 (all are called in the same way)
    "uniform": lambda random: 2.0 * random.random(),
    "exponential": lambda random: -log(1.0 - random.random()),
}
"""The distributions of latencies; each has mean 1."""


class RpcError(Exception):
    """A node has answered with an error, or not in time."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code: Final = code

    @property
    def is_definite(self) -> bool:
        """Whether the operation has certainly not happened."""
        return self.code in DEFINITE


class MessageCounts(msgspec.Struct):
    """The number of messages between nodes and with clients, and of lost ones between nodes."""

    servers: int = 0
    clients: int = 0
    lost: int = 0


class MaelstromNetwork:
    """The nodes of a run and all messages between them."""

    def __init__(self, nodes: Sequence[str], latency_ms: float, distribution: str, random: Random) -> None:
        if distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"there is no latency distribution {distribution!r}; choose one of {', '.join(DISTRIBUTIONS)}"
            )
        self.nodes: Final = list(nodes)
        self.counts: Final = MessageCounts()
        self._latency_seconds = latency_ms / 1000
        self._spread = DISTRIBUTIONS[distribution]
        self._random = random
        self._cuts: Cuts = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._waiting: dict[tuple[str, int], asyncio.Future[dict[str, Any]]] = {}
        self._last_message = 0
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self.failed: Final[asyncio.Future[None]] = self._loop.create_future()

    # Processes.

    async def start(self, command: Sequence[str], logs: Path | None) -> None:
        """Start a process for each node; standard error goes to files if there is a folder for them."""
        for node in self.nodes:
            errors = None if logs is None else (logs / f"{node}.log").open("wb")
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    limit=LINE_BYTES_AT_MOST,
                )
            except OSError as error:
                raise UsageError(f"cannot run {command[0]}: {error.strerror}; check --bin") from error
            finally:
                if errors is not None:
                    errors.close()
            self._processes[node] = process
            self._readers.append(asyncio.create_task(self._read(node, process)))

    async def stop(self) -> None:
        """Let all nodes end, by closing their input; those that do not are killed."""
        self._is_stopping = True
        for process in self._processes.values():
            assert process.stdin is not None, "it was started with a pipe"
            process.stdin.close()
        for process in self._processes.values():
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if not self.failed.done():
            self.failed.cancel()

    async def _read(self, node: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "it was started with a pipe"
        try:
            while line := await process.stdout.readline():
                self._route(node, line)
            if not self._is_stopping:
                raise PeerError(f"node {node} ended unexpectedly; see its standard error")
        except (PeerError, ValueError) as error:
            if not self.failed.done():
                self.failed.set_exception(PeerError(f"node {node}: {error}"))

    # Messages.

    def _route(self, node: str, line: bytes) -> None:
        envelope = read_line(line)
        if envelope.src != node:
            raise PeerError(f"it sends under the name {envelope.src!r}")
        if envelope.dest in self._processes:
            self.counts.servers += 1
            delay = self._latency_seconds * self._spread(self._random)
            self._loop.call_later(delay, self._arrive, envelope.src, envelope.dest, line)
        else:
            self.counts.clients += 1
            self._answer(envelope)

    def _arrive(self, source: str, destination: str, line: bytes) -> None:
        if source in self._cuts.get(destination, ()):
            self.counts.lost += 1
            return
        self._hand(destination, line)

    def _hand(self, node: str, line: bytes) -> None:
        stdin = self._processes[node].stdin
        assert stdin is not None, "it was started with a pipe"
        with suppress(ConnectionError, RuntimeError):
            # The reader of an ended process reports it.
            stdin.write(line)

    def cut(self, cuts: Cuts) -> None:
        """Let some nodes not receive from others from now on."""
        self._cuts = cuts

    # Clients.

    def _answer(self, envelope: Envelope) -> None:
        body = read_body(envelope)
        waiting = self._waiting.get((envelope.dest, body.get("in_reply_to", -1)))
        if waiting is not None and not waiting.done():
            waiting.set_result(body)

    async def call(self, client: str, node: str, body: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
        """Ask a node; :class:`RpcError` if it answers with an error, or not in time."""
        self._last_message += 1
        number = self._last_message
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[client, number] = answer
        self.counts.clients += 1
        self._hand(node, write_line(client, node, {**body, "msg_id": number}))
        try:
            await asyncio.wait((answer, self.failed), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[client, number]
        if self.failed.done():
            self.failed.result()
        if not answer.done():
            raise RpcError(TIMEOUT, f"{node} has not answered in {timeout_seconds:g} s")
        found = answer.result()
        if found.get("type") == "error":
            raise RpcError(int(found.get("code", 13)), str(found.get("text", "")))
        if found.get("type") != f"{body['type']}_ok":
            raise PeerError(f"{node} answered {found.get('type')!r} to {body['type']!r}")
        return found
