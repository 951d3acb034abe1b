"""The documentation is a site in which everything can be found: pages, links, every public name, and the search."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

import antiphon

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 900


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a page outside the navigation, a broken link or a missing anchor is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--quiet",
            "--config-file",
            ROOT / "mkdocs.yml",
            "--site-dir",
            folder,
        ],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_has_its_place_and_every_link_leads_somewhere(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    built = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert {page.with_name("index") if page.name == "README" else page for page in pages} <= built


def test_the_reference_documents_every_public_name(site: Path) -> None:
    reference = (site / "reference" / "python.html").read_text(encoding="utf-8")
    errors = (site / "reference" / "errors.html").read_text(encoding="utf-8")
    documented = set(re.findall(r'id="antiphon\.[\w.]*?(\w+)"', reference)) | set(
        re.findall(r"<code>(\w+)</code>", errors)
    )
    assert not set(antiphon.__all__) - documented


def test_the_reference_has_a_sentence_for_every_public_name(site: Path) -> None:
    reference = (site / "reference" / "python.html").read_text(encoding="utf-8")
    empty = re.findall(
        r'id="antiphon\.([\w.]+)"[^>]*>(?:(?!<h\d).)*?<div class="doc doc-contents[^"]*">\s*</div>',
        reference,
        re.DOTALL,
    )
    assert not empty


def test_pages_load_nothing_from_a_network(site: Path) -> None:
    """Among others the script without which a page that is opened as a file has no search."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<script[^>]*src="([^"]*)"|<link[^>]*href="([^"]*)"[^>]*rel="stylesheet"', text)
        assert not [each for pair in loaded for each in pair if each.startswith(("http", "//"))], page.name
    assert "javascripts/iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


def test_the_search_finds_pages_without_a_network(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"] for entry in index["docs"] if "quorum_delivery" in entry["text"]}
    assert any(place.startswith("guarantees.html") for place in found)
    assert (site / "search" / "search_index.js").exists()  # read by pages that are opened as files


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDER_THAN_THE_SCREEN = """() => {
    const cut = (element) => {
        for (let box = element; box && box.tagName !== "ARTICLE"; box = box.parentElement)
            if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return true;
        return false;
    };
    return [...document.querySelectorAll("article *")]
        .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth + 2)
        .filter((element) => element.getClientRects().length > 0 && !cut(element))
        .map((element) => element.outerHTML.slice(0, 90));
}"""
"""Only tables and code may be wider, and they can be scrolled."""


@pytest.mark.campaign
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("width", [1366, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_screen(site: Path, scheme: Literal["light", "dark"], width: int) -> None:
    """Every page, opened as a file, on a desktop and a phone: no error, no network, nothing is cut off."""
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=180_000)
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: complaints.append(request.url) if request.url.startswith(("http", "ws")) else None,
        )
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            wide = page.evaluate(WIDER_THAN_THE_SCREEN)
            complaints += [f"{path.relative_to(site)}: {each}" for each in wide]
        browser.close()
    assert complaints == []


@pytest.mark.campaign
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_the_search_works_in_a_browser_without_a_network(site: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=180_000)
        context = browser.new_context(offline=True)
        page = context.new_page()
        page.goto((site / "index.html").as_uri())
        page.fill("input.md-search__input", "NoMajorityError")
        expect(page.locator(".md-search-result__list")).to_contain_text("Errors", timeout=30_000)
        browser.close()
