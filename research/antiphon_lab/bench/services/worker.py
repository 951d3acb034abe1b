"""What runs in the processes of ``antiphon bench services``: a node with a replica, or callers.

A line on standard output says that a replica is ready, or holds the figures of the callers as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

import antiphon
from antiphon_lab.bench.services.bank import BenchBank
from antiphon_lab.bench.services.database import BALANCE, DEPOSIT, WITHDRAW

Call = Callable[[str], Awaitable[Any]]
Operation = Callable[[str, int], Awaitable[Any]]
FUNDS: Final = 1_000_000
WARM_UP: Final = 0.2
"""This part of all calls is made before the clock starts."""


class JobFigures(msgspec.Struct, frozen=True):
    """One job, with a number of calls in flight."""

    calls: int
    seconds: float
    calls_per_second: float
    p50_ms: float
    p99_ms: float


class CallerJob(msgspec.Struct, frozen=True):
    """What callers are to do."""

    system: str
    address: str
    job: str
    calls: int
    in_flight: int
    keys: int


async def replica(directory: str, listen: str, join: str, store: str, fabric: str) -> None:
    """A node and its replica, until the process is ended."""
    settings: dict[str, Any] = {"listen": listen, "join": [join] if join else [], "data": directory, "fabric": fabric}
    async with antiphon.start(**settings) as node, antiphon.serve(BenchBank, node, store=store or f"{directory}.db"):
        print("ready", flush=True)
        await node.until_stopped()


async def callers(job: CallerJob) -> None:
    """Measure one job."""
    async with AsyncExitStack() as stack:
        calls = await (antiphon_calls if job.system == "antiphon" else database_calls)(stack, job)
        # So much that no withdrawal is refused: one that changes nothing would cost less.
        await run(lambda account: calls["deposit"](account, FUNDS), job, job.keys)
        chosen = calls[job.job]

        def call(account: str) -> Awaitable[Any]:
            return chosen(account, 1)

        await run(call, job, int(job.calls * WARM_UP))
        begun = time.perf_counter()
        taken = await run(call, job, job.calls)
        seconds = time.perf_counter() - begun
    taken.sort()
    p50, p99 = (1e3 * taken[int(len(taken) * part)] for part in (0.5, 0.99))
    figures = JobFigures(len(taken), seconds, len(taken) / seconds, p50, p99)
    print(msgspec.json.encode(figures).decode(), flush=True)


async def run(call: Call, job: CallerJob, count: int) -> list[float]:
    """Make calls about all keys by turns, so many at a time; how long each took."""
    numbers = iter(range(count))
    taken: list[float] = []

    async def caller() -> None:
        for number in numbers:
            begun = time.perf_counter()
            await call(f"account {number * 7919 % job.keys}")
            taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(caller() for _ in range(job.in_flight)))
    return taken


async def antiphon_calls(stack: AsyncExitStack, job: CallerJob) -> dict[str, Operation]:
    """The calls of the service by a client."""
    client = await stack.enter_async_context(antiphon.connect(job.address))
    bank = BenchBank.proxy(client, timeout=60)
    return {"deposit": bank.deposit, "withdraw": bank.withdraw, "balance": lambda account, _: bank.balance(account)}


async def database_calls(stack: AsyncExitStack, job: CallerJob) -> dict[str, Operation]:
    """Each call is one statement, over as many connections as calls are in flight."""
    import psycopg

    free: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(job.in_flight):
        connection = await psycopg.AsyncConnection.connect(job.address, autocommit=True, prepare_threshold=1)
        await stack.enter_async_context(connection)
        free.put_nowait(connection)

    async def execute(statement: str, *values: str | int) -> Any:
        connection = free.get_nowait()
        try:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchone()
        finally:
            free.put_nowait(connection)

    return {
        "deposit": lambda account, cents: execute(DEPOSIT, account, cents),
        "withdraw": lambda account, cents: execute(WITHDRAW, cents, account, cents),
        "balance": lambda account, _: execute(BALANCE, account),
    }


if __name__ == "__main__":
    if sys.argv[1] == "replica":
        antiphon.run(replica(*sys.argv[2:]))
    else:
        antiphon.run(callers(msgspec.json.decode(sys.argv[2], type=CallerJob)))
