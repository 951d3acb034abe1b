"""``antiphon sweep`` as people and programs call it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon.cli import main as command
from antiphon.pipeline.atomic_output import ATTEMPTS
from antiphon.pipeline.sweep_cells import RECORD, TRACES

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweeps" / "order-and-size.toml"
LONG = """experiment = "long"
repetitions = 3
[base]
nodes = 8
[base.workload]
kind = "rate"
mean_gap = 10
count = 10
[grid]
workload.count = [10, 400000]
"""

Antiphon = Callable[..., tuple[int | str | None, str, str]]
"""Calls the command; gives its exit code, standard output and standard error."""


@pytest.fixture
def antiphon(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Antiphon:
    """The command as it is called from a shell, without the shell; it uses the Spark of the tests."""

    def call(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            command.main()
        said, complained = capfdbinary.readouterr()
        return stopped.value.code, said.decode(), complained.decode()

    return call


def test_the_example_for_people_and_then_for_machines(antiphon: Antiphon, spark: SparkSession, tmp_path: Path) -> None:
    code, said, complained = antiphon("sweep", EXAMPLE, "--out", tmp_path)
    assert code == 0
    assert said.count("kept every promise") == 24
    assert "24 cells run, 0 finished before, 0 failed" in said
    assert "24/24 done, 0 running, 0 left" in complained
    code, said, complained = antiphon("sweep", EXAMPLE, "--out", tmp_path, "--json")
    outcome = json.loads(said)
    assert (code, outcome["ran"], outcome["kept"], outcome["failed"]) == (0, 0, 24, {})
    rows = pq.read_table(tmp_path / "results" / "experiment=order-and-size" / "results.parquet").to_pylist()
    assert [row["deliveries"] for row in rows] == [record["result"]["deliveries"] for record in outcome["records"]]


def test_a_list_runs_nothing_and_needs_no_spark(antiphon: Antiphon, tmp_path: Path) -> None:
    code, said, complained = antiphon("sweep", EXAMPLE, "--out", tmp_path / "out", "--list", "--master", "nowhere://")
    assert (code, complained) == (0, "")
    assert "24 cells, 0 finished, 24 to do" in said
    assert not (tmp_path / "out").exists()
    _, said, _ = antiphon("sweep", EXAMPLE, "--out", tmp_path / "out", "--list", "--json")
    assert len(json.loads(said)) == 24


def test_a_broken_promise_is_an_exit_code(antiphon: Antiphon, spark: SparkSession, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    scenario = EXAMPLE.parents[1] / "scenarios" / "published.toml"
    grid.write_text(f'experiment = "broken"\nscenario = "{scenario}"\n')
    code, said, _ = antiphon("sweep", grid, "--out", tmp_path / "out")
    assert code == 1
    assert "1 cells run" in said
    assert "kept every promise" not in said


@pytest.mark.parametrize(
    ("text", "code", "complaint"),
    [
        ("experiment = \n", 2, "grid.toml, line 1, column 14: invalid value"),
        ('experiment = "a"\n[base]\nnodes = 0\n', 2, "line 3: base.nodes: expected a number of nodes"),
    ],
)
def test_a_broken_grid_is_one_sentence(
    antiphon: Antiphon, tmp_path: Path, text: str, code: int, complaint: str
) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(text)
    found, said, complained = antiphon("sweep", grid, "--out", tmp_path / "out")
    assert (found, said, complained.count("\n")) == (code, "", 1)
    assert complaint in complained
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_a_file(antiphon: Antiphon, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    code, _, complained = antiphon("sweep", EXAMPLE, "--out", tmp_path / "out")
    assert code == 1
    assert "cannot write to" in complained
    assert "choose another --out" in complained


def test_an_interrupted_sweep_keeps_what_is_finished_and_goes_on(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(LONG)
    out = tmp_path / "out"
    arguments = [sys.executable, "-m", "antiphon", "sweep", str(grid), "--out", str(out), "--cores", "2"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as running:
        # The large ones come first; as soon as one runs, the others are not finished.
        while running.poll() is None and not (out / ATTEMPTS).is_dir():
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        _, complained = running.communicate()
    assert running.returncode == 130
    assert "of 6 cells are finished; the same command does the rest" in complained
    finished = {path: path.stat().st_mtime_ns for path in (out / TRACES).rglob(RECORD)}
    assert len(finished) < 6
    # The grid without its long cells: finishes soon, and runs nothing that is finished.
    grid.write_text(LONG.replace("400000", "20"))
    done = subprocess.run([*arguments, "--json"], capture_output=True, text=True, check=True)
    outcome = json.loads(done.stdout)
    assert outcome["ran"] + outcome["kept"] == 6
    assert all(path.stat().st_mtime_ns == written for path, written in finished.items())
