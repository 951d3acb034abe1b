"""``antiphon console``: shows a recorded run in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli import output, running

if TYPE_CHECKING:
    from antiphon.console.http_server import ConsoleSite

ANY_PORT = "127.0.0.1:0"

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="The address of the page; port 0 takes a free one.")
]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open the page in a browser.")]


def console(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Trace files, or directories of them.", show_default=False),
    ],
    listen: Listen = ANY_PORT,
    browser: Browser = True,
    json: Annotated[bool, typer.Option("--json", help="Print the address as one line of JSON.")] = False,
) -> None:
    """Look at a recorded run: each message on its way through space and time, and why it waited.

    It serves a page on this machine until Ctrl-C: a line for each node, an arrow for each message, real time from left
    to right. Choose a message to see what it waited for, where, and how long. Give the traces of all live nodes of a
    run together, or the one trace file of a simulated run.

    Examples: antiphon console traces    antiphon console crash.parquet --no-browser
    """
    import antiphon

    antiphon.run(show_run(traces, listen, "", browser, json))


async def show_run(traces: list[Path], listen: str, fragment: str, opens: bool, as_json: bool) -> None:
    """Show a run from its place ``fragment`` on, until a signal."""
    from antiphon.console.recorded import RecordedRun
    from antiphon.simulator.scenario.audited import SCENARIOS

    run = RecordedRun(traces, SCENARIOS)
    try:
        await show_site(run, listen, fragment, opens, as_json)
    finally:
        await run.close()


async def show_site(site: ConsoleSite, listen: str, fragment: str, opens: bool, as_json: bool) -> None:
    """Serve a site until a signal, and open it in a browser if that is wanted."""
    from antiphon.console.http_server import ConsoleServer

    stop = running.until_signal()
    server = await ConsoleServer(site).start(listen)
    try:
        url = server.url + fragment
        if as_json:
            output.print_line({"console": url})
        else:
            print(f"The console is at {url}; Ctrl-C ends it.", flush=True)
        if opens:
            webbrowser.open(url)
        await stop.wait()
    finally:
        await server.close()
