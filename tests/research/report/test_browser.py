"""The page in a real browser: no error, no request, nothing too wide. Needs Chromium, which nothing here downloads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from antiphon_lab.report.stored import Result
from antiphon_lab.report.write import write_results

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
OVERFLOWING = """() => [...document.querySelectorAll("body *")]
    .filter((element) => !element.closest(".scroll, svg") && element.getClientRects().length > 0)
    .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
    .map((element) => element.outerHTML.slice(0, 90))"""
BOXES = """() => [...document.querySelectorAll("figure")].map((figure) => {
    const shown = [...figure.querySelectorAll("svg.chart")].filter((chart) => chart.getClientRects().length > 0);
    return shown.map((chart) => { const box = chart.getBoundingClientRect(); return [box.width, box.height]; });
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, results: list[Result]) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    write_results(results, path)
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=180_000)
        yield started
        started.close()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("light", 360, marks=pytest.mark.campaign),
        pytest.param("dark", 1280, marks=pytest.mark.campaign),
    ],
)
def test_the_page_in_a_browser(
    browser: Browser, address: str, results: list[Result], scheme: Scheme, width: int
) -> None:
    complaints: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(180_000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    page.evaluate("() => document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    boxes = page.evaluate(BOXES)
    assert len(boxes) == sum(len(result.figures) for result in results)
    assert all(len(shown) == 1 and shown[0][0] > 250 and shown[0][1] > 200 for shown in boxes)
    page.close()


def test_a_hint_appears_at_the_nearest_point_and_goes_away(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(180_000)
    page.goto(address)
    chart = page.locator("figure svg.chart.wide").first
    dot = chart.locator(".dot").first
    said = dot.get_attribute("data-hint")
    assert said and dot.locator("title").count() == 0
    dot.hover(force=True)
    hint = page.locator("#hint")
    assert hint.is_visible()
    lines = [line for line in hint.inner_text().splitlines() if line]
    assert set(said.splitlines()) <= set(lines)
    # The point of the other order of sending lies on top of this one, and is named too.
    assert len(lines) == 4
    page.mouse.move(2, 2)
    assert hint.is_hidden()
    page.close()


def test_light_and_dark_are_different_and_readable(browser: Browser, address: str) -> None:
    """The contrast of text to page is at least 7, as good books have it."""
    for scheme in SCHEMES:
        page = browser.new_page(color_scheme=scheme)
        page.set_default_timeout(180_000)
        page.goto(address)
        ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 7
        assert (luminance(paper) > 0.5) == (scheme == "light")
        page.close()


def luminance(colour: str) -> float:
    """Of a colour as ``rgb(1, 2, 3)``, as the guidelines for accessible pages define it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
