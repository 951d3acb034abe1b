"""What all tests share: repeatable property tests, and a word about which build was tested."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Parallel test runs set a width for their terminal; what commands print must not depend on it.
os.environ.pop("COLUMNS", None)
# Workers of Spark find the package `tests`, wherever the test was that started Spark.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")))
)

from antiphon.cli.output import is_compiled
from tests.sharing import Sharing, place_of

# Without deadlines, so that a busy machine fails nothing, and derandomised, so that a run can be repeated.
settings.register_profile("antiphon", deadline=None, derandomize=True, max_examples=60, database=None)
# For the second pass over the core tests, with the plain sources (tests/test_compiled_and_plain.py).
settings.register_profile("short", settings.get_profile("antiphon"), max_examples=10)
settings.load_profile("antiphon")


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands that are called in this process may say where logs go, and later tests look elsewhere."""
    root = logging.getLogger("antiphon")
    before = root.handlers[:], root.level, root.propagate
    yield
    handlers, level, root.propagate = before
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first, so that no process is left alone with it in the end."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing:
    """How tests are shared out among processes."""
    # Units stay in the order of the tests; by default those with most tests would be first.
    config.option.loadscopereorder = False
    return Sharing(config, log)


def pytest_report_header() -> str:
    """Say which build the tests import."""
    return f"antiphon: {'compiled' if is_compiled() else 'plain Python, not compiled'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests noted with ``record_property("note", ...)``, so that a weaker check does not pass unseen."""
    reports: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    notes = {str(note) for report in reports for key, note in report.user_properties if key == "note"}
    if notes:
        terminalreporter.section("notes")
        for note in sorted(notes):
            terminalreporter.line(note)
