"""The walk of one message: how many Python calls it takes, counted, not timed, and however many topics there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli.output import is_compiled

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("walk_child.py")


def calls_per_message(ends: str, topics: int, plain: bool) -> float:
    """Run the counting process with the plain sources, or with the installed package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    if plain:
        environment["PYTHONPATH"] = str(ROOT / "src")
    command = [sys.executable, "-P", str(CHILD), ends, str(topics)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


# Measured: 222 to 223, and 367 to 372, by how many frames happen to share a write.
@pytest.mark.parametrize(("ends", "at_most"), [("nodes", 225), ("clients", 375)])
def test_a_message_takes_no_more_calls_than_before(ends: str, at_most: int) -> None:
    assert calls_per_message(ends, 1, plain=True) < at_most


@pytest.mark.skipif(not is_compiled(), reason="nothing is compiled here")
@pytest.mark.parametrize(("ends", "at_most"), [("nodes", 25), ("clients", 90)])
def test_most_of_the_walk_is_compiled(ends: str, at_most: int) -> None:
    """A compiled call is none that the interpreter sees: what is left are calls of modules that are not compiled."""
    assert calls_per_message(ends, 1, plain=False) < at_most


def test_a_message_takes_as_many_calls_whatever_the_number_of_topics() -> None:
    few, many = (calls_per_message("nodes", topics, plain=True) for topics in (5, 200))
    assert many < 1.1 * few + 20
