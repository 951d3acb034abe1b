"""How soon live nodes notice a failure, and the cost of detection: VCube's diagnosis beside the default.

The nodes are those of a live cube, with real connections between all of them. Instead of topics each runs the diagnosis
(:mod:`antiphon.fabrics.cube.diagnosis`), the same class as in the simulator, over the same links. In addition every
live node notices when a connection ends, and asks silent peers for a sign of life
(:mod:`antiphon.membership.heartbeats`). So both detectors are measured in the same runs, at the same moment.

One node is a separate process, which is killed (SIGKILL: its connections end) or stopped (SIGSTOP: they do not). The
others share this process, so that one clock gives the times of detection. Messages without a fault are counted on the
links: all frames but those of the diagnosis ask for a sign of life, and each has an answer.

``python -m antiphon_lab.bench.live_detection`` is the process that fails; it takes commands on its standard input.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

import antiphon
from antiphon.api.batch_codec import check_payload
from antiphon.fabrics.cube.diagnosis import Diagnosis, DiagnosisOptions
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment
from antiphon.membership.heartbeats import FailureDetector
from antiphon.node.environment import LiveEnvironment
from antiphon.node.members import Foundation, Members, ProcessMaker
from antiphon.node.node import LiveNode
from antiphon.node.settings import Settings
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.logging import write_logs
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.transport.codec import Codec
from antiphon.transport.peer_messages import PEER_CONTROLS
from antiphon.transport.schema import DIAGNOSIS_KINDS, FABRIC_KINDS, LENGTH_BYTES
from antiphon_lab.bench.live_packets import heard, say
from antiphon_lab.experiments.vcube.diagnosis import AT_ONCE, BY_TESTS, DiagnosisCase, Timings, simulate

DEFAULT: Final = "connections and signs"
FAULTS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
HOP_TICKS: Final = 100
"""The approximate time of a message on loopback, in microseconds, for the simulation beside it."""

QUIET_ROUNDS: Final = 4
"""The number of rounds without a fault, to measure the cost of detection."""

LOOK_SECONDS: Final = 0.005
PATIENCE_SECONDS: Final = 60.0
"""A node that has not noticed by then counts as blind."""


class DetectionTask(msgspec.Struct, frozen=True):
    """The task of a node. Times of the diagnosis are in microseconds."""

    settings: Settings
    nodes: int
    round_us: int
    patience_us: int
    tells: bool

    def options(self) -> DiagnosisOptions:
        """The options of the diagnosis."""
        return DiagnosisOptions(self.nodes, self.round_us, self.patience_us, self.tells)


class Detection(msgspec.Struct, frozen=True):
    """The results of one detector after one kind of fault: seconds until the first, half and all of the others knew.

    ``all_seconds`` is the median of all runs. ``simulated_seconds`` is that of as many simulations with the same
    timings; ``expected_seconds`` and ``expected_messages`` follow from the formulas; messages and bytes are those of a
    node per second without a fault. ``false_alarms`` are nodes that counted a live node as failed.
    """

    detector: str
    fault: str
    nodes: int
    runs: int
    first_seconds: float
    half_seconds: float
    all_seconds: float
    longest_seconds: float
    simulated_seconds: float | None
    expected_seconds: float
    messages: float
    expected_messages: float
    bytes_sent: float
    false_alarms: int


class WatchingDiagnosis(Diagnosis):
    """A diagnosis that remembers its findings and their times."""

    def __init__(self, environment: Environment, options: DiagnosisOptions) -> None:
        super().__init__(environment, options)
        self.lost_at: dict[int, int] = {}

    def start(self) -> None:
        """Wait until all nodes have joined: the diagnosis counts missing nodes as failed."""

    def begin(self) -> None:
        """Begin, because all nodes have joined."""
        super().start()

    def changed(self, node: int, is_present: bool) -> None:
        if not is_present:
            self.lost_at.setdefault(int(node), int(self.environment.now()))


class TestingEnvironment(LiveEnvironment):
    """Counts the tests that a process sends, and their bytes."""

    tests_sent = 0
    test_bytes_sent = 0

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.tests_sent += 1
        self.test_bytes_sent += LENGTH_BYTES + len(self._loop.codec.encode(message))
        super().send(destination, message)


class WatchingMembers(Members):
    """Members that remember lost peers and their times."""

    def __init__(
        self,
        foundation: Foundation,
        address: str,
        maker: ProcessMaker,
        publish_on: Callable[[str], None],
        lost_at: dict[int, int],
    ) -> None:
        self._lost_at = lost_at
        super().__init__(foundation, address, maker, publish_on)

    def peer_lost(self, identifier: int) -> None:
        self._lost_at.setdefault(identifier, monotonic_us())
        super().peer_lost(identifier)


class DetectionMaker(ProcessMaker):
    """Makes a process that runs the diagnosis and nothing else."""

    def __init__(self, task: DetectionTask) -> None:
        self._task = task
        self.environment: TestingEnvironment | None = None
        self.diagnosis: WatchingDiagnosis | None = None
        self.lost_at: dict[int, int] = {}

    def new_environment(self, node: Foundation, identifier: int) -> LiveEnvironment:
        self.environment = TestingEnvironment(identifier, node.loop, node.disk, secrets.randbits(62))
        return self.environment

    def new_process(self, node: Foundation, environment: Environment, members: list[int]) -> WatchingDiagnosis:
        self.diagnosis = WatchingDiagnosis(environment, self._task.options())
        return self.diagnosis

    def new_members(self, node: Foundation, address: str, publish_on: Callable[[str], None]) -> Members:
        return WatchingMembers(node, address, self, publish_on, self.lost_at)


class DetectionNode:
    """A live node of a cube that runs the diagnosis and nothing else."""

    def __init__(self, task: DetectionTask) -> None:
        self._task = task
        self._maker = DetectionMaker(task)
        self.node = LiveNode(task.settings, self._maker)
        kinds = (*FABRIC_KINDS["cube"], *DIAGNOSIS_KINDS)
        self.node.loop.codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS), kinds, check_payload)
        self.lost_at = self._maker.lost_at

    def begin(self) -> None:
        """Begin, because all nodes have joined."""
        assert self._maker.diagnosis is not None, "a node that begins has joined"
        self._maker.diagnosis.begin()

    def lost_by_diagnosis(self) -> dict[int, int]:
        """The nodes that the diagnosis of this node counts as failed, with the times."""
        assert self._maker.diagnosis is not None, "all nodes have joined"
        return self._maker.diagnosis.lost_at

    def is_missing_somebody(self) -> bool:
        """Whether any peer counts as failed, rightly or not."""
        diagnosis = self._maker.diagnosis
        is_lost = len(self.node.cluster.peers()) < self._task.nodes - 1
        return is_lost or (diagnosis is not None and len(diagnosis.absent) > 0)

    def counted(self) -> Traffic:
        """The traffic of this node so far."""
        links = self.node.host.links.values()
        frames, size = sum(link.frames_sent for link in links), sum(link.bytes_sent for link in links)
        environment = self._maker.environment
        assert environment is not None, "a node that has sent something has joined"
        tests, test_bytes = environment.tests_sent, environment.test_bytes_sent
        questions, question_bytes = frames - tests, size - test_bytes
        return Traffic(tests, test_bytes, 2 * questions, 2 * question_bytes)


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes of the diagnosis, and of everything else."""

    tests: float
    test_bytes: float
    signs: float
    sign_bytes: float


