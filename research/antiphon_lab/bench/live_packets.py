"""How many packets a live message costs, with and without the aggregation that is possible there.

Several processes on loopback, each with a node that is subscribed to one topic and publishes small messages at a steady
rate, in causal order. The benchmark counts the writes to all links and the TCP segments with data that the kernel
reports (``tcp_info``), from the moment when all nodes have joined until all have delivered everything; and the time
from ``publish`` to the subscriber's loop, on the clock that the processes of one machine share. Membership messages and
acknowledgements are included; the divisor is the number of published messages. At the rate 0 every node publishes as
fast as it can.

``WITH_AND_WITHOUT`` compares fault-tolerant nodes with nodes that run plain VCube-PS, where no node may fail: the
difference is the cost of fault tolerance without faults.

``python -m antiphon_lab.bench.live_packets`` is one of the processes; it takes commands on its standard input.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

import antiphon
from antiphon.fabrics.cube.aggregation.process import AggregatingVCubePs
from antiphon.fabrics.cube.assembly.implementation import cube_options
from antiphon.fabrics.cube.topology import PartialCube, dimension_for
from antiphon.fabrics.cube.vcube_ps import VCubePs
from antiphon.kernel.errors import PeerError
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment, Process
from antiphon.node.environment import LiveEnvironment
from antiphon.node.loop import NodeLoop
from antiphon.node.members import Foundation, Members, ProcessMaker
from antiphon.node.node import LiveNode
from antiphon.node.settings import Settings
from antiphon.storage.disk import Disk
from antiphon_lab.bench.own_process import python_module
from antiphon_lab.bench.reference import peak_memory_bytes

TOPIC: Final = "room"
STAMP_BYTES: Final = 8
LATENCIES_AT_MOST: Final = 1000
FLOOD_RATE: Final = 2000.0
SETTLE_SECONDS: Final = 60.0
"""How long the last message may take to reach all nodes."""


class PacketTask(msgspec.Struct, frozen=True):
    """The task of one process."""

    settings: Settings
    processes: int
    messages: int
    rate: float
    payload_bytes: int
    process: str = ""


class Counted(msgspec.Struct, frozen=True):
    """The counts of one process, or of all of them together."""

    published: int
    frames: int
    writes: int
    segments: int
    bytes_sent: int
    held: int
    latencies_us: list[int]
    cpu_seconds: float
    seconds: float
    memory_bytes: int
    # Messages of the process by class; other frames belong to hosts.
    kinds: dict[str, int]


class Packets(msgspec.Struct, frozen=True):
    """The cost of one variant."""

    variant: str
    processes: int
    rate: float
    payload_bytes: int
    published: int
    frames_per_message: float
    writes_per_message: float
    segments_per_message: float
    bytes_per_message: float
    held_per_message: float
    p50_us: float
    p99_us: float
    cpu_us_per_message: float
    deliveries_per_second: float
    memory_mib: float
    """The peak memory of the largest process."""
    kinds_per_message: dict[str, float]


class Variant(NamedTuple):
    """The settings of the nodes of a run, and their process if it tolerates no faults."""

    settings: Settings
    process: str = ""


PLAIN: Final = "plain"
AGGREGATING: Final = "aggregating"


VARIANTS: Final[dict[str, Variant]] = {
    "default": Variant(Settings()),
    "causal aggregation": Variant(Settings(), AGGREGATING),
    "gather 1 ms": Variant(Settings(gather_seconds=0.001)),
    "gather 5 ms": Variant(Settings(gather_seconds=0.005)),
    "gather 1 ms, causal aggregation": Variant(Settings(gather_seconds=0.001), AGGREGATING),
}

WITH_AND_WITHOUT: Final[dict[str, Variant]] = {
    "through faults": Variant(Settings()),
    "plain": Variant(Settings(), PLAIN),
}
HOSTS: Final = "of hosts"


class CountingEnvironment(LiveEnvironment):
    """Counts the messages of a process by class."""

    def __init__(self, identifier: int, loop: NodeLoop, disk: Disk, seed: int, kinds: dict[str, int]) -> None:
        super().__init__(identifier, loop, disk, seed)
        self._kinds = kinds

    def send(self, destination: int, message: ProtocolMessage) -> None:
        kind = type(message).__name__
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        super().send(destination, message)


class CountingMaker(ProcessMaker):
    """Counts the messages of a node's process by their class."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}

    def new_environment(self, node: Foundation, identifier: int) -> LiveEnvironment:
        return CountingEnvironment(identifier, node.loop, node.disk, secrets.randbits(62), self.kinds)


