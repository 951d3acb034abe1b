"""The page of a recorded run, in a browser: its pictures, its addresses, and that no request leaves the machine."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.parquet as pq
import pytest

from antiphon.console.recorded import RecordedRun
from antiphon.simulator.scenario.audited import SCENARIOS
from antiphon.trace.store import read_trace
from tests.console.served import BROWSER_PATIENCE_MS, FAINT, NAMELESS, served, simulated, with_rows_exchanged

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def address(overtaking: Path) -> Iterator[str]:
    async def site() -> RecordedRun:
        return RecordedRun([overtaking], SCENARIOS)

    with served(site) as url:
        yield url


def until(page: Page, expression: str) -> None:
    """Wait until something is true on the page; its policy forbids the browser to wait by itself."""
    deadline = time.monotonic() + BROWSER_PATIENCE_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


def drawn(page: Page) -> dict[str, Any]:
    """The state of the diagram, when it has what it shows."""
    until(page, "window.antiphonDiagram?.slice && !antiphonDiagram.asking && antiphonDiagram.isCovered()")
    found = page.evaluate("""() => {
        const { view, slice, selection } = window.antiphonDiagram;
        const chosen = selection && [selection.source, selection.sequence];
        return { from: view.from, to: view.to, exact: slice.exact, dots: slice.row?.length, chosen };
    }""")
    assert isinstance(found, dict)
    return found


def test_the_longest_wait_is_one_press_away_and_told_in_words(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("row", name="node 3").first.click()
    story = page.locator("ol.story li")
    story.first.wait_for()
    assert story.all_inner_texts() == [
        "Node 3 held message 1 of node 1 for 132 ticks: it follows message 1 of node 0.",
        "Message 1 of node 0 was on a slow link: 163 ticks from node 0 to node 2, where 14 ticks is usual.",
    ]
    assert drawn(page)["chosen"] == [1, 1]


def test_an_address_opens_the_same_view_again(page: Page, address: str) -> None:
    page.goto(f"{address}#/run?message=0:1:1&node=2")
    page.get_by_role("heading", name="Why at this time at node 2").wait_for()
    page.get_by_role("button", name="Zoom in").click()
    until(page, "location.hash.includes('from=') && location.hash.includes('message=0')")
    page.wait_for_timeout(300)
    shared, before = page.url, drawn(page)
    page.goto("about:blank")
    page.goto(shared)
    page.get_by_role("heading", name="Why at this time at node 2").wait_for()
    after = drawn(page)
    assert [after["from"], after["to"]] == pytest.approx([before["from"], before["to"]], abs=1)
    assert after["chosen"] == before["chosen"] == [1, 1]


def test_a_dot_is_chosen_by_pointing_and_by_keys(page: Page, address: str) -> None:
    page.goto(address)
    drawn(page)
    x, y = page.evaluate("""() => {
        const { slice, canvas } = antiphonDiagram, box = canvas.getBoundingClientRect();
        const is = (at) => slice.event[at] === 1 && slice.lane[at] === 2 && slice.source[at] === 1;
        const place = slice.row.findIndex((_, at) => is(at));
        return [box.left + antiphonDiagram.x(slice.time[place]), box.top + antiphonDiagram.y(2)];
    }""")
    page.mouse.move(x, y)
    assert page.locator(".tip").inner_text().startswith("node 2 delivered message 1 of node 1")
    page.mouse.click(x, y)
    page.get_by_role("heading", name="Why at this time at node 2").wait_for()
    page.locator("canvas.diagram").focus()
    page.keyboard.press("Escape")
    assert drawn(page)["chosen"] is None
    page.keyboard.press("n")
    until(page, "antiphonDiagram.selection !== null")
    whole = drawn(page)
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    nearer = drawn(page)
    assert nearer["to"] - nearer["from"] < whole["to"] - whole["from"]
    page.keyboard.press("Home")
    assert drawn(page)["from"] == pytest.approx(whole["from"])


def test_a_message_is_found_by_its_name(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("searchbox").fill("2:1")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Message 1 of node 2").wait_for()
    page.get_by_role("searchbox").fill("2:9")
    page.keyboard.press("Enter")
    page.get_by_text("this run has no message 9 of node 2").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_everybody_can_read_it(page: Page, address: str, scheme: Literal["light", "dark"], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for place in ("", "#/run?message=0:1:1", "#/run?panel=violations"):
        page.goto(address + place)
        page.reload()
        drawn(page)
        page.locator(".side .body > *").first.wait_for()
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(FAINT) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_nothing_violated_is_said(page: Page, address: str) -> None:
    page.goto(f"{address}#/run?panel=violations")
    page.get_by_text("Every promise of this run was kept.").wait_for()


def test_a_violation_is_opened_at_its_place(page: Page, overtaking: Path, tmp_path: Path) -> None:
    table = read_trace(overtaking)
    rows = table.to_pylist()
    one, other = (
        next(
            place
            for place, row in enumerate(rows)
            if (row["event"], row["node"], row["source"]) == ("deliver", 2, source)
        )
        for source in (0, 1)
    )
    pq.write_table(with_rows_exchanged(table, one, other), tmp_path / "broken.parquet")

    async def site() -> RecordedRun:
        return RecordedRun([tmp_path / "broken.parquet"], SCENARIOS)

    with served(site) as url:
        page.goto(f"{url}#/run?violation=causal")
        until(page, "window.antiphonDiagram?.selection")
        # Message 1 of node 0 came to node 2 behind the answer to it.
        assert drawn(page)["chosen"] == [0, 1]
        assert page.evaluate("antiphonDiagram.selection.seen_from") == 2
        page.locator(".violation", has_text="causal").get_by_text("publication 1 of node 0").first.wait_for()


def test_a_page_of_another_site_gets_nothing(browser: Browser, address: str) -> None:
    """The browser of a victim opens a page of an attacker, which asks the console."""
    page = browser.new_page()
    page.goto("data:text/html,<h1>win a prize</h1>")
    asked = page.evaluate(
        """async (address) => {
            try { return (await fetch(address + "api/run", { mode: "no-cors" })).type; }
            catch (error) { return "refused"; }
        }""",
        address,
    )
    assert asked == "refused"
    page.close()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(
            urllib.request.Request(f"{address}api/run", headers={"Sec-Fetch-Site": "cross-site"}), timeout=60
        )


@pytest.mark.campaign
def test_a_million_rows_are_moved_smoothly(page: Page, tmp_path: Path) -> None:
    from tests.console.test_diagram import BUSY

    text = BUSY.replace("nodes = 8", "nodes = 64").replace("mean_gap = 40, count = 60", "mean_gap = 30, count = 3300")
    trace = simulated(text + "protocol-options = { acknowledge = true }\n", tmp_path)

    async def site() -> RecordedRun:
        return RecordedRun([trace])

    with served(site) as url:
        page.goto(url)
        drawn(page)
        rows = page.evaluate("antiphonDiagram.run.rows")
        assert rows > 1_000_000
        first_ms = page.evaluate("performance.now()")
        frames = page.evaluate("""async () => {
            const diagram = antiphonDiagram, begin = performance.now(), before = diagram.frames;
            diagram.zoom(0.1);
            while (performance.now() - begin < 2000) {
                diagram.pan(0.01);
                await new Promise(requestAnimationFrame);
            }
            return (diagram.frames - before) / 2;
        }""")
        print(f"{rows:,} rows: first picture after {first_ms:.0f} ms, panning at {frames:.0f} frames a second")
        # Loose, because a machine may be busy; the guide has the figures of a quiet one.
        assert first_ms < 10_000
        assert frames > 5
        page.goto("about:blank")
