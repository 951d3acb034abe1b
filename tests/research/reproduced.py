"""Experiments, small, run once for all tests that look at what they leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from antiphon_lab.reproduction.registry import EXPERIMENTS

LEFT_OUT = "ginger/keys"
"""It takes as long as all others together, and ``ginger/faults`` has rows and figures of the same kind."""

NAMES = [experiment.name for experiment in EXPERIMENTS if experiment.name != LEFT_OUT]


class Reproduced(NamedTuple):
    """A call of ``antiphon reproduce`` for these experiments, and the directory in which it ran."""

    code: int
    said: str
    complained: str
    directory: Path


def reproduce_small(directory: Path) -> Reproduced:
    """Measurements that several experiments share are made once."""
    wanted = (*NAMES, "--json", "--in-process", "--nodes", "16", "--repetitions", "1")
    called = subprocess.run(
        [sys.executable, "-m", "antiphon", "reproduce", *wanted],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return Reproduced(called.returncode, called.stdout, called.stderr, directory)
