"""A local cluster of operating-system processes, each an ``antiphon node`` on loopback.

The processes are in sessions of their own, so that a Ctrl-C at the terminal reaches this program alone, which then ends
them in an orderly way. Each of them leaves too when its standard input ends, so none outlives this program, however
that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antiphon.fabrics.registry import DEFAULT_FABRIC, FABRICS
from antiphon.kernel.errors import PeerError, UsageError

HOST = "127.0.0.1"
LAST_PORT = 65_535
ANY_PORTS = (10_000, 32_000)
READY_SECONDS = 60.0
"""How long a process may take from its start to its place in the cluster, on a busy machine."""

STOP_SECONDS = 15.0
"""How long processes may take to leave before they are killed; a node gives up the farewell after ten."""

LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class Plan:
    """What a cluster is to be. ``port`` 0 takes free ones, as does ``mqtt_port``; ``settings`` are flags of all nodes.

    The first node serves the page about the cluster at the address ``console``, if there is one.

    ``table`` is the file of a fabric with founders, which are started together; other nodes join the first. ``doors``
    are the addresses that nodes advertise, if they differ from those at which they listen. ``environment`` names the
    variables of one process that differ from the environment of this one.
    """

    count: int
    port: int = 0
    data: Path | None = None
    trace: Path | None = None
    metrics: bool = False
    mqtt_port: int | None = None
    console: str | None = None
    settings: Sequence[str] = ()
    table: Path | None = None
    fabric: str = DEFAULT_FABRIC
    doors: Sequence[str] = ()
    environment: Callable[[int], Mapping[str, str]] | None = None

    def flags(self, index: int, contacts: Sequence[str]) -> list[str]:
        """The flags of one node that joins these."""
        flags = ["--listen", f"{HOST}:{self.port + index if self.port else 0}", *self.settings]
        if self.doors:
            flags += ["--advertise", self.doors[index]]
        for contact in contacts:
            flags += ["--join", contact]
        flags += ["--fabric", self.fabric]
        if self.table is not None:
            flags += [f"--{self.fabric}", str(self.table)]
        if self.data is not None:
            flags += ["--data", str(self.data / f"node-{index}")]
        if self.trace is not None:
            flags += ["--trace", str(self.trace / f"node-{index}.parquet")]
        if self.metrics:
            flags += ["--metrics", f"{HOST}:0"]
        if self.mqtt_port is not None:
            flags += ["--mqtt", f"{HOST}:{self.mqtt_port + index if self.mqtt_port else 0}"]
        if self.console is not None and index == 0:
            flags += ["--console", self.console]
        return flags


@dataclass
class Member:
    """One process of the cluster, and what it said when it was ready."""

    index: int
    process: Process
    about: dict[str, Any] = field(default_factory=dict)
    is_expected_to_end: bool = False

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.about["address"])


class ProcessCluster:
    """Starts the processes, relays what they log, and ends them.

    ``relay`` gets every line that a process writes to standard error, with the index of the process; ``ended`` is
    called when a process ends that was not told to.
    """

    def __init__(self, plan: Plan, relay: Callable[[int, str], None], ended: Callable[[Member], None]) -> None:
        self._plan = plan
        self._relay = relay
        self._ended = ended
        self._tasks: list[asyncio.Task[None]] = []
        self.members: list[Member] = []
        # Two that are started at the same time must not have the same files.
        self._last_index = plan.count - 1

    async def start(self) -> None:
        """Start all; return when all are in the cluster. If one fails, none is left behind."""
        try:
            first = await self._spawn(0, [])
            contacts = []
            if self._plan.table is None:
                await self._until_ready(first)
                contacts = [first.address]
            for index in range(1, self._plan.count):
                await self._spawn(index, contacts)
            if self._plan.table is not None:
                # The founders of a tree wait for each other, and know their places.
                await asyncio.gather(*(self._until_ready(member) for member in self.members))
            else:
                # They have started side by side, which takes longest, and join one after the other: so nodes have the
                # numbers of their processes and directories, unless they have had others in an earlier life.
                for member in self.members[1:]:
                    await self._until_ready(member)
        except BaseException:
            await self.kill()
            raise
        self._tasks += [asyncio.ensure_future(self._watch(member)) for member in self.members]

    async def add(self, join: str) -> Member:
        """Start one more; done when it is in the cluster."""
        self._last_index += 1
        return await self._enter(await self._spawn(self._last_index, [join]))

    async def restart(self, member: Member) -> Member:
        """Start one again that has ended, with the same flags but for those to join; done when it is in the cluster."""
        self.members.remove(member)
        others = [each.address for each in self.alive if each.about]
        return await self._enter(await self._spawn(member.index, [] if self._plan.table is not None else others))

    async def _enter(self, member: Member) -> Member:
        await self._until_ready(member)
        self._tasks.append(asyncio.ensure_future(self._watch(member)))
        return member

    async def _spawn(self, index: int, contacts: Sequence[str]) -> Member:
        flags = self._plan.flags(index, contacts)
        more = {} if self._plan.environment is None else self._plan.environment(index)
        command = [sys.executable, "-m", "antiphon", "node", "--json", "--until-input-ends", "--join-when-told", *flags]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            limit=LINE_BYTES,
            env={**os.environ, **more},
        )
        member = Member(index, process)
        self.members.append(member)
        self._tasks.append(asyncio.ensure_future(self._relay_lines(member)))
        return member

    async def _until_ready(self, member: Member) -> None:
        """Let a process join the cluster, and wait until it is in it."""
        assert member.process.stdout is not None and member.process.stdin is not None, "it was made with pipes"
        member.process.stdin.write(b"join\n")
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = await member.process.stdout.readline()
        except TimeoutError as error:
            raise PeerError(
                f"process {member.index} is not ready after {READY_SECONDS:.0f} seconds; see what it logged"
            ) from error
        if not line:
            code = await member.process.wait()
            raise PeerError(f"process {member.index} ended with exit code {code} before it was ready; see what it said")
        member.about = json.loads(line)

    async def _relay_lines(self, member: Member) -> None:
        assert member.process.stderr is not None, "it was made with a pipe"
        async for line in member.process.stderr:
            self._relay(member.index, line.decode(errors="replace").rstrip("\n"))

    async def _watch(self, member: Member) -> None:
        await member.process.wait()
        if not member.is_expected_to_end:
            self._ended(member)

    @property
    def alive(self) -> list[Member]:
        """Those that have not ended."""
        return [member for member in self.members if member.process.returncode is None]

    async def stop(self, seconds: float = STOP_SECONDS) -> list[int]:
        """Ask all to leave and wait until they have; the indices of those that had to be killed."""
        leaving = self.alive
        for member in leaving:
            member.is_expected_to_end = True
            member.process.send_signal(signal.SIGTERM)
        if leaving:
            await asyncio.wait([asyncio.ensure_future(member.process.wait()) for member in leaving], timeout=seconds)
        killed = [member.index for member in self.alive]
        await self.kill()
        return killed

    async def kill(self) -> None:
        """End at once whatever still runs."""
        for member in self.alive:
            member.is_expected_to_end = True
            member.process.kill()
        for member in self.members:
            await member.process.wait()
        # What they had to say before they ended is still in the pipes.
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def running_cluster(plan: Plan) -> Iterator[str]:
    """A cluster for a program that has no loop of its own, as long as the block lasts; the addresses of its nodes."""

    def relay(index: int, line: str) -> None:
        print(f"{index} | {line}", file=sys.stderr, flush=True)

    def ended(member: Member) -> None:
        relay(member.index, f"ended with exit code {member.process.returncode}")

    async def start() -> ProcessCluster:
        cluster = ProcessCluster(plan, relay, ended)
        await cluster.start()
        return cluster

    with asyncio.Runner() as runner:
        cluster = runner.run(start())
        try:
            yield ",".join(member.address for member in cluster.members)
        finally:
            runner.run(cluster.stop())


def write_founders(
    path: Path, fabric: str, count: int, port: int, quorum: bool = True, doors: Sequence[str] = ()
) -> Path:
    """The file of a fabric with founders on loopback; they are known by their doors, if they have any."""
    addresses = ", ".join(f'"{address}"' for address in doors or [f"{HOST}:{port + index}" for index in range(count)])
    path.write_text(f"[{fabric}]\nbrokers = [{addresses}]\nfan_out = 2\nquorum = {str(quorum).lower()}\n")
    return path


def founders_file(directory: Path, fabric: str, count: int, port: int, doors: Sequence[str] = ()) -> Path | None:
    """The file that the founders of a fabric share; None if the fabric has no founders."""
    if not FABRICS[fabric].needs_addresses:
        return None
    return write_founders(directory / f"founders-{port}.toml", fabric, count, port, doors=doors)


def free_ports(first: int, count: int, is_fixed: bool) -> int:
    """The first of ``count`` ports in a row that are free: from ``first`` on, or, unless ``is_fixed``, further up."""
    base = first
    while base + count - 1 <= LAST_PORT:
        taken = [port for port in range(base, base + count) if not is_free(port)]
        if not taken:
            return base
        if is_fixed:
            raise UsageError(f"port {taken[0]} is taken; choose another first port (--port), or --port 0 for any")
        base = taken[-1] + 1
    raise UsageError(f"there are no {count} free ports in a row from {first} on; use --port 0 for any")


def any_ports(count: int) -> int:
    """The first of ``count`` ports in a row that are free, somewhere that nobody else is likely to look just now.

    Not among those that systems give to outgoing connections: one of these could be taken at any moment.
    """
    first, end = ANY_PORTS
    return free_ports(first + secrets.randbelow(end - first - count), count, False)


def free_addresses(count: int) -> list[str]:
    """Addresses on loopback at which nobody listens, and which no outgoing connection takes meanwhile."""
    first = any_ports(count)
    return [f"{HOST}:{port}" for port in range(first, first + count)]


def is_free(port: int) -> bool:
    """Whether a node could listen there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
