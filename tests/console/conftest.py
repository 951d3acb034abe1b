"""One browser for all tests of the console, and a page in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.console.served import BROWSER, BROWSER_PATIENCE_MS, OVERTAKING, complaints_about, simulated

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")  # a browser runs an event loop, and tests of other folders need their own
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=BROWSER_PATIENCE_MS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which every error and every request that leaves the machine is a failure."""
    found = browser.new_page(viewport={"width": 1200, "height": 760})
    found.set_default_timeout(BROWSER_PATIENCE_MS)
    complaints = complaints_about(found)
    yield found
    found.close()
    assert complaints == []


@pytest.fixture(scope="package")
def overtaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(OVERTAKING, tmp_path_factory.mktemp("console"))
