"""A console that is served beside a test, a browser for it, and runs with a known story."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from antiphon.console.http_server import ConsoleServer, ConsoleSite
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import run_scenario

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

OVERTAKING = """
name = "an answer that overtakes its question"
seed = 1
fabric = "cube"
protocol = "broadcast"
order = "causal"
nodes = 4
trace = { level = "everything" }
network.delay = { law = "matrix", rows = [[0, 12, 160, 12], [12, 0, 12, 12], [160, 12, 0, 12], [12, 12, 12, 0]] }
publish = [
    { at = 10, node = 0, payload = "why?" },
    { at = 40, node = 1, payload = "because" },
    { at = 90, node = 3, payload = "I see" },
    { at = 150, node = 2, payload = "what else?" },
]
"""
"""Node 0 asks over a slow link to node 2; the answer of node 1 arrives there first and has to wait."""


def simulated(text: str, place: Path, name: str = "run") -> Path:
    """The trace of a scenario."""
    scenario = place / f"{name}.toml"
    scenario.write_text(text)
    trace = place / f"{name}.parquet"
    run_scenario(load_scenario(scenario), trace)
    return trace


def with_rows_exchanged(table: pa.Table, one: int, other: int) -> pa.Table:
    """A trace in which two deliveries happened in each other's place."""
    rows = table.to_pylist()
    for column in ("source", "sequence", "message", "value"):
        rows[one][column], rows[other][column] = rows[other][column], rows[one][column]
    return pa.Table.from_pylist(rows, schema=table.schema)


@contextmanager
def served(make_site: Callable[[], Awaitable[ConsoleSite]], **how: Any) -> Iterator[str]:
    """The address of a console that runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[ConsoleSite, ConsoleServer]:
        site = await make_site()
        return site, await ConsoleServer(site).start("127.0.0.1:0", **how)

    async def stop() -> None:
        await server.close()
        await site.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    try:
        site, server = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        try:
            yield server.url
        finally:
            asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
