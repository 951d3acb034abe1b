"""Measures the bank on each system: its servers are processes, and so are the callers of each job."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.node.local_cluster import free_addresses
from antiphon_lab.bench.own_process import python_module
from antiphon_lab.bench.services.database import Databases
from antiphon_lab.bench.services.worker import CallerJob, JobFigures

WORKER: Final = "antiphon_lab.bench.services.worker"
START_SECONDS: Final = 60.0
JOB_SECONDS: Final = 600.0
SYSTEMS: Final = {
    "sqlite": "Antiphon, three replicas over SQLite",
    "memory": "Antiphon, three replicas in memory",
    "postgres": "PostgreSQL alone",
    "postgres-3": "PostgreSQL, three servers, a commit waits for one standby",
}
REPLICAS: Final = 3


class ServiceFigures(msgspec.Struct, frozen=True):
    """One job on one system."""

    system: str
    job: str
    keys: int
    in_flight: int
    figures: JobFigures


def measure(
    systems: list[str], jobs: list[str], keys: list[int], calls: int, in_flight: int, fabric: str
) -> Iterator[ServiceFigures]:
    """All lines, one after the other."""
    for system in systems:
        if system not in SYSTEMS:
            raise UsageError(f"there is no system {system!r}; choose among {', '.join(SYSTEMS)}")
        kind = "postgres" if system.startswith("postgres") else "antiphon"
        with (
            tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory,
            running(system, Path(directory), fabric) as address,
        ):
            for job, count in itertools.product(jobs, keys):
                task = CallerJob(kind, address, job, calls, in_flight, count)
                yield ServiceFigures(system, job, count, in_flight, run_callers(task))


@contextlib.contextmanager
def running(system: str, directory: Path, fabric: str) -> Iterator[str]:
    """The servers of a system; the address for callers."""
    if system.startswith("postgres"):
        databases = Databases(directory, REPLICAS - 1 if system == "postgres-3" else 0)
        try:
            yield databases.address
        finally:
            databases.close()
        return
    addresses = free_addresses(REPLICAS)
    store = "memory" if system == "memory" else ""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, address in enumerate(addresses):
            data, join = str(directory / f"node{number}"), "" if number == 0 else addresses[0]
            command = python_module(WORKER, "replica", data, address, join, store, fabric)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            processes.append(process)
            assert process.stdout is not None, "a pipe was asked for"
            if process.stdout.readline().strip() != b"ready":
                raise PeerError(f"replica {number} did not start")
        yield addresses[-1]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            # Waits for its end, and closes its pipe.
            process.communicate()


def run_callers(job: CallerJob) -> JobFigures:
    """One job in a process of its own."""
    command = python_module(WORKER, "callers", msgspec.json.encode(job).decode())
    done = subprocess.run(command, capture_output=True, check=False, timeout=JOB_SECONDS)
    if done.returncode or not done.stdout:
        raise PeerError(f"the callers of {job.job} failed: {done.stderr.decode().strip()[-500:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=JobFigures)