class TrustingMembers(Members):
    """Members that never fail: the process is told once that each of them has joined."""

    counts_past = False

    def link_found(self, identifier: int) -> None:
        process = self.process
        assert isinstance(process, (VCubePs, AggregatingVCubePs)), "the node was made with such a process"
        if not process.nodes.cube.contains(identifier):
            process.joined(identifier)
        self._loop.settle()


class PlainMaker(CountingMaker):
    """Makes VCube-PS without fault tolerance: trees, barriers and acknowledgements.

    With ``aggregates`` its forwarders delay messages that cannot be delivered yet.
    """

    def __init__(self, aggregates: bool = False) -> None:
        super().__init__()
        self._kind = AggregatingVCubePs if aggregates else VCubePs

    def new_members(self, node: Foundation, address: str, publish_on: Callable[[str], None]) -> Members:
        return TrustingMembers(node, address, self, publish_on)

    def new_process(self, node: Foundation, environment: Environment, members: list[int]) -> Process:
        everybody = sorted((*members, int(environment.identifier)))
        cube = PartialCube(dimension_for(everybody[-1] + 1), everybody)
        process = self._kind(environment, cube, cube_options(node.settings.order, node.settings.window))
        if members:
            process.begin_as_newcomer()
        return process


MAKERS: Final[dict[str, Callable[[], CountingMaker]]] = {
    "": CountingMaker,
    PLAIN: PlainMaker,
    AGGREGATING: partial(PlainMaker, aggregates=True),
}


def measure_packets(variant: str, processes: int, rate: float, payload_bytes: int, seconds: float) -> Packets:
    """Run one variant: every process publishes ``rate`` messages a second for so many seconds.

    At the rate 0 it publishes as many as it would at ``FLOOD_RATE``.
    """
    messages = max(1, round((rate or FLOOD_RATE) * seconds))
    settings, kind = {**VARIANTS, **WITH_AND_WITHOUT}[variant]
    task = PacketTask(settings, processes, messages, rate, payload_bytes, kind)
    with ExitStack() as open_ones:
        crew = [open_ones.enter_context(started())]
        address = ask(crew[0], task)
        others = msgspec.structs.replace(task, settings=msgspec.structs.replace(settings, join=[address]))
        for _ in range(processes - 1):
            crew.append(open_ones.enter_context(started()))
            ask(crew[-1], others)
        for process in crew:
            tell(process, "go")
        counted = [msgspec.json.decode(answer(process), type=Counted) for process in crew]
        for process in crew:
            tell(process, "end")
    return summary(variant, task, counted)


def median_of(rounds: list[Packets]) -> Packets:
    """The median of every figure over several rounds: other programs on the machine disturb single ones."""
    figures = {
        field: statistics.median(getattr(one, field) for one in rounds)
        for field in Packets.__struct_fields__
        if isinstance(getattr(rounds[0], field), float)
    }
    names = sorted({name for one in rounds for name in one.kinds_per_message})
    kinds = {name: statistics.median(one.kinds_per_message.get(name, 0.0) for one in rounds) for name in names}
    return msgspec.structs.replace(rounds[0], **figures, kinds_per_message=kinds)


