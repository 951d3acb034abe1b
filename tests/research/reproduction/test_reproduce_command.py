"""``antiphon reproduce`` on Spark, killed in the middle."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from antiphon_lab.experiments.vcube.one_tree import FIG_2_9
from antiphon_lab.reproduction.job import REPORTS
from antiphon_lab.reproduction.measurements import MEASUREMENTS

PLAN = FIG_2_9.plan(False, 128, 1)
REPETITIONS = 60


def reproduce(out: Path, repetitions: int, *arguments: str) -> list[str]:
    size = ("--nodes", "128", "--repetitions", str(repetitions))
    return [sys.executable, "-m", "antiphon", "reproduce", FIG_2_9.name, *size, "--out", str(out), *arguments]


def records(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / MEASUREMENTS).rglob("*.json")}


def test_killed_half_way_it_goes_on_and_the_numbers_are_those_of_a_run_in_one_go(tmp_path: Path) -> None:
    command = reproduce(tmp_path, REPETITIONS, "--on-spark", "--cores", "2")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not records(tmp_path):
            time.sleep(0.01)
        running.kill()
    finished = records(tmp_path)
    assert 0 < len(finished) < REPETITIONS * len(FIG_2_9.cases(PLAN)), "it was killed neither too early nor too late"
    # Less is asked for now; what is small is done without Spark, from the same records.
    done = subprocess.run(reproduce(tmp_path, 1, "--in-process"), capture_output=True, text=True, check=True)
    counts = re.search(r"(\d+) measurements run, (\d+) finished before, 0 failed", done.stdout)
    assert counts is not None
    assert int(counts[1]) + int(counts[2]) == len(FIG_2_9.cases(PLAN))
    assert int(counts[2]) > 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    report = json.loads((tmp_path / REPORTS / f"{FIG_2_9.name}.json").read_bytes())
    assert report["rows"] == FIG_2_9.run(PLAN, 1, lambda _: None).as_json()["rows"]
