"""A worker that is killed again and again, and does each job once.

The worker stores the result of a job and its place in the topic in one transaction. After a crash it continues behind
the last job that it has stored. This program starts a node, publishes jobs, and kills the worker with SIGKILL twice.

python examples/worker.py
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

import antiphon

JOBS = 60


def open_results(path: str) -> sqlite3.Connection:
    """The worker's own database: what it has done, and where to go on."""
    results = sqlite3.connect(path, isolation_level=None)
    results.execute("CREATE TABLE IF NOT EXISTS done (job TEXT, result INTEGER)")
    results.execute("CREATE TABLE IF NOT EXISTS position (topic TEXT PRIMARY KEY, next_offset INTEGER)")
    return results


def next_offset(results: sqlite3.Connection) -> int | str:
    """The place of the first job that is not done; before the first job, the beginning of the log."""
    row = results.execute("SELECT next_offset FROM position WHERE topic = 'jobs'").fetchone()
    return "earliest" if row is None else int(row[0])


async def work(address: str, path: str) -> None:
    """Do jobs, one after the other, from the stored position on."""
    results = open_results(path)
    # Offsets belong to the log of one node, so the worker returns to the same node.
    async with antiphon.connect(address) as client:
        async for message in client.subscribe("jobs", start=next_offset(results)):
            job = int(message.value)
            await asyncio.sleep(0.01)  # hard work
            with results:
                results.execute("BEGIN")
                results.execute("INSERT INTO done VALUES (?, ?)", (str(job), job * job))
                results.execute("INSERT OR REPLACE INTO position VALUES ('jobs', ?)", (message.offset + 1,))


async def main() -> None:
    """A node with a log, jobs, and a worker that is killed twice."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "results.db")
        results = open_results(path)
        results.execute("PRAGMA journal_mode = WAL")
        async with antiphon.start(data=str(Path(folder) / "node"), keep=["jobs"]) as node:
            for job in range(JOBS):
                await node.publish("jobs", str(job).encode())
            starts = 0
            done = 0
            while done < JOBS:
                worker = await asyncio.create_subprocess_exec(sys.executable, __file__, node.address, path)
                starts += 1
                while done < min(20 * starts, JOBS):
                    await asyncio.sleep(0.02)
                    (done,) = results.execute("SELECT count(*) FROM done").fetchone()
                worker.kill()
                await worker.wait()
        jobs = [int(job) for (job,) in results.execute("SELECT job FROM done ORDER BY rowid")]
        results.close()
        assert jobs == list(range(JOBS)), jobs
        print(f"{JOBS} jobs were done once, in order, by a worker that was started {starts} times")


if __name__ == "__main__":
    antiphon.run(work(*sys.argv[1:]) if len(sys.argv) == 3 else main())