@dataclass(frozen=True)
class Run:
    """One run: the seconds after the fault until each other node noticed, and the traffic of a node per second."""

    by_diagnosis: list[float]
    by_default: list[float]
    traffic: Traffic
    false_alarms: int


# The conductor.


@asynccontextmanager
async def one_to_fail(task: DetectionTask) -> AsyncIterator[tuple[Process, str]]:
    """A process with a node that has joined; it is ended with the block."""
    command = [sys.executable, "-P", "-m", "antiphon_lab.bench.live_detection"]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None, "it was made with pipes"
    try:
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise PeerError("the process that should fail ended before it had joined; see its output above")
        yield process, address
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_once(task: DetectionTask, fault: str, seed: int) -> Run:
    """Start all nodes, let one fail at a random moment, and wait until both detectors of all others know."""
    chance = random.Random(seed)
    place = chance.randrange(task.nodes)
    round_seconds = task.round_us / 1e6
    async with AsyncExitStack() as stack:
        nodes: list[DetectionNode] = []
        contacts: list[str] = []
        victim: Process | None = None
        for index in range(task.nodes):
            own = msgspec.structs.replace(task, settings=msgspec.structs.replace(task.settings, join=contacts))
            if index == place:
                victim, address = await stack.enter_async_context(one_to_fail(own))
            else:
                node = DetectionNode(own)
                stack.push_async_callback(node.node._shut)
                await node.node.start()
                nodes.append(node)
                address = node.node.address
            contacts = contacts or [address]
        await until(lambda: all(len(node.node.cluster.peers()) == task.nodes - 1 for node in nodes))
        assert victim is not None and victim.stdin is not None, "one of them is a process of its own"
        victim.stdin.write(b"go\n")
        for node in nodes:
            node.begin()
        identifiers = {node.node.identifier for node in nodes}
        (failing,) = set(range(task.nodes)) - identifiers
        traffic = await quiet_traffic(nodes, QUIET_ROUNDS * round_seconds)
        await asyncio.sleep(chance.random() * round_seconds)
        alarms = [other for node in nodes for other in (*node.lost_at, *node.lost_by_diagnosis())]
        await until(lambda: not any(node.is_missing_somebody() for node in nodes))
        for node in nodes:
            node.lost_at.clear()
            node.lost_by_diagnosis().clear()
        began_us = monotonic_us()
        victim.send_signal(FAULTS[fault])
        await until(lambda: all(failing in node.lost_at and failing in node.lost_by_diagnosis() for node in nodes))
        return Run(
            sorted((node.lost_by_diagnosis()[failing] - began_us) / 1e6 for node in nodes),
            sorted((node.lost_at[failing] - began_us) / 1e6 for node in nodes),
            traffic,
            len(alarms),
        )


