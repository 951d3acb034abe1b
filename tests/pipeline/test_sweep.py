"""Sweeps on Spark: every cell once, the same bytes whatever fails, and on where they stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.pipeline.atomic_output import ATTEMPTS
from antiphon.pipeline.grid import load_grid, parse_grid
from antiphon.pipeline.jobs import into_tasks, run_on_spark
from antiphon.pipeline.session import SessionOptions
from antiphon.pipeline.sweep import Sweep, held, inspect, run_sweep, write_results
from antiphon.pipeline.sweep_cells import TRACES, Cell, CellRecord, read_record, run_cell

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweeps" / "order-and-size.toml"
TEXT = """experiment = "try"
seeds = [1, 2]
[base]
nodes = 8
workload = { kind = "once", window = 100 }
[grid]
nodes = [4, 8]
order = ["fifo", "causal"]
"""

Run = Callable[[Cell, Path], CellRecord]


def ignore(done: int, running: int) -> None:
    """A watcher that does not look."""


def sweep_of(text: str, out: Path, run: Run = run_cell) -> Sweep:
    return replace(inspect(parse_grid(text, Path("grid.toml")), out), run=run)


def bytes_of(out: Path) -> dict[str, bytes]:
    """Every trace, by its place."""
    return {str(path.relative_to(out)): path.read_bytes() for path in (out / TRACES).rglob("*.parquet")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the cells of ``TEXT`` write when nothing goes wrong and Spark has no part in it."""
    out = tmp_path_factory.mktemp("undisturbed")
    for cell in parse_grid(TEXT, Path("grid.toml")).cells:
        run_cell(cell, out)
    return bytes_of(out)


def test_the_example_is_read_as_one_table(spark: SparkSession, tmp_path: Path) -> None:
    sweep = inspect(load_grid(EXAMPLE), tmp_path)
    seen: list[int] = []
    with held(sweep.grid, tmp_path):
        run_sweep(sweep, SessionOptions(), lambda done, _: seen.append(done))
    assert sweep.left() == []
    assert seen == sorted(seen) and seen[-1] == 24
    traces = spark.read.parquet(str(tmp_path / TRACES))
    expected = {(*cell.parameters.values(), sweep.records[cell.number].result.deliveries) for cell in sweep.grid.cells}
    delivered = traces.where("event = 'deliver'").groupBy("variant", "nodes", "scenario_order", "seed").count()
    assert {tuple(row) for row in delivered.collect()} == expected
    results = spark.read.parquet(str(tmp_path / "results"))
    rows = results.select("variant", "nodes", "scenario_order", "seed", "deliveries").collect()
    assert {tuple(row) for row in rows} == expected
    assert results.where("experiment = 'order-and-size' and trace_bytes > 0 and seconds >= 0").count() == 24


def fails_first(how: Callable[[], None]) -> Run:
    """Runs cells, but not at the first attempt."""

    def run(cell: Cell, out: Path) -> CellRecord:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            # As late as possible: all that the cell does is done, and nobody has heard of it.
            run_cell(cell, out)
            how()
        return run_cell(cell, out)

    return run


