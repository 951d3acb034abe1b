"""The documentation is a site in which everything can be found: pages, links, every public name, and the search."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 300


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