async def quiet_traffic(nodes: list[DetectionNode], seconds: float) -> Traffic:
    """The traffic of a node per second without a fault."""
    before, begun_us = [node.counted() for node in nodes], monotonic_us()
    await asyncio.sleep(seconds)
    after, node_seconds = [node.counted() for node in nodes], (monotonic_us() - begun_us) / 1e6 * len(nodes)
    return Traffic(
        *(
            sum(getattr(new, name) - getattr(old, name) for old, new in zip(before, after, strict=True)) / node_seconds
            for name in ("tests", "test_bytes", "signs", "sign_bytes")
        )
    )


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError as error:
        raise PeerError(f"not all nodes have noticed in {PATIENCE_SECONDS:g} seconds; try a calmer machine") from error


def measure_detection(
    nodes: int, round_seconds: float, patience_seconds: float, lost_seconds: float, runs: int, seed: int
) -> list[Detection]:
    """Measure both diagnoses and the default, killed and stopped, for one size."""
    if nodes < 2 or runs < 1:
        raise UsageError("at least two nodes and one run are needed")
    settings = Settings(lost_seconds=lost_seconds)
    found: list[Detection] = []
    for fault in FAULTS:
        by_default: list[Run] = []
        for system in (BY_TESTS, AT_ONCE):
            task = DetectionTask(
                settings, nodes, int(round_seconds * 1e6), int(patience_seconds * 1e6), system == AT_ONCE
            )
            several = [antiphon.run(run_once(task, fault, seed + number)) for number in range(runs)]
            by_default += several
            found.append(diagnosis_row(task, system, fault, several, seed))
        found.append(default_row(settings, nodes, fault, by_default))
    return found


def diagnosis_row(task: DetectionTask, system: str, fault: str, several: list[Run], seed: int) -> Detection:
    """The results of the diagnosis, beside simulations and formulas."""
    timings = Timings(task.round_us, task.patience_us, HOP_TICKS)
    case = DiagnosisCase(system, task.nodes)
    simulated = [simulate(case, timings, seed + number).last for number in range(max(10, len(several)))]
    round_seconds, dimension = task.round_us / 1e6, (task.nodes - 1).bit_length()
    # The first tester arrives after half a round and waits for the answer; then news take as many rounds, or hops.
    spreading = HOP_TICKS / 1e6 if system == AT_ONCE else round_seconds
    return Detection(
        f"diagnosis, {system}",
        fault,
        task.nodes,
        len(several),
        *summary([run.by_diagnosis for run in several]),
        simulated_seconds=statistics.median(simulated) * round_seconds,
        expected_seconds=round_seconds / 2 + task.patience_us / 1e6 + dimension * spreading,
        messages=statistics.median(run.traffic.tests for run in several),
        expected_messages=2 / round_seconds,
        bytes_sent=statistics.median(run.traffic.test_bytes for run in several),
        false_alarms=sum(run.false_alarms for run in several),
    )


def default_row(settings: Settings, nodes: int, fault: str, several: list[Run]) -> Detection:
    """The results of connections and signs of life. Two idle nodes exchange a question in every third check."""
    look_seconds = FailureDetector(settings.lost_seconds, 0.0).look_seconds
    return Detection(
        DEFAULT,
        fault,
        nodes,
        len(several),
        *summary([run.by_default for run in several]),
        simulated_seconds=None,
        expected_seconds=0.0 if fault == "kill" else settings.lost_seconds + look_seconds / 2,
        messages=statistics.median(run.traffic.signs for run in several),
        expected_messages=(nodes - 1) / (3 * look_seconds),
        bytes_sent=statistics.median(run.traffic.sign_bytes for run in several),
        false_alarms=sum(run.false_alarms for run in several),
    )


def summary(times: list[list[float]]) -> tuple[float, float, float, float]:
    """Over several runs: the median time until the first, half and all knew, and the longest until all did."""
    return (
        statistics.median(each[0] for each in times),
        statistics.median(each[len(each) // 2] for each in times),
        statistics.median(each[-1] for each in times),
        max(each[-1] for each in times),
    )


# The process that fails.


async def live_until_the_end(task: DetectionTask) -> None:
    """Join, begin when all nodes have joined, and run until the process is ended."""
    node = DetectionNode(task)
    await node.node.start()
    say(node.node.address)
    await heard("go")
    node.begin()
    await node.node.until_stopped()


if __name__ == "__main__":
    write_logs("error")
    antiphon.run(live_until_the_end(msgspec.json.decode(sys.stdin.readline(), type=DetectionTask)))