def raises() -> None:
    raise RuntimeError("planted")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def half_written(cell: Cell, out: Path) -> CellRecord:
    """Dies in the middle of a cell the first time, with half a file on disk."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        attempt = out / ATTEMPTS / f"{cell.number}-dead"
        attempt.mkdir(parents=True)
        (attempt / ".trace.parquet.partial").write_bytes(b"PAR1 and not much more")
        os.kill(os.getpid(), signal.SIGKILL)
    return run_cell(cell, out)


@pytest.mark.parametrize("run", [fails_first(raises), fails_first(dies), half_written], ids=["raise", "die", "half"])
def test_a_task_that_fails_is_tried_again_and_gives_the_same_bytes(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, bytes], run: Run
) -> None:
    sweep = sweep_of(TEXT, tmp_path, run)
    run_on_spark(spark, sweep, ignore, 2)
    assert (sweep.left(), sweep.failures) == ([], {})
    assert bytes_of(tmp_path) == undisturbed


def test_a_cell_that_always_fails_does_not_stop_the_others(spark: SparkSession, tmp_path: Path) -> None:
    def run(cell: Cell, out: Path) -> CellRecord:
        if cell.number == 3:
            raise ZeroDivisionError("planted")
        return run_cell(cell, out)

    sweep = sweep_of(TEXT, tmp_path, run)
    run_on_spark(spark, sweep, ignore, 2)
    assert sweep.failures == {3: "ZeroDivisionError: planted"}
    assert [cell.number for cell in sweep.left()] == [3]


def test_a_disk_that_fails_stops_the_sweep_and_leaves_what_is_finished(
    spark: SparkSession, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    sweep = sweep_of(TEXT, tmp_path)
    first = sweep.grid.cells[0]
    run_cell(first, tmp_path)
    in_the_way = tmp_path / TRACES / "experiment=try" / "nodes=8"
    in_the_way.write_text("a file where a directory should be")
    sweep = sweep_of(TEXT, tmp_path)
    with pytest.raises(PeerError, match=r"cannot write to .*: (Not a directory|File exists).* of 8 cells are finished"):
        run_on_spark(spark, sweep, ignore, 2)
    assert read_record(first, tmp_path) is not None
    in_the_way.unlink()
    sweep = sweep_of(TEXT, tmp_path)
    run_on_spark(spark, sweep, ignore, 2)
    assert bytes_of(tmp_path) == undisturbed


def test_a_sweep_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    def refuses(cell: Cell, out: Path) -> CellRecord:
        assert cell.number >= 3, "finished before"
        return run_cell(cell, out)

    sweep = sweep_of(TEXT, tmp_path)
    for cell in sweep.grid.cells[:3]:
        run_cell(cell, tmp_path)
    sweep = sweep_of(TEXT, tmp_path, refuses)
    run_on_spark(spark, sweep, ignore, 2)
    assert (sweep.left(), sweep.failures) == ([], {})
    assert bytes_of(tmp_path) == undisturbed


def test_a_changed_grid_runs_only_what_is_new(tmp_path: Path) -> None:
    for cell in sweep_of(TEXT, tmp_path).left():
        run_cell(cell, tmp_path)
    wider = sweep_of(TEXT.replace("[4, 8]", "[2, 4, 8]"), tmp_path)
    assert {cell.parameters["nodes"] for cell in wider.left()} == {2}
    other = sweep_of(TEXT.replace("window = 100", "window = 50"), tmp_path)
    assert len(other.left()) == 8


def test_nothing_to_do_does_not_start_spark(tmp_path: Path) -> None:
    for cell in sweep_of(TEXT, tmp_path).left():
        run_cell(cell, tmp_path)
    finished = sweep_of(TEXT, tmp_path)
    # A master that does not exist would be complained about.
    run_sweep(finished, SessionOptions(master="nowhere://"), ignore)
    assert pq.read_table(tmp_path / "results" / "experiment=try" / "results.parquet").num_rows == 8


def test_an_experiment_has_one_set_of_parameters(tmp_path: Path) -> None:
    with held(sweep_of(TEXT, tmp_path).grid, tmp_path):
        pass
    other = sweep_of(TEXT + "network.loss = [0.0]\n", tmp_path)
    with pytest.raises(UsageError, match="give the experiment another name"), held(other.grid, tmp_path):
        pass


def test_two_sweeps_do_not_write_to_one_directory(tmp_path: Path) -> None:
    grid = sweep_of(TEXT, tmp_path).grid
    with held(grid, tmp_path), pytest.raises(PeerError, match="another command is writing"), held(grid, tmp_path):
        pass


def test_what_dead_sweeps_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ATTEMPTS / "7-dead"
    left.mkdir(parents=True)
    with held(sweep_of(TEXT, tmp_path).grid, tmp_path):
        assert not left.exists()


def test_the_largest_cells_come_first_and_small_ones_share_a_task() -> None:
    text = TEXT.replace("[4, 8]", "[4, 2048, 8, 1024]").replace("seeds = [1, 2]", "repetitions = 50")
    cells = parse_grid(text, Path("grid.toml")).cells
    tasks = into_tasks(cells, 2)
    assert sorted(cell.number for task in tasks for cell in task) == list(range(400))
    firsts = [task[0].work for task in tasks]
    assert firsts == sorted(firsts, reverse=True)
    assert [len(task) for task in tasks[:200]] == [1] * 200, "each large cell has a task of its own"
    assert len(tasks) < 210


def test_few_small_cells_still_keep_every_core_busy() -> None:
    cells = parse_grid(TEXT, Path("grid.toml")).cells
    assert len(into_tasks(cells, 2)) >= 4


def test_results_of_mixed_numbers_are_one_column(tmp_path: Path) -> None:
    sweep = sweep_of(TEXT + "network.loss = [0, 0.5]\n", tmp_path)
    for cell in sweep.left():
        sweep.records[cell.number] = run_cell(cell, tmp_path)
    table = pq.read_table(write_results(sweep))
    assert set(table.column("network_loss").to_pylist()) == {0.0, 0.5}
