"""How the cost of an audit grows: large clean traces, and the time and memory to judge them.

The traces are of simulated runs. With one topic, 64 nodes all publish and all deliver everything: the hardest shape for
the audit, because its work grows with deliveries times publishers of a topic, and because one large topic must be
split. With several topics the same nodes are members of all of them.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.kernel.errors import PeerError
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import Scenario
from antiphon.trace.store import count_rows
from antiphon_lab.bench.own_process import python_module
from antiphon_lab.bench.sweep_bench import descends

NODES = 64
SEED = 5
MEAN_GAP = 100
SECONDS_BETWEEN_LOOKS = 0.2


class AuditMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an audit."""

    topics: int
    deliveries: int
    trace_rows: int
    trace_bytes: int
    seconds: float
    """The time of the audit, without the start of Spark."""
    elapsed_seconds: float
    """The time of the whole command."""
    processor_seconds: float
    """Processor time of all its processes; more reliable than elapsed time on a shared machine."""
    peak_memory_bytes: int
    """The highest sum of the memory of the command's processes; shared pages count in each."""

    @property
    def deliveries_per_second(self) -> float:
        """Deliveries judged per second."""
        return self.deliveries / self.seconds


def scenario_of(deliveries: int, topics: int) -> Scenario:
    """A run with about so many deliveries."""
    description: dict[str, Any] = {
        "name": "one topic, everybody publishes" if topics == 1 else f"{topics} topics, everybody publishes",
        "seed": SEED,
        "protocol": "broadcast",
        "order": "causal",
        "nodes": NODES,
        "network": {"delay": {"law": "normal", "mean": 100, "deviation": 30}},
        "workload": {"kind": "rate", "mean_gap": MEAN_GAP, "count": max(1, deliveries // NODES)},
        "trace": {"level": "deliveries"},
    }
    if topics > 1:
        description["protocol"] = "vcube-ps"
        description["topics"] = {"count": topics, "members": [f"0-{NODES - 1}"] * topics}
        description["workload"]["topic"] = "any"
    return msgspec.convert(description, Scenario)


def trace_of(deliveries: int, topics: int, directory: Path) -> Path:
    """The trace of such a run; an existing one is used again."""
    path = directory / f"audit-{topics}-{deliveries}.parquet"
    if not path.exists():
        run_scenario(scenario_of(deliveries, topics), path)
    return path


def measure_audit(trace: Path, topics: int) -> AuditMeasurement:
    """Judge a trace with the command that users call, and measure its processes."""
    command = python_module("antiphon", "audit", "--spark", "--json", str(trace))
    said, watch = watched(command)
    found = msgspec.json.decode(said)
    if found["verdict"] != "clean":
        raise PeerError(f"the audit finds faults in {trace}, which should be clean; the trace or the audit is wrong")
    return AuditMeasurement(
        topics=topics,
        deliveries=found["deliveries"],
        trace_rows=count_rows(trace),
        trace_bytes=trace.stat().st_size,
        seconds=found["seconds"],
        elapsed_seconds=watch.seconds,
        processor_seconds=watch.processor_seconds,
        peak_memory_bytes=watch.peak_memory_bytes,
    )


class Watch:
    """Samples the processor time and the memory of a command and its descendants."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.peak_memory_bytes = 0
        self._ticks: dict[int, int] = {}

    @property
    def processor_seconds(self) -> float:
        """The processor time of all processes when they were last sampled."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def look(self, ancestor: int) -> None:
        """Sample the running processes."""
        parents: dict[int, int] = {}
        pages: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                # The second field is a name in parentheses, which may contain anything.
                fields = (directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                held = int((directory / "statm").read_text(encoding="ascii").split()[1])
            except (OSError, IndexError):
                continue
            process = int(directory.name)
            parents[process], pages[process] = int(fields[1]), held
            ticks[process] = int(fields[11]) + int(fields[12])
        ours = [process for process in parents if descends(process, ancestor, parents)]
        self._ticks |= {process: ticks[process] for process in ours}
        held_bytes = sum(pages[process] for process in ours) * os.sysconf("SC_PAGE_SIZE")
        self.peak_memory_bytes = max(self.peak_memory_bytes, held_bytes)


def watched(command: Sequence[str]) -> tuple[bytes, Watch]:
    """Run a command; returns its output and its measurements."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watch = Watch()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            watch.look(process.pid)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        said, complaint = process.communicate()
    finally:
        ended.set()
        watcher.join()
    watch.seconds = time.perf_counter() - started
    if process.returncode != 0:
        reason = complaint.decode().strip().removeprefix("antiphon: ") or "it may have run out of memory"
        raise PeerError(f"the audit ended with code {process.returncode}: {reason}")
    return said, watch
