"""A console that is served beside a test, a browser for it, and runs with a known story."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from antiphon.console.http_server import ConsoleServer, ConsoleSite
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import run_scenario

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BROWSER_PATIENCE_MS = 180_000
"""Nothing takes as long, also on a busy machine; a browser that would wait for ever fails instead."""

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


NAMELESS = """() => [...document.querySelectorAll("button, input, select, canvas, a[href], textarea")]
    .filter((each) => each.getClientRects().length)
    .filter((each) => !(each.getAttribute("aria-label") || each.title || each.textContent.trim()))
    .filter((each) => !each.labels?.length)
    .map((each) => each.outerHTML.slice(0, 80))"""
"""The elements that a screen reader could not name."""

FAINT = """() => {
    const level = (colour) => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255)
            .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ground = (element) => {
        for (let box = element; box; box = box.parentElement) {
            const colour = getComputedStyle(box).backgroundColor;
            if (!/, 0\\)|color\\(/.test(colour)) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    return [...document.querySelectorAll("main *, header *")]
        .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
        .filter((each) => each.getClientRects().length)
        .filter((each) => !each.disabled && !each.closest(".skip, option"))
        .map((each) => {
            const [a, b] = [level(getComputedStyle(each).color), level(ground(each))].sort((x, y) => y - x);
            return [(a + 0.05) / (b + 0.05), each.outerHTML.slice(0, 80)];
        })
        .filter(([contrast]) => contrast < 4.5);
}"""
"""The texts with less contrast than WCAG's level AA asks for."""


def complaints_about(page: Page) -> list[str]:
    """The errors of a page, and its requests that leave the machine, from now on."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    page.on(
        "request",
        lambda request: None if re.match(r"http://127\.0\.0\.1:\d+/", request.url) else found.append(request.url),
    )
    return found


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
