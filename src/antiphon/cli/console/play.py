"""``antiphon play``: runs a scenario and shows it in the browser, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.console.recorded import ANY_PORT, Browser, Listen, show_site


def play(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="The scenario file.", show_default=False)],
    listen: Listen = ANY_PORT,
    browser: Browser = True,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Run with this seed instead of the file's.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the address as one line of JSON.")] = False,
) -> None:
    """Play a scenario in the browser: step by step, forward, back, at a chosen speed.

    Crash a node or cut a link at any moment and see what happens. The page shows the result as a scenario file, which
    antiphon simulate runs.

    Example: antiphon play examples/scenarios/crash.toml
    """
    import antiphon
    from antiphon.simulator.scenario.file import load_scenario

    loaded = load_scenario(scenario, seed)

    async def show() -> None:
        from antiphon.console.played import PlayedRun

        run = PlayedRun(loaded)
        try:
            await show_site(run, listen, "", browser, json)
        finally:
            await run.close()

    antiphon.run(show())