def summary(variant: str, task: PacketTask, counted: list[Counted]) -> Packets:
    """The figures of all processes together."""
    published = sum(one.published for one in counted)
    latencies = sorted(latency for one in counted for latency in one.latencies_us)
    kinds = {name: sum(one.kinds.get(name, 0) for one in counted) for one in counted for name in sorted(one.kinds)}
    kinds[HOSTS] = sum(one.frames for one in counted) - sum(kinds.values())
    return Packets(
        variant=variant,
        processes=task.processes,
        rate=task.rate,
        payload_bytes=task.payload_bytes,
        published=published,
        frames_per_message=sum(one.frames for one in counted) / published,
        writes_per_message=sum(one.writes for one in counted) / published,
        segments_per_message=sum(one.segments for one in counted) / published,
        bytes_per_message=sum(one.bytes_sent for one in counted) / published,
        held_per_message=sum(one.held for one in counted) / published,
        p50_us=float(latencies[len(latencies) // 2]),
        p99_us=float(latencies[len(latencies) * 99 // 100]),
        cpu_us_per_message=1e6 * sum(one.cpu_seconds for one in counted) / published,
        deliveries_per_second=published * task.processes / max(one.seconds for one in counted),
        memory_mib=max(one.memory_bytes for one in counted) / 2**20,
        kinds_per_message={name: count / published for name, count in kinds.items()},
    )


# The conductor.


@contextmanager
def started() -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, ended when it is not needed any more."""
    command = python_module("antiphon_lab.bench.live_packets")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=SETTLE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def tell(process: subprocess.Popen[bytes], word: str) -> None:
    """Write a line to a process."""
    assert process.stdin is not None, "it was started with a pipe"
    process.stdin.write(word.encode() + b"\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[bytes]) -> bytes:
    """The next line of a process."""
    assert process.stdout is not None, "it was started with a pipe"
    line = process.stdout.readline()
    if not line:
        raise PeerError("a process of the benchmark ended before it had answered; see its output above")
    return line.strip()


def ask(process: subprocess.Popen[bytes], task: PacketTask) -> str:
    """Give a process its task; returns its node's address, when it has joined and subscribed."""
    tell(process, msgspec.json.encode(task).decode())
    return answer(process).decode()


# One of the processes.


async def perform(task: PacketTask) -> None:
    """Join, wait for the start, publish, wait for everything, and report the costs."""
    maker = MAKERS[task.process]()
    async with antiphon.Node(await LiveNode(task.settings.checked(), maker).start()) as node:
        subscription = await node.subscribe(TOPIC, limit=1 << 20).ready()
        say(node.address)
        await heard("go")
        before, kinds_before = count(node._live), dict(maker.kinds)
        cpu_before, begun = time.process_time(), time.monotonic()
        receiving = asyncio.ensure_future(receive(subscription, task.processes * task.messages))
        await publish(node, task)
        latencies = await asyncio.wait_for(receiving, SETTLE_SECONDS)
        cpu_seconds, elapsed = time.process_time() - cpu_before, time.monotonic() - begun
        after = count(node._live)
        frames, writes, segments, sent, held = (new - old for new, old in zip(after, before, strict=True))
        kinds = {kind: number - kinds_before.get(kind, 0) for kind, number in maker.kinds.items()}
        memory = peak_memory_bytes()
        counts = (frames, writes, segments, sent, held)
        found = Counted(task.messages, *counts, thinned(latencies), cpu_seconds, elapsed, memory, kinds)
        say(msgspec.json.encode(found).decode())
        # No node leaves while others still count.
        await heard("end")


def count(node: LiveNode) -> tuple[int, int, int, int, int]:
    """Frames, writes, segments and bytes so far, over all links of a node, and packets that it has delayed."""
    links = node.host.links.values()
    process = node.process
    return (
        sum(link.frames_sent for link in links),
        sum(link.writes for link in links),
        sum(max(0, link.segments_sent()) for link in links),
        sum(link.bytes_sent for link in links),
        int(process.held_total) if isinstance(process, AggregatingVCubePs) else 0,
    )


async def publish(node: antiphon.Node, task: PacketTask) -> None:
    """Publish at a steady rate; catch up when behind."""
    padding = bytes(task.payload_bytes - STAMP_BYTES)
    begun = time.monotonic()
    for number in range(task.messages):
        due = begun + number / task.rate if task.rate > 0 else begun
        wait = due - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        await node.publish(TOPIC, time.monotonic_ns().to_bytes(STAMP_BYTES, "little") + padding)


async def receive(subscription: antiphon.Subscription, expected: int) -> list[int]:
    """Receive all messages; returns the latency of each in microseconds."""
    latencies: list[int] = []
    async for message in subscription:
        sent_ns = int.from_bytes(message.value[:STAMP_BYTES], "little")
        latencies.append((time.monotonic_ns() - sent_ns) // 1000)
        if len(latencies) == expected:
            break
    return latencies


def thinned(latencies: list[int]) -> list[int]:
    """Fewer values with the same percentiles: an answer must fit into a pipe, or it would block the node."""
    return sorted(latencies)[:: max(1, len(latencies) // LATENCIES_AT_MOST)]


def say(word: str) -> None:
    """Answer the conductor. It may not be reading yet, and the loop waits meanwhile: a pipe has room for 64 KiB."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def heard(word: str) -> None:
    """Wait for a line of standard input."""
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if line.strip() != word:
        raise PeerError(f"expected the word {word!r} and got {line.strip()!r}")


if __name__ == "__main__":
    antiphon.run(perform(msgspec.json.decode(sys.stdin.readline(), type=PacketTask)))
