"""A whole run over bare TCP, which needs nothing to be installed; and that nothing is left behind, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from antiphon.kernel.errors import PeerError
from antiphon_lab.bench.peers import crew
from antiphon_lab.bench.peers.contender import Contender, Place, Side
from antiphon_lab.bench.peers.control import Open, Opened
from antiphon_lab.bench.peers.measure import MeasurePlan, affordable, limit, measure, together
from antiphon_lab.bench.peers.registry import CONTENDERS
from antiphon_lab.bench.peers.report import RoundFigures
from antiphon_lab.bench.peers.workload import Workload, parse_workload

QUICK = MeasurePlan(messages=1000, seconds=30.0, rounds=2, latency_seconds=0.05)
LISTENS = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
PATIENCE_SECONDS = 300.0

Found = TypeVar("Found")


class WithServer(Contender):
    """A contender whose server is a line of Python."""

    name = "tcp"
    title = "with a server"
    program = sys.executable
    published = settings = "nothing"

    def __init__(self, source: str) -> None:
        self._source = source

    def server_command(self, port: int, directory: Path) -> list[str]:
        return [sys.executable, "-c", self._source, str(port)]

    def side(self, place: Place) -> Side:
        return CONTENDERS["tcp"].side(place)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
    """All processes that were started."""
    processes: list[asyncio.subprocess.Process] = []
    real = asyncio.create_subprocess_exec

    async def remembering(*command: str, **options: object) -> asyncio.subprocess.Process:
        process = await real(*command, **options)  # type: ignore[arg-type]
        processes.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remembering)
    return processes


@pytest.mark.parametrize(("name", "processes", "subscribers"), [("1-to-2", 3, 2), ("2-to-2", 2, 2)])
def test_everything_is_delivered_and_everybody_ends(
    name: str, processes: int, subscribers: int, started: list[asyncio.subprocess.Process]
) -> None:
    found = measure(CONTENDERS["tcp"], parse_workload(name, 64), QUICK)
    assert (found.error, found.contender, found.workload, found.payload_bytes) == ("", "tcp", name, 64)
    assert found.throughput is not None and found.latency is not None
    assert [(one.published, one.delivered, one.lost) for one in found.throughput.rounds] == [
        (1000, 1000 * subscribers, 0)
    ] * 2
    assert found.throughput.delivered_per_second > 0
    assert found.throughput.processor_microseconds_per_delivery > 0
    assert (found.latency.deliveries, found.latency.lost) == (100 * subscribers, 0)
    assert 0 < found.latency.p50_microseconds <= found.latency.p99_microseconds <= found.latency.longest_microseconds
    assert [process.returncode for process in started] == [0] * processes


def test_a_server_runs_while_it_is_needed(started: list[asyncio.subprocess.Process]) -> None:
    found = measure(WithServer(LISTENS), Workload(1, 1, 64), MeasurePlan(100, 30.0, 1, 0.0))
    assert (found.error, found.latency) == ("", None)
    assert len(started) == 3
    assert started[0].returncode == -signal.SIGTERM


def test_a_server_that_does_not_start_is_a_result(started: list[asyncio.subprocess.Process]) -> None:
    found = measure(WithServer("raise SystemExit('no room')"), Workload(1, 1, 64), QUICK)
    assert found.throughput is None
    assert "did not start: no room" in found.error
    assert [process.returncode for process in started] == [1]


def test_a_worker_that_fails_ends_the_run_and_says_why(
    started: list[asyncio.subprocess.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(crew, "free_ports", lambda count: [taken.getsockname()[1]] * count)
        found = measure(CONTENDERS["tcp"], Workload(1, 1, 64), QUICK)
    assert found.error.startswith("worker-0 failed: OSError: ")
    assert len(started) == 2 and all(process.returncode is not None for process in started)


def test_a_process_that_does_not_want_to_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "END_SECONDS", 0.2)

    async def scenario() -> int | None:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        async with crew.running(command, tmp_path / "log", piped=True) as process:
            pass
        return process.returncode

    assert asyncio.run(scenario()) == -signal.SIGKILL


def test_the_last_words_of_a_worker_are_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        command = [sys.executable, "-c", "raise SystemExit('out of paper')"]
        log = tmp_path / "log"
        async with crew.running(command, log, piped=True) as process:
            worker = crew.WorkerHandle("worker-3", process, log)
            worker.tell(Open("tcp", Workload(1, 1, 64), Place(0, True, False, [1], 0)))
            await worker.expect(Opened)

    with pytest.raises(PeerError, match="worker-3 ended unexpectedly: out of paper"):
        asyncio.run(scenario())


def test_free_ports_differ() -> None:
    ports = crew.free_ports(20)
    assert len(set(ports)) == 20 and all(0 < port < 65536 for port in ports)


def test_patience_has_an_end() -> None:
    async def scenario() -> None:
        async with limit(0.01, "come back"):
            await asyncio.sleep(600)

    with pytest.raises(PeerError, match="it did not come back within 0 seconds"):
        asyncio.run(scenario())


def test_the_first_failure_ends_the_waiting() -> None:
    async def fail() -> None:
        raise PeerError("it fell")

    with pytest.raises(PeerError, match="it fell"):
        asyncio.run(together([asyncio.sleep(600), fail()]))


@pytest.mark.parametrize(("published", "seconds", "messages"), [(100, 0.1, 900), (100, 4.0, 50), (1, 600.0, 1)])
def test_a_slow_contender_gets_shorter_rounds(published: int, seconds: float, messages: int) -> None:
    warm_up = RoundFigures.of_counts(published, 7, 7 * published, seconds, 0.1)
    assert affordable(MeasurePlan(messages=900, seconds=2.0), warm_up) == messages


@pytest.mark.slow
@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_process_is_left_behind(number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-P", "-m", "antiphon", "bench", "peers", "--only", "tcp", "--workload", "1-to-2"]
    command += ["--payload", "64", "--messages", "1000000000", "--seconds", "600", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        children = wait_for(lambda: found if len(found := children_of(bench.pid)) == 3 else [])
        # Busy, not only started: a worker that publishes must be stopped too.
        wait_for(lambda: processor_ticks(children[0]) > 100)
        bench.send_signal(number)
        said, _ = bench.communicate(timeout=PATIENCE_SECONDS)
        assert (bench.returncode, said) == (code, b"")
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def children_of(parent: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def processor_ticks(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])


def wait_for(look: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found
