"""One browser for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.console.served import BROWSER, OVERTAKING, simulated

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")  # a browser runs an event loop, and tests of other folders need their own
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="package")
def overtaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(OVERTAKING, tmp_path_factory.mktemp("console"))
