"""The processes of one run: a server, if there is one, and the workers. All end with the run, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

from antiphon.kernel.errors import PeerError
from antiphon_lab.bench.own_process import python_module
from antiphon_lab.bench.peers.contender import HOST, Contender
from antiphon_lab.bench.peers.control import LINE_MOST_BYTES, Answer, AnyAnswer, Failed, Order, answers, line_of

SERVER_START_SECONDS = 15.0
END_SECONDS = 3.0
RETRY_SECONDS = 0.05
COMPLAINT_CHARACTERS = 400

Kind = TypeVar("Kind", bound=Answer)


class WorkerHandle:
    """A worker process, seen from the conductor."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, complaints: Path) -> None:
        self._name = name
        self._process = process
        self._complaints = complaints
        self._unread: list[AnyAnswer] = []

    def tell(self, order: Order) -> None:
        """Give an order; the answer is read with ``expect``."""
        assert self._process.stdin is not None
        self._process.stdin.write(line_of(order))

    async def expect(self, kind: type[Kind]) -> Kind:
        """The next answer of this kind; others are kept for later calls."""
        while True:
            for position, answer in enumerate(self._unread):
                if isinstance(answer, kind):
                    del self._unread[position]
                    return answer
            self._unread.append(await self._next())

    async def _next(self) -> AnyAnswer:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self._name} ended unexpectedly: {last_words(self._complaints)}")
        answer: AnyAnswer = answers.decode(line)
        if isinstance(answer, Failed):
            raise PeerError(f"{self._name} failed: {answer.reason}")
        return answer


def last_words(complaints: Path) -> str:
    """The end of the standard error of a process."""
    text = complaints.read_text(encoding="utf-8", errors="replace").strip()
    return text[-COMPLAINT_CHARACTERS:] or "it printed nothing"


def free_ports(count: int) -> list[int]:
    """Unused ports of loopback, all different."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.asynccontextmanager
async def running(command: list[str], complaints: Path, piped: bool) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that ends when the block ends.

    It gets a session of its own: an interrupt from the keyboard reaches the conductor alone, which ends all others.
    """
    pipe = asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL
    with complaints.open("wb") as paper:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe if piped else paper,
            stderr=paper,
            limit=LINE_MOST_BYTES,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and kill it after some seconds."""
    if process.stdin is not None:
        process.stdin.close()
    elif process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@contextlib.asynccontextmanager
async def worker(name: str, directory: Path) -> AsyncIterator[WorkerHandle]:
    """A worker process."""
    command = python_module("antiphon_lab.bench.peers.worker")
    complaints = directory / f"{name}.log"
    async with running(command, complaints, piped=True) as process:
        yield WorkerHandle(name, process, complaints)


class Server:
    """A contender's server, or nothing where it has none."""

    def __init__(self, port: int, process: asyncio.subprocess.Process | None) -> None:
        self.port = port
        self._process = process

    def processor_seconds(self) -> float:
        """The processor time of the server; 0 without a server or where the system does not report it."""
        if self._process is None:
            return 0.0
        try:
            # After the name, which may contain anything but ends with the last parenthesis: user and system time.
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def server(contender: Contender, directory: Path) -> AsyncIterator[Server]:
    """The contender's server, listening."""
    if not contender.program:
        yield Server(0, None)
        return
    port = free_ports(1)[0]
    complaints = directory / "server.log"
    async with running(contender.server_command(port, directory), complaints, piped=False) as process:
        try:
            async with asyncio.timeout(SERVER_START_SECONDS):
                await until_it_listens(process, port)
        except (TimeoutError, ChildProcessError):
            raise PeerError(f"{contender.program} did not start: {last_words(complaints)}") from None
        yield Server(port, process)


async def until_it_listens(process: asyncio.subprocess.Process, port: int) -> None:
    """Try to connect until the server accepts."""
    while True:
        if process.returncode is not None:
            raise ChildProcessError
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            writer.close()
            return
