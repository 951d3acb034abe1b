"""A scenario that is played: forward, back, and with a hand in it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.console.http_messages import HttpRequest
from antiphon.console.played import PlayedRun, changed
from antiphon.kernel.errors import UsageError
from antiphon.simulator.scenario.file import load_scenario
from antiphon.simulator.scenario.run import run_scenario
from antiphon.simulator.scenario.scenario import PartitionFault, Scenario
from tests.console.served import BROWSER_PATIENCE_MS, OVERTAKING, complaints_about, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    file = tmp_path / "played.toml"
    file.write_text(OVERTAKING)
    return load_scenario(file)


@pytest.fixture
def page(browser: Browser, scenario: Scenario) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 760}, permissions=["clipboard-read"])
    found = context.new_page()
    found.set_default_timeout(BROWSER_PATIENCE_MS)
    complaints = complaints_about(found)

    async def site() -> PlayedRun:
        return PlayedRun(scenario)

    with served(site) as url:
        found.goto(url)
        found.get_by_role("button", name="Play", exact=True).wait_for()
        yield found
        context.close()
    assert complaints == []


def moment(page: Page) -> int:
    found = re.match(r"time ([\d,]+) of", page.locator("output").inner_text())
    assert found is not None
    return int(found[1].replace(",", ""))


def deliveries(page: Page) -> int:
    return int(re.findall(r"([\d,]+) deliveries", page.locator("#facts").inner_text())[0])


def test_steps_go_from_row_to_row_and_back(page: Page) -> None:
    from playwright.sync_api import expect

    # The acknowledgement of the first message comes at 38.
    for shown, button in ((10, "forward (.)"), (24, "forward (.)"), (38, "forward (.)"), (40, "back (,)"), (38, "")):
        expect(page.locator("output")).to_have_text(re.compile(f"^time {shown} of "), timeout=BROWSER_PATIENCE_MS)
        if button:
            page.get_by_role("button", name=f"One step {button}").click()
    page.get_by_role("combobox", name="Speed").select_option("4")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("output")).to_have_text(re.compile(r"^time (6\d|\d{3}) of "), timeout=BROWSER_PATIENCE_MS)
    page.get_by_role("button", name="Pause", exact=True).click()
    assert moment(page) >= 60


def test_a_cut_link_loses_its_copies_and_no_others(page: Page) -> None:
    assert deliveries(page) == 16
    page.get_by_role("combobox", name="The other end of the link").select_option("2")
    page.get_by_role("button", name="Cut", exact=True).click()
    page.get_by_text("cut the link between nodes 0 and 2").wait_for()
    run = page.evaluate("antiphonDiagram.run")
    assert run["totals"]["dropped"] > 0
    assert 0 < deliveries(page) < 16
    page.get_by_role("button", name="Undo the last one").click()
    page.get_by_text("cut the link between nodes 0 and 2").wait_for(state="detached")
    assert deliveries(page) == 16


def test_a_crashed_node_is_down_from_then_on(page: Page) -> None:
    page.get_by_role("button", name="To the end").click()
    page.get_by_role("button", name="Back to the start").click()
    page.get_by_role("row", name="node 3").get_by_role("button", name="Crash").click()
    page.get_by_text("crash of node 3").wait_for()
    assert page.get_by_role("row", name="node 3").get_by_text("up").is_visible()
    page.get_by_role("button", name="One step forward (.)").click()
    page.get_by_role("row", name="node 3").get_by_text("down").wait_for()


def test_what_was_played_is_a_scenario_that_anybody_runs(scenario: Scenario, tmp_path: Path) -> None:
    async def play() -> tuple[dict[str, Any], str]:
        run = PlayedRun(scenario)
        crash = {"kind": "crash", "nodes": [3], "at": 60}
        cut = {"kind": "cut", "nodes": [2, 0], "at": 20}
        for wanted in (crash, cut):
            told = await run.answer(HttpRequest("POST", "/api/intervene", {}, {}, json.dumps(wanted).encode()))
            assert told.status == 200
        shown = json.loads((await run.answer(HttpRequest("GET", "/api/run", {}, {}))).body)
        text = json.loads((await run.answer(HttpRequest("GET", "/api/scenario", {}, {}))).body)["text"]
        await run.close()
        return shown, text

    # The thread of the tests has the loop that drives the browser.
    with ThreadPoolExecutor(1) as thread:
        shown, text = thread.submit(asyncio.run, play()).result(60)
    (tmp_path / "again.toml").write_text(text)
    again = run_scenario(load_scenario(tmp_path / "again.toml"))
    assert (again.deliveries, again.dropped) == (shown["totals"]["delivered"], shown["totals"]["dropped"])
    assert shown["totals"]["delivered"] < 16


def test_interventions_that_cannot_be_are_refused() -> None:
    for wanted in (
        {"kind": "crash", "nodes": [9]},
        {"kind": "crash", "nodes": []},
        {"kind": "explode", "nodes": [1]},
        {"kind": "cut", "nodes": [1, 1]},
        {"kind": "heal", "nodes": [0, 1], "at": 5},
    ):
        with pytest.raises(UsageError):
            changed([], wanted, 4)


def test_a_cut_link_is_healed() -> None:
    cut = changed([], {"kind": "cut", "nodes": [2, 0], "at": 5}, 4)
    (healed,) = changed(cut, {"kind": "heal", "nodes": [0, 2], "at": 9}, 4)
    assert isinstance(healed, PartitionFault)
    assert (healed.at, healed.until, healed.linked) == (5, 9, "chain")
